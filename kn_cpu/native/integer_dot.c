// The micro-kernels of integers: sums stay in registers for the whole depth.
//
// The sums are variables with names, for the same reason as in product.c. Rows lie evenly, so that
// four pointers and a step reach twelve of them.
#include "each.h"
#include "integer.h"

INL vi group_at(const char *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return set1i(four);
}

INL vi dot_16(vi sum, vi a, vi b, vi flip) {
    (void)flip;
    return kn_dot_pairs(sum, a, b);
}
#if KN_HAS_QUADS
INL vi dot_s8(vi sum, vi a, vi b, vi flip) { return kn_dot_quads(sum, a ^ flip, b); }
INL vi dot_u8(vi sum, vi a, vi b, vi flip) { return kn_dot_quads(sum, b, a ^ flip); }
#endif

#define ROW_0 p0
#define ROW_1 p0 + step
#define ROW_2 p0 + 2 * step
#define ROW_3 p3
#define ROW_4 p3 + step
#define ROW_5 p3 + 2 * step
#define ROW_6 p6
#define ROW_7 p6 + step
#define ROW_8 p6 + 2 * step
#define ROW_9 p9
#define ROW_10 p9 + step
#define ROW_11 p9 + 2 * step

#define DECLARE(i) vi u##i = x, v##i = y;
#define MULTIPLY_s8(i) MULTIPLY(i, dot_s8)
#define MULTIPLY_u8(i) MULTIPLY(i, dot_u8)
#define MULTIPLY_16(i) MULTIPLY(i, dot_16)
#define MULTIPLY(i, dot)                                                                                 \
    {                                                                                                    \
        vi a = group_at(ROW_##i);                                                                        \
        u##i = dot(u##i, a, x, flip);                                                                    \
        v##i = dot(v##i, a, y, flip);                                                                    \
    }
#define KEEP(i) sti(t->part + i * t->part_step, u##i), sti(t->part + i * t->part_step + VF, v##i);

#define DECLARE_1(i) vi u##i = x;
#define ONCE_s8(i) u##i = dot_s8(u##i, group_at(ROW_##i), x, flip);
#define ONCE_u8(i) u##i = dot_u8(u##i, group_at(ROW_##i), x, flip);
#define ONCE_16(i) u##i = dot_16(u##i, group_at(ROW_##i), x, flip);
#define KEEP_1(i) sti(t->part + i * t->part_step, u##i);

#define POINTERS                                                                                         \
    const int64_t step = t->left_step;                                                                   \
    const char *p0 = t->left, *p3 = p0 + 3 * step, *p6 = p3 + 3 * step, *p9 = p6 + 3 * step;             \
    const int32_t *right = (const int32_t *)(const void *)t->right;                                      \
    const vi flip = set1i((int32_t)t->flip);                                                             \
    (void)p3, (void)p6, (void)p9, (void)flip;
#define NEXT p0 += 4, p3 += 4, p6 += 4, p9 += 4

#define WIDE(kind, n)                                                                                    \
    static void dot_##kind##_wide_##n(const kn_dot_tile *t) {                                            \
        POINTERS                                                                                         \
        vi x = ldi(t->start), y = ldi(t->start + VF);                                                    \
        EACH_##n(DECLARE) KN_UNROLL_2 for (int64_t g = t->groups; g > 0; g--, right += 2 * VF, NEXT) {   \
            x = ldi(right), y = ldi(right + VF);                                                         \
            EACH_##n(MULTIPLY_##kind)                                                                    \
        }                                                                                                \
        EACH_##n(KEEP)                                                                                   \
    }
#define NARROW(kind, n)                                                                                  \
    static void dot_##kind##_narrow_##n(const kn_dot_tile *t) {                                          \
        POINTERS                                                                                         \
        vi x = ldi(t->start);                                                                            \
        EACH_##n(DECLARE_1) KN_UNROLL_2 for (int64_t g = t->groups; g > 0; g--, right += VF, NEXT) {     \
            x = ldi(right);                                                                              \
            EACH_##n(ONCE_##kind)                                                                        \
        }                                                                                                \
        EACH_##n(KEEP_1)                                                                                 \
    }

// One and two rows: a sum of its own for each of four (two) neighbours in depth, so that additions
// need not wait for one another. They are bound by memory, which arrays of vectors do not hurt.
#define FEW(kind, rows, size, vectors, ways)                                                             \
    static void dot_##kind##_##size##_##rows(const kn_dot_tile *t) {                                     \
        const char *p[2] = {t->left, t->left + (rows - 1) * t->left_step};                               \
        const int32_t *right = (const int32_t *)(const void *)t->right;                                  \
        const vi flip = set1i((int32_t)t->flip);                                                         \
        vi sum[rows][ways][vectors];                                                                     \
        int64_t g = 0;                                                                                   \
        for (int i = 0; i < rows; i++)                                                                   \
            for (int w = 0; w < ways; w++)                                                               \
                for (int v = 0; v < vectors; v++) sum[i][w][v] = w ? (vi){0} : ldi(t->start + v * VF);   \
        for (; g + ways <= t->groups; g += ways)                                                         \
            for (int w = 0; w < ways; w++, right += vectors * VF)                                        \
                for (int v = 0; v < vectors; v++)                                                        \
                    for (int i = 0; i < rows; i++)                                                       \
                        sum[i][w][v] =                                                                   \
                            dot_##kind(sum[i][w][v], group_at(p[i] + 4 * (g + w)), ldi(right + v * VF), flip); \
        for (; g < t->groups; g++, right += vectors * VF)                                                \
            for (int v = 0; v < vectors; v++)                                                            \
                for (int i = 0; i < rows; i++)                                                           \
                    sum[i][0][v] = dot_##kind(sum[i][0][v], group_at(p[i] + 4 * g), ldi(right + v * VF), flip); \
        for (int i = 0; i < rows; i++)                                                                   \
            for (int v = 0; v < vectors; v++) {                                                          \
                for (int w = 1; w < ways; w++) sum[i][0][v] = kn_wrapping(sum[i][0][v], sum[i][w][v]);                             \
                sti(t->part + i * t->part_step + v * VF, sum[i][0][v]);                                  \
            }                                                                                            \
    }

#if KN_MR == 12
#define MORE(X, kind) X(kind, 7) X(kind, 8) X(kind, 9) X(kind, 10) X(kind, 11) X(kind, 12)
#define TABLE(kind, size)                                                                                \
    {0,                    dot_##kind##_##size##_1, dot_##kind##_##size##_2,  dot_##kind##_##size##_3,   \
     dot_##kind##_##size##_4, dot_##kind##_##size##_5, dot_##kind##_##size##_6,  dot_##kind##_##size##_7, \
     dot_##kind##_##size##_8, dot_##kind##_##size##_9, dot_##kind##_##size##_10, dot_##kind##_##size##_11, \
     dot_##kind##_##size##_12}
#else
#define MORE(X, kind)
#define TABLE(kind, size)                                                                                \
    {0,                    dot_##kind##_##size##_1, dot_##kind##_##size##_2, dot_##kind##_##size##_3,    \
     dot_##kind##_##size##_4, dot_##kind##_##size##_5, dot_##kind##_##size##_6}
#endif
#define ALL(kind)                                                                                        \
    FEW(kind, 1, wide, 2, 4)                                                                             \
    FEW(kind, 2, wide, 2, 2)                                                                             \
    FEW(kind, 1, narrow, 1, 4)                                                                           \
    FEW(kind, 2, narrow, 1, 4)                                                                           \
    WIDE(kind, 3) WIDE(kind, 4) WIDE(kind, 5) WIDE(kind, 6) MORE(WIDE, kind)                             \
    NARROW(kind, 3) NARROW(kind, 4) NARROW(kind, 5) NARROW(kind, 6) MORE(NARROW, kind)

ALL(16)
#if KN_HAS_QUADS
ALL(s8)
ALL(u8)
#endif

const kn_dot kn_dot_wide[KN_DOT_KINDS][KN_MR + 1] = {
    [KN_DOT_16] = TABLE(16, wide),
#if KN_HAS_QUADS
    [KN_DOT_S8] = TABLE(s8, wide),
    [KN_DOT_U8] = TABLE(u8, wide),
#endif
};
const kn_dot kn_dot_narrow[KN_DOT_KINDS][KN_MR + 1] = {
    [KN_DOT_16] = TABLE(16, narrow),
#if KN_HAS_QUADS
    [KN_DOT_S8] = TABLE(s8, narrow),
    [KN_DOT_U8] = TABLE(u8, narrow),
#endif
};
