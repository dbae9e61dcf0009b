// Products for attention: part[i][j] = sum over k of left[i][k] * right[k][j], with a left operand of
// any strides, which is never packed, and a right one that is a panel in scratch, [depth][KN_PANEL].
// Rows go in threes, so that one pointer and one index address three of them.
#pragma once
#include "axes.h"
#include "each.h"
#include "simd.h"

enum { KN_PANEL = 2 * VF };

#if defined(__AVX512F__)
enum { KN_TILE_ROWS = 12 };
#else
enum { KN_TILE_ROWS = 6 };
#endif

typedef void (*kn_strided_tile)(float *part, const float *left, int64_t row, int64_t col, const float *right,
                                int64_t depth, int fresh);

#define ROW_0 g0[0]
#define ROW_1 g0[row]
#define ROW_2 g0[2 * row]
#define ROW_3 g1[0]
#define ROW_4 g1[row]
#define ROW_5 g1[2 * row]
#define ROW_6 g2[0]
#define ROW_7 g2[row]
#define ROW_8 g2[2 * row]
#define ROW_9 g3[0]
#define ROW_10 g3[row]
#define ROW_11 g3[2 * row]

#define START(i) vf u##i = {0}, v##i = {0};
#define LOAD(i) u##i = ld(part + i * KN_PANEL), v##i = ld(part + i * KN_PANEL + VF);
#define MULTIPLY(i)                                                                                      \
    {                                                                                                    \
        vf a = set1(ROW_##i);                                                                            \
        u##i += a * x;                                                                                   \
        v##i += a * y;                                                                                   \
    }
#define STORE(i) st(part + i * KN_PANEL, u##i), st(part + i * KN_PANEL + VF, v##i);

#define START_1(i) vf u##i = {0};
#define LOAD_1(i) u##i = ld(part + i * KN_PANEL);
#define MULTIPLY_1(i) u##i += set1(ROW_##i) * x;
#define STORE_1(i) st(part + i * KN_PANEL, u##i);

#define TILE(name, n, START, LOAD, MULTIPLY, STORE, SECOND)                                              \
    static void name##_##n(float *part, const float *left, int64_t row, int64_t col, const float *right, \
                           int64_t depth, int fresh) {                                                   \
        EACH_##n(START) if (!fresh) { EACH_##n(LOAD) }                                                   \
        const float *g0 = left, *g1 = g0 + 3 * row, *g2 = g1 + 3 * row, *g3 = g2 + 3 * row;              \
        for (int64_t k = 0; k < depth; k++) {                                                            \
            vf x = ld(right) SECOND;                                                                     \
            EACH_##n(MULTIPLY) right += KN_PANEL;                                                        \
            g0 += col, g1 += col, g2 += col, g3 += col;                                                  \
        }                                                                                                \
        EACH_##n(STORE)                                                                                  \
    }
#define SECOND_VECTOR , y = ld(right + VF)
#define WIDE(n) TILE(wide, n, START, LOAD, MULTIPLY, STORE, SECOND_VECTOR)
#define NARROW(n) TILE(narrow, n, START_1, LOAD_1, MULTIPLY_1, STORE_1, )

WIDE(1) WIDE(2) WIDE(3) WIDE(4) WIDE(5) WIDE(6)
NARROW(1) NARROW(2) NARROW(3) NARROW(4) NARROW(5) NARROW(6)
#if defined(__AVX512F__)
WIDE(7) WIDE(8) WIDE(9) WIDE(10) WIDE(11) WIDE(12)
NARROW(7) NARROW(8) NARROW(9) NARROW(10) NARROW(11) NARROW(12)
#define TILES(kind)                                                                                      \
    {0,        kind##_1, kind##_2, kind##_3, kind##_4,  kind##_5, kind##_6,                              \
     kind##_7, kind##_8, kind##_9, kind##_10, kind##_11, kind##_12}
#else
#define TILES(kind) {0, kind##_1, kind##_2, kind##_3, kind##_4, kind##_5, kind##_6}
#endif

static const kn_strided_tile kn_wide_tiles[] = TILES(wide), kn_narrow_tiles[] = TILES(narrow);

// All rows, in tiles of nearly equal height; no more than VF columns where the panel is narrow.
static void kn_panel_product(float *part, const float *left, int64_t row, int64_t col, const float *right,
                             int64_t rows, int64_t depth, int narrow, int fresh) {
    const kn_strided_tile *tiles = narrow ? kn_narrow_tiles : kn_wide_tiles;
    int64_t count = (rows + KN_TILE_ROWS - 1) / KN_TILE_ROWS;
    for (int64_t i = 0; i < count; i++) {
        int64_t from = kn_share(rows, count, i), stop = kn_share(rows, count, i + 1);
        tiles[stop - from](part + from * KN_PANEL, left + from * row, row, col, right, depth, fresh);
    }
}

#undef START
#undef LOAD
#undef MULTIPLY
#undef STORE
#undef START_1
#undef LOAD_1
#undef MULTIPLY_1
#undef STORE_1
#undef WIDE
#undef NARROW
