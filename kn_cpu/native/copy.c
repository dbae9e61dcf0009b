// Copies between layouts: contiguous runs, repeated elements, transposes in registers, and the rest
// element by element. See kn_copy.h.
#include "kn_copy.h"
#include "axes.h"
#include "element.h"
#include "transpose.h"

#include <stddef.h>

enum { TILE = 64 }; // elements of each side of a transposed tile

// ---- single elements and runs -----------------------------------------------------------------

// Steps are in bytes; `bytes` is constant where this is inlined.
INL void move_strided(char *out, int64_t out_step, const char *x, int64_t x_step, int64_t count, int64_t bytes) {
    if (out_step == bytes)
        for (int64_t i = 0; i < count; i++) move_element(out + i * bytes, x + i * x_step, bytes);
    else
        for (int64_t i = 0; i < count; i++) move_element(out + i * out_step, x + i * x_step, bytes);
}

// Runs of up to 32 bytes are not worth a call of memcpy: two moves that may overlap.
INL void move_run(char *out, const char *x, int64_t bytes) {
    if (bytes > 32) {
        memcpy(out, x, (size_t)bytes);
    } else if (bytes >= 16) {
        char first[16], last[16];
        memcpy(first, x, 16);
        memcpy(last, x + bytes - 16, 16);
        memcpy(out, first, 16);
        memcpy(out + bytes - 16, last, 16);
    } else if (bytes >= 8) {
        uint64_t first, last;
        memcpy(&first, x, 8);
        memcpy(&last, x + bytes - 8, 8);
        memcpy(out, &first, 8);
        memcpy(out + bytes - 8, &last, 8);
    } else if (bytes >= 4) {
        uint32_t first, last;
        memcpy(&first, x, 4);
        memcpy(&last, x + bytes - 4, 4);
        memcpy(out, &first, 4);
        memcpy(out + bytes - 4, &last, 4);
    } else {
        for (int64_t i = 0; i < bytes; i++) out[i] = x[i];
    }
}

static void fill_run(char *out, const char *x, int64_t count, int64_t bytes) {
    if (bytes == 1) {
        memset(out, *(const unsigned char *)x, (size_t)count);
        return;
    }
    uint64_t pattern = 0;
    move_element((char *)&pattern, x, bytes);
    for (int64_t have = bytes; have < 8; have *= 2) pattern |= pattern << (8 * have);
    int64_t whole = count * bytes / 8;
    for (int64_t i = 0; i < whole; i++) memcpy(out + 8 * i, &pattern, 8);
    memcpy(out + 8 * whole, &pattern, (size_t)(count * bytes - 8 * whole));
}

// Copies `count` elements along one axis.
static void move_row(char *out, int64_t out_step, const char *x, int64_t x_step, int64_t count, int64_t bytes) {
    if (out_step == bytes && x_step == bytes)
        move_run(out, x, count * bytes);
    else if (out_step == bytes && x_step == 0)
        fill_run(out, x, count, bytes);
    else if (bytes == 1)
        move_strided(out, out_step, x, x_step, count, 1);
    else if (bytes == 2)
        move_strided(out, out_step, x, x_step, count, 2);
    else if (bytes == 4)
        move_strided(out, out_step, x, x_step, count, 4);
    else
        move_strided(out, out_step, x, x_step, count, 8);
}

// ---- transposes -------------------------------------------------------------------------------

typedef void (*kn_transpose)(char *out, int64_t out_step, const char *x, int64_t x_step);

// out[i][j] = x[j][i] for i < rows, j < columns: both lie in rows, whose steps are in bytes.
INL void transpose_tile(char *out, int64_t out_step, const char *x, int64_t x_step, int64_t rows,
                        int64_t columns, int64_t bytes, int64_t block, kn_transpose transpose) {
    int64_t whole_rows = rows - rows % block, whole_columns = columns - columns % block;
    for (int64_t i = 0; i < whole_rows; i += block)
        for (int64_t j = 0; j < whole_columns; j += block)
            transpose(out + i * out_step + j * bytes, out_step, x + j * x_step + i * bytes, x_step);
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = i < whole_rows ? whole_columns : 0;
        move_strided(out + i * out_step + from * bytes, bytes, x + from * x_step + i * bytes, x_step,
                     columns - from, bytes);
    }
}

static void move_tile(char *out, int64_t out_step, const char *x, int64_t x_step, int64_t rows,
                      int64_t columns, int64_t bytes) {
    switch (bytes) {
    case 1: transpose_tile(out, out_step, x, x_step, rows, columns, 1, KN_BLOCK1, kn_transpose1); break;
    case 2: transpose_tile(out, out_step, x, x_step, rows, columns, 2, KN_BLOCK2, kn_transpose2); break;
    case 4: transpose_tile(out, out_step, x, x_step, rows, columns, 4, KN_BLOCK4, kn_transpose4); break;
    default: transpose_tile(out, out_step, x, x_step, rows, columns, 8, KN_BLOCK8, kn_transpose8); break;
    }
}

// ---- the loops --------------------------------------------------------------------------------

// Makes one element of 2, 4 or 8 bytes of a short run that is contiguous on both sides.
static int64_t widen_elements(kn_axes *a, int64_t bytes) {
    int last = a->rank - 1;
    int64_t size = a->size[last], wide = size * bytes;
    if (a->stride[0][last] != 1 || a->stride[1][last] != 1 || (wide != 2 && wide != 4 && wide != 8)) return bytes;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < last; i++)
            if (a->stride[o][i] % size) return bytes;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < last; i++) a->stride[o][i] /= size;
    a->size[last] = 1;
    kn_axes_merge(a);
    return wide;
}

// Returns the axis along which x is contiguous, where out is along the last one; else -1.
static int transposed_axis(const kn_axes *a) {
    int last = a->rank - 1;
    if (a->stride[0][last] != 1 || a->stride[1][last] == 1 || a->stride[1][last] == 0) return -1;
    for (int i = last - 1; i >= 0; i--)
        if (a->stride[1][i] == 1) return i;
    return -1;
}

static void copy_transposed(kn_axes *a, int axis, char *out, const char *x, int64_t bytes, int64_t units,
                            int64_t begin, int64_t end) {
    int last = a->rank - 1;
    int64_t rows = a->size[axis], columns = a->size[last];
    int64_t out_step = a->stride[0][axis] * bytes, x_step = a->stride[1][last] * bytes;
    kn_axes outer = *a;
    kn_axes_drop(&outer, last);
    kn_axes_drop(&outer, axis);
    // a narrow side leaves room for a longer other one
    int64_t tile_rows = columns < TILE / 4 ? 16 * TILE : TILE, tile_columns = rows < TILE / 4 ? 16 * TILE : TILE;
    int64_t down = (rows + tile_rows - 1) / tile_rows, across = (columns + tile_columns - 1) / tile_columns;
    int64_t tiles = down * across, total = tiles * kn_axes_count(&outer);
    int64_t tile = kn_share(total, units, begin), stop = kn_share(total, units, end);
    for (; tile < stop; tile++) {
        kn_place at;
        kn_place_at(&at, &outer, tile / tiles);
        int64_t i = tile % tiles / across * tile_rows, j = tile % across * tile_columns;
        move_tile(out + at.offset[0] * bytes + i * out_step + j * bytes, out_step,
                  x + at.offset[1] * bytes + j * x_step + i * bytes, x_step, kn_least(tile_rows, rows - i),
                  kn_least(tile_columns, columns - j), bytes);
    }
}

static void copy_rows(kn_axes *a, char *out, const char *x, int64_t bytes, int64_t units, int64_t begin,
                      int64_t end) {
    int last = --a->rank;
    int64_t row = a->size[last], total = kn_axes_count(a) * row;
    int64_t out_step = a->stride[0][last] * bytes, x_step = a->stride[1][last] * bytes;
    int64_t from = kn_share(total, units, begin), stop = kn_share(total, units, end);
    kn_place at;
    kn_place_at(&at, a, from / row);
    for (int64_t column = from % row; from < stop; column = 0) {
        int64_t count = kn_least(row - column, stop - from);
        move_row(out + at.offset[0] * bytes + column * out_step, out_step,
                 x + at.offset[1] * bytes + column * x_step, x_step, count, bytes);
        from += count;
        kn_place_next(&at, a);
    }
}

static void copy(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    kn_axes a;
    kn_axes_read(&a, n + KN_COPY_AXES, (int)n[KN_COPY_RANK], 2);
    if (kn_axes_count(&a) == 0) return;
    kn_axes_sort(&a);
    kn_axes_merge(&a);
    int64_t bytes = n[KN_COPY_BYTES], units = n[KN_COPY_UNITS];
    if (a.rank > 0) bytes = widen_elements(&a, bytes);
    if (a.rank == 0) kn_axes_append(&a);
    int axis = transposed_axis(&a);
    if (axis >= 0)
        copy_transposed(&a, axis, p[0], p[1], bytes, units, begin, end);
    else
        copy_rows(&a, p[0], p[1], bytes, units, begin, end);
}

const kn_entry kn_copy_entries[] = {{"copy", copy}, {NULL, NULL}};
