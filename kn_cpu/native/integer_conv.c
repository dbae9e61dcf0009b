// Integer convolution as a product of windows with packed weights. The windows of a block of pixels
// are copied one after another, a line of the kernel at a time; single pixels are read in place.
#include "integer.h"
#include "kn_integer_conv.h"
#include "kn_scalar.h"

typedef struct {
    const kn_integer_conv *s;
    kn_dot_block block;
    int64_t size, to_size; // bytes of an element of x, and of a window
    int64_t first;         // pixel
    const char *x_end;     // behind the last element of all
    char *windows;         // [row_block][row_bytes]
    int64_t row_bytes;
    char *rest; // scratch of the program
} work;

// Sums, windows, program; kn_cpu/integer_conv.py adds them up.
static void divide_scratch(work *w, char *scratch) {
    const kn_integer_conv *s = w->s;
    const int64_t bytes = 4 * kn_ceil_div(s->factors.depth, kn_group(s->factors.kind));
    w->size = s->factors.left == KN_INT_S16 ? 2 : 1;
    w->to_size = kn_dot_bytes(s->factors.kind);
    w->block.part = (int32_t *)(void *)scratch;
    w->block.step = s->col_block + VF;
    w->windows = (char *)(w->block.part + s->row_block * w->block.step);
    w->row_bytes = kn_ceil_div(bytes, 64) * 64 + 64;
    w->rest = kn_aligned(w->windows + (s->in_place ? 0 : s->row_block * w->row_bytes));
}

// Copies whose ends overlap: no byte beyond is touched, and there is no loop over single ones.
INL void copy_bytes(char *to, const char *from, int64_t count) {
    typedef char v16 __attribute__((vector_size(16), aligned(1), may_alias));
    typedef char v8 __attribute__((vector_size(8), aligned(1), may_alias));
    typedef char v4 __attribute__((vector_size(4), aligned(1), may_alias));
    if (count >= 16) {
        int64_t i = 0;
        for (; i + 16 <= count; i += 16) *(v16 *)(to + i) = *(const v16 *)(from + i);
        *(v16 *)(to + count - 16) = *(const v16 *)(from + count - 16);
    } else if (count >= 8) {
        const v8 a = *(const v8 *)from, b = *(const v8 *)(from + count - 8);
        *(v8 *)to = a, *(v8 *)(to + count - 8) = b;
    } else if (count >= 4) {
        const v4 a = *(const v4 *)from, b = *(const v4 *)(from + count - 4);
        *(v4 *)to = a, *(v4 *)(to + count - 4) = b;
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = from[i];
    }
}

// `count` elements of x that lie `step` apart, as a part of a window; returns what follows it.
INL char *put(const work *w, char *to, const char *from, int64_t step, int64_t count) {
    if (w->size == w->to_size && step == 1)
        copy_bytes(to, from, count * w->size);
    else
        kn_dot_copy(to, &w->s->factors, from, step, count);
    return to + count * w->to_size;
}

INL char *put_zeros(const work *w, char *to, int64_t count) {
    memset(to, 0, (size_t)(count * w->to_size));
    return to + count * w->to_size;
}

// A line of the kernel, from pixel x of a line of the image on; `channels` of each, `step` apart.
static char *put_line(const work *w, char *to, const char *line, int64_t x, int64_t channels) {
    const kn_integer_conv *s = w->s;
    const int64_t space = s->x_space[2], dilation = s->dilation[2], taps = s->kernel[2], size = w->size;
    if (!line) return put_zeros(w, to, taps * channels);
    const int64_t before = x < 0 ? kn_min(taps, kn_ceil_div(-x, dilation)) : 0;
    const int64_t room = s->in[2] - x; // pixels that are left
    const int64_t behind = kn_max(before, room <= 0 ? 0 : kn_min(taps, kn_ceil_div(room, dilation)));
    const char *from = line + (x + before * dilation) * space * size;
    if (before) to = put_zeros(w, to, before * channels);
    if (channels == 1)
        to = put(w, to, from, dilation * space, behind - before);
    else if (dilation * space == channels && s->x_channel == 1)
        to = put(w, to, from, 1, (behind - before) * channels);
    else
        for (int64_t t = before; t < behind; t++, from += dilation * space * size)
            to = put(w, to, from, s->x_channel, channels);
    return behind < taps ? put_zeros(w, to, (taps - behind) * channels) : to;
}

INL int is_inside(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }

// Pixels [begin, end) of a line of the result; the windows of the first one go to `row`.
typedef struct {
    int64_t begin, end;
    char *row;
} segment;

// Copies of a constant size that a line of the kernel fits into; the next line overwrites what is too
// many.
INL void copy_chunks(const work *w, char *to, const char *from, int64_t step, int64_t count, int64_t chunks) {
    typedef char v16 __attribute__((vector_size(16), aligned(1), may_alias));
    for (int64_t i = 0; i < count; i++, to += w->row_bytes, from += step)
        for (int64_t k = 0; k < chunks; k++) *(v16 *)(to + 16 * k) = *(const v16 *)(from + 16 * k);
}

// A line of the kernel for each pixel, at a place in their windows.
static void put_lines(const work *w, const segment *g, int64_t place, const char *line, int64_t channels) {
    const kn_integer_conv *s = w->s;
    const int64_t space = s->x_space[2], stride = s->stride[2], before = s->before[2];
    const int64_t length = s->kernel[2] * channels * w->size, chunks = kn_ceil_div(length, 16);
    const int dense = w->size == w->to_size && s->dilation[2] * space == channels &&
                      (channels == 1 || s->x_channel == 1);
    char *to = g->row + place;
    int64_t i = g->begin, end = g->begin;
    if (line && dense) {
        const int64_t room = s->in[2] - s->kernel[2] + before; // of the windows that are inside
        const int64_t bytes = w->x_end - line - 16 * chunks; // that may be read behind the first one
        end = kn_min(g->end, room < 0 ? 0 : room / stride + 1);
        if (end > 0 && ((end - 1) * stride - before) * space * w->size > bytes)
            end = bytes < 0 ? 0 : (bytes / (space * w->size) + before) / stride;
    }
    for (; i < g->end && (i >= end || i * stride < before); i++, to += w->row_bytes)
        put_line(w, to, line, i * stride - before, channels);
    if (i >= end) return;
    const char *from = line + (i * stride - before) * space * w->size;
    const int64_t step = stride * space * w->size;
    switch (chunks) {
    case 1: copy_chunks(w, to, from, step, end - i, 1); break;
    case 2: copy_chunks(w, to, from, step, end - i, 2); break;
    default: copy_chunks(w, to, from, step, end - i, chunks); break;
    }
    for (to += (end - i) * w->row_bytes, i = end; i < g->end; i++, to += w->row_bytes)
        put_line(w, to, line, i * stride - before, channels);
}

// The windows of a segment of the line of the result that begins at (z, y).
static void put_windows(const work *w, const segment *g, const char *image, int64_t z, int64_t y) {
    const kn_integer_conv *s = w->s;
    const int64_t runs = s->channels_first ? s->channels : 1, channels = s->channels_first ? 1 : s->channels;
    const int64_t bytes = s->kernel[2] * channels * w->to_size;
    int64_t place = 0;
    for (int64_t c = 0; c < runs; c++, image += s->x_channel * w->size)
        for (int64_t d = 0, front = z; d < s->kernel[0]; d++, front += s->dilation[0])
            for (int64_t h = 0, top = y; h < s->kernel[1]; h++, top += s->dilation[1], place += bytes) {
                const int there = is_inside(front, s->in[0]) && is_inside(top, s->in[1]);
                const int64_t line = (front * s->x_space[0] + top * s->x_space[1]) * w->size;
                put_lines(w, g, place, there ? image + line : 0, channels);
            }
}

static void copy_windows(work *w, const char *image) {
    const kn_integer_conv *s = w->s;
    const int64_t width = s->out[2], height = s->out[1];
    w->block.left = w->windows;
    w->block.left_step = w->row_bytes;
    for (int64_t r = 0; r < w->block.rows;) {
        const int64_t column = (w->first + r) % width, line = (w->first + r) / width;
        const segment g = {column, kn_min(width, column + w->block.rows - r), w->windows + r * w->row_bytes};
        put_windows(w, &g, image, line / height * s->stride[0] - s->before[0],
                    line % height * s->stride[1] - s->before[1]);
        r += g.end - g.begin;
    }
}

static void place_left(work *w, char *x, int64_t image, int64_t group) {
    const kn_integer_conv *s = w->s;
    const char *at = x + (image * s->x_image + group * s->channels * s->x_channel) * w->size;
    if (!s->in_place) {
        copy_windows(w, at);
        return;
    }
    w->block.left_step = s->x_space[2] * w->size;
    w->block.left = at + w->first * w->block.left_step;
}

INL char *moved(char *p, int64_t bytes) { return p ? p + bytes : 0; }

static void conv_int(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_integer_conv *s = (const void *)n;
    const kn_factors *f = &s->factors;
    const int64_t pixels = s->out[0] * s->out[1] * s->out[2];
    const int64_t row_blocks = kn_ceil_div(pixels, s->row_block);
    const int64_t col_blocks = kn_ceil_div(s->cols, s->col_block);
    const int64_t column = 4 * kn_ceil_div(f->depth, kn_group(f->kind));
    const int64_t size = s->finish.to == KN_TO_U8 || s->finish.to == KN_TO_S8 ? 1 : 4;
    const kn_requantize *q = &s->finish;
    work w = {.s = s};
    divide_scratch(&w, scratch);
    int64_t last = (s->images - 1) * s->x_image + (s->groups * s->channels - 1) * s->x_channel;
    for (int axis = 0; axis < 3; axis++) last += (s->in[axis] - 1) * s->x_space[axis];
    w.x_end = p[0] + (last + 1) * w.size;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t col = unit / row_blocks % col_blocks * s->col_block;
        const int64_t image = unit / row_blocks / col_blocks / s->groups;
        const int64_t group = unit / row_blocks / col_blocks % s->groups;
        const int64_t packed = group * kn_ceil_div(s->cols, VF) * VF + col, channel = group * s->cols + col;
        w.first = unit % row_blocks * s->row_block;
        w.block.rows = kn_min(s->row_block, pixels - w.first);
        w.block.cols = kn_min(s->col_block, s->cols - col);
        place_left(&w, p[0], image, group);
        kn_dot_packed(&w.block, f, p[1] + packed * column, (const int32_t *)(void *)p[3] + packed);
        if (p[4]) kn_add_lows(&w.block, f, (const int32_t *)(void *)p[4] + packed);
        char *out = p[2] + (image * s->out_image + w.first * q->out_row + channel * q->out_col) * size;
        kn_finish_sums(q, &w.block, q->in_place ? 0 : out,
                       (const int32_t *)(void *)moved(p[5], 4 * channel * q->bias_col),
                       (const float *)(void *)moved(p[6], 4 * channel * q->scale_col));
        if (q->in_place)
            kn_scalar_block(n + sizeof *s / sizeof *n, p + 7, w.rest, (const float *)(void *)w.block.part,
                            w.block.step, image * pixels + w.first, channel, w.block.rows, w.block.cols);
    }
}

const kn_entry kn_integer_conv_entries[] = {{"conv_int", conv_int}, {0, 0}};
