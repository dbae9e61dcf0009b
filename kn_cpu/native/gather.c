// Reading and writing elements at indices that are data. See kn_gather.h.
#include "kn_gather.h"
#include "axes.h"
#include "element.h"

#include <stddef.h>

enum { OUT, X, INDEX, STATUS, OPERANDS = 3 };

typedef struct {
    const int64_t *n, *pairs, *axes; // pairs: (size, stride) of each indexed axis
    char *out;
    const char *x, *indices;
    int64_t *status;
    int64_t bytes;
} gather_t;

static gather_t gather_of(const int64_t *n, char *const *p) {
    const int64_t *pairs = n + KN_GATHER_PAIRS;
    return (gather_t){n,          pairs,    pairs + 2 * n[KN_GATHER_DEPTH],        p[OUT], p[X],
                      p[INDEX], (int64_t *)(void *)p[STATUS], n[KN_GATHER_BYTES]};
}

INL int64_t index_at(const gather_t *t, int64_t place) {
    const char *p = t->indices;
    switch (t->n[KN_GATHER_INDEX_BYTES]) {
    case 8: return ((const int64_t *)(const void *)p)[place];
    case 4: return ((const int32_t *)(const void *)p)[place];
    case 2: return ((const int16_t *)(const void *)p)[place];
    case 1: return ((const int8_t *)(const void *)p)[place];
    case -4: return ((const uint32_t *)(const void *)p)[place];
    case -2: return ((const uint16_t *)(const void *)p)[place];
    case -1: return ((const uint8_t *)(const void *)p)[place];
    default: { // beyond the range of int64 no axis has an element
        uint64_t index = ((const uint64_t *)(const void *)p)[place];
        return index > INT64_MAX ? INT64_MAX : (int64_t)index;
    }
    }
}

// Notes that index i of a tuple does not exist; several units may do so at once.
static void report(const gather_t *t, int64_t index, int64_t i) {
    __atomic_store_n(t->status + 1, index, __ATOMIC_RELAXED);
    __atomic_store_n(t->status + 2, i, __ATOMIC_RELAXED);
    __atomic_store_n(t->status, 1, __ATOMIC_RELAXED);
}

// Finds the offset that the index tuple at `place` points to. Returns 0 where an index does not exist.
INL int pointed(const gather_t *t, int64_t place, int64_t *offset) {
    *offset = 0;
    for (int64_t i = 0; i < t->n[KN_GATHER_DEPTH]; i++, place += t->n[KN_GATHER_DEPTH_STEP]) {
        int64_t size = t->pairs[2 * i], index = index_at(t, place), at = index < 0 ? index + size : index;
        if (at < 0 || at >= size) {
            report(t, index, i);
            return 0;
        }
        *offset += at * t->pairs[2 * i + 1];
    }
    return 1;
}

// ---- runs of indices that have an element each --------------------------------------------------

// Along one axis; steps are from one index to the next. The last two are constants where this is inlined.
INL void gather_along(const gather_t *t, char *out, int64_t out_step, const char *x, int64_t x_step, int64_t from,
                      int64_t from_step, int64_t count, int64_t bytes, int64_t index_bytes) {
    const int64_t size = t->pairs[0], stride = t->pairs[1];
    const int64_t *longs = (const int64_t *)(const void *)t->indices + from;
    const int32_t *ints = (const int32_t *)(const void *)t->indices + from;
    for (int64_t i = 0; i < count; i++) {
        const int64_t index = index_bytes == 8 ? longs[i * from_step] : ints[i * from_step];
        const int64_t at = index < 0 ? index + size : index;
        if ((uint64_t)at < (uint64_t)size)
            move_element(out + i * out_step * bytes, x + (i * x_step + at * stride) * bytes, bytes);
        else
            report(t, index, 0);
    }
}

static void gather_run(const gather_t *t, char *out, int64_t out_step, const char *x, int64_t x_step, int64_t from,
                       int64_t from_step, int64_t count) {
    const int64_t index_bytes = t->n[KN_GATHER_INDEX_BYTES], bytes = t->bytes;
#define KN_ALONG(b, i) gather_along(t, out, out_step, x, x_step, from, from_step, count, b, i)
    if (t->n[KN_GATHER_DEPTH] == 1 && index_bytes == 8) {
        switch (bytes) {
        case 1: KN_ALONG(1, 8); return;
        case 2: KN_ALONG(2, 8); return;
        case 4: KN_ALONG(4, 8); return;
        default: KN_ALONG(8, 8); return;
        }
    }
    if (t->n[KN_GATHER_DEPTH] == 1 && index_bytes == 4) {
        if (bytes == 4)
            KN_ALONG(4, 4);
        else
            KN_ALONG(bytes, 4);
        return;
    }
#undef KN_ALONG
    for (int64_t i = 0, at; i < count; i++)
        if (pointed(t, from + i * from_step, &at))
            move_element(out + i * out_step * bytes, x + (i * x_step + at) * bytes, bytes);
}

// ---- combination --------------------------------------------------------------------------------

// WIDE: unsigned for integers, which wrap. What is not equal to itself is NaN, and stays.
#define KN_COMBINE(name, TYPE, WIDE)                                                                       \
    static void combine_##name(char *out_at, const char *x_at, int64_t fn) {                               \
        TYPE a, b, made;                                                                                   \
        memcpy(&a, out_at, sizeof a);                                                                      \
        memcpy(&b, x_at, sizeof b);                                                                        \
        switch (fn) {                                                                                      \
        case KN_SCATTER_ADD: made = (TYPE)((WIDE)a + (WIDE)b); break;                                      \
        case KN_SCATTER_MUL: made = (TYPE)((WIDE)a * (WIDE)b); break;                                      \
        case KN_SCATTER_MAX: made = b > a || b != b ? b : a; break;                                        \
        default: made = b < a || b != b ? b : a;                                                           \
        }                                                                                                  \
        memcpy(out_at, &made, sizeof made);                                                                \
    }
KN_COMBINE(f32, float, float)
KN_COMBINE(f64, double, double)
KN_COMBINE(i8, int8_t, uint32_t)
KN_COMBINE(u8, uint8_t, uint32_t)
KN_COMBINE(i16, int16_t, uint32_t)
KN_COMBINE(u16, uint16_t, uint32_t)
KN_COMBINE(i32, int32_t, uint32_t)
KN_COMBINE(u32, uint32_t, uint32_t)
KN_COMBINE(i64, int64_t, uint64_t)
KN_COMBINE(u64, uint64_t, uint64_t)

static void combine_element(const gather_t *t, char *out, const char *x) {
    int64_t fn = t->n[KN_GATHER_FN], is_signed = t->n[KN_GATHER_TYPE] == KN_SCATTER_SIGNED;
    switch (t->n[KN_GATHER_TYPE]) {
    case KN_SCATTER_F32: combine_f32(out, x, fn); return;
    case KN_SCATTER_F64: combine_f64(out, x, fn); return;
    }
    switch (t->bytes) {
    case 1: (is_signed ? combine_i8 : combine_u8)(out, x, fn); break;
    case 2: (is_signed ? combine_i16 : combine_u16)(out, x, fn); break;
    case 4: (is_signed ? combine_i32 : combine_u32)(out, x, fn); break;
    default: (is_signed ? combine_i64 : combine_u64)(out, x, fn);
    }
}

// ---- slices -------------------------------------------------------------------------------------

// The elements of one index that lie along the last inner axis.
static void move_row(const gather_t *t, char *out, int64_t out_step, const char *x, int64_t x_step, int64_t count) {
    if (t->n[KN_GATHER_FN] != KN_SCATTER_SET) {
        for (int64_t i = 0; i < count; i++)
            combine_element(t, out + i * out_step * t->bytes, x + i * x_step * t->bytes);
        return;
    }
    if (out_step == 1 && x_step == 1 && count > 1) {
        memcpy(out, x, (size_t)(count * t->bytes));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        move_element(out + i * out_step * t->bytes, x + i * x_step * t->bytes, t->bytes);
}

static void gather_single(const gather_t *t, const kn_axes *outer, const kn_axes *index, int64_t number, int64_t stop) {
    kn_axes slow = *index;
    int last = --slow.rank;
    int64_t row = index->size[last], rows = kn_axes_count(&slow);
    int64_t out_step = index->stride[OUT][last], from_step = index->stride[INDEX][last];
    for (int64_t i = number % row; number < stop; i = 0) {
        int64_t count = kn_least(row - i, stop - number);
        kn_place base, of;
        kn_place_at(&base, outer, number / row / rows);
        kn_place_at(&of, &slow, number / row % rows);
        char *out = t->out + (base.offset[OUT] + of.offset[OUT] + i * out_step) * t->bytes;
        const char *x = t->x + base.offset[X] * t->bytes;
        int64_t from = base.offset[INDEX] + of.offset[INDEX] + i * from_step;
        gather_run(t, out, out_step, x, 0, from, from_step, count);
        number += count;
    }
}

INL void slices(const int64_t *n, char *const *p, int64_t begin, int64_t end, int scatter) {
    gather_t t = gather_of(n, p);
    kn_axes outer, index, inner;
    const int64_t *rest = kn_axes_read(&outer, t.axes, (int)n[KN_GATHER_OUTER], OPERANDS);
    rest = kn_axes_read(&index, rest, (int)n[KN_GATHER_INDEX], OPERANDS);
    kn_axes_read(&inner, rest, (int)n[KN_GATHER_INNER], OPERANDS);
    int64_t indices = kn_axes_count(&index), each = kn_axes_count(&inner), units = n[KN_GATHER_UNITS];
    int64_t total = kn_axes_count(&outer) * indices;
    if (total * each == 0) return;
    kn_axes_merge(&outer);
    kn_axes_merge(&index);
    kn_axes_sort(&inner);
    kn_axes_merge(&inner);
    if (inner.rank == 0) kn_axes_append(&inner);
    int64_t number = kn_share(total, units, begin), stop = kn_share(total, units, end);
    if (each == 1 && !scatter) {
        if (index.rank == 0) kn_axes_append(&index);
        gather_single(&t, &outer, &index, number, stop);
        return;
    }
    int last = --inner.rank;
    int64_t row = inner.size[last], rows = each / row;
    kn_place base, of, at;
    kn_place_at(&base, &outer, number / indices);
    kn_place_at(&of, &index, number % indices);
    for (int64_t i = number % indices; number < stop; number++) {
        int64_t to = base.offset[OUT] + of.offset[OUT], from = base.offset[X] + of.offset[X], offset;
        if (pointed(&t, base.offset[INDEX] + of.offset[INDEX], &offset)) {
            *(scatter ? &to : &from) += offset;
            kn_place_at(&at, &inner, 0);
            for (int64_t r = 0; r < rows; r++, kn_place_next(&at, &inner))
                move_row(&t, t.out + (to + at.offset[OUT]) * t.bytes, inner.stride[OUT][last],
                         t.x + (from + at.offset[X]) * t.bytes, inner.stride[X][last], row);
        }
        kn_place_next(&of, &index);
        if (++i == indices) {
            i = 0;
            kn_place_next(&base, &outer);
        }
    }
}

static void gather(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    slices(n, p, begin, end, 0);
}

static void scatter(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    slices(n, p, begin, end, 1);
}

// ---- elements -----------------------------------------------------------------------------------

// The side that is indexed has a stride of 0 along the axis: the index says where.
INL void elements(const int64_t *n, char *const *p, int64_t begin, int64_t end, int scatter) {
    gather_t t = gather_of(n, p);
    kn_axes axes;
    kn_axes_read(&axes, t.axes, (int)n[KN_GATHER_OUTER], OPERANDS);
    int64_t total = kn_axes_count(&axes), units = n[KN_GATHER_UNITS];
    if (total == 0) return;
    kn_axes_merge(&axes);
    if (axes.rank == 0) kn_axes_append(&axes);
    kn_axes outer = axes;
    int last = --outer.rank;
    int64_t row = axes.size[last], number = kn_share(total, units, begin), stop = kn_share(total, units, end);
    kn_place at;
    kn_place_at(&at, &outer, number / row);
    const int64_t out_step = axes.stride[OUT][last], x_step = axes.stride[X][last];
    const int64_t from_step = axes.stride[INDEX][last];
    for (int64_t i = number % row; number < stop; i = 0) {
        if (!scatter) {
            int64_t count = kn_least(row - i, stop - number);
            gather_run(&t, t.out + (at.offset[OUT] + i * out_step) * t.bytes, out_step,
                       t.x + (at.offset[X] + i * x_step) * t.bytes, x_step, at.offset[INDEX] + i * from_step, from_step,
                       count);
            number += count;
        }
        for (; scatter && i < row && number < stop; i++, number++) {
            int64_t offset, to = at.offset[OUT] + i * out_step, from = at.offset[X] + i * x_step;
            if (!pointed(&t, at.offset[INDEX] + i * from_step, &offset)) continue;
            to += offset;
            if (t.n[KN_GATHER_FN] != KN_SCATTER_SET)
                combine_element(&t, t.out + to * t.bytes, t.x + from * t.bytes);
            else
                move_element(t.out + to * t.bytes, t.x + from * t.bytes, t.bytes);
        }
        kn_place_next(&at, &outer);
    }
}

static void gather_elements(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    elements(n, p, begin, end, 0);
}

static void scatter_elements(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    elements(n, p, begin, end, 1);
}

const kn_entry kn_gather_entries[] = {
    {"gather", gather},
    {"scatter", scatter},
    {"gather_elements", gather_elements},
    {"scatter_elements", scatter_elements},
    {NULL, NULL},
};
