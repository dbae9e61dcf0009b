// Attention in cache. A unit is 64 queries of one head. Everything is turned so that queries are the
// columns of vectors: scores^T = k @ q^T and out^T = v^T @ weights^T read keys and values as they lie,
// and a softmax over keys needs no sums across lanes. Blocks of 256 keys are joined by the maximum and
// sum so far. Up to a few queries go row by row instead. See kn_attention.h.
#include "kn_attention.h"
#include "axes.h"
#include "rows.h"
#include "strided_tile.h"

#include <math.h>
#include <stddef.h>

enum { UNIT = KN_ATT_QUERIES_OF_UNIT, BLOCK = KN_ATT_KEYS_OF_BLOCK, FEW = 4 };
enum { LINE = 16, AHEAD = 16 }; // floats of a cache line; keys that are fetched before their turn

typedef struct {
    const int64_t *n;
    float *out;            // of the head at hand, as the next ones
    const float *q, *k, *v;
    const char *bias; // NULL for none
    int64_t queries, keys, size, value_size;
    int64_t left, right, offset; // query i sees keys from i + offset - left to i + offset + right
    int bounded;                 // whether left or right may hide keys
    int whole;                   // whether hidden keys are computed with, as others are
    float scale, softcap;
} attention_t;

static const float minus_infinity = -__builtin_inff();

// ---- which keys are seen ------------------------------------------------------------------------

// Keys that some of the queries [first, last] see, as far as their positions say.
static void visible(const attention_t *t, int64_t first, int64_t last, int64_t *from, int64_t *stop) {
    *from = t->whole ? 0 : kn_most(0, first + t->offset - t->left);
    *stop = t->whole ? t->keys : kn_least(t->keys, last + t->offset + t->right + 1);
}

// Whether a NaN or an infinity is among the rows [from, stop).
static int has_odd(const float *x, int64_t row, int64_t col, int64_t from, int64_t stop, int64_t size) {
    vf sum = set1(0.0f);
    for (int64_t j = from; j < stop; j++) {
        const float *at = x + j * row;
        if (col == 1)
            for (int64_t d = 0; d < size; d += VF) sum += ld_count(at + d, size - d) * set1(0.0f);
        else
            for (int64_t d = 0; d < size; d++) sum += set1(at[d * col] * 0.0f);
    }
    return kn_lanes_sum(sum) != 0.0f;
}

// Keys that some query of a unit does not see have weights of 0, and are passed over. But 0 times a NaN
// is a NaN: where there is one among them, nothing is.
static int hides_odd(const attention_t *t, int64_t first, int64_t count) {
    const int64_t *k = t->n + KN_ATT_K, *v = t->n + KN_ATT_V;
    int64_t from, stop, unused;
    if (!t->bounded) return 0;
    visible(t, first + count - 1, first + count - 1, &from, &unused);
    visible(t, first, first, &unused, &stop);
    from = kn_least(from, t->keys), stop = kn_most(0, kn_least(stop, t->keys));
    return has_odd(t->k, k[2], k[3], 0, from, t->size) || has_odd(t->k, k[2], k[3], stop, t->keys, t->size) ||
           has_odd(t->v, v[2], v[3], 0, from, t->value_size) || has_odd(t->v, v[2], v[3], stop, t->keys, t->value_size);
}

static int all_visible(const attention_t *t, int64_t first, int64_t last, int64_t from, int64_t stop) {
    return !t->bounded || (from >= last + t->offset - t->left && stop <= first + t->offset + t->right + 1);
}

// ---- tiles --------------------------------------------------------------------------------------

// out[j][i] = x[i][j] of up to VF rows and columns; whole vectors are written, with 0 beyond the rows.
static void turn_tile(float *out, int64_t step, const float *x, int64_t row, int64_t rows, int64_t cols) {
    if (rows >= VF && cols >= VF) {
        kn_transpose4((char *)out, step * 4, (const char *)x, row * 4);
        return;
    }
    float from[VF][VF], to[VF][VF];
    for (int64_t i = 0; i < VF; i++) st(from[i], i < rows ? ld_count(x + i * row, cols) : set1(0.0f));
    kn_transpose4((char *)to, VF * 4, (const char *)from, VF * 4);
    for (int64_t j = 0; j < kn_least(VF, cols); j++) st(out + j * step, ld(to[j]));
}

// The same where only what there is may be written.
static void turn_back(float *out, int64_t step, const float *x, int64_t row, int64_t rows, int64_t cols) {
    if (rows >= VF && cols >= VF) {
        kn_transpose4((char *)out, step * 4, (const char *)x, row * 4);
        return;
    }
    float from[VF][VF], to[VF][VF];
    for (int64_t i = 0; i < VF; i++) st(from[i], i < rows ? ld(x + i * row) : set1(0.0f));
    kn_transpose4((char *)to, VF * 4, (const char *)from, VF * 4);
    for (int64_t j = 0; j < kn_least(VF, cols); j++) st_count(out + j * step, ld(to[j]), rows);
}

// ---- bias ---------------------------------------------------------------------------------------

// row[j] = bias of one query and keys from + j * 1
static void bias_row(const attention_t *t, float *row, int64_t query, int64_t from, int64_t count) {
    const int64_t *stride = t->n + KN_ATT_BIAS;
    int64_t start = query * stride[2] + from * stride[3], step = stride[3];
    if (t->n[KN_ATT_BIAS_KIND] == KN_BIAS_FLOAT) {
        const float *x = (const float *)(const void *)t->bias + start;
        for (int64_t j = 0; j < count; j++) row[j] = x[j * step];
    } else {
        const char *x = t->bias + start;
        if (step == 1)
            for (int64_t j = 0; j < count; j++) row[j] = x[j] ? 0.0f : minus_infinity;
        else
            for (int64_t j = 0; j < count; j++) row[j] = x[j * step] ? 0.0f : minus_infinity;
    }
}

// tile[j][i] = bias of query first + i and key from + j, for a panel.
static void bias_tile(const attention_t *t, float *tile, int64_t first, int64_t columns, int64_t from, int64_t count) {
    float rows[VF][VF];
    const int64_t *stride = t->n + KN_ATT_BIAS;
    int shared = stride[2] == 0, dense = stride[3] == 1 && t->n[KN_ATT_BIAS_KIND] == KN_BIAS_FLOAT;
    for (int64_t j = 0; j < count; j += VF) {
        int64_t some = kn_least(VF, count - j);
        if (shared) {
            bias_row(t, rows[0], first, from + j, some);
            for (int64_t s = 0; s < some; s++) {
                st(tile + (j + s) * KN_PANEL, set1(rows[0][s]));
                st(tile + (j + s) * KN_PANEL + VF, set1(rows[0][s]));
            }
            continue;
        }
        for (int64_t i = 0; i < columns; i += VF) {
            if (dense) {
                const float *x = (const float *)(const void *)t->bias + (first + i) * stride[2] + from + j;
                turn_tile(tile + j * KN_PANEL + i, KN_PANEL, x, stride[2], columns - i, some);
                continue;
            }
            for (int64_t r = 0; r < VF; r++) // columns beyond the last repeat it: nobody reads them
                bias_row(t, rows[r], first + kn_least(i + r, columns - 1), from + j, some);
            float *target = tile + j * KN_PANEL + i;
            if (some == VF)
                kn_transpose4((char *)target, KN_PANEL * 4, (const char *)rows, VF * 4);
            else
                for (int64_t s = 0; s < some; s++)
                    for (int64_t r = 0; r < VF; r++) target[s * KN_PANEL + r] = rows[r][s];
        }
    }
}

// Makes what positions hide minus infinity in a tile, which is 0 before where it is fresh.
static void hide(const attention_t *t, float *tile, int64_t first, int64_t from, int64_t count, int fresh) {
    vi lanes = kn_lanes();
    for (int64_t j = 0; j < count; j++) {
        // key from + j is seen by queries first + i with low <= i <= high
        int64_t key = from + j - t->offset - first;
        int64_t low = kn_most(-1, kn_least(KN_PANEL, key - t->right));
        int64_t high = kn_most(-1, kn_least(KN_PANEL, key + t->left));
        for (int64_t i = 0; i < KN_PANEL; i += VF) {
            vi at = lanes + (int32_t)i;
            vi seen = (at >= (int32_t)low) & (at <= (int32_t)high);
            vf bias = vselect(seen, set1(0.0f), set1(minus_infinity));
            float *target = tile + j * KN_PANEL + i;
            st(target, fresh ? bias : ld(target) + bias);
        }
    }
}

// ---- panels -------------------------------------------------------------------------------------

typedef struct {
    float *q;      // [size][KN_PANEL], with the scale
    float *out;    // [value_size][KN_PANEL]
    float *top;    // [KN_PANEL], the maximum so far
    float *sum;    // [KN_PANEL]
    float *seen;   // [KN_PANEL], as a mask
    float *scores; // [BLOCK][KN_PANEL]
    float *bias;   // [BLOCK][KN_PANEL]
    int64_t first, columns;
    int narrow, fresh;
} panel_t;

static void load_queries(const attention_t *t, panel_t *p) {
    int64_t row = t->n[KN_ATT_Q + 2], col = t->n[KN_ATT_Q + 3];
    const float *x = t->q + p->first * row;
    for (int64_t i = 0; i < KN_PANEL; i += VF) {
        int64_t some = kn_most(0, kn_least(VF, p->columns - i));
        for (int64_t d = 0; col == 1 && d < t->size; d += VF)
            turn_tile(p->q + d * KN_PANEL + i, KN_PANEL, x + i * row + d, row, some, t->size - d);
        for (int64_t d = 0; col != 1 && d < t->size; d++)
            for (int64_t c = 0; c < VF; c++) p->q[d * KN_PANEL + i + c] = c < some ? x[(i + c) * row + d * col] : 0.0f;
    }
    vf scale = set1(t->scale);
    for (int64_t i = 0; i < t->size * KN_PANEL; i += VF) st(p->q + i, ld(p->q + i) * scale);
    for (int64_t i = 0; i < KN_PANEL; i++) {
        p->top[i] = minus_infinity;
        p->sum[i] = p->seen[i] = 0;
    }
}

static void store_panel(const attention_t *t, const panel_t *p) {
    int64_t row = t->n[KN_ATT_OUT + 2], col = t->n[KN_ATT_OUT + 3];
    float *out = t->out + p->first * row;
    for (int64_t i = 0; i < p->columns; i += VF) {
        vf sum = ld(p->sum + i);
        vi seen = (vi)ld(p->seen + i);
        vf factor = set1(1.0f) / sum;
        for (int64_t d = 0; d < t->value_size; d++) {
            float *x = p->out + d * KN_PANEL + i;
            st(x, vselect(seen, ld(x) * factor, set1(0.0f)));
        }
        int64_t some = kn_least(VF, p->columns - i);
        for (int64_t d = 0; col == 1 && d < t->value_size; d += VF)
            turn_back(out + i * row + d, row, p->out + d * KN_PANEL + i, KN_PANEL, t->value_size - d, some);
        for (int64_t c = 0; col != 1 && c < some; c++)
            for (int64_t d = 0; d < t->value_size; d++) out[(i + c) * row + d * col] = p->out[d * KN_PANEL + i + c];
    }
}

INL vf capped(const attention_t *t, vf x) {
    return t->softcap == 0.0f ? x : vtanh(x / set1(t->softcap)) * set1(t->softcap);
}

// Cap, bias and the maximum of VF columns; returns which of them see a key.
INL vf finish_scores(const attention_t *t, float *scores, const float *bias, int64_t count, vi *seen) {
    vf a = set1(minus_infinity), b = a;
    if (t->softcap == 0.0f && !bias) {
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            a = vmax_second(a, ld(scores + j * KN_PANEL));
            b = vmax_second(b, ld(scores + (j + 1) * KN_PANEL));
        }
        if (j < count) a = vmax_second(a, ld(scores + j * KN_PANEL));
        *seen = set1i(-1);
        return vmax_second(a, b);
    }
    for (int64_t j = 0; j < count; j++) {
        vf y = capped(t, ld(scores + j * KN_PANEL));
        if (bias) {
            vf z = ld(bias + j * KN_PANEL);
            *seen |= ~(z == set1(minus_infinity));
            y += z;
        } else {
            *seen = set1i(-1);
        }
        st(scores + j * KN_PANEL, y);
        a = vmax_second(a, y);
    }
    return a;
}

// Scores become exponentials; what was summed before is brought to the new maximum.
static void soften(const attention_t *t, panel_t *p, const float *bias, int64_t count) {
    for (int64_t i = 0; i < (p->narrow ? VF : KN_PANEL); i += VF) {
        float *scores = p->scores + i;
        vi seen = (vi)ld(p->seen + i);
        vf before = ld(p->top + i), top = vmax_second(finish_scores(t, scores, bias ? bias + i : NULL, count, &seen), before);
        // no key so far: any finite number will do, the exponentials are 0
        vf shift = vselect(top == set1(minus_infinity), set1(0.0f), top);
        vf a = set1(0.0f), b = a;
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            vf y = kn_exp_below(ld(scores + j * KN_PANEL) - shift);
            vf z = kn_exp_below(ld(scores + (j + 1) * KN_PANEL) - shift);
            st(scores + j * KN_PANEL, y);
            st(scores + (j + 1) * KN_PANEL, z);
            a += y;
            b += z;
        }
        if (j < count) {
            vf y = kn_exp_below(ld(scores + j * KN_PANEL) - shift);
            st(scores + j * KN_PANEL, y);
            a += y;
        }
        vf factor = kn_exp_below(before - shift);
        st(p->top + i, top);
        st(p->sum + i, p->fresh ? a + b : ld(p->sum + i) * factor + (a + b));
        st(p->seen + i, (vf)seen);
        if (!p->fresh)
            for (int64_t d = 0; d < t->value_size; d++) {
                float *x = p->out + d * KN_PANEL + i;
                st(x, ld(x) * factor);
            }
    }
}

// One panel against one block of keys.
static void attend(const attention_t *t, panel_t *p, int64_t from, int64_t count) {
    const int64_t *k = t->n + KN_ATT_K, *v = t->n + KN_ATT_V;
    kn_panel_product(p->scores, t->k + from * k[2], k[2], k[3], p->q, count, t->size, p->narrow, 1);
    float *bias = NULL;
    if (t->bias) {
        bias = p->bias;
        bias_tile(t, bias, p->first, p->columns, from, count);
    }
    if (!all_visible(t, p->first, p->first + p->columns - 1, from, from + count)) {
        hide(t, p->bias, p->first, from, count, bias == NULL);
        bias = p->bias;
    }
    soften(t, p, bias, count);
    kn_panel_product(p->out, t->v + from * v[2], v[3], v[2], p->scores, t->value_size, count, p->narrow, p->fresh);
    p->fresh = 0;
}

static void attend_unit(const attention_t *t, float *scratch, int64_t first, int64_t count) {
    panel_t panels[UNIT / KN_PANEL];
    int64_t used = (count + KN_PANEL - 1) / KN_PANEL, from, stop;
    float *scores = scratch, *bias = scores + BLOCK * KN_PANEL, *rest = bias + BLOCK * KN_PANEL;
    for (int64_t i = 0; i < used; i++) {
        panel_t *p = panels + i;
        *p = (panel_t){.scores = scores, .bias = bias, .first = first + i * KN_PANEL, .fresh = 1};
        p->columns = kn_least(KN_PANEL, count - i * KN_PANEL);
        p->narrow = p->columns <= VF;
        p->top = rest;
        p->sum = p->top + KN_PANEL;
        p->seen = p->sum + KN_PANEL;
        p->q = p->seen + KN_PANEL;
        p->out = p->q + t->size * KN_PANEL;
        rest = p->out + t->value_size * KN_PANEL;
        load_queries(t, p);
    }
    visible(t, first, first + count - 1, &from, &stop);
    for (; from < stop; from += BLOCK)
        for (int64_t i = 0; i < used; i++) {
            int64_t low, high;
            visible(t, panels[i].first, panels[i].first + panels[i].columns - 1, &low, &high);
            low = kn_most(low, from);
            high = kn_least(high, kn_least(stop, from + BLOCK));
            if (low < high) attend(t, panels + i, low, high - low);
        }
    for (int64_t i = 0; i < used; i++) store_panel(t, panels + i);
}

// ---- few queries: row by row --------------------------------------------------------------------

// scores[j] = key from + j times q, which is padded with zeros
static void row_scores(const attention_t *t, float *scores, const float *q, int64_t from, int64_t count) {
    int64_t row = t->n[KN_ATT_K + 2], col = t->n[KN_ATT_K + 3], size = t->size;
    const float *k = t->k + from * row;
    if (col == 1) {
        for (int64_t j = 0; j < count; j += VF) {
            vf x[VF];
            for (int64_t r = 0; r < VF; r++) {
                const float *key = k + kn_least(j + r, count - 1) * row;
                for (int64_t d = 0; d < size; d += LINE) __builtin_prefetch(key + AHEAD * row + d);
                vf a = set1(0.0f), b = a;
                int64_t d = 0;
                for (; d + 2 * VF <= size; d += 2 * VF) {
                    a += ld(key + d) * ld(q + d);
                    b += ld(key + d + VF) * ld(q + d + VF);
                }
                if (d + VF <= size) {
                    a += ld(key + d) * ld(q + d);
                    d += VF;
                }
                if (d < size) b += ld_part(key + d, size - d) * ld(q + d);
                x[r] = a + b;
            }
            st_count(scores + j, kn_vector_sums(x), count - j);
        }
        return;
    }
    for (int64_t j = 0; j < count; j++) scores[j] = 0;
    for (int64_t d = 0; d < size; d++) {
        const float *x = k + d * col;
        if (row == 1)
            for (int64_t j = 0; j < count; j++) scores[j] += q[d] * x[j];
        else
            for (int64_t j = 0; j < count; j++) scores[j] += q[d] * x[j * row];
    }
}

// out[..] += the values from `from` on, weighted
static void row_values(const attention_t *t, float *out, const float *weights, int64_t from, int64_t count) {
    int64_t row = t->n[KN_ATT_V + 2], col = t->n[KN_ATT_V + 3];
    const float *v = t->v + from * row;
    int64_t d = 0;
    for (; col == 1 && d + 4 * VF <= t->value_size; d += 4 * VF) {
        vf a = ld(out + d), b = ld(out + d + VF), c = ld(out + d + 2 * VF), e = ld(out + d + 3 * VF);
        for (int64_t j = 0; j < count; j++) {
            const float *x = v + j * row + d;
            vf w = set1(weights[j]);
            for (int64_t i = 0; i < 4 * VF; i += LINE) __builtin_prefetch(x + AHEAD * row + i);
            a += w * ld(x);
            b += w * ld(x + VF);
            c += w * ld(x + 2 * VF);
            e += w * ld(x + 3 * VF);
        }
        st(out + d, a), st(out + d + VF, b), st(out + d + 2 * VF, c), st(out + d + 3 * VF, e);
    }
    for (; col == 1 && d < t->value_size; d += VF) {
        int64_t some = t->value_size - d;
        vf a = ld_count(out + d, some);
        for (int64_t j = 0; j < count; j++) a += set1(weights[j]) * ld_count(v + j * row + d, some);
        st_count(out + d, a, some);
    }
    for (; d < t->value_size; d++)
        for (int64_t j = 0; j < count; j++) out[d] += weights[j] * v[j * row + d * col];
}

static void attend_row(const attention_t *t, float *scratch, int64_t query) {
    int64_t from, stop, padded = (t->size + VF - 1) / VF * VF;
    float *scores = scratch, *bias = scores + BLOCK, *q = bias + BLOCK, *out = q + padded;
    const int64_t *qs = t->n + KN_ATT_Q, *os = t->n + KN_ATT_OUT;
    for (int64_t d = 0; d < padded; d++) q[d] = d < t->size ? t->q[query * qs[2] + d * qs[3]] * t->scale : 0.0f;
    for (int64_t d = 0; d < t->value_size; d++) out[d] = 0;
    float top = minus_infinity, sum = 0;
    int seen = 0, biased = t->bias || t->whole;
    visible(t, query, query, &from, &stop);
    for (; from < stop; from += BLOCK) {
        int64_t count = kn_least(BLOCK, stop - from);
        row_scores(t, scores, q, from, count);
        if (t->bias) bias_row(t, bias, query, from, count);
        for (int64_t j = 0; t->whole && j < count; j++) { // as in `hide`
            int64_t key = from + j - t->offset - query;
            bias[j] = (t->bias ? bias[j] : 0.0f) + (key < -t->left || key > t->right ? minus_infinity : 0.0f);
        }
        for (int64_t j = 0; j < count; j += VF) {
            int64_t some = kn_least(VF, count - j);
            vf y = capped(t, ld_count(scores + j, some));
            if (biased) y += ld_count(bias + j, some);
            st_count(scores + j, y, some);
        }
        seen |= !biased;
        for (int64_t j = 0; biased && !seen && j < count; j++) seen = !(bias[j] == minus_infinity);
        float before = top, largest = kn_row_max(scores, 1, count);
        top = largest > before ? largest : before;
        float shift = top == minus_infinity ? 0.0f : top;
        vf total = set1(0.0f);
        for (int64_t j = 0; j < count; j += VF) {
            int64_t some = kn_least(VF, count - j);
            vf y = kn_exp_below((some < VF ? ld_part_or(scores + j, some, minus_infinity) : ld(scores + j)) - set1(shift));
            st_count(scores + j, y, some);
            total += y;
        }
        float factor = kn_exp_below(set1(before - shift))[0];
        sum = sum * factor + kn_lanes_sum(total);
        for (int64_t d = 0; d < t->value_size; d++) out[d] *= factor;
        row_values(t, out, scores, from, count);
    }
    for (int64_t d = 0; d < t->value_size; d++)
        t->out[query * os[2] + d * os[3]] = seen ? out[d] / sum : 0.0f;
}

// ---- units --------------------------------------------------------------------------------------

static void head_at(attention_t *t, char *const *p, int64_t batch, int64_t head) {
    const int64_t *n = t->n;
    int64_t shared = head / (n[KN_ATT_HEADS] / n[KN_ATT_KV_HEADS]);
    t->out = (float *)(void *)p[0] + batch * n[KN_ATT_OUT] + head * n[KN_ATT_OUT + 1];
    t->q = (const float *)(const void *)p[1] + batch * n[KN_ATT_Q] + head * n[KN_ATT_Q + 1];
    t->k = (const float *)(const void *)p[2] + batch * n[KN_ATT_K] + shared * n[KN_ATT_K + 1];
    t->v = (const float *)(const void *)p[3] + batch * n[KN_ATT_V] + shared * n[KN_ATT_V + 1];
    int64_t bytes = n[KN_ATT_BIAS_KIND] == KN_BIAS_FLOAT ? 4 : 1;
    if (n[KN_ATT_BIAS_KIND]) t->bias = p[4] + (batch * n[KN_ATT_BIAS] + head * n[KN_ATT_BIAS + 1]) * bytes;
    t->offset = n[KN_ATT_OFFSET];
    t->keys = n[KN_ATT_KEYS];
    if (p[5]) {
        int64_t length = ((const int64_t *)(const void *)p[5])[batch];
        t->offset = length - t->queries;
        t->keys = kn_most(0, kn_least(t->keys, length));
    }
}

static void attention(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const int64_t far = (int64_t)1 << 40; // no position is beyond it
    attention_t t = {.n = n, .queries = n[KN_ATT_QUERIES], .size = n[KN_ATT_SIZE], .value_size = n[KN_ATT_VALUE_SIZE]};
    t.left = n[KN_ATT_HAS_LEFT] ? kn_least(far, n[KN_ATT_LEFT]) : far;
    t.right = n[KN_ATT_HAS_RIGHT] ? kn_least(far, n[KN_ATT_RIGHT]) : far;
    t.bounded = n[KN_ATT_HAS_LEFT] || n[KN_ATT_HAS_RIGHT];
    t.scale = n[KN_ATT_HAS_SCALE] ? kn_float(n[KN_ATT_SCALE]) : t.size ? (float)(1 / sqrt((double)t.size)) : 0.0f;
    t.softcap = kn_float(n[KN_ATT_SOFTCAP]);
    int64_t heads = n[KN_ATT_HEADS], blocks = (t.queries + UNIT - 1) / UNIT;
    for (int64_t unit = begin; unit < end; unit++) {
        if (n[KN_ATT_BATCH] * heads * t.queries == 0) return;
        head_at(&t, p, unit / blocks / heads, unit / blocks % heads);
        int64_t first = unit % blocks * UNIT, count = kn_least(UNIT, t.queries - first);
        t.whole = 0;
        t.whole = hides_odd(&t, first, count);
        if (count > FEW)
            attend_unit(&t, (float *)(void *)scratch, first, count);
        else
            for (int64_t i = 0; i < count; i++) attend_row(&t, (float *)(void *)scratch, first + i);
    }
}

const kn_entry kn_attention_entries[] = {{"attention_f32", attention}, {NULL, NULL}};
