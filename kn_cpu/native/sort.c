// Sorting by keys: unsigned numbers in the order of the elements, with the indices behind them, so that
// all differ. Few are selected by a heap of the best ones so far; many are merged. See kn_sort.h.
#include "kn_sort.h"
#include "axes.h"

#include <stddef.h>

enum { VALUES, INDICES, X, OPERANDS };

enum { FEW = 8 }; // a heap pays where at most one of so many is taken

typedef struct {
    uint64_t key; // in the order that is wanted: the smallest first
    int64_t index;
} entry_t;

// ---- keys ---------------------------------------------------------------------------------------

// A float's bits in the order of the floats: all NaNs are the largest number, -0 is 0.
INL uint64_t float_key(uint64_t bits, uint64_t sign, uint64_t infinity) {
    uint64_t size = bits & ~sign;
    if (size > infinity) return UINT64_MAX;
    return bits & sign ? sign - size : sign + size;
}

INL uint64_t key_at(const char *x, int64_t i, int64_t type, int64_t bytes) {
    switch (type) {
    case KN_SORT_F16: return float_key(((const uint16_t *)(const void *)x)[i], 0x8000, 0x7c00);
    case KN_SORT_BF16: return float_key(((const uint16_t *)(const void *)x)[i], 0x8000, 0x7f80);
    case KN_SORT_F32: return float_key(((const uint32_t *)(const void *)x)[i], 1u << 31, 0x7f800000);
    case KN_SORT_F64: return float_key(((const uint64_t *)(const void *)x)[i], 1ull << 63, 0x7ffull << 52);
    }
    uint64_t bits = 0, sign = type == KN_SORT_SIGNED ? 1ull << 63 : 0;
    switch (bytes) {
    case 1: bits = sign ? (uint64_t)((const int8_t *)(const void *)x)[i] : ((const uint8_t *)(const void *)x)[i]; break;
    case 2:
        bits = sign ? (uint64_t)((const int16_t *)(const void *)x)[i] : ((const uint16_t *)(const void *)x)[i];
        break;
    case 4:
        bits = sign ? (uint64_t)((const int32_t *)(const void *)x)[i] : ((const uint32_t *)(const void *)x)[i];
        break;
    default: bits = ((const uint64_t *)(const void *)x)[i];
    }
    return bits ^ sign;
}

INL int before(entry_t a, entry_t b) { return a.key < b.key || (a.key == b.key && a.index < b.index); }

// ---- orders -------------------------------------------------------------------------------------

// Lets an entry sink in a heap, whose first entry comes last in order.
static void sink(entry_t *heap, int64_t count, int64_t at, entry_t x) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child], heap[child + 1])) child++;
        if (!before(x, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void sort_heap(entry_t *heap, int64_t count) {
    for (int64_t n = count - 1; n > 0; n--) {
        entry_t x = heap[n];
        heap[n] = heap[0];
        sink(heap, n, 0, x);
    }
}

// Sorts by merging runs of twice the length each time; returns where the result is.
static entry_t *sort_runs(entry_t *from, entry_t *to, int64_t count) {
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t start = 0; start < count; start += 2 * run) {
            int64_t middle = kn_least(count, start + run), stop = kn_least(count, start + 2 * run);
            int64_t a = start, b = middle;
            for (int64_t i = start; i < stop; i++) {
                int left = a < middle && (b == stop || before(from[a], from[b]));
                to[i] = left ? from[a++] : from[b++];
            }
        }
        entry_t *other = from;
        from = to;
        to = other;
    }
    return from;
}

// ---- lines --------------------------------------------------------------------------------------

INL entry_t entry_at(const int64_t *n, const char *x, int64_t i) {
    uint64_t key = key_at(x, i * n[KN_SORT_STEPS + X], n[KN_SORT_TYPE], n[KN_SORT_BYTES]);
    return (entry_t){n[KN_SORT_LARGEST] ? ~key : key, i};
}

static const entry_t *sorted(const int64_t *n, const char *x, entry_t *entries) {
    int64_t count = n[KN_SORT_COUNT], size = n[KN_SORT_SIZE];
    if (count * FEW > size) {
        for (int64_t i = 0; i < size; i++) entries[i] = entry_at(n, x, i);
        return sort_runs(entries, entries + size, size);
    }
    for (int64_t i = 0; i < count; i++) entries[i] = entry_at(n, x, i);
    for (int64_t i = count / 2 - 1; i >= 0; i--) sink(entries, count, i, entries[i]);
    for (int64_t i = count; i < size; i++) {
        entry_t e = entry_at(n, x, i);
        if (before(e, entries[0])) sink(entries, count, 0, e);
    }
    sort_heap(entries, count);
    return entries;
}

INL void move_element(char *out, const char *x, int64_t bytes) {
    switch (bytes) {
    case 1: memcpy(out, x, 1); break;
    case 2: memcpy(out, x, 2); break;
    case 4: memcpy(out, x, 4); break;
    default: memcpy(out, x, 8); break;
    }
}

static void top_k(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    kn_axes lines;
    kn_axes_read(&lines, n + KN_SORT_AXES, (int)n[KN_SORT_LINES], OPERANDS);
    int64_t total = kn_axes_count(&lines), units = n[KN_SORT_UNITS], bytes = n[KN_SORT_BYTES];
    if (total == 0 || n[KN_SORT_COUNT] == 0) return;
    int64_t line = kn_share(total, units, begin), stop = kn_share(total, units, end);
    const int64_t *step = n + KN_SORT_STEPS;
    kn_place at;
    kn_place_at(&at, &lines, line);
    for (; line < stop; line++, kn_place_next(&at, &lines)) {
        const char *x = p[X] + at.offset[X] * bytes;
        char *values = p[VALUES] + at.offset[VALUES] * bytes;
        int64_t *indices = (int64_t *)(void *)p[INDICES] + at.offset[INDICES];
        const entry_t *found = sorted(n, x, (entry_t *)(void *)scratch);
        for (int64_t i = 0; i < n[KN_SORT_COUNT]; i++) {
            move_element(values + i * step[VALUES] * bytes, x + found[i].index * step[X] * bytes, bytes);
            indices[i * step[INDICES]] = found[i].index;
        }
    }
}

const kn_entry kn_sort_entries[] = {{"top_k", top_k}, {NULL, NULL}};
