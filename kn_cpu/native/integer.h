// Products of integers, one tile at a time: what GEMM and convolution of 8 and 16 bits have in common.
//
// Sums are of 32 bits and wrap. A vector of the right operand has a group of 4 bytes for each of VF
// columns; a group of a row of the left operand is multiplied with all of them. A right operand is
// packed in panels of 2 * VF columns, the last one of VF where no more are left, each
// [groups][width][elements of a group], filled up with zeros.
#pragma once
#include "abi.h"
#include "kn_integer.h"
#include "product.h"

INL int64_t kn_group(int64_t kind) { return kind == KN_DOT_16 ? 2 : 4; }      // elements
INL int64_t kn_dot_bytes(int64_t kind) { return kind == KN_DOT_16 ? 2 : 1; } // of an element

// Sums wrap, which C says of unsigned numbers only.
INL vi kn_wrapping(vi a, vi b) { return (vi)((vu)a + (vu)b); }

// sum + the products of the two numbers of 16 bits in each lane
#if defined(__AVX512VNNI__)
INL vi kn_dot_pairs(vi sum, vi a, vi b) {
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
#elif defined(__AVXVNNI__)
INL vi kn_dot_pairs(vi sum, vi a, vi b) {
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
}
#elif defined(__AVX512BW__)
INL vi kn_dot_pairs(vi sum, vi a, vi b) {
    return kn_wrapping(sum, (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b));
}
#elif defined(__AVX2__)
INL vi kn_dot_pairs(vi sum, vi a, vi b) {
    return kn_wrapping(sum, (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b));
}
#elif defined(__SSE2__)
INL vi kn_dot_pairs(vi sum, vi a, vi b) {
    return kn_wrapping(sum, (vi)_mm_madd_epi16((__m128i)a, (__m128i)b));
}
#else
INL vi kn_dot_pairs(vi sum, vi a, vi b) {
    const vi low = ((vi)((vu)a << 16) >> 16) * ((vi)((vu)b << 16) >> 16);
    return kn_wrapping(kn_wrapping(sum, (a >> 16) * (b >> 16)), low);
}
#endif

// sum + the products of the four numbers of 8 bits in each lane, unsigned ones with signed ones;
// where there is no such instruction, numbers of 8 bits are widened and multiplied in pairs
#if defined(__AVX512VNNI__)
#define KN_HAS_QUADS 1
INL vi kn_dot_quads(vi sum, vi a, vi b) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
#elif defined(__AVXVNNI__)
#define KN_HAS_QUADS 1
INL vi kn_dot_quads(vi sum, vi a, vi b) {
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
}
#else
#define KN_HAS_QUADS 0
#endif

// One tile: part = start + left * right.
typedef struct {
    const char *left;
    int64_t left_step; // bytes from row to row
    int64_t groups;    // of the depth
    const char *right; // a packed panel
    const int32_t *start;
    int32_t *part;
    int64_t part_step;
    uint32_t flip; // what all groups of the left operand are xored with
} kn_dot_tile;

typedef void (*kn_dot)(const kn_dot_tile *);
// by kind, and by rows; for panels of two vectors, and of one
extern const kn_dot kn_dot_wide[KN_DOT_KINDS][KN_MR + 1];
extern const kn_dot kn_dot_narrow[KN_DOT_KINDS][KN_MR + 1];

// A block of sums in scratch, [rows][step].
typedef struct {
    int64_t rows, cols;
    int32_t *part;
    int64_t step;
    const char *left; // as the micro-kernels read it
    int64_t left_step;
} kn_dot_block;

// Multiplies a panel that begins at column `col` of the block.
void kn_dot_panel(const kn_dot_block *b, const kn_factors *f, const char *right, const int32_t *start,
                  int64_t col);

// All panels of a packed right operand; `start` is of the first column of the block.
void kn_dot_packed(const kn_dot_block *b, const kn_factors *f, const char *right, const int32_t *start);

// Adds low[column] * sum of the row.
void kn_add_lows(const kn_dot_block *b, const kn_factors *f, const int32_t *low);

// Packs one panel of `width` columns, of which `cols` are there, and the sums that it starts from.
void kn_dot_pack(char *dst, int32_t *start, const kn_factors *f, const char *src, int64_t row, int64_t col,
                 int64_t cols, int64_t width);

// Elements that lie `step` apart, as the micro-kernels read them.
void kn_dot_copy(char *to, const kn_factors *f, const char *from, int64_t step, int64_t count);

// What finished sums become, and where they go; see kn_requantize.
void kn_finish_sums(const kn_requantize *q, const kn_dot_block *b, char *out, const int32_t *bias,
                    const float *scale);

INL const char *kn_element(const char *p, int64_t index, int64_t type) {
    return p + index * (type == KN_INT_S16 ? 2 : 1);
}
