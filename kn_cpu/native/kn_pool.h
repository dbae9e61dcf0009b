// pool_f32: the maximum, mean or sum of windows over three spatial axes; p = {out, x}
// pool_index_f32: the maximum, and where in x it is: its place in the flattened tensor, -1 for a window
// without elements; p = {out, indices, x}; indices are int64
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

// of pool_index_f32, behind the strides
enum {
    KN_POOL_INDEX_STRIDE = KN_POOL_LEAD,
    KN_POOL_INDEX_TURNED = KN_POOL_INDEX_STRIDE + 3, // whether places count spatial axes from the first on
    KN_POOL_INDEX_LEAD,
    KN_POOL_INDEX_AXES // sizes, strides of out, of indices, of x of the other axes
};

extern const kn_entry kn_pool_entries[];
