// Transposed convolution, from the side of the result: every place of it gathers the elements of x
// that reach it. Places of one phase use the same elements of the kernel, so that each is a product of
// matrices whose rows are read in place; nothing is multiplied with the zeros between elements of x.
#include "kn_conv_transpose.h"
#include "product.h"

typedef struct {
    const kn_conv_transpose *s;
    const float *x, *right; // of the group
    kn_block block;
    int64_t depth;        // of the product
    int64_t phase[3];     // first place along each axis
    int64_t count[3];     // places of the phase
    int64_t first, lines; // of the phase's lines
    const float **table;  // [rows]
    float *zeros;         // [channels]
} work;

INL int64_t row_block(const kn_conv_transpose *s) { return s->lines * kn_ceil_div(s->out[2], s->stride[2]); }

// Table, zeros, sums; kn_cpu/conv_transpose.py adds them up.
static void divide_scratch(work *w, char *scratch) {
    const kn_conv_transpose *s = w->s;
    w->table = (const float **)(void *)scratch;
    scratch += kn_ceil_div(row_block(s) * (int64_t)sizeof(float *), KN_VB) * KN_VB;
    w->zeros = (float *)(void *)scratch;
    w->block.part = w->zeros + kn_ceil_div(s->channels, VF) * VF;
    w->block.part_step = s->col_block + VF;
    for (int64_t i = 0; i < s->channels; i++) w->zeros[i] = 0;
}

INL int is_inside(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }

// Whether an element of the kernel reaches the phase; `shift` is what has to be added to the number of a
// place in the phase, along each axis, to get the element of x.
INL int reaches(const work *w, int64_t tap, int64_t *shift) {
    const kn_conv_transpose *s = w->s;
    int all = 1;
    for (int axis = 2; axis >= 0; tap /= s->kernel[axis--]) {
        const int64_t at = tap % s->kernel[axis];
        const int64_t distance = w->phase[axis] + s->before[axis] - at * s->dilation[axis];
        shift[axis] = distance / s->stride[axis];
        all &= distance % s->stride[axis] == 0;
    }
    return all;
}

INL int64_t taps(const kn_conv_transpose *s) { return s->kernel[0] * s->kernel[1] * s->kernel[2]; }

static void point_to_x(work *w, const int64_t *shift) {
    const kn_conv_transpose *s = w->s;
    const float **to = w->table;
    for (int64_t line = w->first; line < w->first + w->lines; line++) {
        const int64_t z = line / w->count[1] + shift[0], y = line % w->count[1] + shift[1];
        const int there = is_inside(z, s->in[0]) && is_inside(y, s->in[1]);
        const float *from = w->x + (there ? z * s->x_space[0] + y * s->x_space[1] : 0);
        for (int64_t i = 0, x = shift[2]; i < w->count[2]; i++, x++)
            *to++ = there && is_inside(x, s->in[2]) ? from + x * s->x_space[2] : w->zeros;
    }
}

// Adds what one element of the kernel gives, or sets the sums to 0 where it is none.
static void add_tap(work *w, int64_t tap, int64_t channels, int fresh) {
    const kn_conv_transpose *s = w->s;
    for (int64_t c = 0; c < channels || c == 0; c += s->depth_block) {
        kn_tile t = {.rows = w->table, .positions = 1, .offset = c, .fresh = fresh && c == 0};
        t.length = kn_min(s->depth_block, channels - c);
        for (int64_t col = 0; col < w->block.cols; col += KN_NR) {
            kn_packed_panel(&w->block, &t, w->right, w->depth, col, tap * s->channels + c);
            kn_block_panel(&w->block, t, col, 0);
        }
    }
}

static void add_taps(work *w) {
    const kn_conv_transpose *s = w->s;
    int64_t shift[3];
    int fresh = 1;
    for (int64_t tap = 0; tap < taps(s); tap++) {
        if (!reaches(w, tap, shift)) continue;
        point_to_x(w, shift);
        add_tap(w, tap, s->channels, fresh);
        fresh = 0;
    }
    if (!fresh) return;
    for (int64_t i = 0; i < w->block.rows; i++) w->table[i] = w->zeros;
    add_tap(w, 0, 0, 1);
}

// One sum, of the elements that are there.
static float exact_sum(const work *w, int64_t row, int64_t col) {
    const kn_conv_transpose *s = w->s;
    const int64_t line = w->first + row / w->count[2], first = col / KN_NR * KN_NR;
    int64_t shift[3];
    float sum = 0;
    for (int64_t tap = 0; tap < taps(s); tap++) {
        if (!reaches(w, tap, shift)) continue;
        const int64_t z = line / w->count[1] + shift[0], y = line % w->count[1] + shift[1];
        const int64_t x = row % w->count[2] + shift[2];
        if (!is_inside(z, s->in[0]) || !is_inside(y, s->in[1]) || !is_inside(x, s->in[2])) continue;
        const float *from = w->x + z * s->x_space[0] + y * s->x_space[1] + x * s->x_space[2];
        kn_tile t = {0};
        kn_packed_panel(&w->block, &t, w->right, w->depth, first, tap * s->channels);
        for (int64_t c = 0; c < s->channels; c++) sum += from[c] * t.right[c * t.right_step + col - first];
    }
    return sum;
}

// Zeros stand for elements of x that are not there: sums in which they met a weight that is no finite
// number are computed again.
static void leave_zeros_out(work *w) {
    for (int64_t i = 0; i < w->block.rows; i++) {
        float *part = w->block.part + i * w->block.part_step;
        int odd = 0;
        for (int64_t j = 0; j < w->block.cols; j++) odd |= part[j] != part[j];
        for (int64_t j = 0; odd && j < w->block.cols; j++)
            if (part[j] != part[j]) part[j] = exact_sum(w, i, j);
    }
}

INL float *moved(char *p, int64_t offset) { return p ? (float *)(void *)p + offset : 0; }

// Writes the lines of the phase, whose places are a stride apart.
static void write_lines(work *w, char *const *p, int64_t image, int64_t channel) {
    const kn_conv_transpose *s = w->s;
    float *part = w->block.part;
    for (int64_t line = w->first; line < w->first + w->lines; line++) {
        const int64_t at[3] = {w->phase[0] + line / w->count[1] * s->stride[0],
                               w->phase[1] + line % w->count[1] * s->stride[1], w->phase[2]};
        int64_t out = image * s->out_image + channel * s->out_channel;
        int64_t residual = image * s->residual_image + channel * s->residual_channel;
        for (int axis = 0; axis < 3; axis++) {
            out += at[axis] * s->out_space[axis];
            residual += at[axis] * s->residual_space[axis];
        }
        const kn_finish f = {
            .out = moved(p[2], out),
            .out_row = s->stride[2] * s->out_space[2],
            .out_col = s->out_channel,
            .bias = moved(p[3], channel),
            .bias_col = 1,
            .residual = moved(p[4], residual),
            .residual_row = s->stride[2] * s->residual_space[2],
            .residual_col = s->residual_channel,
            .low = kn_float(s->low),
            .high = kn_float(s->high),
        };
        kn_finish_block(&f, part, w->block.part_step, w->count[2], w->block.cols);
        part += w->count[2] * w->block.part_step;
    }
}

// Sets the phase and its lines; returns whether there are any.
static int place(work *w, int64_t phase, int64_t lines_block) {
    const kn_conv_transpose *s = w->s;
    for (int axis = 2; axis >= 0; axis--) {
        w->phase[axis] = phase % s->stride[axis];
        phase /= s->stride[axis];
        const int64_t left = s->out[axis] - w->phase[axis];
        w->count[axis] = left > 0 ? kn_ceil_div(left, s->stride[axis]) : 0;
    }
    w->first = lines_block * s->lines;
    w->lines = kn_min(s->lines, w->count[0] * w->count[1] - w->first);
    w->block.rows = w->lines * w->count[2];
    return w->lines > 0 && w->count[2] > 0;
}

static void conv_transpose_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin,
                               int64_t end) {
    const kn_conv_transpose *s = (const void *)n;
    const int64_t lines = kn_ceil_div(s->out[0], s->stride[0]) * kn_ceil_div(s->out[1], s->stride[1]);
    const int64_t line_blocks = kn_ceil_div(lines, s->lines);
    const int64_t phases = s->stride[0] * s->stride[1] * s->stride[2];
    const int64_t col_blocks = kn_ceil_div(s->cols, s->col_block);
    work w = {.s = s, .depth = taps(s) * s->channels};
    divide_scratch(&w, scratch);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t rest = unit / line_blocks / phases;
        const int64_t col = rest % col_blocks * s->col_block;
        const int64_t group = rest / col_blocks % s->groups, image = rest / col_blocks / s->groups;
        if (!place(&w, unit / line_blocks % phases, unit % line_blocks)) continue;
        w.block.cols = kn_min(s->col_block, s->cols - col);
        w.x = moved(p[0], image * s->x_image + group * s->channels);
        w.right = moved(p[1], w.depth * (group * kn_ceil_div(s->cols, VF) * VF + col));
        add_taps(&w);
        leave_zeros_out(&w);
        write_lines(&w, p, image, group * s->cols + col);
    }
}

const kn_entry kn_conv_transpose_entries[] = {{"conv_transpose_f32", conv_transpose_f32}, {0, 0}};
