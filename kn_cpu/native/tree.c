// Ensembles of decision trees. See kn_tree.h.
//
// A walk waits for memory at every node, so that several trees are walked at a time.
#include "kn_tree.h"

#include <math.h>
#include <string.h>

enum { X, NODES, ROOTS, STARTS, TARGETS, WEIGHTS, VOTES };

enum { TOGETHER = 8 };

typedef struct {
    int32_t test, threshold, yes, no;
} node_t;

static inline int32_t next_node(node_t node, const float *row, int64_t step) {
    float value = row[(node.test >> KN_TREE_BITS) * step], threshold;
    memcpy(&threshold, &node.threshold, sizeof threshold);
    int less = value < threshold, equal = value == threshold, greater = value > threshold;
    int outcome = less * KN_TREE_LESS | equal * KN_TREE_EQUAL | greater * KN_TREE_GREATER |
                  !(less | equal | greater) * KN_TREE_UNORDERED | (value != value) * KN_TREE_NAN;
    return node.test & outcome ? node.yes : node.no;
}

// Replaces roots by the leaves that a row reaches.
static inline void walk(int32_t *at, int count, const node_t *nodes, const float *row, int64_t step) {
    for (int inner = 1; inner;) {
        inner = 0;
        for (int i = 0; i < count; i++) {
            if (at[i] < 0) continue;
            at[i] = next_node(nodes[at[i]], row, step);
            inner |= at[i] >= 0;
        }
    }
}

static inline void vote(double *value, double *votes, double weight, int64_t function) {
    if (function == KN_TREE_MIN)
        *value = *votes && !(weight < *value) && !isnan(weight) ? *value : weight;
    else if (function == KN_TREE_MAX)
        *value = *votes && !(weight > *value) && !isnan(weight) ? *value : weight;
    else
        *value += weight;
    *votes += 1;
}

static void tree_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    const node_t *nodes = (const node_t *)(const void *)p[NODES];
    const int32_t *roots = (const int32_t *)(const void *)p[ROOTS], *starts = (const int32_t *)(const void *)p[STARTS];
    const int32_t *targets = (const int32_t *)(const void *)p[TARGETS];
    const float *weights = (const float *)(const void *)p[WEIGHTS];
    int64_t count = n[KN_TREE_TARGETS], function = n[KN_TREE_FUNCTION];
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit % n[KN_TREE_BLOCKS] * n[KN_TREE_BLOCK], last = first + n[KN_TREE_BLOCK];
        if (last > n[KN_TREE_TREES]) last = n[KN_TREE_TREES];
        const float *row = (const float *)(const void *)p[X] + unit / n[KN_TREE_BLOCKS] * n[KN_TREE_ROW_STEP];
        double *values = (double *)(void *)p[VOTES] + 2 * count * unit, *votes = values + count;
        memset(values, 0, (size_t)(2 * count) * sizeof *values);
        for (int64_t tree = first; tree < last; tree += TOGETHER) {
            int32_t at[TOGETHER];
            int some = last - tree < TOGETHER ? (int)(last - tree) : TOGETHER;
            memcpy(at, roots + tree, (size_t)some * sizeof *at);
            walk(at, some, nodes, row, n[KN_TREE_COL_STEP]);
            for (int i = 0; i < some; i++)
                for (int32_t k = starts[-1 - at[i]]; k < starts[-at[i]]; k++)
                    vote(&values[targets[k]], &votes[targets[k]], weights[k], function);
        }
    }
}

static void tree_sum_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    int64_t count = n[KN_TREE_TARGETS], function = n[KN_TREE_FUNCTION];
    for (int64_t row = begin; row < end; row++) {
        const double *blocks = (const double *)(const void *)p[0] + 2 * count * n[KN_TREE_BLOCKS] * row;
        float *out = (float *)(void *)p[1] + row * n[KN_TREE_OUT_ROW];
        for (int64_t target = 0; target < count; target++) {
            double value = 0, votes = 0;
            for (int64_t block = 0; block < n[KN_TREE_BLOCKS]; block++) {
                const double *mine = blocks + 2 * count * block + target;
                if (mine[count]) vote(&value, &votes, *mine, function);
            }
            if (function == KN_TREE_AVERAGE && n[KN_TREE_TREES]) value /= (double)n[KN_TREE_TREES];
            out[target * n[KN_TREE_OUT_COL]] = (float)value;
        }
    }
}

const kn_entry kn_tree_entries[] = {{"tree_f32", tree_f32}, {"tree_sum_f32", tree_sum_f32}, {NULL, NULL}};
