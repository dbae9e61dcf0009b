// The numbers of integer products, in this order; kn_cpu/integer_gemm.py writes them.
#pragma once
#include "kn_gemm.h"
#include "kn_integer.h"

// gemm_int: out = requantized(a * b), of integers of 8 and 16 bits
// p: a [rows, depth], b [depth, cols] or packed, out [rows, cols], starts and lows of the columns of a
// packed b, bias, scale (the last three may be NULL)
// With a program (kn_scalar.h; its numbers follow, its pointers too) finished blocks go through it and
// `out` is not written. Its plane is [batch * rows, cols].
// A unit is a block of rows and of columns of one matrix; rows run fastest, then columns.
typedef struct {
    int64_t rows, cols;
    int64_t batch[3];
    kn_factors factors;
    int64_t row_block, col_block; // of a unit; col_block is whole panels
    int64_t packed;               // b is packed (integer.h), the same for all matrices
    int64_t copy_left;            // rows of a are copied
    kn_requantize finish;
    kn_matrix a, b, out;
} kn_integer_gemm;

// pack_int: matrices b [depth, cols] in row-major order -> panels. A unit is one panel.
// p: b, packed, starts of the columns; of each matrix filled up to whole vectors
typedef struct {
    int64_t cols;
    kn_factors factors;
} kn_integer_pack;

extern const kn_entry kn_integer_gemm_entries[];
