// cumulative_<type>: sums or products of the first elements of each line along an axis; p = {out, x}
// Types: f32, f64, i32, i64; integers wrap.
#pragma once
#include "abi.h"

enum {
    KN_CUMULATIVE_UNITS, // into how many shares the lines are cut
    KN_CUMULATIVE_PROD,  // products, else sums
    KN_CUMULATIVE_EXCLUSIVE,
    KN_CUMULATIVE_REVERSE,
    KN_CUMULATIVE_SIZE,  // of the axis
    KN_CUMULATIVE_STEPS, // along the axis: strides of out, of x
    KN_CUMULATIVE_LINES = KN_CUMULATIVE_STEPS + 2, // number of the other axes
    KN_CUMULATIVE_AXES                             // sizes, strides of out, of x of these
};

extern const kn_entry kn_cumulative_entries[];
