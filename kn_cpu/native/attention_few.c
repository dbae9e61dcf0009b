// Attention of a few rows that share keys and values, which are read once for all of them.
#include "attention.h"

enum { LINE = 16, AHEAD = 16 }; // floats of a cache line; keys that are fetched before their turn

typedef struct {
    const attention_t *t;
    int64_t query;
    float *scores, *bias; // [BLOCK]
    float *q;             // [size], with the scale, filled up with zeros to whole vectors
    float *out;           // [value_size]
    float top, sum;       // the maximum and the sum so far
    int seen;             // whether it sees a key
} state;

// ---- scores -------------------------------------------------------------------------------------

// scores[j] = key j times q, for keys whose elements lie side by side
INL void dense_scores(const state *s, const int rows, const float *k, int64_t row, int64_t count) {
    const int64_t size = s->t->size;
    for (int64_t j = 0; j < count; j += VF) {
        vf x[FEW][VF];
        for (int64_t r = 0; r < VF; r++) {
            const float *key = k + kn_least(j + r, count - 1) * row;
            for (int64_t d = 0; d < size; d += LINE) __builtin_prefetch(key + AHEAD * row + d);
            vf a[FEW] = {{0}}, b[FEW] = {{0}};
            int64_t d = 0;
            for (; d + 2 * VF <= size; d += 2 * VF) {
                vf y = ld(key + d), z = ld(key + d + VF);
                _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++) {
                    a[i] += y * ld(s[i].q + d);
                    b[i] += z * ld(s[i].q + d + VF);
                }
            }
            for (; d < size; d += VF) {
                vf y = ld_count(key + d, size - d);
                _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++) a[i] += y * ld(s[i].q + d);
            }
            _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++) x[i][r] = a[i] + b[i];
        }
        for (int i = 0; i < rows; i++) st_count(s[i].scores + j, kn_vector_sums(x[i]), count - j);
    }
}

static void strided_scores(const state *s, const float *k, int64_t row, int64_t col, int64_t count) {
    for (int64_t j = 0; j < count; j++) s->scores[j] = 0;
    for (int64_t d = 0; d < s->t->size; d++) {
        const float *x = k + d * col;
        if (row == 1)
            for (int64_t j = 0; j < count; j++) s->scores[j] += s->q[d] * x[j];
        else
            for (int64_t j = 0; j < count; j++) s->scores[j] += s->q[d] * x[j * row];
    }
}

static void all_scores(const state *s, int64_t rows, int64_t from, int64_t count) {
    const int64_t row = s->t->n[KN_ATT_K + 2], col = s->t->n[KN_ATT_K + 3];
    const float *k = s->t->k + from * row;
    for (int64_t i = 0; col != 1 && i < rows; i++) strided_scores(s + i, k, row, col, count);
    if (col == 1) switch (rows) {
        case 1: dense_scores(s, 1, k, row, count); break;
        case 2: dense_scores(s, 2, k, row, count); break;
        case 3: dense_scores(s, 3, k, row, count); break;
        default: dense_scores(s, 4, k, row, count);
        }
}

// ---- values -------------------------------------------------------------------------------------

// out += the values, weighted; `wide` vectors of each are done at a time
INL void dense_values(const state *s, const int rows, const int wide, const float *v, int64_t row, int64_t count,
                      int64_t d) {
    vf sum[FEW][4];
    for (int i = 0; i < rows; i++)
        for (int w = 0; w < wide; w++) sum[i][w] = ld(s[i].out + d + w * VF);
    for (int64_t j = 0; j < count; j++) {
        const float *x = v + j * row + d;
        _Pragma("GCC unroll 4") for (int w = 0; w < wide; w++) {
            __builtin_prefetch(x + AHEAD * row + w * VF);
            vf y = ld(x + w * VF);
            _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++) sum[i][w] += set1(s[i].scores[j]) * y;
        }
    }
    for (int i = 0; i < rows; i++)
        for (int w = 0; w < wide; w++) st(s[i].out + d + w * VF, sum[i][w]);
}

INL void rows_values(const state *s, const int rows, const float *v, int64_t row, int64_t count) {
    const int64_t size = s->t->value_size;
    int64_t d = 0;
    for (; d + 4 * VF <= size; d += 4 * VF) dense_values(s, rows, 4, v, row, count, d);
    for (; d + 2 * VF <= size; d += 2 * VF) dense_values(s, rows, 2, v, row, count, d);
    for (; d + VF <= size; d += VF) dense_values(s, rows, 1, v, row, count, d);
    for (int i = 0; d < size && i < rows; i++) {
        vf a = ld_part(s[i].out + d, size - d);
        for (int64_t j = 0; j < count; j++) a += set1(s[i].scores[j]) * ld_part(v + j * row + d, size - d);
        st_part(s[i].out + d, a, size - d);
    }
}

static void all_values(const state *s, int64_t rows, int64_t from, int64_t count) {
    const int64_t row = s->t->n[KN_ATT_V + 2], col = s->t->n[KN_ATT_V + 3];
    const float *v = s->t->v + from * row;
    for (int64_t i = 0; col != 1 && i < rows; i++)
        for (int64_t d = 0; d < s->t->value_size; d++)
            for (int64_t j = 0; j < count; j++) s[i].out[d] += s[i].scores[j] * v[j * row + d * col];
    if (col == 1) switch (rows) {
        case 1: rows_values(s, 1, v, row, count); break;
        case 2: rows_values(s, 2, v, row, count); break;
        case 3: rows_values(s, 3, v, row, count); break;
        default: rows_values(s, 4, v, row, count);
        }
}

// ---- softmax ------------------------------------------------------------------------------------

// Scores become exponentials; what was summed before is brought to the new maximum.
static void soften(state *s, int64_t from, int64_t count, int masked) {
    const attention_t *t = s->t;
    int biased = t->bias || masked;
    if (t->bias) bias_row(t, s->bias, s->query, from, count);
    for (int64_t j = 0; masked && j < count; j++) {
        int64_t key = from + j - t->offset - s->query;
        float hidden = key < -t->left || key > t->right ? minus_infinity : 0.0f;
        s->bias[j] = (t->bias ? s->bias[j] : 0.0f) + hidden;
    }
    for (int64_t j = 0; j < count && (biased || t->softcap != 0.0f); j += VF) {
        int64_t some = kn_least(VF, count - j);
        vf y = capped(t, ld_count(s->scores + j, some));
        if (biased) y += ld_count(s->bias + j, some);
        st_count(s->scores + j, y, some);
    }
    s->seen |= !biased;
    for (int64_t j = 0; biased && !s->seen && j < count; j++) s->seen = !(s->bias[j] == minus_infinity);
    float before = s->top, largest = kn_row_max(s->scores, 1, count);
    s->top = largest > before ? largest : before;
    vf shift = set1(s->top == minus_infinity ? 0.0f : s->top), total = set1(0.0f);
    for (int64_t j = 0; j < count; j += VF) {
        int64_t some = kn_least(VF, count - j);
        vf y = kn_exp_below((some < VF ? ld_part_or(s->scores + j, some, minus_infinity) : ld(s->scores + j)) - shift);
        st_count(s->scores + j, y, some);
        total += y;
    }
    float factor = kn_exp_below(set1(before) - shift)[0];
    s->sum = s->sum * factor + kn_lanes_sum(total);
    for (int64_t d = 0; d < t->value_size; d++) s->out[d] *= factor;
}

void kn_attend_few(const kn_attention_row *rows, float *scratch, int64_t count) {
    const attention_t *first = &rows[0].head;
    const int64_t *qs = first->n + KN_ATT_Q, *os = first->n + KN_ATT_OUT;
    int64_t size = first->size, padded = (size + VF - 1) / VF * VF, from, stop;
    state s[FEW];
    for (int64_t i = 0; i < count; i++) {
        const attention_t *t = &rows[i].head;
        s[i] = (state){.t = t, .query = rows[i].query, .scores = scratch, .top = minus_infinity};
        s[i].bias = s[i].scores + BLOCK;
        s[i].q = s[i].bias + BLOCK;
        s[i].out = s[i].q + padded;
        scratch = s[i].out + t->value_size;
        for (int64_t d = 0; d < padded; d++) s[i].q[d] = d < size ? t->q[s[i].query * qs[2] + d * qs[3]] * t->scale : 0.0f;
        for (int64_t d = 0; d < t->value_size; d++) s[i].out[d] = 0;
    }
    visible(first, s[0].query, s[count - 1].query, &from, &stop);
    int masked = first->whole || !all_visible(first, s[0].query, s[count - 1].query, from, stop);
    for (; from < stop; from += BLOCK) {
        int64_t some = kn_least(BLOCK, stop - from);
        all_scores(s, count, from, some);
        for (int64_t i = 0; i < count; i++) soften(s + i, from, some, masked);
        all_values(s, count, from, some);
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < first->value_size; d++)
            s[i].t->out[s[i].query * os[2] + d * os[3]] = s[i].seen ? s[i].out[d] / s[i].sum : 0.0f;
}
