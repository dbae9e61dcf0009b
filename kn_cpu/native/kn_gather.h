// gather: out[a.., i.., b..] = x[a.., places[i..], b..], where a place is an index tuple that stands for
//         one or more axes of x; p = {out, x, indices, status}
// scatter: out[a.., places[i..], b..] = updates[a.., i.., b..] in order of i;
//         p = {out, updates, indices, status}; out holds the other elements already, and those that
//         updates are combined with
// gather_elements, scatter_elements: the same of single elements, with an index for each, along one axis
//
// Indices are integers of 1, 2, 4 or 8 bytes; negative ones count from the end. One that does not exist
// leaves its elements alone, and is reported: status[0] becomes 1, status[1] is such an index, and
// status[2] its place in the tuple.
#pragma once
#include "abi.h"

enum {
    KN_GATHER_UNITS,       // into how many shares the work is cut; one to scatter
    KN_GATHER_BYTES,       // of an element
    KN_GATHER_INDEX_BYTES, // negative for unsigned ones
    KN_GATHER_DEPTH,       // indices of a tuple
    KN_GATHER_FN,          // what a scatter does with an element: KN_SCATTER_SET for gathers
    KN_GATHER_TYPE,        // of elements, where they are combined
    KN_GATHER_DEPTH_STEP,  // from one index of a tuple to the next
    KN_GATHER_OUTER,       // number of axes a; for elements that of all axes
    KN_GATHER_INDEX,       // number of axes i; none for elements, as of the next
    KN_GATHER_INNER,       // number of axes b
    KN_GATHER_PAIRS        // (size, stride) of each indexed axis; then of the three groups of axes, one
                           // after another: sizes, strides of out, of x or updates, of indices
};

enum { KN_SCATTER_SET, KN_SCATTER_ADD, KN_SCATTER_MUL, KN_SCATTER_MAX, KN_SCATTER_MIN };

enum { KN_SCATTER_F32, KN_SCATTER_F64, KN_SCATTER_SIGNED, KN_SCATTER_UNSIGNED };

extern const kn_entry kn_gather_entries[];
