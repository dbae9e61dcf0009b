// Convolution as a product of windows with packed weights. A window is read in place, run by run,
// through a table of pointers: a run is what lies side by side, the channels of a pixel or, where
// there are few, a line of the window. Runs in the padding are a page of zeros; lines that are cut
// by it are copied. Where even lines are short, all are copied and a window is one run.
#include "kn_conv.h"
#include "kn_scalar.h"
#include "product.h"

#define SHORT 8 // runs of fewer elements are copied

enum { CACHES = 4 << 20 }; // floats that caches have room for

typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct {
    const kn_conv *s;
    const float *x, *x_end; // of the group in the image; behind the last element of all
    const float *right;
    kn_block block;
    int64_t first;          // pixel
    int64_t run, positions; // elements of a run, runs of a window
    int64_t depth;          // of the product
    int64_t channel_runs;   // channels that have runs of their own
    int64_t is_copied;      // whether windows are copied
    int64_t copy_step;      // from one copied window to the next
    const float **table;    // [positions][row_block]
    float *zeros;           // [run]
    float *copies;          // [row_block][copy_step]
    char *rest;             // scratch of the program
} work;

// Table, zeros, sums, copies, program; kn_cpu/conv.py adds them up.
static void divide_scratch(work *w, char *scratch) {
    const kn_conv *s = w->s;
    w->table = (const float **)(void *)scratch;
    scratch += kn_ceil_div(s->row_block * w->positions * (int64_t)sizeof(float *), KN_VB) * KN_VB;
    w->zeros = (float *)(void *)scratch;
    w->block.part = w->zeros + kn_ceil_div(w->run, VF) * VF;
    w->block.part_step = s->col_block + VF;
    w->copies = w->block.part + s->row_block * w->block.part_step;
    w->rest = kn_aligned(w->copies + (s->order == KN_IN_PLACE ? 0 : s->row_block * w->copy_step));
    for (int64_t i = 0; i < w->run; i++) w->zeros[i] = 0;
}

static void divide_windows(work *w, const kn_conv *s) {
    const int64_t planes = s->kernel[0] * s->kernel[1], line = s->kernel[2];
    w->s = s;
    w->depth = planes * line * s->channels;
    w->channel_runs = s->order == KN_CHANNELS_FIRST ? s->channels : 1;
    if (s->order == KN_IN_PLACE) {
        w->run = s->channels;
        w->positions = planes * line;
    } else {
        w->run = s->order == KN_KERNEL_FIRST ? line * s->channels : line;
        w->positions = planes * w->channel_runs;
    }
    w->is_copied = s->order != KN_IN_PLACE && w->run < SHORT;
    w->copy_step = w->depth + SHORT;
}

// Pixels of one line of the output, [begin, end) of it, rows from `row` on in the block.
typedef struct {
    int64_t begin, end, row;
    int64_t z, y; // where their windows begin
} segment;

INL int is_inside(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }

// The windows [begin, end) of a line for which i * stride + start is in [0, n - length]
static void inside(const kn_conv *s, int64_t start, int64_t length, const segment *g, int64_t *begin,
                   int64_t *end) {
    const int64_t stride = s->stride[2], room = s->in[2] - length - start;
    const int64_t first = start < 0 ? kn_ceil_div(-start, stride) : 0;
    const int64_t behind = room < 0 ? 0 : room / stride + 1;
    *begin = kn_min(kn_max(g->begin, first), g->end);
    *end = kn_max(*begin, kn_min(g->end, behind));
}

// Pixel by pixel of a line of the kernel.
static void point_to_pixels(work *w, const segment *g, const float *line, const float **to) {
    const kn_conv *s = w->s;
    const int64_t step = s->stride[2] * s->x_space[2];
    for (int64_t v = 0; v < s->kernel[2]; v++, to += s->row_block) {
        const int64_t start = v * s->dilation[2] - s->before[2];
        int64_t begin = g->end, end = g->end, i = g->begin;
        if (line) inside(s, start, 1, g, &begin, &end);
        for (; i < begin; i++) to[i - g->begin] = w->zeros;
        const float *from = line + (line ? start * s->x_space[2] + i * step : 0);
        for (; i < end; i++, from += step) to[i - g->begin] = from;
        for (; i < g->end; i++) to[i - g->begin] = w->zeros;
    }
}

// Copies a line of the kernel for one window that begins at pixel x; what is outside is 0.
static const float *copied(const work *w, float *to, const float *line, int64_t x) {
    const kn_conv *s = w->s;
    const int64_t channels = s->channels / w->channel_runs;
    for (int64_t v = 0; v < s->kernel[2]; v++, x += s->dilation[2])
        for (int64_t c = 0; c < channels; c++)
            *to++ = is_inside(x, s->in[2]) ? line[x * s->x_space[2] + c * s->x_channel] : 0;
    return to - w->run;
}

// A whole line of the kernel at once, run number `position` of the windows.
static void point_to_line(work *w, const segment *g, const float *line, const float **to, int64_t position) {
    const kn_conv *s = w->s;
    const int64_t channels = s->channels / w->channel_runs, stride = s->stride[2];
    const int in_place = s->dilation[2] * s->x_space[2] == channels && (channels == 1 || s->x_channel == 1);
    int64_t begin = g->end, end = g->end, i = g->begin;
    if (line && in_place) inside(s, -s->before[2], s->kernel[2], g, &begin, &end);
    for (; i < g->end; i++) {
        const int64_t x = i * stride - s->before[2], r = i - g->begin;
        float *copy = w->copies + (g->row + r) * w->copy_step + position * w->run;
        if (!line)
            to[r] = w->zeros;
        else if (i < begin || i >= end)
            to[r] = copied(w, copy, line, x);
        else
            to[r] = line + x * s->x_space[2];
    }
}

// The same, where all is copied: SHORT floats at a time, of which the next line of the kernel
// overwrites what is too many.
static void copy_lines(work *w, const segment *g, const float *line, int64_t position) {
    const kn_conv *s = w->s;
    const int64_t channels = s->channels / w->channel_runs, step = s->stride[2] * s->x_space[2];
    const int64_t to_step = w->copy_step, start = s->before[2];
    const int in_place = s->dilation[2] * s->x_space[2] == channels && (channels == 1 || s->x_channel == 1);
    int64_t begin = g->end, end = g->end, i = g->begin;
    float *to = w->copies + g->row * to_step + position * w->run;
    if (!line) {
        for (; i < g->end; i++, to += to_step) memset(to, 0, (size_t)w->run * sizeof(float));
        return;
    }
    if (in_place) inside(s, -start, s->kernel[2], g, &begin, &end);
    const float *from = line + (begin * s->stride[2] - start) * s->x_space[2];
    while (end > begin && from + (end - 1 - begin) * step + SHORT > w->x_end) end--;
    for (; i < begin; i++, to += to_step) copied(w, to, line, i * s->stride[2] - start);
    if (w->run <= 4)
        for (; i < end; i++, from += step, to += to_step) *(v4_any *)to = *(const v4_any *)from;
    else
        for (; i < end; i++, from += step, to += to_step) *(v8_any *)to = *(const v8_any *)from;
    for (; i < g->end; i++, to += to_step) copied(w, to, line, i * s->stride[2] - start);
}

static void point_to_planes(work *w, const segment *g, const float *x, int64_t position) {
    const kn_conv *s = w->s;
    for (int64_t d = 0, z = g->z; d < s->kernel[0]; d++, z += s->dilation[0])
        for (int64_t h = 0, y = g->y; h < s->kernel[1]; h++, y += s->dilation[1]) {
            const int there = is_inside(z, s->in[0]) && is_inside(y, s->in[1]);
            const float *line = there ? x + (z * s->x_space[0] + y * s->x_space[1]) : 0;
            const float **to = w->table + position * s->row_block + g->row;
            if (s->order == KN_IN_PLACE) {
                point_to_pixels(w, g, line, to);
                position += s->kernel[2];
            } else if (w->is_copied) {
                copy_lines(w, g, line, position++);
            } else {
                point_to_line(w, g, line, to, position++);
            }
        }
}

static void point_to_windows(work *w) {
    const kn_conv *s = w->s;
    const int64_t width = s->out[2], positions = w->positions / w->channel_runs;
    for (int64_t row = 0; row < w->block.rows;) {
        const int64_t pixel = w->first + row, line = pixel / width, begin = pixel % width;
        const segment g = {
            .begin = begin,
            .end = kn_min(width, begin + w->block.rows - row),
            .row = row,
            .z = line / s->out[1] * s->stride[0] - s->before[0],
            .y = line % s->out[1] * s->stride[1] - s->before[1],
        };
        for (int64_t c = 0; c < w->channel_runs; c++)
            point_to_planes(w, &g, w->x + c * s->x_channel, c * positions);
        row += g.end - g.begin;
    }
}

// A slice of the depth: whole runs, or a part of one.
static void multiply(work *w, kn_tile t, int64_t k, int64_t length) {
    t.fresh = k == 0;
    for (int64_t col = 0; col < w->block.cols; col += KN_NR) {
        kn_packed_panel(&w->block, &t, w->right, w->depth, col, k);
        t.next = 0;
        if (col + KN_NR < w->block.cols)
            kn_fetch_panel(&w->block, &t, w->right, w->depth, col + KN_NR, k, length);
        else
            kn_fetch_panel(&w->block, &t, w->right, w->depth, 0, k + length, length);
        kn_block_panel(&w->block, t, col, k + length == w->depth);
    }
}

// Four windows, each times a row of weights: for output channels so few that they fill no vector.
INL void dots(const work *w, int64_t row, int64_t col, int64_t run, int64_t positions) {
    const int64_t last = w->block.rows - 1, step = w->s->row_block;
    const int64_t r1 = kn_min(row + 1, last), r2 = kn_min(row + 2, last), r3 = kn_min(row + 3, last);
    const float *right = w->right + col * w->depth, *const *from = w->table;
    vf a = {0}, b = a, c = a, d = a;
    for (int64_t position = 0; position < positions; position++, from += step, right += run) {
        const float *x0 = from[row], *x1 = from[r1], *x2 = from[r2], *x3 = from[r3];
        int64_t k = 0;
        for (; k + VF <= run; k += VF) {
            vf y = ld(right + k);
            a += y * ld(x0 + k), b += y * ld(x1 + k), c += y * ld(x2 + k), d += y * ld(x3 + k);
        }
        if (k == run) continue;
        const int64_t left = run - k;
        vf y = ld_part(right + k, left);
        a += y * ld_part(x0 + k, left), b += y * ld_part(x1 + k, left);
        c += y * ld_part(x2 + k, left), d += y * ld_part(x3 + k, left);
    }
    float *part = w->block.part + col;
    part[row * w->block.part_step] = vsum(a), part[r1 * w->block.part_step] = vsum(b);
    part[r2 * w->block.part_step] = vsum(c), part[r3 * w->block.part_step] = vsum(d);
}

static void run_block(work *w) {
    const kn_conv *s = w->s;
    kn_tile t = {.rows = w->table, .rows_step = s->row_block};
    point_to_windows(w);
    const int64_t run = w->is_copied ? w->depth : w->run;
    const int64_t positions = w->is_copied ? 1 : w->positions;
    for (int64_t r = 0; r < w->block.rows && w->is_copied; r++) w->table[r] = w->copies + r * w->copy_step;
    if (s->has_rows) {
        w->block.direct = 0;
        for (int64_t row = 0; row < w->block.rows; row += 4)
            for (int64_t col = 0; col < w->block.cols; col++) dots(w, row, col, run, positions);
    } else if (run > s->depth_block) {
        t.positions = 1;
        for (int64_t position = 0; position < positions; position++, t.rows += t.rows_step)
            for (t.offset = 0; t.offset < run; t.offset += s->depth_block) {
                t.length = kn_min(s->depth_block, run - t.offset);
                multiply(w, t, position * run + t.offset, t.length);
            }
    } else {
        const int64_t most = s->depth_block / kn_max(1, run);
        t.length = run;
        for (int64_t position = 0; position < positions; position += most) {
            t.positions = kn_min(most, positions - position);
            multiply(w, t, position * run, t.positions * run);
            t.rows += most * t.rows_step;
        }
    }
    kn_block_end(&w->block);
}

INL float *moved(char *p, int64_t offset) { return p ? (float *)(void *)p + offset : 0; }

// Whether the program finds its first input where the result goes, and not in the scratch.
INL int reads_out(const kn_conv *s, char *const *p) { return p[2] && s->out_channel == 1; }

static void place(work *w, char *const *p, int64_t image, int64_t group, int64_t col) {
    const kn_conv *s = w->s;
    const int64_t channel = group * s->cols + col;
    int64_t last = (s->images - 1) * s->x_image + (s->groups * s->channels - 1) * s->x_channel;
    for (int axis = 0; axis < 3; axis++) last += (s->in[axis] - 1) * s->x_space[axis];
    w->x = moved(p[0], image * s->x_image + group * s->channels * s->x_channel);
    w->x_end = moved(p[0], last + 1);
    const int64_t cols = s->has_rows ? s->cols : kn_ceil_div(s->cols, VF) * VF;
    w->right = moved(p[1], w->depth * (group * cols + col));
    w->block.finish = (kn_finish){
        .out = moved(p[2], image * s->out_image + w->first * s->out_pixel + channel * s->out_channel),
        .out_row = s->out_pixel,
        .out_col = s->out_channel,
        .bias = moved(p[3], channel),
        .bias_col = 1,
        .residual = moved(p[4], image * s->residual_image + w->first * s->residual_pixel +
                                    channel * s->residual_channel),
        .residual_row = s->residual_pixel,
        .residual_col = s->residual_channel,
        .low = kn_float(s->low),
        .high = kn_float(s->high),
    };
    if (s->has_program && !reads_out(s, p)) {
        w->block.finish.out = w->block.part;
        w->block.finish.out_row = w->block.part_step;
        w->block.finish.out_col = 1;
    }
    w->block.direct = kn_is_direct(&w->block.finish);
}

// Whether so much is read and written that nothing of the result stays in the caches for the next step.
// Storing past them saves reading it first.
static int is_far(const kn_conv *s, int has_residual) {
    const int64_t in = s->in[0] * s->in[1] * s->in[2] * s->channels;
    const int64_t out = s->out[0] * s->out[1] * s->out[2] * s->cols;
    return s->images * s->groups * (in + out * (has_residual ? 2 : 1)) > CACHES;
}

static void conv_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_conv *s = (const void *)n;
    const int64_t pixels = s->out[0] * s->out[1] * s->out[2];
    const int64_t row_blocks = kn_ceil_div(pixels, s->row_block);
    const int64_t col_blocks = kn_ceil_div(s->cols, s->col_block);
    work w = {0};
    w.block.stream = !s->has_program && is_far(s, p[4] != 0);
    divide_windows(&w, s);
    divide_scratch(&w, scratch);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t col = unit / row_blocks % col_blocks * s->col_block;
        const int64_t part = unit / row_blocks / col_blocks;
        w.first = unit % row_blocks * s->row_block;
        w.block.rows = kn_min(s->row_block, pixels - w.first);
        w.block.cols = kn_min(s->col_block, s->cols - col);
        place(&w, p, part / s->groups, part % s->groups, col);
        run_block(&w);
        if (s->has_program)
            kn_scalar_block(n + sizeof *s / sizeof *n, p + 5, w.rest, w.block.finish.out, w.block.finish.out_row,
                            part / s->groups * pixels + w.first, part % s->groups * s->cols + col,
                            w.block.rows, w.block.cols);
    }
    if (w.block.stream) vfence();
}

const kn_entry kn_conv_entries[] = {{"conv_f32", conv_f32}, {0, 0}};
