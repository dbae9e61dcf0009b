// Sorting by keys: unsigned numbers in the order of the elements, with the indices behind them, so that
// all differ. Few are selected by a heap of the best ones so far; many are merged. See kn_sort.h.
#include "kn_sort.h"
#include "axes.h"
#include "element.h"

#include <stddef.h>

enum { VALUES, INDICES, X, OPERANDS };

enum {
    FEW = 8,    // a heap pays where at most one of so many is taken
    BLOCK = 128 // keys that are computed together
};

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

// keys[i] is that of x[i * step], i < count
#define KN_KEYS(name, TYPE, key)                                                                           \
    static void keys_##name(uint64_t *restrict keys, const char *at, int64_t step, int64_t count) {        \
        const TYPE *x = (const TYPE *)(const void *)at;                                                    \
        for (int64_t i = 0; i < count; i++) keys[i] = key(x[i * step]);                                    \
    }
#define KEY_F16(x) float_key(x, 0x8000, 0x7c00)
#define KEY_BF16(x) float_key(x, 0x8000, 0x7f80)
#define KEY_F32(x) float_key(x, 1u << 31, 0x7f800000)
#define KEY_F64(x) float_key(x, 1ull << 63, 0x7ffull << 52)
#define KEY_SIGNED(x) ((uint64_t)(int64_t)(x) ^ 1ull << 63)
#define KEY_UNSIGNED(x) (uint64_t)(x)
KN_KEYS(f16, uint16_t, KEY_F16)
KN_KEYS(bf16, uint16_t, KEY_BF16)
KN_KEYS(f32, uint32_t, KEY_F32)
KN_KEYS(f64, uint64_t, KEY_F64)
KN_KEYS(i8, int8_t, KEY_SIGNED)
KN_KEYS(i16, int16_t, KEY_SIGNED)
KN_KEYS(i32, int32_t, KEY_SIGNED)
KN_KEYS(i64, int64_t, KEY_SIGNED)
KN_KEYS(u8, uint8_t, KEY_UNSIGNED)
KN_KEYS(u16, uint16_t, KEY_UNSIGNED)
KN_KEYS(u32, uint32_t, KEY_UNSIGNED)
KN_KEYS(u64, uint64_t, KEY_UNSIGNED)

typedef void (*keys_fn)(uint64_t *keys, const char *x, int64_t step, int64_t count);

static keys_fn keys_of(int64_t type, int64_t bytes) {
    static const keys_fn integers[2][4] = {{keys_i8, keys_i16, keys_i32, keys_i64},
                                           {keys_u8, keys_u16, keys_u32, keys_u64}};
    switch (type) {
    case KN_SORT_F16: return keys_f16;
    case KN_SORT_BF16: return keys_bf16;
    case KN_SORT_F32: return keys_f32;
    case KN_SORT_F64: return keys_f64;
    }
    return integers[type == KN_SORT_UNSIGNED][bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
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

// Sorts all entries; there is room for as many behind them. Those of the last key, such as everything that is
// masked, stay in their order behind the others.
static entry_t *sort_all(entry_t *entries, int64_t size) {
    entry_t *room = entries + size, *found;
    uint64_t last = 0;
    int64_t count = 0, next = 0;
    for (int64_t i = 0; i < size; i++) last = entries[i].key > last ? entries[i].key : last;
    for (int64_t i = 0; i < size; i++) count += entries[i].key < last;
    int64_t behind = count;
    for (int64_t i = 0; i < size; i++) room[entries[i].key < last ? next++ : behind++] = entries[i];
    found = sort_runs(room, entries, count);
    for (int64_t i = count; found == entries && i < size; i++) entries[i] = room[i];
    return found;
}

// ---- lines --------------------------------------------------------------------------------------

// The entries [first, first + count) of a line.
static void read_entries(const int64_t *n, const char *x, entry_t *entries, int64_t first, int64_t count, keys_fn fn) {
    uint64_t keys[BLOCK], turn = n[KN_SORT_LARGEST] ? UINT64_MAX : 0;
    const int64_t step = n[KN_SORT_STEPS + X];
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t some = kn_least(BLOCK, count - i);
        fn(keys, x + (first + i) * step * n[KN_SORT_BYTES], step, some);
        for (int64_t j = 0; j < some; j++) entries[i + j] = (entry_t){keys[j] ^ turn, first + i + j};
    }
}

// Lets the entries from the place `first` on into a heap of the best ones. They have higher indices: equal
// keys stay out.
static void select_entries(const int64_t *n, const char *x, entry_t *heap, int64_t first, keys_fn fn) {
    uint64_t keys[BLOCK], turn = n[KN_SORT_LARGEST] ? UINT64_MAX : 0;
    const int64_t step = n[KN_SORT_STEPS + X], size = n[KN_SORT_SIZE];
    for (int64_t i = first; i < size; i += BLOCK) {
        int64_t some = kn_least(BLOCK, size - i);
        fn(keys, x + i * step * n[KN_SORT_BYTES], step, some);
        int better = 0;
        const uint64_t worst = heap[0].key;
        for (int64_t j = 0; j < some; j++) better |= (keys[j] ^ turn) < worst;
        for (int64_t j = 0; better && j < some; j++)
            if ((keys[j] ^ turn) < heap[0].key) sink(heap, n[KN_SORT_COUNT], 0, (entry_t){keys[j] ^ turn, i + j});
    }
}

static const entry_t *sorted(const int64_t *n, const char *x, entry_t *entries) {
    int64_t count = n[KN_SORT_COUNT], size = n[KN_SORT_SIZE];
    keys_fn fn = keys_of(n[KN_SORT_TYPE], n[KN_SORT_BYTES]);
    if (count * FEW > size) {
        read_entries(n, x, entries, 0, size, fn);
        return sort_all(entries, size);
    }
    read_entries(n, x, entries, 0, count, fn);
    for (int64_t i = count / 2 - 1; i >= 0; i--) sink(entries, count, i, entries[i]);
    select_entries(n, x, entries, count, fn);
    sort_heap(entries, count);
    return entries;
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
