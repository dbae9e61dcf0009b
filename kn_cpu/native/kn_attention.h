// attention_f32: out = softmax(q @ k^T * scale + bias) @ v; p = {out, q, k, v, bias, lengths}, the last
// two may be NULL. Semantics of kn_graph.ops.attention.Attention, with one liberty: keys beyond
// the lengths are not read, so a NaN there does not spread.
#pragma once
#include "abi.h"

enum { KN_ATT_QUERIES_OF_UNIT = 64, KN_ATT_KEYS_OF_BLOCK = 256 };

enum { KN_BIAS_NONE, KN_BIAS_FLOAT, KN_BIAS_BOOL };

enum {
    KN_ATT_BATCH,
    KN_ATT_HEADS,
    KN_ATT_KV_HEADS,
    KN_ATT_QUERIES,
    KN_ATT_KEYS,
    KN_ATT_SIZE,       // of a query and key
    KN_ATT_VALUE_SIZE, // of a value
    KN_ATT_OUT,        // strides of batch, head, row, column; so are the next ones
    KN_ATT_Q = KN_ATT_OUT + 4,
    KN_ATT_K = KN_ATT_Q + 4,
    KN_ATT_V = KN_ATT_K + 4,
    KN_ATT_BIAS = KN_ATT_V + 4,
    KN_ATT_BIAS_KIND = KN_ATT_BIAS + 4,
    KN_ATT_HAS_SCALE, // else it is 1 / sqrt(size)
    KN_ATT_SCALE,     // bits of a float
    KN_ATT_SOFTCAP,   // bits of a float, 0 for none
    KN_ATT_HAS_LEFT,
    KN_ATT_LEFT,
    KN_ATT_HAS_RIGHT,
    KN_ATT_RIGHT,
    KN_ATT_OFFSET // unless there are lengths
};

extern const kn_entry kn_attention_entries[];
