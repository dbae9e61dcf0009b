// random: numbers of a counter-based stream, one after another, as `kn_graph.ops.random` says; p = {out,
// draw}, contiguous. A draw is three uint64: the seed, the stream, and the number of its first block.
#pragma once
#include "abi.h"

enum {
    KN_RANDOM_UNITS,  // into how many shares the blocks are cut
    KN_RANDOM_TYPE,   // of a number, see below
    KN_RANDOM_NORMAL, // 1: normal, 0: uniform
    KN_RANDOM_BITS,   // significant bits of a uniform number
    KN_RANDOM_WORDS,  // words of 32 bits that a number is made of: 1 or 2
    KN_RANDOM_COUNT
};

enum { KN_RANDOM_FLOAT, KN_RANDOM_DOUBLE, KN_RANDOM_HALF, KN_RANDOM_BFLOAT };

extern const kn_entry kn_random_entries[];
