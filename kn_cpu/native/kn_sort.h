// top_k: the k largest or smallest elements of each line along an axis, in order, and where they were;
// p = {values, indices, x}; indices are int64. Of equal elements the one of the lower index comes first;
// 0 and -0 are equal, and a NaN is larger than every number.
#pragma once
#include "abi.h"

enum { KN_SORT_F16, KN_SORT_BF16, KN_SORT_F32, KN_SORT_F64, KN_SORT_SIGNED, KN_SORT_UNSIGNED };

enum {
    KN_SORT_UNITS, // into how many shares the lines are cut
    KN_SORT_TYPE,
    KN_SORT_BYTES, // of an element
    KN_SORT_LARGEST,
    KN_SORT_COUNT, // k
    KN_SORT_SIZE,  // of the axis in x
    KN_SORT_STEPS, // along the axis: strides of values, of indices, of x
    KN_SORT_LINES = KN_SORT_STEPS + 3, // number of the other axes
    KN_SORT_AXES                       // sizes, strides of values, of indices, of x of these
};

extern const kn_entry kn_sort_entries[];
