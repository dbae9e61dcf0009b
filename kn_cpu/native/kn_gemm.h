// The numbers of the product kernels, in this order; kn_cpu/gemm.py writes them.
#pragma once
#include "abi.h"

// A matrix of each batch index: strides in elements, 0 repeats.
typedef struct {
    int64_t row, col;
    int64_t batch[3];
} kn_matrix;

// gemm_f32: out = clamp(a * b + bias + residual)
// p: a [rows, depth], b [depth, cols], out [rows, cols], bias, residual (either may be NULL)
// With a program (kn_scalar.h; its numbers follow, its pointers too) finished blocks go through it and
// `out` is not written. Its plane is [batch * rows, cols], as they are after turning.
// The kernel cuts matrices into blocks of rows and columns, about as many as there are units; a unit is
// its share of all blocks of all matrices. Rows run fastest, then columns.
typedef struct {
    int64_t rows, cols, depth;
    int64_t batch[3];
    int64_t units;
    int64_t packed;               // b is packed (product.h); b.batch counts its floats
    int64_t turned;               // p begins with b, a: the transpose of the result is computed
    int64_t copy_left;            // blocks of a are copied: its elements do not lie side by side
    int64_t low, high;            // bits of floats
    int64_t has_program;          // a scalar program follows
    kn_matrix a, b, out;
    kn_matrix bias, residual; // bias.col is 0 or 1
} kn_gemm;

// pack_f32: b [outer * inner, cols] of each batch index -> panels. A unit is one panel.
// p: b, packed
typedef struct {
    int64_t outer, inner, cols; // the depth runs over two axes
    int64_t src_outer, src_inner, src_col, src_batch;
    int64_t dst_batch;
} kn_pack;
void kn_pack_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end);

extern const kn_entry kn_gemm_entries[];
