// softmax_f32: out = exp(x - max(x)) / sum(exp(x - max(x))) along an axis, or the logarithm of it.
// p = {out, x}; out may be x.
#pragma once
#include "abi.h"

enum {
    KN_SOFTMAX_UNITS, // into how many shares the other axes are cut
    KN_SOFTMAX_LOG,
    KN_SOFTMAX_SIZE, // of the axis, and its strides
    KN_SOFTMAX_OUT_STEP,
    KN_SOFTMAX_X_STEP,
    KN_SOFTMAX_KEPT, // number of other axes
    KN_SOFTMAX_AXES  // sizes, strides of out, strides of x of these
};

extern const kn_entry kn_softmax_entries[];
