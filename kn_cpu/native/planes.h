// What kernels over windows walk: rows of results along the last of three spatial axes, for each place
// among the other axes. Where one of these is contiguous in both operands, as channels are that lie last,
// a row has all of its elements side by side.
#pragma once
#include "axes.h"

typedef struct {
    kn_axes lead;        // the other axes of out and x, but the contiguous one
    int64_t columns;     // elements of that one; 0 where there is none
    int64_t plane, high; // rows of results for each place among `lead`; those of each outer spatial axis
    int64_t total;       // rows of results
    const int64_t *step; // strides of the spatial axes of out
} kn_planes;

typedef struct {
    float *out;     // the first result
    const float *x; // element 0 of the spatial axes
    int64_t d, h;   // places along the outer spatial axes
} kn_plane_row;

// The other axes as numbers of a step hold them, the sizes of three spatial axes, their strides in out.
static inline kn_planes kn_planes_read(const int64_t *lead, int rank, const int64_t *size, const int64_t *step) {
    kn_planes t = {.plane = size[0] * size[1], .high = size[1], .step = step};
    kn_axes_read(&t.lead, lead, rank, 2);
    if (kn_axes_count(&t.lead) * t.plane * size[2] == 0) return t;
    kn_axes_sort(&t.lead);
    kn_axes_merge(&t.lead);
    const int last = t.lead.rank - 1;
    if (last >= 0 && t.lead.stride[0][last] == 1 && t.lead.stride[1][last] == 1) {
        t.columns = t.lead.size[last];
        t.lead.rank--;
    }
    t.total = kn_axes_count(&t.lead) * t.plane;
    return t;
}

static inline kn_plane_row kn_plane_row_at(const kn_planes *t, char *const *p, int64_t row) {
    kn_place at;
    kn_place_at(&at, &t->lead, row / t->plane);
    const int64_t d = row % t->plane / t->high, h = row % t->high;
    float *out = (float *)(void *)p[0] + at.offset[0] + d * t->step[0] + h * t->step[1];
    return (kn_plane_row){out, (const float *)(const void *)p[1] + at.offset[1], d, h};
}
