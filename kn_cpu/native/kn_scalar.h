// Scalar programs: p = {outputs.., inputs..}, as kn_cpu/scalar.py compiles them.
#pragma once
#include "abi.h"

enum {
    KN_SCALAR_RANK,
    KN_SCALAR_OUTPUTS,
    KN_SCALAR_INPUTS,
    KN_SCALAR_CONSTANTS,
    KN_SCALAR_TEMPORARIES, // registers beside outputs, inputs and constants, numbered in this order
    KN_SCALAR_CODE,        // how many instructions
    KN_SCALAR_WIDE,        // whether there are registers of 64-bit elements
    KN_SCALAR_HEAD
};
// then for each operand its KN_SCALAR_<type>; for each constant its KN_SCALAR_<type> and its bits; for
// each instruction KN_SCALAR_WORDS words:
//   instruction | register written << 16 | registers read << 24, << 32, << 40
//   bits of two immediate floats
//   bits of two more
// then sizes[rank], and for each operand strides[rank].
enum { KN_SCALAR_WORDS = 3 };

enum {
    KN_SCALAR_F32,
    KN_SCALAR_I32,
    KN_SCALAR_F64,
    KN_SCALAR_I64,
    KN_SCALAR_F16,
    KN_SCALAR_BF16,
    KN_SCALAR_I8,
    KN_SCALAR_U8, // and bool
    KN_SCALAR_I16,
    KN_SCALAR_U16,
    KN_SCALAR_U32,
    KN_SCALAR_I4, // integers of 4 and 2 bits have a byte each
    KN_SCALAR_U4,
    KN_SCALAR_I2,
    KN_SCALAR_U2,
    KN_SCALAR_E4M3FN,
    KN_SCALAR_E4M3FNUZ,
    KN_SCALAR_E5M2,
    KN_SCALAR_E5M2FNUZ,
};

enum {
    KN_SCALAR_UNIT = 4096, // elements of a work unit
    KN_SCALAR_TILE = 512,  // elements that are worked on at a time
    KN_SCALAR_OPERANDS = 32,
    KN_SCALAR_REGISTERS = 96,
    KN_SCALAR_AXES = 14,
};

extern const kn_entry kn_scalar_entries[];

// The program as an epilogue: applies it to rows x cols elements at (row, col) of the plane that n was
// built for (of rank 2). The program's first input is the block, whose rows lie ld floats apart; the
// other operands are found by their strides, from p on (what p says of the first input is ignored). An
// output may be the block itself. Needs the scratch that a step of the program needs.
void kn_scalar_block(const int64_t *n, char *const *p, char *scratch, const float *block, int64_t ld,
                     int64_t row, int64_t col, int64_t rows, int64_t cols);
