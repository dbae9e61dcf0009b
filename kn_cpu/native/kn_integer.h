// The numbers that products of integers share; kn_cpu/integer.py writes them.
#pragma once
#include "abi.h"

enum { KN_INT_U8, KN_INT_S8, KN_INT_S16 }; // types of elements

// How a group of 4 bytes of a row is multiplied with a group of each column.
enum {
    KN_DOT_S8, // four: the left operand is made unsigned, the right one is signed
    KN_DOT_U8, // four: the left operand is made signed, the right one is unsigned
    KN_DOT_16, // two, both signed
    KN_DOT_KINDS
};

// The operands of a product. What is not of the kind's type is made so: of 8 bits by flipping the
// highest bit, which the sums that a column starts from make up for; to 16 bits by copying.
typedef struct {
    int64_t depth;
    int64_t kind;
    int64_t left, right; // types
} kn_factors;

// sums -> (sums + lows * sum of the row) -> + or - bias -> float, * scale -> rounded to even, + zero,
// clamped, 8 bits. What is not there is left out; later stages need the earlier ones.
enum { KN_TO_I32, KN_TO_F32, KN_TO_U8, KN_TO_S8 };
typedef struct {
    int64_t to;
    int64_t bias_sign;           // 1 or -1; 0 for none
    int64_t bias_col, scale_col; // 0 repeats
    int64_t scale_bits;          // where there is no operand with scales
    int64_t zero, low, high;     // integers
    int64_t in_place;            // a program follows: the results stay where the sums are
    int64_t out_row, out_col;    // in elements
} kn_requantize;
