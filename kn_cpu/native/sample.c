// Sampling at positions that are data: the neighbours of a position along each axis, then their sum for
// all channels. Positions are rounded as the reference rounds them, since the nearest element of one
// that lies between two depends on it. See kn_sample.h.
#include "kn_sample.h"
#include "axes.h"
#include "simd.h"

#include <math.h>
#include <stddef.h>

enum { AXES = 3, NEIGHBOURS = 4, BLOCK = 64 }; // BLOCK: positions whose neighbours are found together

#define CUBIC_A (-0.75f)
#define FAR 0x1p30f // positions beyond are as good as this

// Of a position along an axis, without those that are 0.
typedef struct {
    int64_t count, index[NEIGHBOURS];
    float weight[NEIGHBOURS];
} neighbours_t;

// The elements that samples are sums of; there is room for `most` for each sample.
typedef struct {
    int64_t most, *count, *offset, *out; // out: where the sample goes
    float *weight;
} corners_t;

// A product that is rounded before anything is added to it.
INL float product(float a, float b) { return (float)((double)a * (double)b); }

// Reflects at the edges, or at the centres of the outer elements, until inside.
static double reflected(double x, int64_t size, int align, int single) {
    double low = align ? 0.0 : -0.5, width = (align ? (double)size - 1.0 : (double)size - 0.5) - low;
    if (width == 0) return 0;
    if (single) { // in the precision of positions
        float folded = fmodf((float)x - (float)low, (float)(2 * width));
        if (folded < 0) folded += (float)(2 * width);
        return (folded <= (float)width ? folded : (float)(2 * width) - folded) + (float)low;
    }
    double folded = fmod(x - low, 2 * width);
    if (folded < 0) folded += 2 * width;
    return (folded <= width ? folded : 2 * width - folded) + low;
}

INL float position_of(const kn_sample *t, float g, int64_t size, int mode) {
    float n = (float)size, at = g;
    if (t->align)
        at = product((g + 1.0f) / 2.0f, (float)(size - 1));
    else if (!t->elements)
        at = (product(g + 1.0f, n) - 1.0f) / 2.0f;
    if (mode == KN_SAMPLE_NEAREST) at = rintf(at);
    if (t->padding == KN_SAMPLE_REFLECTION) return isfinite(at) ? (float)reflected(at, size, (int)t->align, 1) : 0.0f;
    if (at != at) return t->padding == KN_SAMPLE_ZEROS ? -FAR : 0.0f;
    return at < -FAR ? -FAR : at > FAR ? FAR : at;
}

INL float cubic_weight(float t) {
    float d = fabsf(t);
    if (d <= 1) return ((CUBIC_A + 2) * d - (CUBIC_A + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * d * CUBIC_A - 4 * CUBIC_A : 0.0f;
}

INL void add_neighbour(const kn_sample *t, neighbours_t *to, int64_t index, float weight, int64_t size) {
    if (t->padding == KN_SAMPLE_REFLECTION) index = (int64_t)reflected((double)index, size, (int)t->align, 0);
    if (t->padding == KN_SAMPLE_ZEROS && (index < 0 || index >= size)) return;
    to->index[to->count] = kn_most(0, kn_least(index, size - 1));
    to->weight[to->count++] = weight;
}

INL void find_neighbours(const kn_sample *t, neighbours_t *to, float g, int64_t size, int mode) {
    float at = position_of(t, g, size, mode);
    to->count = 0;
    if (mode == KN_SAMPLE_NEAREST) {
        add_neighbour(t, to, (int64_t)at, 1.0f, size);
        return;
    }
    float below = floorf(at), rest = at - below;
    int64_t first = (int64_t)below;
    if (mode == KN_SAMPLE_LINEAR) {
        add_neighbour(t, to, first, 1.0f - rest, size);
        add_neighbour(t, to, first + 1, 1.0f - fabsf(rest - 1.0f), size);
        return;
    }
    for (int step = -1; step < 3; step++)
        add_neighbour(t, to, first + step, cubic_weight(rest - (float)step), size);
}

// All choices of neighbours, one for each axis.
INL void find_corners(const kn_sample *t, const corners_t *to, int64_t point, const float *grid, int mode) {
    int64_t *offset = to->offset + point * to->most, count = 1;
    float *weight = to->weight + point * to->most;
    offset[0] = 0;
    weight[0] = 1.0f;
    for (int64_t a = AXES - t->rank; a < AXES; a++) {
        neighbours_t near;
        find_neighbours(t, &near, grid[(AXES - 1 - a) * t->grid_number], t->in[a], mode);
        for (int64_t c = count - 1; c >= 0; c--) // from the back: each makes room for more
            for (int64_t i = near.count - 1; i >= 0; i--) {
                offset[c * near.count + i] = offset[c] + near.index[i] * t->x_space[a];
                weight[c * near.count + i] = weight[c] * near.weight[i];
            }
        count *= near.count;
    }
    to->count[point] = count;
}

// ---- sums ---------------------------------------------------------------------------------------

INL float sample_of(const float *x, const int64_t *offset, const float *weight, int64_t count, int mode) {
    if (mode == KN_SAMPLE_NEAREST) return count ? x[offset[0]] : 0.0f; // no product: an infinity stays one
    float sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[offset[i]] * weight[i];
    return sum;
}

// A plane of channel after another.
INL void take_planes(const kn_sample *t, float *out, const float *x, const corners_t *from, int64_t points, int mode) {
    for (int64_t c = 0; c < t->channels; c++, out += t->out_channel, x += t->x_channel) {
        const int64_t *offset = from->offset;
        const float *weight = from->weight;
        for (int64_t p = 0; p < points; p++, offset += from->most, weight += from->most)
            out[from->out[p]] = from->count[p] == 4 ? sample_of(x, offset, weight, 4, mode)
                                                    : sample_of(x, offset, weight, from->count[p], mode);
    }
}

// All channels of a sample together: they lie side by side.
INL void take_channels(const kn_sample *t, float *out, const float *x, const corners_t *from, int64_t points,
                       int mode) {
    for (int64_t p = 0; p < points; p++) {
        const int64_t *offset = from->offset + p * from->most, count = from->count[p];
        const float *weight = from->weight + p * from->most;
        float *to = out + from->out[p];
        int64_t c = 0;
        for (; c + VF <= t->channels; c += VF) {
            vf sum = set1(0.0f);
            if (mode == KN_SAMPLE_NEAREST)
                sum = count ? ld(x + c + offset[0]) : sum;
            else
                for (int64_t i = 0; i < count; i++) sum += ld(x + c + offset[i]) * set1(weight[i]);
            st(to + c, sum);
        }
        for (; c < t->channels; c++) to[c] = sample_of(x + c, offset, weight, count, mode);
    }
}

// Samples `points` positions of an image, from the position `first` on.
INL void sample(const kn_sample *t, char *const *p, const corners_t *corners, int64_t image, int64_t first,
                int64_t points, int mode) {
    const float *x = (const float *)(const void *)p[1] + image * t->x_image;
    float *out = (float *)(void *)p[0] + image * t->out_image;
    int64_t empty = t->in[0] * t->in[1] * t->in[2] == 0;
    for (int64_t i = 0; i < points; i++) {
        int64_t rest = first + i;
        const float *grid = (const float *)(const void *)p[2] + image * t->grid_image;
        corners->out[i] = 0;
        for (int a = AXES - 1; a >= 0; rest /= t->out[a--]) {
            grid += rest % t->out[a] * t->grid_space[a];
            corners->out[i] += rest % t->out[a] * t->out_space[a];
        }
        if (empty)
            corners->count[i] = 0;
        else
            find_corners(t, corners, i, grid, mode);
    }
    if (t->x_channel == 1 && t->out_channel == 1)
        take_channels(t, out, x, corners, points, mode);
    else
        take_planes(t, out, x, corners, points, mode);
}

static void grid_sample(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_sample *t = (const kn_sample *)(const void *)n;
    int64_t points = t->out[0] * t->out[1] * t->out[2], total = t->images * points;
    if (total == 0 || t->channels == 0) return;
    int64_t *places = (int64_t *)(void *)scratch;
    corners_t corners = {t->most, places, places + 2 * BLOCK, places + BLOCK, NULL};
    corners.weight = (float *)(void *)(corners.offset + BLOCK * t->most);
    int64_t number = kn_share(total, t->units, begin), stop = kn_share(total, t->units, end);
    while (number < stop) {
        int64_t first = number % points, count = kn_least(kn_least(BLOCK, points - first), stop - number);
        switch (t->mode) {
        case KN_SAMPLE_NEAREST: sample(t, p, &corners, number / points, first, count, KN_SAMPLE_NEAREST); break;
        case KN_SAMPLE_LINEAR: sample(t, p, &corners, number / points, first, count, KN_SAMPLE_LINEAR); break;
        default: sample(t, p, &corners, number / points, first, count, KN_SAMPLE_CUBIC);
        }
        number += count;
    }
}

const kn_entry kn_sample_entries[] = {{"grid_sample_f32", grid_sample}, {NULL, NULL}};
