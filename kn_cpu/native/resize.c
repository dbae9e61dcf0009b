// Resampling of up to three axes by tables of neighbours and weights. Vectors lie along a contiguous
// other axis (channels last); else rows are blended into one row, which is then sampled. See kn_resize.h.
#include "kn_resize.h"
#include "planes.h"
#include "rows.h"

#include <stddef.h>

enum { D, H, W, SPATIAL };

// The neighbours of one result along one axis.
typedef struct {
    const int64_t *index;
    const float *weight;
    int64_t count;
} taps_t;

typedef struct {
    const int64_t *n;
    char *const *p;
    float *row; // [KN_RESIZE_WIDTH]
} resize_t;

static taps_t taps_at(const resize_t *t, int axis, int64_t i) {
    int64_t count = t->n[KN_RESIZE_TAPS + axis];
    const int64_t *index = (const int64_t *)(const void *)t->p[2 + 2 * axis];
    const float *weight = (const float *)(const void *)t->p[3 + 2 * axis];
    return (taps_t){index + i * count, weight + i * count, count};
}

// ---- channels last ------------------------------------------------------------------------------

// `vectors` vectors of channels of one result, or the last `count` channels.
INL void channels(const resize_t *t, float *out, const float *x, const taps_t *taps, int vectors, int64_t count) {
    const int64_t *stride = t->n + KN_RESIZE_X_STRIDE;
    vf a = set1(0.0f), b = a, c = a, d = a;
    for (int64_t i = 0; i < taps[D].count; i++)
        for (int64_t j = 0; j < taps[H].count; j++) {
            const float *row = x + taps[D].index[i] * stride[D] + taps[H].index[j] * stride[H];
            float outer = taps[D].weight[i] * taps[H].weight[j];
            for (int64_t k = 0; k < taps[W].count; k++) {
                const float *at = row + taps[W].index[k] * stride[W];
                vf weight = set1(outer * taps[W].weight[k]);
                if (vectors == 0) {
                    a += ld_part(at, count) * weight;
                    continue;
                }
                a += ld(at) * weight;
                if (vectors == 1) continue;
                b += ld(at + VF) * weight;
                c += ld(at + 2 * VF) * weight;
                d += ld(at + 3 * VF) * weight;
            }
        }
    if (vectors == 0) {
        st_part(out, a, count);
        return;
    }
    st(out, a);
    if (vectors == 1) return;
    st(out + VF, b), st(out + 2 * VF, c), st(out + 3 * VF, d);
}

static void row_of_channels(const resize_t *t, float *out, const float *x, taps_t *taps, int64_t count) {
    for (int64_t w = 0; w < t->n[KN_RESIZE_OUT + W]; w++, out += t->n[KN_RESIZE_OUT_STRIDE + W]) {
        taps[W] = taps_at(t, W, w);
        int64_t c = 0;
        for (; c + 4 * VF <= count; c += 4 * VF) channels(t, out + c, x + c, taps, 4, 0);
        for (; c + VF <= count; c += VF) channels(t, out + c, x + c, taps, 1, 0);
        if (c < count) channels(t, out + c, x + c, taps, 0, count - c);
    }
}

// ---- rows ---------------------------------------------------------------------------------------

static void blend(float *row, const float *x, int64_t step, int64_t count, float weight, int fresh) {
    if (step != 1)
        for (int64_t i = 0; i < count; i++) row[i] = (fresh ? 0.0f : row[i]) + weight * x[i * step];
    else if (fresh)
        for (int64_t i = 0; i < count; i++) row[i] = weight * x[i];
    else
        for (int64_t i = 0; i < count; i++) row[i] += weight * x[i];
}

// out[w] = factor * the weighted sum of `count` elements of a row; constants where this is inlined
INL void sample(float *restrict out, int64_t step, const float *restrict row, const taps_t *across, int64_t width,
                int64_t count, float factor) {
    const int64_t *restrict index = across->index;
    const float *restrict weight = across->weight;
    for (int64_t w = 0; w < width; w++) {
        float sum = 0;
        for (int64_t k = w * count; k < (w + 1) * count; k++) sum += weight[k] * row[index[k]];
        out[w * step] = factor * sum;
    }
}

static void row_of_samples(const resize_t *t, float *out, const float *x, const taps_t *taps) {
    const int64_t *n = t->n, *stride = n + KN_RESIZE_X_STRIDE;
    int64_t width = n[KN_RESIZE_OUT + W], step = n[KN_RESIZE_OUT_STRIDE + W];
    const float *row = t->row;
    float factor = 1.0f;
    if (taps[D].count * taps[H].count == 1 && stride[W] == 1) {
        row = x + taps[D].index[0] * stride[D] + taps[H].index[0] * stride[H];
        factor = taps[D].weight[0] * taps[H].weight[0];
    } else {
        for (int64_t i = 0; i < taps[D].count; i++)
            for (int64_t j = 0; j < taps[H].count; j++)
                blend(t->row, x + taps[D].index[i] * stride[D] + taps[H].index[j] * stride[H], stride[W],
                      n[KN_RESIZE_WIDTH], taps[D].weight[i] * taps[H].weight[j], i + j == 0);
    }
    taps_t across = taps_at(t, W, 0);
    if (across.count == 1 && step == 1)
        sample(out, 1, row, &across, width, 1, factor);
    else if (across.count == 2 && step == 1)
        sample(out, 1, row, &across, width, 2, factor);
    else
        sample(out, step, row, &across, width, across.count, factor);
}

static void resize(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    resize_t t = {n, p, (float *)(void *)scratch};
    const kn_planes planes =
        kn_planes_read(n + KN_RESIZE_AXES, (int)n[KN_RESIZE_LEAD], n + KN_RESIZE_OUT, n + KN_RESIZE_OUT_STRIDE);
    const int64_t units = n[KN_RESIZE_UNITS];
    int64_t number = kn_share(planes.total, units, begin), stop = kn_share(planes.total, units, end);
    for (; number < stop; number++) {
        const kn_plane_row row = kn_plane_row_at(&planes, p, number);
        taps_t taps[SPATIAL] = {taps_at(&t, D, row.d), taps_at(&t, H, row.h)};
        if (planes.columns)
            row_of_channels(&t, row.out, row.x, taps, planes.columns);
        else
            row_of_samples(&t, row.out, row.x, taps);
    }
}

const kn_entry kn_resize_entries[] = {{"resize_f32", resize}, {NULL, NULL}};
