// Convolution over few channels, as of the first layer of a network: the lines that a unit reads are
// copied, with zeros around them, and neighbouring windows of a line are multiplied from there, so that
// no window is copied or pointed to.
#include "each.h"
#include "kn_conv_lines.h"
#include "kn_scalar.h"
#include "product.h"

// KN_MR windows side by side, times one panel of the weights.
typedef struct {
    const float *x;                   // the first window in the copy
    int64_t line_step, channel_step;  // in the copy
    int64_t channels, height, width;  // of the windows
    const float *right;               // [channels][height][width][columns of the panel]
    float *out;
    int64_t out_step;
    int64_t count, cols;              // windows and columns that are written
    const float *bias;
    float low, high;
} tile;

INL void write_part(float *out, vf sum, const float *bias, int64_t count, vf low, vf high) {
    if (count >= VF)
        st(out, vclamp(bias ? sum + ld(bias) : sum, low, high));
    else if (count > 0)
        st_part(out, vclamp(bias ? sum + ld_part(bias, count) : sum, low, high), count);
}

// A pointer of which the compiler does not know that it moves by one: it would keep what two neighbours
// read in registers, of which there are none left.
INL const float *hidden(const float *x) {
    __asm__("" : "+r"(x));
    return x;
}

#if KN_MR == 12
#define EACH(X) EACH_12(X)
#else
#define EACH(X) EACH_6(X)
#endif

#define DECLARE(i) vf u##i = {0}, v##i = {0};
#define MULTIPLY(i)                                                                                      \
    {                                                                                                    \
        vf a = set1(x[i * stride]);                                                                      \
        u##i += a * first;                                                                               \
        v##i += a * second;                                                                              \
    }
#define MULTIPLY_1(i) u##i += set1(x[i * stride]) * first;
#define WRITE(i)                                                                                         \
    if (i < count) {                                                                                     \
        write_part(out, u##i, bias, cols, low, high);                                                    \
        if (wide) write_part(out + VF, v##i, bias ? bias + VF : 0, cols - VF, low, high);                \
        out += step;                                                                                     \
    }

INL void multiply(const tile *t, const int stride, const int wide) {
    EACH(DECLARE)
    const float *right = t->right;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t y = 0; y < t->height; y++) {
            const float *line = t->x + c * t->channel_step + y * t->line_step;
            for (int64_t k = 0; k < t->width; k++, right += wide ? KN_NR : VF) {
                const float *x = hidden(line + k);
                vf first = ld(right);
                if (wide) {
                    vf second = ld(right + VF);
                    EACH(MULTIPLY)
                } else {
                    EACH(MULTIPLY_1)
                }
            }
        }
    const vf low = set1(t->low), high = set1(t->high);
    const float *bias = t->bias; // local: a store might change what a pointer leads to
    const int64_t count = t->count, cols = t->cols, step = t->out_step;
    float *out = t->out;
    EACH(WRITE)
}

static void lines_wide_1(const tile *t) { multiply(t, 1, 1); }
static void lines_wide_2(const tile *t) { multiply(t, 2, 1); }
static void lines_wide_4(const tile *t) { multiply(t, 4, 1); }
static void lines_narrow_1(const tile *t) { multiply(t, 1, 0); }
static void lines_narrow_2(const tile *t) { multiply(t, 2, 0); }
static void lines_narrow_4(const tile *t) { multiply(t, 4, 0); }

typedef void (*micro)(const tile *);
static const micro wide[] = {0, lines_wide_1, lines_wide_2, 0, lines_wide_4};
static const micro narrow[] = {0, lines_narrow_1, lines_narrow_2, 0, lines_narrow_4};

typedef struct {
    const kn_conv_lines *s;
    const float *x; // of the image
    float *copy;    // [channels][lines][line_step]
    int64_t line_step, channel_step;
    char *rest; // scratch of the program
} work;

// Lines, program; kn_cpu/conv_lines.py adds them up. Tiles may read windows behind the last one.
static void divide_scratch(work *w, char *scratch) {
    const kn_conv_lines *s = w->s;
    const int64_t windows = kn_ceil_div(s->out[1], KN_MR) * KN_MR;
    w->copy = (float *)(void *)scratch;
    w->line_step = (windows - 1) * s->stride[1] + s->kernel[1];
    w->channel_step = w->line_step * ((s->lines - 1) * s->stride[0] + s->kernel[0]);
    w->rest = kn_aligned(w->copy + s->channels * w->channel_step);
}

// One line of one channel; NULL for one that is outside.
static void copy_line(const work *w, float *to, const float *from) {
    const kn_conv_lines *s = w->s;
    const int64_t begin = kn_min(s->before[1], w->line_step), step = s->x_space[1];
    const int64_t end = from ? kn_min(w->line_step, begin + s->in[1]) : begin;
    memset(to, 0, (size_t)begin * sizeof(float));
    if (from && step == 1) memcpy(to + begin, from, (size_t)(end - begin) * sizeof(float));
    for (int64_t i = begin; i < end && step != 1; i++) to[i] = from[(i - begin) * step];
    memset(to + end, 0, (size_t)(w->line_step - end) * sizeof(float));
}

static void copy_lines(const work *w, int64_t first, int64_t count) {
    const kn_conv_lines *s = w->s;
    const int64_t top = first * s->stride[0] - s->before[0];
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t y = 0; y < (count - 1) * s->stride[0] + s->kernel[0]; y++) {
            const int there = top + y >= 0 && top + y < s->in[0];
            const float *from = there ? w->x + c * s->x_channel + (top + y) * s->x_space[0] : 0;
            copy_line(w, w->copy + c * w->channel_step + y * w->line_step, from);
        }
}

INL float *moved(char *p, int64_t offset) { return p ? (float *)(void *)p + offset : 0; }

static void run_lines(const work *w, char *const *p, int64_t image, int64_t first, int64_t count) {
    const kn_conv_lines *s = w->s;
    const int64_t depth = s->channels * s->kernel[0] * s->kernel[1];
    tile t = {
        .line_step = w->line_step,
        .channel_step = w->channel_step,
        .channels = s->channels,
        .height = s->kernel[0],
        .width = s->kernel[1],
        .out_step = s->out_space[1],
        .low = kn_float(s->low),
        .high = kn_float(s->high),
    };
    for (int64_t col = 0; col < s->cols; col += KN_NR) {
        t.cols = s->cols - col;
        t.right = moved(p[1], col * depth);
        t.bias = moved(p[3], col);
        const micro run = (t.cols > VF ? wide : narrow)[s->stride[1]];
        for (int64_t line = 0; line < count; line++) {
            float *out = moved(p[2], image * s->out_image + (first + line) * s->out_space[0] + col);
            const float *x = w->copy + line * s->stride[0] * w->line_step;
            for (int64_t i = 0; i < s->out[1]; i += KN_MR) {
                t.x = x + i * s->stride[1];
                t.out = out + i * t.out_step;
                t.count = s->out[1] - i;
                run(&t);
            }
        }
    }
}

static void conv_lines_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_conv_lines *s = (const void *)n;
    const int64_t blocks = kn_ceil_div(s->out[0], s->lines);
    work w = {.s = s};
    divide_scratch(&w, scratch);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t image = unit / blocks, first = unit % blocks * s->lines;
        const int64_t count = kn_min(s->lines, s->out[0] - first);
        w.x = moved(p[0], image * s->x_image);
        copy_lines(&w, first, count);
        run_lines(&w, p, image, first, count);
        if (!s->has_program) continue;
        const float *block = moved(p[2], image * s->out_image + first * s->out_space[0]);
        kn_scalar_block((const int64_t *)(s + 1), p + 4, w.rest, block, s->out_space[1],
                        (image * s->out[0] + first) * s->out[1], 0, count * s->out[1], s->cols);
    }
}

const kn_entry kn_conv_lines_entries[] = {{"conv_lines_f32", conv_lines_f32}, {0, 0}};
