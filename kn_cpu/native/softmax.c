// Softmax of rows, and of columns where another axis is contiguous. See kn_softmax.h.
#include "kn_softmax.h"
#include "axes.h"
#include "rows.h"

#include <math.h>
#include <stddef.h>

enum { COLUMNS = 256, ROWS = 64 }; // of a block; rows after which its sums start anew

// ---- rows -------------------------------------------------------------------------------------

// The sum of exp(x - largest), which are written unless out is NULL.
INL double row_powers(float *out, const float *x, int64_t n, float largest) {
    double total = 0;
    vf shift = set1(largest);
    for (int64_t start = 0; start < n; start += KN_SUM_BLOCK) {
        int64_t i = start, stop = kn_least(n, start + KN_SUM_BLOCK);
        vf a = set1(0.0f), b = a;
        for (; i + 2 * VF <= stop; i += 2 * VF) {
            vf y = kn_exp_below(ld(x + i) - shift), z = kn_exp_below(ld(x + i + VF) - shift);
            if (out) {
                st(out + i, y);
                st(out + i + VF, z);
            }
            a += y;
            b += z;
        }
        for (; i < stop; i += VF) {
            int64_t count = kn_least(VF, stop - i);
            vf y = count < VF ? ld_part_or(x + i, count, -__builtin_inff()) : ld(x + i);
            y = kn_exp_below(y - shift);
            if (out) st_count(out + i, y, count);
            a += y; // beyond the row: exp(-inf) = 0
        }
        total += kn_lanes_sum(a + b);
    }
    return total;
}

static void softmax_row(float *out, const float *x, int64_t n) {
    double total = row_powers(out, x, n, kn_row_max(x, 1, n));
    vf factor = set1((float)(1.0 / total));
    int64_t i = 0;
    for (; i + VF <= n; i += VF) st(out + i, ld(out + i) * factor);
    if (i < n) st_part(out + i, ld_part(out + i, n - i) * factor, n - i);
}

static void log_softmax_row(float *out, const float *x, int64_t n) {
    float largest = kn_row_max(x, 1, n);
    vf shift = set1(largest), rest = set1((float)log(row_powers(NULL, x, n, largest)));
    int64_t i = 0;
    for (; i + VF <= n; i += VF) st(out + i, ld(x + i) - shift - rest);
    if (i < n) st_part(out + i, ld_part(x + i, n - i) - shift - rest, n - i);
}

// ---- short rows: as many at once as a vector has lanes, which hold their sums ------------------

enum { SHORT = 256, AT_ONCE = 4096 }; // elements of a row; of all rows at once

INL vf row_top(const float *x, int64_t n) {
    vf a = set1(-__builtin_inff()), b = a;
    int64_t i = 0;
    for (; i + 2 * VF <= n; i += 2 * VF) {
        a = vmax_second(a, ld(x + i));
        b = vmax_second(b, ld(x + i + VF));
    }
    if (i + VF <= n) {
        a = vmax_second(a, ld(x + i));
        i += VF;
    }
    if (i < n) b = vmax_second(b, ld_part_or(x + i, n - i, -__builtin_inff()));
    return vmax_second(a, b);
}

// Lanes that add up to the sum of the exponentials, which are written unless `out` is NULL.
INL vf row_sums(float *out, const float *x, int64_t n, vf shift) {
    vf a = set1(0.0f);
    int64_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf y = kn_exp_below(ld(x + i) - shift);
        if (out) st(out + i, y);
        a += y;
    }
    if (i == n) return a;
    vf y = kn_exp_below(ld_part_or(x + i, n - i, -__builtin_inff()) - shift);
    if (out) st_part(out + i, y, n - i);
    return a + vselect(kn_lanes() < (int32_t)(n - i), y, set1(0.0f));
}

static void short_rows(float *const *out, const float *const *x, int64_t count, int64_t n, int log_of) {
    vf v[VF], sums, zero = set1(0.0f);
    float top[VF], end[VF];
    for (int64_t r = 0; r < VF; r++) v[r] = r < count ? row_top(x[r], n) : zero;
    st(top, kn_vector_max(v));
    for (int64_t r = 0; r < VF; r++) v[r] = r < count ? row_sums(log_of ? NULL : out[r], x[r], n, set1(top[r])) : zero;
    sums = kn_vector_sums(v);
    st(end, log_of ? vlog(sums) : set1(1.0f) / sums);
    for (int64_t r = 0; r < count; r++) {
        vf shift = set1(top[r]), last = set1(end[r]);
        for (int64_t i = 0; i < n; i += VF) {
            vf y = log_of ? ld_count(x[r] + i, n - i) - shift - last : ld_count(out[r] + i, n - i) * last;
            st_count(out[r] + i, y, n - i);
        }
    }
}

static void all_short(const kn_axes *kept, float *out, const float *x, int64_t row, int64_t stop, int64_t n, int log_of) {
    const int64_t most = kn_least(VF, AT_ONCE / n);
    kn_place at;
    kn_place_at(&at, kept, row);
    while (row < stop) {
        float *to[VF];
        const float *from[VF];
        int64_t count = kn_least(most, stop - row);
        for (int64_t r = 0; r < count; r++, kn_place_next(&at, kept)) to[r] = out + at.offset[0], from[r] = x + at.offset[1];
        short_rows(to, from, count, n, log_of);
        row += count;
    }
}

// Rows with gaps, one element at a time.
static void strided_row(float *out, int64_t out_step, const float *x, int64_t x_step, int64_t n, int log_of) {
    float largest = kn_row_max(x, x_step, n);
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        float y = x[i * x_step] - largest;
        total += kn_exp_below(set1(y))[0];
    }
    float factor = (float)(1.0 / total), rest = (float)log(total);
    for (int64_t i = 0; i < n; i++) {
        float y = x[i * x_step] - largest;
        out[i * out_step] = log_of ? y - rest : kn_exp_below(set1(y))[0] * factor;
    }
}

// ---- columns: rows are walked as they lie in memory, for a block of columns ----------------------

static void softmax_columns(float *out, int64_t out_step, const float *x, int64_t x_step, int64_t n, int64_t count,
                            int log_of) {
    float largest[COLUMNS], total[COLUMNS], part[COLUMNS];
    for (int64_t c = 0; c < COLUMNS; c++) {
        largest[c] = -__builtin_inff();
        total[c] = part[c] = 0;
    }
    // where a NaN gets lost here it comes back in its exponential
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < count; c += VF)
            st(largest + c, vmax_second(ld(largest + c), ld_count(x + r * x_step + c, count - c)));
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < count; c += VF) {
            vf y = kn_exp_below(ld_count(x + r * x_step + c, count - c) - ld(largest + c));
            if (!log_of) st_count(out + r * out_step + c, y, count - c);
            st(part + c, ld(part + c) + y);
        }
        if ((r + 1) % ROWS && r + 1 < n) continue;
        for (int64_t c = 0; c < count; c += VF) {
            st(total + c, ld(total + c) + ld(part + c));
            st(part + c, set1(0.0f));
        }
    }
    for (int64_t c = 0; c < count; c += VF) {
        vf sum = ld(total + c);
        st(total + c, log_of ? vlog(sum) : set1(1.0f) / sum);
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < count; c += VF) {
            float *to = out + r * out_step + c;
            if (log_of) {
                vf y = ld_count(x + r * x_step + c, count - c);
                st_count(to, y - ld(largest + c) - ld(total + c), count - c);
            } else {
                st_count(to, ld_count(to, count - c) * ld(total + c), count - c);
            }
        }
}

static void softmax(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    kn_axes kept;
    kn_axes_read(&kept, n + KN_SOFTMAX_AXES, (int)n[KN_SOFTMAX_KEPT], 2);
    int64_t size = n[KN_SOFTMAX_SIZE], units = n[KN_SOFTMAX_UNITS];
    int64_t out_step = n[KN_SOFTMAX_OUT_STEP], x_step = n[KN_SOFTMAX_X_STEP], rows = kn_axes_count(&kept);
    if (rows == 0 || size == 0) return;
    int log_of = (int)n[KN_SOFTMAX_LOG], whole = (out_step == 1 && x_step == 1) || size == 1;
    float *out = (float *)(void *)p[0];
    const float *x = (const float *)(const void *)p[1];
    kn_axes_sort(&kept);
    kn_axes_merge(&kept);
    int last = kept.rank - 1;
    kn_place at;
    if (whole || last < 0 || kept.stride[0][last] != 1 || kept.stride[1][last] != 1) {
        int64_t row = kn_share(rows, units, begin), stop = kn_share(rows, units, end);
        if (whole && size <= SHORT) {
            all_short(&kept, out, x, row, stop, size, log_of);
            return;
        }
        kn_place_at(&at, &kept, row);
        for (; row < stop; row++, kn_place_next(&at, &kept)) {
            if (!whole)
                strided_row(out + at.offset[0], out_step, x + at.offset[1], x_step, size, log_of);
            else if (log_of)
                log_softmax_row(out + at.offset[0], x + at.offset[1], size);
            else
                softmax_row(out + at.offset[0], x + at.offset[1], size);
        }
        return;
    }
    int64_t columns = kept.size[last], blocks = (columns + COLUMNS - 1) / COLUMNS, total = rows / columns * blocks;
    kept.rank--;
    int64_t block = kn_share(total, units, begin), stop = kn_share(total, units, end);
    for (; block < stop; block++) {
        kn_place_at(&at, &kept, block / blocks);
        int64_t column = block % blocks * COLUMNS;
        softmax_columns(out + at.offset[0] + column, out_step, x + at.offset[1] + column, x_step, size,
                        kn_least(COLUMNS, columns - column), log_of);
    }
}

const kn_entry kn_softmax_entries[] = {{"softmax_f32", softmax}, {NULL, NULL}};
