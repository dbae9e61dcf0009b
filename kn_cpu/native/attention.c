// Attention in cache. A unit is 64 queries of one head. Everything is turned so that queries are the
// columns of vectors: scores^T = k @ q^T and out^T = v^T @ weights^T read keys and values as they lie,
// and a softmax over keys needs no sums across lanes. Blocks of 256 keys are joined by the maximum and
// sum so far. A few queries go row by row instead: attention_few.c. See kn_attention.h.
#include "attention.h"
#include "strided_tile.h"

#if defined(__AVX512F__) && !defined(__clang__)
// what several vectors need is mixed, so that none waits for its own results
#define MIXED __attribute__((optimize("schedule-insns", "sched-pressure")))
#else
#define MIXED
#endif

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

// A column of scores becomes exponentials, whose sum is returned.
MIXED static vf power_column(float *scores, int64_t count, vf shift) {
    vf a = set1(0.0f), b = a;
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) {
        float *at = scores + j * KN_PANEL;
        vf w = ld(at), x = ld(at + KN_PANEL), y = ld(at + 2 * KN_PANEL), z = ld(at + 3 * KN_PANEL);
        w = kn_exp_below(w - shift), x = kn_exp_below(x - shift);
        y = kn_exp_below(y - shift), z = kn_exp_below(z - shift);
        st(at, w), st(at + KN_PANEL, x), st(at + 2 * KN_PANEL, y), st(at + 3 * KN_PANEL, z);
        a += w + x;
        b += y + z;
    }
    for (; j < count; j++) {
        vf y = kn_exp_below(ld(scores + j * KN_PANEL) - shift);
        st(scores + j * KN_PANEL, y);
        a += y;
    }
    return a + b;
}

// Scores become exponentials; what was summed before is brought to the new maximum.
static void soften(const attention_t *t, panel_t *p, const float *bias, int64_t count) {
    for (int64_t i = 0; i < (p->narrow ? VF : KN_PANEL); i += VF) {
        float *scores = p->scores + i;
        vi seen = (vi)ld(p->seen + i);
        vf before = ld(p->top + i), top = vmax_second(finish_scores(t, scores, bias ? bias + i : NULL, count, &seen), before);
        // no key so far: any finite number will do, the exponentials are 0
        vf shift = vselect(top == set1(minus_infinity), set1(0.0f), top);
        vf sum = power_column(scores, count, shift);
        vf factor = kn_exp_below(before - shift);
        st(p->top + i, top);
        st(p->sum + i, p->fresh ? sum : ld(p->sum + i) * factor + sum);
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

// A few queries of a head; a single one together with those of heads that share its keys.
static void attend_few(const attention_t *t, char *const *p, float *scratch, int64_t number, int64_t first, int64_t count) {
    int64_t heads = t->n[KN_ATT_HEADS], shared = heads / t->n[KN_ATT_KV_HEADS], together = count == 1 ? FEW : 1;
    while (shared % together) together--;
    if (number % heads % together) return; // done with an earlier head
    kn_attention_row rows[FEW];
    for (int64_t i = 0; i < kn_most(count, together); i++) {
        rows[i].head = *t;
        rows[i].query = count == 1 ? first : first + i;
        if (count == 1) head_at(&rows[i].head, p, number / heads, number % heads + i);
    }
    kn_attend_few(rows, scratch, kn_most(count, together));
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
            attend_few(&t, p, (float *)(void *)scratch, unit / blocks, first, count);
    }
}

const kn_entry kn_attention_entries[] = {{"attention_f32", attention}, {NULL, NULL}};
