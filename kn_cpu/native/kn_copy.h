// Copy of elements between layouts: p = {out, x}.
#pragma once
#include "abi.h"

// Strides of 0 in x repeat it: with all of them 0 a copy fills. What is written must not overlap
// what is read.
enum {
    KN_COPY_UNITS, // into how many shares the work is cut
    KN_COPY_BYTES, // of an element: 1, 2, 4 or 8
    KN_COPY_RANK,
    KN_COPY_AXES // sizes, strides of out, strides of x
};

extern const kn_entry kn_copy_entries[];
