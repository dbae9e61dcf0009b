// Running sums and products, in the order of the elements. Neighbouring lines are done together, so that
// memory is walked along them. See kn_cumulative.h.
#include "kn_cumulative.h"
#include "axes.h"

#include <stddef.h>

enum { TOGETHER = 64 }; // lines

typedef struct {
    int64_t size, out_step, x_step; // of the axis; out_step and x_step lead on, also in reverse
    int64_t out_line, x_line;       // from one of the lines that are done together to the next
    int prod, exclusive;
} run_t;

// TOTAL: unsigned for integers, which wrap
#define KN_RUN(name, TYPE, TOTAL)                                                                          \
    static void run_##name(const run_t *t, char *out_at, const char *x_at, int64_t lines) {                \
        TYPE *out = (TYPE *)(void *)out_at;                                                                \
        const TYPE *x = (const TYPE *)(const void *)x_at;                                                  \
        TOTAL total[TOGETHER];                                                                             \
        for (int64_t c = 0; c < lines; c++) total[c] = (TOTAL)t->prod;                                     \
        for (int64_t i = 0; i < t->size; i++, out += t->out_step, x += t->x_step)                          \
            for (int64_t c = 0; c < lines; c++) {                                                          \
                TOTAL here = (TOTAL)x[c * t->x_line], before = total[c];                                   \
                total[c] = t->prod ? before * here : before + here;                                        \
                out[c * t->out_line] = (TYPE)(t->exclusive ? before : total[c]);                           \
            }                                                                                              \
    }
KN_RUN(f32, float, float)
KN_RUN(f64, double, double)
KN_RUN(i32, int32_t, uint32_t)
KN_RUN(i64, int64_t, uint64_t)

typedef void (*run_fn)(const run_t *t, char *out, const char *x, int64_t lines);

static void cumulative(const int64_t *n, char *const *p, int64_t begin, int64_t end, run_fn run, int64_t bytes) {
    kn_axes axes;
    kn_axes_read(&axes, n + KN_CUMULATIVE_AXES, (int)n[KN_CUMULATIVE_LINES], 2);
    int64_t total = kn_axes_count(&axes), units = n[KN_CUMULATIVE_UNITS], size = n[KN_CUMULATIVE_SIZE];
    if (total == 0 || size == 0) return;
    kn_axes_sort(&axes);
    kn_axes_merge(&axes);
    if (axes.rank == 0) kn_axes_append(&axes);
    int last = --axes.rank;
    int64_t row = axes.size[last], out_step = n[KN_CUMULATIVE_STEPS], x_step = n[KN_CUMULATIVE_STEPS + 1];
    int64_t out_start = 0, x_start = 0;
    if (n[KN_CUMULATIVE_REVERSE]) {
        out_start = (size - 1) * out_step, x_start = (size - 1) * x_step;
        out_step = -out_step, x_step = -x_step;
    }
    run_t t = {size,
               out_step,
               x_step,
               axes.stride[0][last],
               axes.stride[1][last],
               (int)n[KN_CUMULATIVE_PROD],
               (int)n[KN_CUMULATIVE_EXCLUSIVE]};
    int64_t line = kn_share(total, units, begin), stop = kn_share(total, units, end);
    while (line < stop) {
        int64_t column = line % row, lines = kn_least(kn_least(TOGETHER, row - column), stop - line);
        kn_place at;
        kn_place_at(&at, &axes, line / row);
        run(&t, p[0] + (at.offset[0] + column * t.out_line + out_start) * bytes,
            p[1] + (at.offset[1] + column * t.x_line + x_start) * bytes, lines);
        line += lines;
    }
}

#define KN_KERNEL(name, bytes)                                                                             \
    static void cumulative_##name(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) { \
        (void)scratch;                                                                                     \
        cumulative(n, p, begin, end, run_##name, bytes);                                                   \
    }
KN_KERNEL(f32, 4)
KN_KERNEL(f64, 8)
KN_KERNEL(i32, 4)
KN_KERNEL(i64, 8)

const kn_entry kn_cumulative_entries[] = {
    {"cumulative_f32", cumulative_f32},
    {"cumulative_f64", cumulative_f64},
    {"cumulative_i32", cumulative_i32},
    {"cumulative_i64", cumulative_i64},
    {NULL, NULL},
};
