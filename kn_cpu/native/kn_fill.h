// sizes: writes numbers that are known when a step is bound; p = {out}, contiguous
// iota: out[i] = i; p = {out}, contiguous
// Both write integers of 1, 2, 4 or 8 bytes, which wrap.
// report: status[0] = 1, for steps whose sizes are wrong; p = {status}
#pragma once
#include "abi.h"

enum {
    KN_SIZES_BYTES, // of an element
    KN_SIZES_COUNT,
    KN_SIZES_VALUES // as many numbers
};

enum {
    KN_IOTA_UNITS, // into how many shares the elements are cut
    KN_IOTA_BYTES, // of an element
    KN_IOTA_COUNT
};

extern const kn_entry kn_fill_entries[];
