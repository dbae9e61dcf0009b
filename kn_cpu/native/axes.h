// Loops over axes of any strides, for kernels over rows and windows. The numbers of a step hold plain
// layouts; which axes merge, and in what order they are walked, is decided here for the sizes at hand.
#pragma once
#include "abi.h"
#include "simd.h"

enum { KN_AXES = 16, KN_OPERANDS = 6 };

typedef struct {
    int rank, operands;
    int64_t size[KN_AXES];
    int64_t stride[KN_OPERANDS][KN_AXES]; // in elements, for each operand
} kn_axes;

// Reads sizes[rank], then strides[rank] of each operand; returns what follows.
static inline const int64_t *kn_axes_read(kn_axes *a, const int64_t *n, int rank, int operands) {
    a->rank = rank;
    a->operands = operands;
    for (int i = 0; i < rank; i++) a->size[i] = *n++;
    for (int o = 0; o < operands; o++)
        for (int i = 0; i < rank; i++) a->stride[o][i] = *n++;
    return n;
}

static inline int64_t kn_axes_count(const kn_axes *a) {
    int64_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= a->size[i];
    return count;
}

static inline void kn_axes_move(kn_axes *a, int from, int to) {
    a->size[to] = a->size[from];
    for (int o = 0; o < a->operands; o++) a->stride[o][to] = a->stride[o][from];
}

static inline void kn_axes_swap(kn_axes *a, int i, int j) {
    a->rank++; // a place for the third hand
    kn_axes_move(a, i, a->rank - 1);
    kn_axes_move(a, j, i);
    kn_axes_move(a, a->rank - 1, j);
    a->rank--;
}

static inline void kn_axes_drop(kn_axes *a, int axis) {
    for (int i = axis; i + 1 < a->rank; i++) kn_axes_move(a, i + 1, i);
    a->rank--;
}

static inline int64_t kn_size_of(int64_t x) { return x < 0 ? -x : x; }

// Largest strides of the first operand outermost: its elements are walked as they lie in memory.
static inline void kn_axes_sort(kn_axes *a) {
    for (int i = 1; i < a->rank; i++)
        for (int j = i; j > 0; j--) {
            int64_t before = kn_size_of(a->stride[0][j - 1]), here = kn_size_of(a->stride[0][j]);
            if (before == here && a->operands > 1) {
                before = kn_size_of(a->stride[1][j - 1]);
                here = kn_size_of(a->stride[1][j]);
            }
            if (before >= here) break;
            kn_axes_swap(a, j - 1, j);
        }
}

// Drops axes of size 1, and makes one of neighbours that lie behind one another in every operand.
static inline void kn_axes_merge(kn_axes *a) {
    int kept = 0;
    for (int i = 0; i < a->rank; i++) {
        if (a->size[i] == 1) continue;
        int merges = kept > 0;
        for (int o = 0; merges && o < a->operands; o++)
            merges = a->stride[o][kept - 1] == a->stride[o][i] * a->size[i];
        if (merges) {
            int64_t size = a->size[kept - 1] * a->size[i];
            kn_axes_move(a, i, kept - 1);
            a->size[kept - 1] = size;
        } else {
            kn_axes_move(a, i, kept++);
        }
    }
    a->rank = kept;
}

// Appends an axis of size 1, for kernels that want an innermost one.
static inline void kn_axes_append(kn_axes *a) {
    a->size[a->rank] = 1;
    for (int o = 0; o < a->operands; o++) a->stride[o][a->rank] = 0;
    a->rank++;
}

// A place among the combinations of all axes, in row-major order.
typedef struct {
    int64_t index[KN_AXES];
    int64_t offset[KN_OPERANDS];
} kn_place;

static inline void kn_place_at(kn_place *at, const kn_axes *a, int64_t number) {
    for (int o = 0; o < a->operands; o++) at->offset[o] = 0;
    for (int i = a->rank - 1; i >= 0; i--) {
        at->index[i] = number % a->size[i];
        number /= a->size[i];
        for (int o = 0; o < a->operands; o++) at->offset[o] += at->index[i] * a->stride[o][i];
    }
}

static inline void kn_place_next(kn_place *at, const kn_axes *a) {
    for (int i = a->rank - 1; i >= 0; i--) {
        for (int o = 0; o < a->operands; o++) at->offset[o] += a->stride[o][i];
        if (++at->index[i] < a->size[i]) return;
        at->index[i] = 0;
        for (int o = 0; o < a->operands; o++) at->offset[o] -= a->size[i] * a->stride[o][i];
    }
}

// Where the share of unit u of `units` starts among `total` things; the share of `units` is the end.
static inline int64_t kn_share(int64_t total, int64_t units, int64_t u) {
    int64_t rest = total % units;
    return total / units * u + (u < rest ? u : rest);
}

static inline int64_t kn_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t kn_most(int64_t a, int64_t b) { return a > b ? a : b; }

