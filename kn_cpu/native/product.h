// Products of matrices, one tile at a time: what GEMM, convolution and Winograd have in common.
//
// A tile is up to KN_MR rows and one panel of the right operand. Panels are KN_NR = 2 vectors wide;
// the last one is VF wide where no more than VF columns are left. A packed right operand is its
// panels behind one another, each [depth][width], filled up with zeros.
#pragma once
#include "simd.h"

#if defined(__AVX512F__)
#define KN_MR 12 // 24 accumulators of 32 registers
#else
#define KN_MR 6 // 12 accumulators of 16 registers
#endif
#define KN_NR (2 * VF)
#define KN_DEPTH (VF == 16 ? 512 : 384) // at how many products a sum is split: such a panel fits the first cache

// One tile: part = left * right, added to `part` unless it is fresh. Where `out` is set, the sums go
// there instead, after bias, residual and clamp; all columns of the panel are written.
typedef struct {
    const float *const *rows; // rows[t * rows_step + i]: where position t of row i begins
    int64_t rows_step, positions;
    int64_t offset, length; // which elements of each position are multiplied
    const float *right;
    int64_t right_step; // from one element of the depth to the next
    float *part;
    int64_t part_step;
    int64_t fresh;
    float *out;
    int64_t out_step;
    const float *bias; // of the columns; or NULL
    const float *residual;
    int64_t residual_step;
    float low, high;
    int64_t stream; // the result is stored past the caches; its rows begin at vectors
    const char *next; // what is needed after this panel, to be fetched meanwhile; or NULL
    int64_t next_bytes, next_step; // step: how far from one element of the depth to the next
} kn_tile;

typedef void (*kn_micro)(const kn_tile *);
extern const kn_micro kn_wide[KN_MR + 1];   // by rows, for panels of KN_NR columns
extern const kn_micro kn_narrow[KN_MR + 1]; // for panels of VF columns

// What happens to a block of sums that lies in scratch, and where it goes.
typedef struct {
    float *out;
    int64_t out_row, out_col;
    const float *residual;
    int64_t residual_row, residual_col;
    const float *bias;
    int64_t bias_row, bias_col;
    float low, high;
} kn_finish;

// Finishes the block part[rows][cols], which is overwritten.
void kn_finish_block(const kn_finish *f, float *part, int64_t part_step, int64_t rows, int64_t cols);

// dst[i][j] = src[i * src_row + j * src_col], the columns of dst lie side by side.
void kn_copy_block(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t src_col,
                   int64_t rows, int64_t cols);

// One panel of a right operand with `cols` columns left, [depth][width].
void kn_pack_panel(float *dst, const float *src, int64_t src_row, int64_t src_col, int64_t depth,
                   int64_t cols);

// part[i][j] += sum of rows[i][k] * right[k * right_row + j * right_col], one of these strides is 1.
#define KN_FEW 4 // rows at most
typedef struct {
    const float *const *rows;
    const float *right;
    int64_t right_row, right_col, length, cols;
    float *part;
    int64_t part_step;
} kn_few;
void kn_few_rows(const kn_few *f, int64_t rows, int64_t fresh);

// The same where a panel is read once: what lies behind the element at hand, up to the next panel.
#define KN_AHEAD 64 // elements of the depth
void kn_fetch_ahead(kn_tile *t);

INL int64_t kn_min(int64_t a, int64_t b) { return a < b ? a : b; }
INL int64_t kn_max(int64_t a, int64_t b) { return a > b ? a : b; }
INL int64_t kn_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
INL int64_t kn_panel_width(int64_t cols) { return cols > VF ? KN_NR : VF; }

// A block of the result: rows x cols, some whole panels but for the last column block of a matrix.
typedef struct {
    int64_t rows, cols;
    float *part; // [rows][part_step], sums that are not final
    int64_t part_step;
    kn_finish finish;
    int direct; // the micro-kernels write the result themselves, where panels are full
    int stream; // results are stored past the caches where they can be; `vfence` has to follow
    int far_left, far_result; // the left operand, the result are larger than the second cache
} kn_block;

// Whether they can.
INL int kn_is_direct(const kn_finish *f) {
    return f->out && f->out_col == 1 && (!f->bias || (f->bias_col == 1 && f->bias_row == 0)) &&
           (!f->residual || f->residual_col == 1);
}

// Multiplies the panel at column `col`; `last` where this completes its sums.
void kn_block_panel(const kn_block *b, kn_tile t, int64_t col, int last);
// Finishes what the micro-kernels have not written; in place where `out` is NULL.
void kn_block_end(const kn_block *b);
// Points to the packed panel at column `col`, from element k of its depth on.
void kn_packed_panel(const kn_block *b, kn_tile *t, const float *right, int64_t depth, int64_t col, int64_t k);
// Has `length` elements of the depth fetched of the panel at column `col`, where there is one.
void kn_fetch_panel(const kn_block *b, kn_tile *t, const float *right, int64_t depth, int64_t col, int64_t k,
                    int64_t length);
