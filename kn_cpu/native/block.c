// Blocks of a product: the way of panels through the micro-kernels to the result.
#include "product.h"

// Has memory brought that the end of a tile reads and writes, while its sums are computed.
INL void fetch_results(const kn_tile *t, int64_t rows) {
    const float *out = t->out, *residual = t->residual;
    for (int64_t i = 0; i < rows; i++, out += t->out_step) {
        __builtin_prefetch(out, 1);
        __builtin_prefetch(out + VF, 1);
    }
    for (int64_t i = 0; residual && i < rows; i++, residual += t->residual_step) {
        __builtin_prefetch(residual);
        __builtin_prefetch(residual + VF);
    }
}

// The same for the rows of the next tile, which the first panel reads.
INL void fetch_rows(const float *const *rows, int64_t count, int64_t offset, int64_t length) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < length; c += 64 / 4) __builtin_prefetch(rows[i] + offset + c, 0, 2);
}

// All rows of a panel: tiles of nearly equal height, as few as possible.
static void panel_rows(kn_tile t, int64_t rows, int64_t cols, int far_left, int far_result) {
    const kn_micro *micro = cols > VF ? kn_wide : kn_narrow;
    const int64_t tiles = kn_max(1, kn_ceil_div(rows, KN_MR)), step = kn_ceil_div(rows, tiles);
    const int64_t share = t.next ? kn_ceil_div(t.next_bytes, tiles) : 0;
    t.next_step = kn_ceil_div(share, kn_max(1, t.positions * t.length));
    if (!t.next) t.next = (const char *)t.right; // which is there
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t count = kn_min(step, rows - r);
        if (t.out && far_result) fetch_results(&t, count);
        if (far_left) fetch_rows(t.rows + count, kn_min(step, rows - r - count), t.offset, t.length);
        micro[count](&t);
        t.next += share;
        t.rows += count;
        t.part += count * t.part_step;
        if (t.out) t.out += count * t.out_step;
        if (t.residual) t.residual += count * t.residual_step;
    }
}

static void write_directly(kn_tile *t, const kn_finish *f, int64_t col, int stream) {
    t->out = f->out + col;
    t->out_step = f->out_row;
    t->bias = f->bias ? f->bias + col : 0;
    t->residual = f->residual ? f->residual + col : 0;
    t->residual_step = f->residual_row;
    t->low = f->low;
    t->high = f->high;
    t->stream = stream && (uintptr_t)t->out % KN_VB == 0 && t->out_step % VF == 0;
}

void kn_block_panel(const kn_block *b, kn_tile t, int64_t col, int last) {
    const int64_t left = b->cols - col;
    t.part = b->part + col;
    t.part_step = b->part_step;
    if (last && b->direct && left >= kn_panel_width(left)) write_directly(&t, &b->finish, col, b->stream);
    panel_rows(t, b->rows, left, b->far_left && col == 0, b->far_result);
}

void kn_block_end(const kn_block *b) {
    int64_t col = 0; // the first one that is not written
    if (b->direct) col = b->cols % VF ? (b->cols - 1) / KN_NR * KN_NR : b->cols;
    if (col == b->cols) return;
    kn_finish f = b->finish;
    if (f.out) f.out += col * f.out_col;
    if (f.bias) f.bias += col * f.bias_col;
    if (f.residual) f.residual += col * f.residual_col;
    kn_finish_block(&f, b->part + col, b->part_step, b->rows, b->cols - col);
}

void kn_packed_panel(const kn_block *b, kn_tile *t, const float *right, int64_t depth, int64_t col,
                     int64_t k) {
    t->right_step = kn_panel_width(b->cols - col);
    t->right = right + col * depth + k * t->right_step;
}

void kn_fetch_panel(const kn_block *b, kn_tile *t, const float *right, int64_t depth, int64_t col,
                    int64_t k, int64_t length) {
    if (k >= depth) return;
    const int64_t width = col < b->cols ? kn_panel_width(b->cols - col) : KN_NR;
    t->next = (const char *)(right + col * depth + k * width);
    t->next_bytes = 4 * width * kn_min(length, depth - k);
}

void kn_fetch_ahead(kn_tile *t) {
    t->next = (const char *)(t->right + KN_AHEAD * t->right_step);
    t->next_bytes = 4 * t->right_step * t->length;
}
