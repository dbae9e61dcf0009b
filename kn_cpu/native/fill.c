// Numbers that come from sizes alone. See kn_fill.h.
#include "kn_fill.h"
#include "axes.h"

#include <stddef.h>

INL void put(char *out, int64_t i, int64_t x, int64_t bytes) {
    switch (bytes) {
    case 1: ((int8_t *)(void *)out)[i] = (int8_t)x; break;
    case 2: ((int16_t *)(void *)out)[i] = (int16_t)x; break;
    case 4: ((int32_t *)(void *)out)[i] = (int32_t)x; break;
    default: ((int64_t *)(void *)out)[i] = x; break;
    }
}

static void sizes(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch, (void)begin, (void)end;
    for (int64_t i = 0; i < n[KN_SIZES_COUNT]; i++) put(p[0], i, n[KN_SIZES_VALUES + i], n[KN_SIZES_BYTES]);
}

static void iota(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    int64_t count = n[KN_IOTA_COUNT], units = n[KN_IOTA_UNITS];
    int64_t stop = kn_share(count, units, end);
    for (int64_t i = kn_share(count, units, begin); i < stop; i++) put(p[0], i, i, n[KN_IOTA_BYTES]);
}

static void report(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)n, (void)scratch, (void)begin, (void)end;
    *(int64_t *)(void *)p[0] = 1;
}

const kn_entry kn_fill_entries[] = {{"sizes", sizes}, {"iota", iota}, {"report", report}, {NULL, NULL}};
