// Products of a few rows with packed recurrent weights: every step of a sequence reads all of them.
//
// As in product.c, accumulators are variables with names, so that they stay in registers.
#include "kn_recurrent.h"

typedef struct {
    const float *const *rows;
    const float *right; // [depth][vectors of the panel]
    int64_t depth;
    float *sums;
    int64_t step; // from row to row of the sums
} tile;
typedef void (*micro)(const tile *);

#define ROWS_1(X, w) X(0, w)
#define ROWS_2(X, w) ROWS_1(X, w) X(1, w)
#define ROWS_3(X, w) ROWS_2(X, w) X(2, w)
#define ROWS_4(X, w) ROWS_3(X, w) X(3, w)
#define ROWS_5(X, w) ROWS_4(X, w) X(4, w)
#define ROWS_6(X, w) ROWS_5(X, w) X(5, w)
#define VECTORS_1(X, n, m) X(0, n, m)
#define VECTORS_2(X, n, m) VECTORS_1(X, n, m) X(1, n, m)
#define VECTORS_3(X, n, m) VECTORS_2(X, n, m) X(2, n, m)
#define VECTORS_4(X, n, m) VECTORS_3(X, n, m) X(3, n, m)

#define POINT(i, unused) const float *p##i = t->rows[i];
#define DECLARE(i, w) vf s##i##w = {0};
#define SPREAD(i, unused) vf a##i = set1(p##i[k]);
#define MULTIPLY(i, w) s##i##w += a##i * x;
#define KEEP(i, w) st(t->sums + i * t->step + w * VF, s##i##w);

#define DECLARE_ALL(w, n, m) ROWS_##n(DECLARE, w)
#define MULTIPLY_ALL(w, n, m)                                                                            \
    {                                                                                                    \
        vf x = ld(right + w * VF);                                                                       \
        ROWS_##n(MULTIPLY, w)                                                                            \
    }
#define KEEP_ALL(w, n, m) ROWS_##n(KEEP, w)

#define SEVERAL(n, m)                                                                                    \
    static void rows_##n##_##m(const tile *t) {                                                          \
        const float *right = t->right;                                                                   \
        const int64_t depth = t->depth;                                                                  \
        ROWS_##n(POINT, 0) VECTORS_##m(DECLARE_ALL, n, m) for (int64_t k = 0; k < depth;                 \
                                                               k++, right += m * VF) {                   \
            ROWS_##n(SPREAD, 0) VECTORS_##m(MULTIPLY_ALL, n, m)                                          \
        }                                                                                                \
        VECTORS_##m(KEEP_ALL, n, m)                                                                      \
    }

// One row: neighbours in depth have sums of their own, so that additions need not wait for each other.
#if defined(__AVX512F__)
#define WAYS 4
#define EACH_WAY(X, w) ROWS_4(X, w)
#define TOTAL(w) ((s0##w + s1##w) + (s2##w + s3##w))
#else
#define WAYS 2
#define EACH_WAY(X, w) ROWS_2(X, w)
#define TOTAL(w) (s0##w + s1##w)
#endif
#define DECLARE_WAYS(w, n, m) EACH_WAY(DECLARE, w)
#define SPREAD_WAY(q, unused) vf a##q = set1(p[k + q]);
#define MULTIPLY_ONE(w, q, m) s##q##w += a##q * ld(right + (q * m + w) * VF);
#define MULTIPLY_WAY(q, m) VECTORS_##m(MULTIPLY_ONE, q, m) // in the order of the memory
#define MULTIPLY_LAST(w, n, m) s0##w += a * ld(right + w * VF);
#define KEEP_TOTAL(w, n, m) st(t->sums + w * VF, TOTAL(w));

#define ONE(m)                                                                                           \
    static void rows_1_##m(const tile *t) {                                                              \
        const float *right = t->right, *p = t->rows[0];                                                  \
        const int64_t depth = t->depth;                                                                  \
        VECTORS_##m(DECLARE_WAYS, 1, m) int64_t k = 0;                                                   \
        for (; k + WAYS <= depth; k += WAYS, right += WAYS * m * VF) {                                   \
            EACH_WAY(SPREAD_WAY, 0) EACH_WAY(MULTIPLY_WAY, m)                                      \
        }                                                                                                \
        for (; k < depth; k++, right += m * VF) {                                                        \
            vf a = set1(p[k]);                                                                           \
            VECTORS_##m(MULTIPLY_LAST, 1, m)                                                             \
        }                                                                                                \
        VECTORS_##m(KEEP_TOTAL, 1, m)                                                                    \
    }

ONE(1)
ONE(2)
ONE(3)
ONE(4)
#define SEVERAL_ROWS(n) SEVERAL(n, 1) SEVERAL(n, 2) SEVERAL(n, 3) SEVERAL(n, 4)
#define TABLE(n) {0, rows_##n##_1, rows_##n##_2, rows_##n##_3, rows_##n##_4}
SEVERAL_ROWS(2)
#if KN_ROWS >= 3
SEVERAL_ROWS(3)
#endif
#if KN_ROWS == 6
SEVERAL_ROWS(4)
SEVERAL_ROWS(5)
SEVERAL_ROWS(6)
#endif
static const micro products[KN_ROWS + 1][KN_PANEL + 1] = {
    {0}, TABLE(1), TABLE(2),
#if KN_ROWS >= 3
    TABLE(3),
#endif
#if KN_ROWS == 6
    TABLE(4), TABLE(5), TABLE(6),
#endif
};

void kn_recurrent_product(const kn_recurrent_columns *c, const float *const *rows, int64_t count, float *sums,
                          int64_t step, int64_t turn) {
    const int64_t panels = kn_ceil_div(c->vectors, c->panel), blocks = kn_ceil_div(count, KN_ROWS);
    const int64_t height = kn_ceil_div(count, blocks); // blocks of nearly equal height
    for (int64_t j = 0; j < panels; j++) {
        const int64_t v = (turn & 1 ? panels - 1 - j : j) * c->panel, wide = kn_min(c->panel, c->vectors - v);
        for (int64_t i = 0; i < count; i += height) {
            const tile t = {rows + i, c->packed + v * c->depth * VF, c->depth, sums + i * step + v * VF, step};
            products[kn_min(height, count - i)][wide](&t);
        }
    }
}

// ---- packing --------------------------------------------------------------------------------

// The vectors [begin, begin + count) of a part.
static void pack_panel(const kn_recurrent_pack *s, const float *r, kn_part part, int64_t begin, int64_t count,
                       float *to) {
    const int64_t step = count * VF;
    for (int64_t v = begin; v < begin + count; v++, to += VF) {
        const int64_t gate = part.first + v % part.count, unit = v / part.count * VF;
        const int64_t units = kn_min(VF, s->hidden - unit);
        for (int64_t k = 0; units < VF && k < s->hidden; k++) st(to + k * step, (vf){0});
        kn_copy_block(to, step, r + (gate * s->hidden + unit) * s->r[1], s->r[2], s->r[1], s->hidden, units);
    }
}

void kn_recurrent_pack_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_recurrent_pack *s = (const void *)n;
    const int64_t width = kn_width(s->hidden), size = kn_gates(s->kind) * width * s->hidden;
    (void)scratch;
    kn_part parts[2];
    const int count = kn_parts(s->kind, s->linear_before_reset, parts);
    for (int64_t d = begin; d < end; d++) {
        const float *r = (const float *)(const void *)p[0] + d * s->r[0];
        float *to = (float *)(void *)p[1] + d * size;
        for (int i = 0; i < count; i++) {
            const int64_t vectors = width / VF * parts[i].count, panel = kn_panel_vectors(parts[i].count);
            for (int64_t v = 0; v < vectors; v += panel) {
                const int64_t wide = kn_min(panel, vectors - v);
                pack_panel(s, r, parts[i], v, wide, to);
                to += wide * s->hidden * VF;
            }
        }
    }
}
