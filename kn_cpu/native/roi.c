// Pooling of regions of images, a row of bins after another: see kn_roi.h. Coordinates are rounded as the
// reference rounds them, since the number of samples and what is outside of the image depend on them.
#include "kn_roi.h"
#include "axes.h"
#include "half.h"

#include <math.h>
#include <stddef.h>

enum { CORNERS = 256 }; // that are found together

// Where the samples of a region lie along an axis.
typedef struct {
    float start, width, step; // of a bin, and from one of its samples to the next
    int64_t count, size;      // samples of a bin; elements of the image
} samples_t;

// What a bin is made of: elements with weights.
typedef struct {
    int64_t count;
    int64_t offset[CORNERS];
    float weight[CORNERS];
} corners_t;

static void tell(char *const *p, int64_t what, int64_t image, int64_t region) {
    int64_t *status = (int64_t *)(void *)p[4];
    __atomic_store_n(status + 1, image, __ATOMIC_RELAXED);
    __atomic_store_n(status + 2, region, __ATOMIC_RELAXED);
    __atomic_store_n(status, what, __ATOMIC_RELAXED);
}

// Adds what was found to the sums of all channels, or takes the largest.
static void take(const kn_roi *t, float *restrict sum, const float *x, corners_t *from) {
    for (int64_t k = 0; k < from->count; k++) {
        const float *here = x + from->offset[k], weight = from->weight[k];
        if (t->largest)
            for (int64_t c = 0; c < t->channels; c++) {
                float term = here[c] * weight;
                sum[c] = term > sum[c] || term != term ? term : sum[c];
            }
        else
            for (int64_t c = 0; c < t->channels; c++) sum[c] += here[c] * weight;
    }
    from->count = 0;
}

static samples_t samples_of(const kn_roi *t, float start, float end, int axis) {
    float length = end - start;
    if (!t->middles && length < 1) length = 1;
    samples_t s = {start, length / (float)t->bins[axis], 0, t->samples, t->in[axis]};
    if (!s.count && isfinite(s.width) && s.width > 0) s.count = (int64_t)fminf(ceilf(s.width), 0x1p30f);
    s.step = s.width / (float)kn_most(s.count, 1);
    return s;
}

// The two elements around a sample, and their weights; both are 0 outside of the image.
static void around(const samples_t *s, int64_t bin, int64_t number, int64_t at[2], float weight[2]) {
    float place = s->start + (float)bin * s->width + ((float)number + 0.5f) * s->step;
    float last = (float)kn_most(s->size - 1, 0);
    int inside = place >= -1 && place <= (float)s->size;
    place = inside ? (place < 0 ? 0 : place > last ? last : place) : 0;
    at[0] = (int64_t)floorf(place);
    at[1] = kn_least(at[0] + 1, s->size - 1);
    float share = place - (float)at[0];
    weight[0] = inside ? 1 - share : 0;
    weight[1] = inside ? share : 0;
}

// Pools all channels of a bin into `sum`.
static void align_bin(const kn_roi *t, float *sum, const float *x, const samples_t s[2], int64_t i, int64_t j) {
    corners_t found;
    found.count = 0;
    int64_t points = s[0].count * s[1].count, nothing = 0; // whether an element without weight was met
    for (int64_t c = 0; c < t->channels; c++) sum[c] = t->largest && points ? -INFINITY : 0;
    for (int64_t k = 0; k < points; k++) {
        int64_t row[2], column[2];
        float a[2], b[2];
        around(&s[0], i, k / s[1].count, row, a);
        around(&s[1], j, k % s[1].count, column, b);
        for (int corner = 0; corner < 4; corner++) {
            float weight = a[corner / 2] * b[corner % 2];
            nothing |= weight == 0;
            if (weight == 0) continue;
            found.offset[found.count] = row[corner / 2] * t->x_space[0] + column[corner % 2] * t->x_space[1];
            found.weight[found.count++] = weight;
        }
        if (found.count > CORNERS - 4) take(t, sum, x, &found);
    }
    take(t, sum, x, &found);
    for (int64_t c = 0; c < t->channels; c++) {
        if (!t->largest && points) sum[c] /= (float)points;
        if (t->largest && nothing && sum[c] < 0) sum[c] = 0;
    }
}

static void put(const kn_roi *t, float *out, const float *sum) {
    for (int64_t c = 0; c < t->channels; c++) out[c * t->out_channel] = sum[c];
}

// The image of a region; NULL where there is none.
static const float *image_of(const kn_roi *t, char *const *p, int64_t region, int64_t image) {
    if (image < 0 || image >= t->images) {
        tell(p, 1, image, region);
        return NULL;
    }
    return (const float *)(const void *)p[1] + image * t->x_image;
}

static void roi_align(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_roi *t = (const kn_roi *)(const void *)n;
    float *out = (float *)(void *)p[0], *sum = (float *)(void *)scratch;
    float scale = bits_float((uint32_t)t->scale), shift = t->middles ? 0.5f : 0.0f;
    int64_t rows = t->regions * t->bins[0], stop = kn_share(rows, t->units, end);
    for (int64_t row = kn_share(rows, t->units, begin); row < stop; row++) {
        int64_t region = row / t->bins[0], i = row % t->bins[0];
        const float *roi = (const float *)(const void *)p[2] + region * t->roi_region;
        float corner[4];
        for (int k = 0; k < 4; k++) corner[k] = roi[k * t->roi_number] * scale - shift;
        samples_t s[2] = {samples_of(t, corner[1], corner[3], 0), samples_of(t, corner[0], corner[2], 1)};
        if (t->in[0] * t->in[1] == 0) s[0].count = 0;
        const float *x = image_of(t, p, region, ((const int64_t *)(const void *)p[3])[region * t->image_region]);
        if (x == NULL) continue;
        for (int64_t j = 0; j < t->bins[1]; j++) {
            align_bin(t, sum, x, s, i, j);
            put(t, out + region * t->out_region + i * t->out_space[0] + j * t->out_space[1], sum);
        }
    }
}

// ---- maxima of elements -------------------------------------------------------------------------

// The elements [range[0], range[1]) of a bin along an axis of size n.
static void bin_of(float start, float end, int64_t bins, int64_t bin, int64_t n, int64_t range[2]) {
    const float far = 0x1p40f;
    start = fminf(fmaxf(truncf(start + copysignf(0.5f, start)), -far), far);
    end = fminf(fmaxf(truncf(end + copysignf(0.5f, end)), -far), far);
    int64_t first = (int64_t)start, length = kn_most((int64_t)end - first + 1, 1);
    range[0] = kn_least(kn_most(first + bin * length / bins, 0), n);
    range[1] = kn_least(kn_most(first + ((bin + 1) * length + bins - 1) / bins, 0), n);
}

static void largest(const kn_roi *t, float *restrict sum, const float *x, const int64_t row[2],
                    const int64_t column[2]) {
    float first = row[0] < row[1] && column[0] < column[1] ? -INFINITY : 0;
    for (int64_t c = 0; c < t->channels; c++) sum[c] = first;
    for (int64_t h = row[0]; h < row[1]; h++)
        for (int64_t w = column[0]; w < column[1]; w++) {
            const float *here = x + h * t->x_space[0] + w * t->x_space[1];
            for (int64_t c = 0; c < t->channels; c++)
                sum[c] = here[c] > sum[c] || here[c] != here[c] ? here[c] : sum[c];
        }
}

static void max_roi_pool(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_roi *t = (const kn_roi *)(const void *)n;
    float *out = (float *)(void *)p[0], *sum = (float *)(void *)scratch, scale = bits_float((uint32_t)t->scale);
    int64_t rows = t->regions * t->bins[0], stop = kn_share(rows, t->units, end);
    for (int64_t number = kn_share(rows, t->units, begin); number < stop; number++) {
        int64_t region = number / t->bins[0], i = number % t->bins[0], row[2], column[2];
        const float *roi = (const float *)(const void *)p[2] + region * t->roi_region, *x = NULL;
        float corner[5];
        int finite = 1;
        for (int k = 0; k < 5; k++) {
            corner[k] = roi[k * t->roi_number];
            finite = finite && isfinite(corner[k]);
        }
        if (finite)
            x = image_of(t, p, region, (int64_t)fminf(fmaxf(corner[0], -0x1p40f), 0x1p40f));
        else
            tell(p, 2, 0, region);
        if (x == NULL) continue;
        bin_of(corner[2] * scale, corner[4] * scale, t->bins[0], i, t->in[0], row);
        for (int64_t j = 0; j < t->bins[1]; j++) {
            bin_of(corner[1] * scale, corner[3] * scale, t->bins[1], j, t->in[1], column);
            largest(t, sum, x, row, column);
            put(t, out + region * t->out_region + i * t->out_space[0] + j * t->out_space[1], sum);
        }
    }
}

const kn_entry kn_roi_entries[] = {
    {"roi_align_f32", roi_align}, {"max_roi_pool_f32", max_roi_pool}, {NULL, NULL}};
