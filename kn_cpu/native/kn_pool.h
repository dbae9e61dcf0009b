// pool_f32: the maximum, mean or sum of windows over three spatial axes; p = {out, x}
// Fewer spatial axes are filled up in front, with sizes and kernels of 1.
#pragma once
#include "abi.h"

enum { KN_POOL_MAX, KN_POOL_MEAN, KN_POOL_SUM };

enum {
    KN_POOL_UNITS, // into how many shares the rows of results are cut
    KN_POOL_FN,
    KN_POOL_COUNT_PAD, // whether a mean counts padding
    KN_POOL_IN,        // three sizes of x; and so are the next ones, of each spatial axis
    KN_POOL_OUT = KN_POOL_IN + 3,
    KN_POOL_KERNEL = KN_POOL_OUT + 3,
    KN_POOL_STEP = KN_POOL_KERNEL + 3,
    KN_POOL_DILATION = KN_POOL_STEP + 3,
    KN_POOL_BEFORE = KN_POOL_DILATION + 3,
    KN_POOL_AFTER = KN_POOL_BEFORE + 3,
    KN_POOL_OUT_STRIDE = KN_POOL_AFTER + 3,
    KN_POOL_X_STRIDE = KN_POOL_OUT_STRIDE + 3,
    KN_POOL_LEAD = KN_POOL_X_STRIDE + 3, // number of other axes
    KN_POOL_AXES                         // sizes, strides of out, strides of x of these
};

extern const kn_entry kn_pool_entries[];
