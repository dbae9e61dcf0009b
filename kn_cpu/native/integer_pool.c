// The maximum of windows of bytes; the numbers are those of kn_pool.h. Where another axis is
// contiguous (channels last), vectors lie along it.
#include "kn_integer_pool.h"
#include "axes.h"
#include "kn_pool.h"

#include <stddef.h>

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { TOGETHER = 256 }; // bytes of a run of channels

// The taps of a window that meet something, and where the first one is.
typedef struct {
    int64_t count, offset, step;
} taps_t;

static taps_t taps_at(const int64_t *n, int axis, int64_t window) {
    const int64_t dilation = n[KN_POOL_DILATION + axis], kernel = n[KN_POOL_KERNEL + axis];
    const int64_t start = window * n[KN_POOL_STEP + axis] - n[KN_POOL_BEFORE + axis];
    const int64_t room = n[KN_POOL_IN + axis] - start, stride = n[KN_POOL_X_STRIDE + axis];
    const int64_t first = start < 0 ? (-start + dilation - 1) / dilation : 0;
    const int64_t stop = room <= 0 ? 0 : kn_least(kernel, (room + dilation - 1) / dilation);
    return (taps_t){kn_most(0, stop - first), (start + first * dilation) * stride, dilation * stride};
}

#define POOL(T, name, lowest)                                                                            \
    static void fold_##name(T *to, int64_t to_step, const T *x, int64_t step, const taps_t *taps, int64_t count) { \
        T most[TOGETHER];                                                                                \
        for (int64_t c = 0; c < TOGETHER; c++) most[c] = lowest;                                         \
        for (int64_t d = 0; d < taps[0].count; d++)                                                      \
            for (int64_t h = 0; h < taps[1].count; h++) {                                                \
                const T *at = x + d * taps[0].step + h * taps[1].step;                                   \
                for (int64_t w = 0; w < taps[2].count; w++, at += taps[2].step) {                        \
                    if (count == TOGETHER && step == 1)                                                  \
                        for (int64_t c = 0; c < TOGETHER; c++) most[c] = at[c] > most[c] ? at[c] : most[c]; \
                    else if (step == 1)                                                                  \
                        for (int64_t c = 0; c < count; c++) most[c] = at[c] > most[c] ? at[c] : most[c]; \
                    else                                                                                 \
                        for (int64_t c = 0; c < count; c++)                                              \
                            most[c] = at[c * step] > most[c] ? at[c * step] : most[c];                   \
                }                                                                                        \
            }                                                                                            \
        INDEPENDENT for (int64_t c = 0; c < count; c++) to[c * to_step] = most[c];                       \
    }                                                                                                    \
    static void pool_##name(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) { \
        (void)scratch;                                                                                   \
        kn_axes lead;                                                                                    \
        const int64_t total = start(&lead, n), units = n[KN_POOL_UNITS];                                 \
        const int64_t plane = n[KN_POOL_OUT] * n[KN_POOL_OUT + 1], width = n[KN_POOL_OUT + 2];           \
        const int last = lead.rank - 1;                                                                  \
        int64_t row = total ? kn_share(total, units, begin) : 0, stop = total ? kn_share(total, units, end) : 0; \
        lead.rank--;                                                                                     \
        for (; row < stop; row++) {                                                                      \
            kn_place at;                                                                                 \
            kn_place_at(&at, &lead, row / plane);                                                        \
            const int64_t d = row % plane / n[KN_POOL_OUT + 1], h = row % n[KN_POOL_OUT + 1];            \
            const int64_t *out_stride = n + KN_POOL_OUT_STRIDE;                                          \
            taps_t taps[3] = {taps_at(n, 0, d), taps_at(n, 1, h)};                                       \
            T *out = (T *)(void *)p[0] + at.offset[0] + d * out_stride[0] + h * out_stride[1];           \
            const T *x = (const T *)(const void *)p[1] + at.offset[1] + taps[0].offset + taps[1].offset; \
            for (int64_t w = 0; w < width; w++) {                                                        \
                taps[2] = taps_at(n, 2, w);                                                              \
                for (int64_t c = 0; c < lead.size[last]; c += TOGETHER)                                  \
                    fold_##name(out + w * out_stride[2] + c * lead.stride[0][last], lead.stride[0][last], \
                                x + taps[2].offset + c * lead.stride[1][last], lead.stride[1][last], taps, \
                                kn_least(TOGETHER, lead.size[last] - c));                                \
            }                                                                                            \
        }                                                                                                \
    }

// Leaves the densest axis of the channels and images last; returns how many rows of windows there are.
static int64_t start(kn_axes *lead, const int64_t *n) {
    kn_axes_read(lead, n + KN_POOL_AXES, (int)n[KN_POOL_LEAD], 2);
    const int64_t windows = n[KN_POOL_OUT] * n[KN_POOL_OUT + 1];
    const int64_t all = kn_axes_count(lead) * windows * n[KN_POOL_OUT + 2];
    kn_axes_sort(lead);
    kn_axes_merge(lead);
    if (lead->rank == 0) kn_axes_append(lead);
    return all == 0 ? 0 : kn_axes_count(lead) / lead->size[lead->rank - 1] * windows;
}

POOL(uint8_t, u8, 0)
POOL(int8_t, i8, INT8_MIN)

const kn_entry kn_integer_pool_entries[] = {{"pool_u8", pool_u8}, {"pool_i8", pool_i8}, {NULL, NULL}};
