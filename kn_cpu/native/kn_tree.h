// tree: the votes of a block of trees for each row; p = {x, nodes, roots, starts, targets, weights, votes}
// tree_sum: what the votes of all blocks come to; p = {votes, out}
//
// A node is four int32: feature << KN_TREE_BITS | holds, the bits of the float that it compares with, and
// two children. `holds` says for which outcome the first child is next: bits for less, equal, greater,
// unordered, and the feature being NaN. A child below 0 is leaf -1 - child; so is a root. Leaf l gives
// weights[k] to targets[k] for starts[l] <= k < starts[l + 1].
//
// votes: float64 [rows, blocks, 2, targets], sums (or extremes) and how many votes they are of.
#pragma once
#include "abi.h"

enum { KN_TREE_BITS = 5 };

enum { KN_TREE_LESS = 1, KN_TREE_EQUAL = 2, KN_TREE_GREATER = 4, KN_TREE_UNORDERED = 8, KN_TREE_NAN = 16 };

enum {
    KN_TREE_ROWS,
    KN_TREE_ROW_STEP, // of x
    KN_TREE_COL_STEP, // of x
    KN_TREE_TREES,
    KN_TREE_BLOCK,  // trees of a block
    KN_TREE_BLOCKS, // units are rows times blocks
    KN_TREE_TARGETS,
    KN_TREE_FUNCTION,
    KN_TREE_OUT_ROW, // steps of out
    KN_TREE_OUT_COL
};

enum { KN_TREE_SUM, KN_TREE_AVERAGE, KN_TREE_MIN, KN_TREE_MAX };

extern const kn_entry kn_tree_entries[];
