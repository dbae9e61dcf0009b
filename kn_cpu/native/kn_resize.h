// resize_f32: every element is a weighted sum of elements of x, along up to three axes:
// out[.., i, ..] = sum over k of weights[i][k] * x[.., indices[i][k], ..]
// p = {out, x, indices and weights of the first axis, of the second, of the third}: int64 and float,
// contiguous. Fewer axes are filled up in front with sizes of 1, an index 0 and a weight of 1.
#pragma once
#include "abi.h"

enum {
    KN_RESIZE_UNITS, // into how many shares the rows of results are cut
    KN_RESIZE_WIDTH, // of x along the last axis
    KN_RESIZE_TAPS,  // how many elements are summed along each of three axes
    KN_RESIZE_OUT = KN_RESIZE_TAPS + 3,
    KN_RESIZE_OUT_STRIDE = KN_RESIZE_OUT + 3,
    KN_RESIZE_X_STRIDE = KN_RESIZE_OUT_STRIDE + 3,
    KN_RESIZE_LEAD = KN_RESIZE_X_STRIDE + 3, // number of other axes
    KN_RESIZE_AXES                           // sizes, strides of out, strides of x of these
};

extern const kn_entry kn_resize_entries[];
