// Reductions over any axes, and indices of extremes. Rows are walked where a reduced axis is
// contiguous, else vectors lie along a contiguous kept axis. See kn_reduce.h.
#include "kn_reduce.h"
#include "axes.h"
#include "rows.h"

#include <stddef.h>

enum {
    ROW_VECTORS = 64,    // of a row whose sum stays in the element type; totals are wider
    SHORT_ROW = 9,       // below, vectors do not pay
    COLUMN_BYTES = 1024, // of the columns that are reduced together
    TOGETHER = 8,        // rows that are combined before a total is stored
    COLUMN_ROWS = 512,   // rows after which totals of columns start anew
    ARG_COLUMNS = 64     // columns whose extremes are sought together
};

typedef struct {
    kn_axes kept;    // operands: out, x; without the columns where there are any
    kn_axes reduced; // operand: x
    int64_t count;   // of elements that are reduced to one
    int64_t columns; // size of the kept axis that vectors lie along; 0 for none
} kn_reduction;

// Takes the innermost kept axis away where vectors fit along it; returns how many things are to do.
static int64_t take_columns(kn_reduction *t, int64_t block) {
    int64_t total = kn_axes_count(&t->kept);
    kn_axes_sort(&t->kept);
    kn_axes_merge(&t->kept);
    int last = t->kept.rank - 1;
    t->columns = 0;
    if (total == 0 || t->count == 0 || last < 0 || t->reduced.stride[0][t->reduced.rank - 1] == 1) return total;
    if (t->kept.stride[0][last] != 1 || t->kept.stride[1][last] != 1) return total;
    t->columns = t->kept.size[last];
    t->kept.rank--;
    return total / t->columns * ((t->columns + block - 1) / block);
}

static int64_t kn_reduction_read(kn_reduction *t, const int64_t *n, int64_t block) {
    const int64_t *rest = kn_axes_read(&t->kept, n + KN_REDUCE_AXES, (int)n[KN_REDUCE_KEPT], 2);
    kn_axes_read(&t->reduced, rest, (int)n[KN_REDUCE_REDUCED], 1);
    t->count = kn_axes_count(&t->reduced);
    kn_axes_sort(&t->reduced);
    kn_axes_merge(&t->reduced);
    if (t->reduced.rank == 0) kn_axes_append(&t->reduced);
    return take_columns(t, block);
}

static int64_t kn_arg_read(kn_reduction *t, const int64_t *n) {
    kn_axes_read(&t->kept, n + KN_ARG_AXES, (int)n[KN_ARG_KEPT], 2);
    t->count = n[KN_ARG_SIZE];
    t->reduced = (kn_axes){.rank = 1, .operands = 1, .size = {t->count}, .stride = {{n[KN_ARG_STEP]}}};
    return take_columns(t, ARG_COLUMNS);
}

#define KN_JOIN_(a, b) a##b
#define KN_JOIN(a, b) KN_JOIN_(a, b)
// of integers, a blend by the mask of a comparison becomes one instruction
#define KN_BLEND(mask, a, b) ((__typeof__(a))(((__typeof__(mask))(a) & (mask)) | ((__typeof__(mask))(b) & ~(mask))))
#define KN_LARGER(a, b) KN_BLEND((a) > (b), a, b)
#define KN_SMALLER(a, b) KN_BLEND((a) < (b), a, b)
// of doubles: what is not in order with itself is NaN, and stays
#define KN_LARGER_NAN(a, b) KN_BLEND(((a) > (b)) | ((a) != (a)), a, b)
#define KN_SMALLER_NAN(a, b) KN_BLEND(((a) < (b)) | ((a) != (a)), a, b)
#define KN_OR(a, b) ((a) | (b))
#define KN_AND(a, b) ((a) & (b))

INL vf load_part(const float *p, int64_t count, vf fill) {
    return vselect(kn_lanes() < (int32_t)count, ld_part(p, count), fill);
}

#define KN_PART(p, count, fill) (memcpy(&(fill), p, (size_t)(count) * sizeof *(p)), (fill))
#if KN_VB == 64
#define KN_HALVES(f, fn, x)                                                                              \
    x = f(fn, x, KN_TURN(x, 8)), x = f(fn, x, KN_TURN(x, 4)), x = f(fn, x, KN_TURN(x, 2)),               \
    x = f(fn, x, KN_TURN(x, 1))
#elif KN_VB == 32
#define KN_HALVES(f, fn, x) x = f(fn, x, KN_TURN(x, 4)), x = f(fn, x, KN_TURN(x, 2)), x = f(fn, x, KN_TURN(x, 1))
#else
#define KN_HALVES(f, fn, x) x = f(fn, x, KN_TURN(x, 2)), x = f(fn, x, KN_TURN(x, 1))
#endif

#define TYPE float
#define SUFFIX f32
#define WIDE double
#define WRAPPING float
#define FLOATING 1
#define IS_NAN(x) ((x) != (x))
#define INDEX int32_t
#define LOWEST -__builtin_inff()
#define HIGHEST __builtin_inff()
#define VMAX kn_larger
#define VMIN kn_smaller
#define LOAD_PART load_part
#define HALVES KN_HALVES
#include "reduce_type.h"

#define TYPE double
#define SUFFIX f64
#define WIDE double
#define WRAPPING double
#define FLOATING 1
#define IS_NAN(x) ((x) != (x))
#define INDEX int64_t
#define LOWEST -__builtin_inf()
#define HIGHEST __builtin_inf()
#define VMAX KN_LARGER_NAN
#define LOAD_PART KN_PART
#define VMIN KN_SMALLER_NAN
#include "reduce_type.h"

#define TYPE int32_t
#define SUFFIX i32
#define WIDE uint32_t
#define WRAPPING uint32_t
#define FLOATING 0
#define IS_NAN(x) 0
#define INDEX int32_t
#define LOWEST INT32_MIN
#define HIGHEST INT32_MAX
#define VMAX KN_LARGER
#define LOAD_PART KN_PART
#define VMIN KN_SMALLER
#include "reduce_type.h"

#define TYPE int64_t
#define SUFFIX i64
#define WIDE uint64_t
#define WRAPPING uint64_t
#define FLOATING 0
#define IS_NAN(x) 0
#define INDEX int64_t
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#define VMAX KN_LARGER
#define LOAD_PART KN_PART
#define VMIN KN_SMALLER
#include "reduce_type.h"

#define TYPE uint8_t
#define SUFFIX bool
#define WIDE uint8_t
#define WRAPPING uint8_t
#define FLOATING 0
#define IS_NAN(x) 0
#define LOWEST 0
#define HIGHEST 1
#define VMAX KN_OR
#define LOAD_PART KN_PART
#define VMIN KN_AND
#include "reduce_type.h"

const kn_entry kn_reduce_entries[] = {
    {"reduce_f32", reduce_f32}, {"reduce_f64", reduce_f64}, {"reduce_i32", reduce_i32},
    {"reduce_i64", reduce_i64}, {"reduce_bool", reduce_bool}, {"arg_f32", arg_f32},
    {"arg_f64", arg_f64}, {"arg_i32", arg_i32}, {"arg_i64", arg_i64}, {NULL, NULL},
};
