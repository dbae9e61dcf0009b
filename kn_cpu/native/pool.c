// Pooling. Where another axis is contiguous (channels last), vectors lie along it and each window is
// folded tap by tap. Else the rows of a window are folded into one padded row, and that along itself.
// See kn_pool.h.
#include "kn_pool.h"
#include "planes.h"
#include "rows.h"

#include <stddef.h>

enum { D, H, W, SPATIAL };

// The taps [first, stop) of a window that meet something, and how many count for a mean.
typedef struct {
    int64_t first, stop, counted;
} taps_t;

typedef struct {
    const int64_t *n;
    float *out, *row, *counts; // row: folded rows of windows; counts: of each window along W
    const float *x;
    int max, mean;
    float start; // what a fold begins with
} pool_t;

static int64_t ceil_div(int64_t a, int64_t b) { return a <= 0 ? -(-a / b) : (a + b - 1) / b; }

// How many taps at start, start + dilation, .. lie before a bound.
static int64_t taps_before(const pool_t *t, int axis, int64_t start, int64_t bound) {
    int64_t dilation = t->n[KN_POOL_DILATION + axis];
    int64_t count = dilation == 1 ? bound - start : ceil_div(bound - start, dilation);
    return kn_most(0, kn_least(count, t->n[KN_POOL_KERNEL + axis]));
}

static taps_t taps_at(const pool_t *t, int axis, int64_t window) {
    const int64_t *n = t->n;
    int64_t start = window * n[KN_POOL_STEP + axis] - n[KN_POOL_BEFORE + axis], size = n[KN_POOL_IN + axis];
    taps_t taps = {taps_before(t, axis, start, 0), taps_before(t, axis, start, size), 0};
    taps.counted = taps.stop - taps.first;
    if (n[KN_POOL_COUNT_PAD])
        taps.counted = taps_before(t, axis, start, size + n[KN_POOL_AFTER + axis]) -
                       taps_before(t, axis, start, -n[KN_POOL_BEFORE + axis]);
    return taps;
}

// Where element 0 of tap `tap` of a window lies along an axis of x.
static int64_t tap_offset(const pool_t *t, int axis, int64_t window, int64_t tap) {
    const int64_t *n = t->n;
    int64_t at = window * n[KN_POOL_STEP + axis] - n[KN_POOL_BEFORE + axis] + tap * n[KN_POOL_DILATION + axis];
    return at * n[KN_POOL_X_STRIDE + axis];
}

INL vf fold(int max, vf a, vf b) { return max ? kn_larger(a, b) : a + b; }
INL float fold_one(int max, float a, float b) { return max ? (b > a || b != b ? b : a) : a + b; }

// ---- channels last ------------------------------------------------------------------------------

// `vectors` vectors of channels, or fewer channels than one vector has.
INL void channels(const pool_t *t, float *out, const float *x, const taps_t *taps, vf divisor, int vectors,
                  int64_t count, int max) {
    const int64_t *step = t->n + KN_POOL_X_STRIDE, *dilation = t->n + KN_POOL_DILATION;
    vf a = set1(t->start), b = a, c = a, d = a;
    for (int64_t i = taps[D].first; i < taps[D].stop; i++)
        for (int64_t j = taps[H].first; j < taps[H].stop; j++) {
            const float *row = x + i * dilation[D] * step[D] + j * dilation[H] * step[H];
            for (int64_t k = taps[W].first; k < taps[W].stop; k++) {
                const float *at = row + k * dilation[W] * step[W];
                if (vectors == 0) {
                    a = fold(max, a, ld_part(at, count));
                    continue;
                }
                a = fold(max, a, ld(at));
                if (vectors == 1) continue;
                b = fold(max, b, ld(at + VF));
                c = fold(max, c, ld(at + 2 * VF));
                d = fold(max, d, ld(at + 3 * VF));
            }
        }
    if (t->mean) a /= divisor, b /= divisor, c /= divisor, d /= divisor;
    if (vectors == 0) {
        st_part(out, a, count);
        return;
    }
    st(out, a);
    if (vectors == 1) return;
    st(out + VF, b), st(out + 2 * VF, c), st(out + 3 * VF, d);
}

INL void channels_all(const pool_t *t, float *out, const float *x, const taps_t *taps, vf divisor, int64_t count,
                      int max) {
    int64_t c = 0;
    for (; c + 4 * VF <= count; c += 4 * VF) channels(t, out + c, x + c, taps, divisor, 4, 0, max);
    for (; c + VF <= count; c += VF) channels(t, out + c, x + c, taps, divisor, 1, 0, max);
    if (c < count) channels(t, out + c, x + c, taps, divisor, 0, count - c, max);
}

// A row of windows; out and x are at its first channel and element 0 of the spatial axes.
static void row_of_channels(const pool_t *t, float *out, const float *x, int64_t d, int64_t h, int64_t count) {
    const int64_t *n = t->n;
    taps_t taps[SPATIAL] = {taps_at(t, D, d), taps_at(t, H, h)};
    x += tap_offset(t, D, d, 0) + tap_offset(t, H, h, 0);
    for (int64_t w = 0; w < n[KN_POOL_OUT + W]; w++) {
        taps[W] = taps_at(t, W, w);
        vf divisor = set1((float)(taps[D].counted * taps[H].counted * taps[W].counted));
        float *to = out + w * n[KN_POOL_OUT_STRIDE + W];
        const float *from = x + tap_offset(t, W, w, 0);
        if (t->max)
            channels_all(t, to, from, taps, divisor, count, 1);
        else
            channels_all(t, to, from, taps, divisor, count, 0);
    }
}

// ---- rows ---------------------------------------------------------------------------------------

// row[i] = fold(row[i], x[i * step]); what is behind the row is folded with what folds begin with
INL void fold_row(float *row, const float *x, int64_t step, int64_t count, int max) {
    int64_t i = 0;
    if (step == 1) {
        for (; i + VF <= count; i += VF) st(row + i, fold(max, ld(row + i), ld(x + i)));
        if (i < count) {
            vf y = ld_part_or(x + i, count - i, max ? -__builtin_inff() : 0.0f);
            st(row + i, fold(max, ld(row + i), y));
        }
        return;
    }
    for (; i < count; i++) row[i] = fold_one(max, row[i], x[i * step]);
}

// Every `step`-th float, for steps of 1 and 2; reads up to step * VF floats.
INL vf ld_step(const float *p, int64_t step) {
    if (step == 1) return ld(p);
#if KN_VB == 64
    return __builtin_shufflevector(ld(p), ld(p + VF), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif KN_VB == 32
    return __builtin_shufflevector(ld(p), ld(p + VF), 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return __builtin_shufflevector(ld(p), ld(p + VF), 0, 2, 4, 6);
#endif
}

// Folds windows along the row; `outer` counts the rows that were folded into it.
INL void fold_windows(const pool_t *t, float *out, int64_t outer, int max) {
    const int64_t *n = t->n;
    int64_t count = n[KN_POOL_OUT + W], step = n[KN_POOL_STEP + W], out_step = n[KN_POOL_OUT_STRIDE + W];
    int64_t kernel = n[KN_POOL_KERNEL + W], dilation = n[KN_POOL_DILATION + W], i = 0;
    for (; out_step == 1 && step <= 2 && i < count; i += VF) {
        vf a = ld_step(t->row + i * step, step);
        for (int64_t k = 1; k < kernel; k++) a = fold(max, a, ld_step(t->row + i * step + k * dilation, step));
        if (t->mean) a /= ld(t->counts + i) * set1((float)outer);
        st_count(out + i, a, count - i);
    }
    for (; i < count; i++) {
        float a = t->row[i * step];
        for (int64_t k = 1; k < kernel; k++) a = fold_one(max, a, t->row[i * step + k * dilation]);
        out[i * out_step] = t->mean ? a / (t->counts[i] * (float)outer) : a;
    }
}

static void row_of_windows(const pool_t *t, float *out, const float *x, int64_t d, int64_t h) {
    const int64_t *n = t->n, *dilation = n + KN_POOL_DILATION, *stride = n + KN_POOL_X_STRIDE;
    int64_t before = n[KN_POOL_BEFORE + W];
    int64_t length = (n[KN_POOL_OUT + W] - 1) * n[KN_POOL_STEP + W] + (n[KN_POOL_KERNEL + W] - 1) * dilation[W] + 1;
    int64_t inside = kn_most(0, kn_least(n[KN_POOL_IN + W], length - before));
    taps_t down = taps_at(t, D, d), across = taps_at(t, H, h);
    for (int64_t i = 0; i < length; i += VF) st(t->row + i, set1(t->start));
    x += tap_offset(t, D, d, 0) + tap_offset(t, H, h, 0);
    for (int64_t i = down.first; i < down.stop; i++)
        for (int64_t j = across.first; j < across.stop; j++) {
            const float *from = x + i * dilation[D] * stride[D] + j * dilation[H] * stride[H];
            if (t->max)
                fold_row(t->row + before, from, stride[W], inside, 1);
            else
                fold_row(t->row + before, from, stride[W], inside, 0);
        }
    if (t->max)
        fold_windows(t, out, 1, 1);
    else
        fold_windows(t, out, down.counted * across.counted, 0);
}

static void pool(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    pool_t t = {.n = n, .max = n[KN_POOL_FN] == KN_POOL_MAX, .mean = n[KN_POOL_FN] == KN_POOL_MEAN};
    t.start = t.max ? -__builtin_inff() : 0.0f;
    t.counts = (float *)(void *)scratch;
    const kn_planes planes =
        kn_planes_read(n + KN_POOL_AXES, (int)n[KN_POOL_LEAD], n + KN_POOL_OUT, n + KN_POOL_OUT_STRIDE);
    const int64_t width = n[KN_POOL_OUT + W], units = n[KN_POOL_UNITS];
    if (planes.total == 0) return;
    t.row = t.counts + (width + VF - 1) / VF * VF;
    for (int64_t i = 0; i < width; i++) t.counts[i] = (float)taps_at(&t, W, i).counted;
    int64_t number = kn_share(planes.total, units, begin), stop = kn_share(planes.total, units, end);
    for (; number < stop; number++) {
        const kn_plane_row row = kn_plane_row_at(&planes, p, number);
        if (planes.columns)
            row_of_channels(&t, row.out, row.x, row.d, row.h, planes.columns);
        else
            row_of_windows(&t, row.out, row.x, row.d, row.h);
    }
}

// ---- indices ------------------------------------------------------------------------------------

enum { INDEX_OUT, INDEX_INDICES, INDEX_X, INDEX_OPERANDS };

// Where a window begins along an axis of x.
static int64_t first_of(const pool_t *t, int axis, int64_t window) {
    return window * t->n[KN_POOL_STEP + axis] - t->n[KN_POOL_BEFORE + axis];
}

// The largest element of a window, or its first NaN; returns its place among the spatial axes. x points to
// where the window begins, whose place is `first`; `step` says how places follow along each axis.
INL int64_t largest(const int64_t *n, const float *x, const taps_t *taps, int64_t first, const int64_t *step,
                    float *out) {
    const int64_t *x_step = n + KN_POOL_X_STRIDE, *dilation = n + KN_POOL_DILATION;
    int64_t found = -1;
    float best = -__builtin_inff();
    for (int64_t i = taps[D].first; i < taps[D].stop; i++)
        for (int64_t j = taps[H].first; j < taps[H].stop; j++) {
            const float *row = x + i * dilation[D] * x_step[D] + j * dilation[H] * x_step[H];
            const int64_t place = first + i * dilation[D] * step[D] + j * dilation[H] * step[H];
            for (int64_t k = taps[W].first; k < taps[W].stop; k++) {
                const float v = row[k * dilation[W] * x_step[W]];
                const int better = (found < 0) | (v > best) | ((v != v) & (best == best));
                best = better ? v : best;
                found = better ? place + k * dilation[W] * step[W] : found;
            }
        }
    *out = best;
    return found;
}

// A row of windows; out, indices and x are at its first one, and at element 0 of the spatial axes, whose
// place is `before`.
static void row_of_indices(const pool_t *t, float *out, int64_t *indices, const float *x, int64_t d, int64_t h,
                           int64_t before) {
    const int64_t *n = t->n;
    const int64_t *in = n + KN_POOL_IN, turned = n[KN_POOL_INDEX_TURNED];
    const int64_t step[SPATIAL] = {turned ? 1 : in[H] * in[W], turned ? in[D] : in[W], turned ? in[D] * in[H] : 1};
    taps_t taps[SPATIAL] = {taps_at(t, D, d), taps_at(t, H, h)};
    before += first_of(t, D, d) * step[D] + first_of(t, H, h) * step[H];
    x += tap_offset(t, D, d, 0) + tap_offset(t, H, h, 0);
    for (int64_t w = 0; w < n[KN_POOL_OUT + W]; w++) {
        taps[W] = taps_at(t, W, w);
        indices[w * n[KN_POOL_INDEX_STRIDE + W]] =
            largest(n, x + tap_offset(t, W, w, 0), taps, before + first_of(t, W, w) * step[W], step,
                    out + w * n[KN_POOL_OUT_STRIDE + W]);
    }
}

static void pool_index(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    pool_t t = {.n = n};
    kn_axes lead;
    kn_axes_read(&lead, n + KN_POOL_INDEX_AXES, (int)n[KN_POOL_INDEX_LEAD], INDEX_OPERANDS);
    const int64_t *in = n + KN_POOL_IN, *out = n + KN_POOL_OUT, *index_step = n + KN_POOL_INDEX_STRIDE;
    int64_t rows = out[D] * out[H], total = kn_axes_count(&lead) * rows, units = n[KN_POOL_UNITS];
    if (total * out[W] == 0) return;
    int64_t number = kn_share(total, units, begin), stop = kn_share(total, units, end);
    for (; number < stop; number++) {
        int64_t plane = number / rows, d = number % rows / out[H], h = number % out[H];
        kn_place at;
        kn_place_at(&at, &lead, plane);
        float *value = (float *)(void *)p[INDEX_OUT] + at.offset[INDEX_OUT];
        int64_t *index = (int64_t *)(void *)p[INDEX_INDICES] + at.offset[INDEX_INDICES];
        value += d * n[KN_POOL_OUT_STRIDE + D] + h * n[KN_POOL_OUT_STRIDE + H];
        index += d * index_step[D] + h * index_step[H];
        row_of_indices(&t, value, index, (const float *)(const void *)p[INDEX_X] + at.offset[INDEX_X], d, h,
                       plane * in[D] * in[H] * in[W]);
    }
}

const kn_entry kn_pool_entries[] = {{"pool_f32", pool}, {"pool_index_f32", pool_index}, {NULL, NULL}};
