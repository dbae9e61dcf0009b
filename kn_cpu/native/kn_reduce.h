// reduce_<type>: out = fn over the reduced axes of x; p = {out, x}
// arg_<type>: the index of the extreme along an axis, as int64; p = {out, x}
// Types: f32, f64, i32, i64; reduce also bool.
#pragma once
#include "abi.h"

enum { KN_SUM, KN_MEAN, KN_PROD, KN_MAX, KN_MIN };

enum {
    KN_REDUCE_UNITS, // into how many shares the kept axes are cut
    KN_REDUCE_FN,    // of booleans, any is KN_MAX and all is KN_MIN
    KN_REDUCE_KEPT,  // number of kept axes
    KN_REDUCE_REDUCED,
    KN_REDUCE_AXES // kept: sizes, strides of out, strides of x; then reduced: sizes, strides of x
};

enum {
    KN_ARG_UNITS,
    KN_ARG_LARGEST, // the largest, else the smallest
    KN_ARG_LAST,    // of equal ones the last, else the first
    KN_ARG_SIZE,    // of the axis, and its stride
    KN_ARG_STEP,
    KN_ARG_KEPT,
    KN_ARG_AXES // kept: sizes, strides of out, strides of x
};

extern const kn_entry kn_reduce_entries[];
