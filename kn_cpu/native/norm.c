// Normalisation over axes, in two passes over a row that stays in cache. See kn_norm.h.
#include "kn_norm.h"
#include "axes.h"
#include "rows.h"

#include <math.h>
#include <stddef.h>

enum { OUT, X, SCALE, BIAS, RESIDUAL, OPERANDS };

typedef struct {
    kn_axes kept, reduced;
    float *out;
    const float *p[OPERANDS];
    int64_t count; // of elements that are normalised together
    float epsilon;
    int center;
    kn_axes outer;          // what is walked of the reduced axes, row by row
    int64_t rows, row;      // rows; their length, or how many columns are one group
    int64_t step[OPERANDS]; // of each operand along a row
} norm_t;

// ---- rows: the innermost reduced axis is walked -----------------------------------------------

// Sum of x - shift, or of its square, over one row.
INL double row_sum(const float *x, int64_t step, int64_t n, float shift, int square) {
    double total = 0;
    if (step != 1) {
        for (int64_t i = 0; i < n; i++) {
            float y = x[i * step] - shift;
            total += square ? y * y : y;
        }
        return total;
    }
    vf zero = set1(0.0f), mean = set1(shift);
    for (int64_t start = 0; start < n; start += KN_SUM_BLOCK) {
        int64_t i = start, stop = kn_least(n, start + KN_SUM_BLOCK);
        vf a = zero, b = zero, c = zero, d = zero;
        for (; i + 4 * VF <= stop; i += 4 * VF) {
            vf w = ld(x + i) - mean, y = ld(x + i + VF) - mean;
            vf z = ld(x + i + 2 * VF) - mean, v = ld(x + i + 3 * VF) - mean;
            a += square ? w * w : w;
            b += square ? y * y : y;
            c += square ? z * z : z;
            d += square ? v * v : v;
        }
        for (; i + VF <= stop; i += VF) {
            vf w = ld(x + i) - mean;
            a += square ? w * w : w;
        }
        if (i < stop) {
            vf w = ld_part_or(x + i, stop - i, shift) - mean;
            // where the mean is infinite its fill is NaN, and so is the result
            b += square ? w * w : w;
        }
        total += kn_lanes_sum((a + b) + (c + d));
    }
    return total;
}

static double row_plain(const float *x, int64_t step, int64_t n) { return row_sum(x, step, n, 0.0f, 0); }
static double row_squares(const float *x, int64_t step, int64_t n, float mean) {
    return row_sum(x, step, n, mean, 1);
}

// What multiplies or is added at element i of a row; 0 and 1 stand in for what is missing.
INL vf vector_at(const float *p, int64_t step, int64_t i, int64_t count) {
    return step == 0 ? set1(*p) : ld_count(p + i, count);
}

INL void vector_write(float *out, const float *const *p, const int64_t *step, int64_t i, int64_t count, vf mean,
                      vf inverse) {
    vf y = (ld_count(p[X] + i, count) - mean) * inverse;
    if (p[SCALE]) y *= vector_at(p[SCALE], step[SCALE], i, count);
    if (p[BIAS]) y += vector_at(p[BIAS], step[BIAS], i, count);
    if (p[RESIDUAL]) y += vector_at(p[RESIDUAL], step[RESIDUAL], i, count);
    st_count(out + i, y, count);
}

// step[]: of each operand along the row.
static void row_write(float *out, const float *const *p, const int64_t *step, int64_t n, float mean,
                      float inverse) {
    int vectors = step[OUT] == 1 && step[X] == 1;
    for (int o = SCALE; o < OPERANDS; o++) vectors &= step[o] == 0 || step[o] == 1;
    if (!vectors) {
        for (int64_t i = 0; i < n; i++) {
            float y = (p[X][i * step[X]] - mean) * inverse;
            if (p[SCALE]) y *= p[SCALE][i * step[SCALE]];
            if (p[BIAS]) y += p[BIAS][i * step[BIAS]];
            if (p[RESIDUAL]) y += p[RESIDUAL][i * step[RESIDUAL]];
            out[i * step[OUT]] = y;
        }
        return;
    }
    vf shift = set1(mean), factor = set1(inverse);
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vector_write(out, p, step, i, VF, shift, factor);
    if (i < n) vector_write(out, p, step, i, n - i, shift, factor);
}

// Moves the operands that there are by the offsets of a place.
INL void operands_at(const kn_place *at, const float *const *from, const float **p) {
    for (int o = X; o < OPERANDS; o++) p[o] = from[o] ? from[o] + at->offset[o] : NULL;
}

static void norm_row(const norm_t *t, const kn_place *kept) {
    const float *base[OPERANDS], *p[OPERANDS];
    operands_at(kept, t->p, base);
    kn_place at;
    double total = 0;
    float mean = 0;
    if (t->center) {
        kn_place_at(&at, &t->outer, 0);
        for (int64_t r = 0; r < t->rows; r++, kn_place_next(&at, &t->outer))
            total += row_plain(base[X] + at.offset[X], t->step[X], t->row);
        mean = (float)(total / (double)t->count);
    }
    total = 0;
    kn_place_at(&at, &t->outer, 0);
    for (int64_t r = 0; r < t->rows; r++, kn_place_next(&at, &t->outer))
        total += row_squares(base[X] + at.offset[X], t->step[X], t->row, mean);
    float inverse = 1.0f / sqrtf((float)(total / (double)t->count) + t->epsilon);
    kn_place_at(&at, &t->outer, 0);
    for (int64_t r = 0; r < t->rows; r++, kn_place_next(&at, &t->outer)) {
        operands_at(&at, base, p);
        row_write(t->out + kept->offset[OUT] + at.offset[OUT], p, t->step, t->row, mean, inverse);
    }
}

// ---- short rows: as many at once as a vector has lanes, which hold their sums ------------------

enum { SHORT = KN_SUM_BLOCK, AT_ONCE = 4096 }; // elements of a row; of all rows at once

typedef struct {
    float *out;
    const float *p[OPERANDS];
} row_t;

// Lanes that add up to the sum of x - mean over a row, or of its square.
INL vf row_part(const float *x, int64_t n, vf mean, const int square) {
    vf a = set1(0.0f), b = a;
    int64_t i = 0;
    for (; i + 2 * VF <= n; i += 2 * VF) {
        vf y = ld(x + i) - mean, z = ld(x + i + VF) - mean;
        a += square ? y * y : y;
        b += square ? z * z : z;
    }
    if (i + VF <= n) {
        vf y = ld(x + i) - mean;
        a += square ? y * y : y;
        i += VF;
    }
    if (i < n) {
        vf y = ld_part(x + i, n - i) - mean;
        y = vselect(kn_lanes() < (int32_t)(n - i), y, set1(0.0f));
        b += square ? y * y : y;
    }
    return a + b;
}

INL void short_write(const norm_t *t, const row_t *row, vf mean, vf inverse, const int scale, const int bias,
                     const int residual) {
    int64_t i = 0, n = t->row;
    for (; i + VF <= n; i += VF) {
        vf y = (ld(row->p[X] + i) - mean) * inverse;
        if (scale) y *= ld(row->p[SCALE] + i);
        if (bias) y += ld(row->p[BIAS] + i);
        if (residual) y += ld(row->p[RESIDUAL] + i);
        st(row->out + i, y);
    }
    if (i == n) return;
    vf y = (ld_part(row->p[X] + i, n - i) - mean) * inverse;
    if (scale) y *= ld_part(row->p[SCALE] + i, n - i);
    if (bias) y += ld_part(row->p[BIAS] + i, n - i);
    if (residual) y += ld_part(row->p[RESIDUAL] + i, n - i);
    st_part(row->out + i, y, n - i);
}

static void short_rows(const norm_t *t, const row_t *rows, int64_t count) {
    vf sums[VF], zero = set1(0.0f), size = set1((float)t->row);
    float mean[VF], inverse[VF];
    st(mean, zero);
    if (t->center) {
        for (int64_t r = 0; r < VF; r++) sums[r] = r < count ? row_part(rows[r].p[X], t->row, zero, 0) : zero;
        st(mean, kn_vector_sums(sums) / size);
    }
    for (int64_t r = 0; r < VF; r++) sums[r] = r < count ? row_part(rows[r].p[X], t->row, set1(mean[r]), 1) : zero;
    st(inverse, set1(1.0f) / vsqrt(kn_vector_sums(sums) / size + set1(t->epsilon)));
    const int kind = (t->p[SCALE] ? 1 : 0) | (t->p[BIAS] ? 2 : 0) | (t->p[RESIDUAL] ? 4 : 0);
    for (int64_t r = 0; r < count; r++) {
        vf m = set1(mean[r]), f = set1(inverse[r]);
        switch (kind) {
        case 0: short_write(t, rows + r, m, f, 0, 0, 0); break;
        case 1: short_write(t, rows + r, m, f, 1, 0, 0); break;
        case 2: short_write(t, rows + r, m, f, 0, 1, 0); break;
        case 3: short_write(t, rows + r, m, f, 1, 1, 0); break;
        default: short_write(t, rows + r, m, f, kind & 1, kind & 2, kind & 4);
        }
    }
}

// Whether all operands lie along short rows.
static int has_short_rows(const norm_t *t) {
    int dense = t->rows == 1 && t->row <= SHORT && t->step[OUT] == 1 && t->step[X] == 1;
    for (int o = SCALE; o < OPERANDS; o++) dense &= !t->p[o] || t->step[o] == 1;
    return dense;
}

static void norm_short(const norm_t *t, int64_t group, int64_t stop) {
    const int64_t most = kn_least(VF, kn_most(1, AT_ONCE / t->row));
    kn_place at;
    kn_place_at(&at, &t->kept, group);
    while (group < stop) {
        row_t rows[VF];
        int64_t count = kn_least(most, stop - group);
        for (int64_t r = 0; r < count; r++, kn_place_next(&at, &t->kept)) {
            rows[r].out = t->out + at.offset[OUT];
            operands_at(&at, t->p, rows[r].p);
        }
        short_rows(t, rows, count);
        group += count;
    }
}

// ---- columns: rows hold elements of several groups, `width` neighbours of each -------------------

enum {
    COLUMNS = 256,  // of a block at most
    TOGETHER = 8,   // rows that are added up before a store
    ROWS = 512,     // after which sums start anew
    NEAR = 64,      // how much larger squares of deviations from a row may be than those from the mean
};

typedef struct {
    float sum[COLUMNS + VF], square[COLUMNS + VF]; // of x - shift, over all rows
} sums_t;

// Adds some rows.
INL void add_rows(sums_t *s, const float *const *rows, const int64_t used, int64_t count, const float *shift) {
    for (int64_t c = 0; c < count; c += VF) {
        vf m = ld(shift + c), sum = set1(0.0f), square = sum;
        _Pragma("GCC unroll 8") for (int64_t i = 0; i < used; i++) {
            vf y = ld_count(rows[i] + c, count - c) - m;
            sum += y;
            square += y * y;
        }
        st(s->sum + c, ld(s->sum + c) + sum);
        st(s->square + c, ld(s->square + c) + square);
    }
}

static void column_sums(const norm_t *t, sums_t *total, const float *x, int64_t count, const float *shift) {
    sums_t part;
    memset(total, 0, sizeof *total);
    memset(&part, 0, sizeof part);
    kn_place at;
    kn_place_at(&at, &t->outer, 0);
    const float *rows[TOGETHER];
    for (int64_t r = 0; r < t->rows;) {
        int64_t used = 0;
        for (; used < TOGETHER && r < t->rows; r++, kn_place_next(&at, &t->outer)) rows[used++] = x + at.offset[X];
        if (used == TOGETHER)
            add_rows(&part, rows, TOGETHER, count, shift);
        else
            add_rows(&part, rows, used, count, shift);
        if (r % ROWS && r < t->rows) continue;
        for (int64_t c = 0; c < count; c += VF) {
            st(total->sum + c, ld(total->sum + c) + ld(part.sum + c));
            st(total->square + c, ld(total->square + c) + ld(part.square + c));
        }
        memset(&part, 0, sizeof part);
    }
}

// Mean and variance of each group, from sums over the columns, whose values lie around `shift`; returns
// whether they lie near enough for the difference of sums to be exact.
static int group_means(const norm_t *t, const sums_t *s, const float *shift, int64_t count, float *mean, float *variance) {
    int near = 1;
    double rows = (double)t->rows, width = (double)t->row;
    for (int64_t c = 0; c < count; c += t->row) {
        double middle = 0, total = 0;
        for (int64_t i = c; i < c + t->row; i++) middle += shift[i] + s->sum[i] / rows;
        middle = t->center ? middle / width : 0;
        for (int64_t i = c; i < c + t->row; i++) {
            double off = s->sum[i] / rows, inside = s->square[i] - off * s->sum[i];
            near &= !(s->square[i] > NEAR * inside);
            total += t->center ? inside + rows * (shift[i] + off - middle) * (shift[i] + off - middle) : s->square[i];
        }
        for (int64_t i = c; i < c + t->row; i++) {
            mean[i] = (float)middle;
            variance[i] = (float)(total / (double)t->count);
        }
    }
    return near || !t->center;
}

// Whether an operand is the same for all rows.
static int repeats(const norm_t *t, int operand) {
    int same = 1;
    for (int i = 0; i < t->outer.rank; i++) same &= t->outer.stride[operand][i] == 0 || t->outer.size[i] == 1;
    return same;
}

// One row of a block: (x - mean) * factor + shift, and a residual where there is one.
INL void column_write(float *out, const float *x, const float *residual, int64_t count, const float *mean,
                      const float *factor, const float *shift) {
    int64_t c = 0;
    for (; c + VF <= count; c += VF) {
        vf y = (ld(x + c) - ld(mean + c)) * ld(factor + c) + ld(shift + c);
        st(out + c, residual ? y + ld(residual + c) : y);
    }
    if (c == count) return;
    vf y = (ld_part(x + c, count - c) - ld(mean + c)) * ld(factor + c) + ld(shift + c);
    st_part(out + c, residual ? y + ld_part(residual + c, count - c) : y, count - c);
}

// How many columns a block has: blocks are of nearly equal size.
static int64_t block_of(const norm_t *t, int64_t columns) {
    int64_t all = columns / t->row, blocks = (all + COLUMNS / t->row - 1) / (COLUMNS / t->row);
    int64_t even = (all + blocks - 1) / blocks * t->row;
    return t->row == 1 ? (even + VF - 1) / VF * VF : even;
}

static void norm_columns(const norm_t *t, const kn_place *kept, int64_t column, int64_t count) {
    float mean[COLUMNS + VF] = {0}, inverse[COLUMNS + VF], shift[COLUMNS + VF] = {0};
    const float *base[OPERANDS], *p[OPERANDS];
    operands_at(kept, t->p, base);
    for (int o = X; o < OPERANDS; o++)
        if (base[o]) base[o] += column * t->step[o];
    float *out = t->out + kept->offset[OUT] + column;
    // sums around the first row do in one pass, unless that is far from the others: then around the mean
    sums_t sums;
    if (t->center) memcpy(shift, base[X], (size_t)count * sizeof *shift);
    column_sums(t, &sums, base[X], count, shift);
    if (!group_means(t, &sums, shift, count, mean, inverse)) {
        memcpy(shift, mean, sizeof shift);
        column_sums(t, &sums, base[X], count, shift);
        group_means(t, &sums, shift, count, mean, inverse);
    }
    memset(shift, 0, sizeof shift);
    for (int64_t c = 0; c < count; c += VF)
        st(inverse + c, set1(1.0f) / vsqrt(ld(inverse + c) + set1(t->epsilon)));
    const int scaled = base[SCALE] && repeats(t, SCALE), bias = base[BIAS] && repeats(t, BIAS);
    for (int64_t c = 0; scaled && c < count; c++) inverse[c] *= base[SCALE][c * t->step[SCALE]];
    for (int64_t c = 0; bias && c < count; c++) shift[c] = base[BIAS][c * t->step[BIAS]];
    const int plain = (scaled || !base[SCALE]) && (bias || !base[BIAS]) && (!base[RESIDUAL] || t->step[RESIDUAL]);
    kn_place at;
    kn_place_at(&at, &t->outer, 0);
    for (int64_t r = 0; r < t->rows; r++, kn_place_next(&at, &t->outer)) {
        operands_at(&at, base, p);
        float *to = out + at.offset[OUT];
        if (plain) {
            column_write(to, p[X], p[RESIDUAL], count, mean, inverse, shift);
            continue;
        }
        if (scaled) p[SCALE] = NULL;
        for (int64_t c = 0; c < count; c += VF) {
            int64_t some = kn_least(VF, count - c);
            vector_write(to, p, t->step, c, some, ld(mean + c), ld(inverse + c));
        }
    }
}

// Whether an operand lies along columns, `width` of which are one group: 1 or 0 is its stride then, and
// -1 says that it does not.
static int64_t column_step(const norm_t *t, int operand, int64_t width) {
    int64_t group = t->kept.stride[operand][t->kept.rank - 1];
    int64_t within = width == 1 ? group : t->reduced.stride[operand][t->reduced.rank - 1];
    if (operand > X && !t->p[operand]) return 0;
    if (group == 0 && within == 0 && operand > X) return 0;
    return group == width && within == 1 ? 1 : -1;
}

// Decides between rows and columns; returns how many columns there are, or 0.
static int64_t choose(norm_t *t) {
    int last = t->reduced.rank - 1;
    t->outer = t->reduced;
    for (int o = 0; o < OPERANDS; o++) t->step[o] = t->reduced.stride[o][last];
    t->row = t->reduced.size[last];
    if (t->kept.rank > 0) {
        int inside = t->step[X] == 1 && t->reduced.rank > 1 && t->row <= COLUMNS / 2;
        int64_t width = inside ? t->row : 1, steps[OPERANDS];
        int fits = inside || t->step[X] != 1;
        for (int o = 0; fits && o < OPERANDS; o++) fits = (steps[o] = column_step(t, o, width)) >= 0;
        if (fits) {
            memcpy(t->step, steps, sizeof steps);
            t->row = width;
            if (inside) t->outer.rank--;
            t->rows = t->count / width;
            return t->kept.size[t->kept.rank - 1] * width;
        }
    }
    t->outer.rank--;
    t->rows = t->count / t->row;
    return 0;
}

static void norm(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    norm_t t = {.out = (float *)(void *)p[OUT], .epsilon = kn_float(n[KN_NORM_EPSILON]), .center = (int)n[KN_NORM_CENTER]};
    for (int o = 0; o < OPERANDS; o++) t.p[o] = (const float *)(const void *)p[o];
    const int64_t *rest = kn_axes_read(&t.kept, n + KN_NORM_AXES, (int)n[KN_NORM_KEPT], OPERANDS);
    kn_axes_read(&t.reduced, rest, (int)n[KN_NORM_REDUCED], OPERANDS);
    int64_t groups = kn_axes_count(&t.kept), units = n[KN_NORM_UNITS];
    t.count = kn_axes_count(&t.reduced);
    if (groups == 0 || t.count == 0) return;
    kn_axes_sort(&t.kept);
    kn_axes_merge(&t.kept);
    kn_axes_sort(&t.reduced);
    kn_axes_merge(&t.reduced);
    if (t.reduced.rank == 0) kn_axes_append(&t.reduced);
    int64_t columns = choose(&t);
    kn_place at;
    if (columns == 0) {
        int64_t group = kn_share(groups, units, begin), stop = kn_share(groups, units, end);
        if (has_short_rows(&t)) {
            norm_short(&t, group, stop);
            return;
        }
        kn_place_at(&at, &t.kept, group);
        for (; group < stop; group++, kn_place_next(&at, &t.kept)) norm_row(&t, &at);
        return;
    }
    t.kept.rank--;
    int64_t block = block_of(&t, columns), blocks = (columns + block - 1) / block;
    int64_t total = groups / (columns / t.row) * blocks;
    int64_t number = kn_share(total, units, begin), stop = kn_share(total, units, end);
    for (; number < stop; number++) {
        kn_place_at(&at, &t.kept, number / blocks);
        int64_t column = number % blocks * block;
        norm_columns(&t, &at, column, kn_least(block, columns - column));
    }
}

const kn_entry kn_norm_entries[] = {{"norm_f32", norm}, {NULL, NULL}};
