// Depthwise convolution of integers: the channels of x lie side by side, and vectors along them. A
// channel of 8 or 16 bits takes a lane of 32, which is multiplied as a pair whose other half is 0.
#include "integer.h"
#include "kn_integer_conv.h"
#include "kn_scalar.h"


// An element of the kernel that meets the image.
typedef struct {
    const char *x;
    const int32_t *w;
} tap;

typedef struct {
    const kn_integer_conv *s;
    kn_dot_block block;
    const char *x_end; // behind the last element of all
    int64_t size, padded; // bytes of an element of x; channels of a tap of the weights
    tap *taps;
    char *rest; // scratch of the program
} work;

// Taps, sums, program; kn_cpu/integer_depthwise.py adds them up.
static void divide_scratch(work *w, char *scratch) {
    const kn_integer_conv *s = w->s;
    w->taps = (tap *)(void *)scratch;
    w->block.part = (int32_t *)(void *)kn_aligned(w->taps + s->factors.depth);
    w->block.step = s->col_block + VF;
    w->rest = kn_aligned(w->block.part + s->row_block * w->block.step);
}

// VF channels of 8 bits, or of 16, in lanes of 32.
INL vi widened(const char *p, int64_t type) {
#if defined(__AVX512F__)
    if (type == KN_INT_U8) return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
    if (type == KN_INT_S8) return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
    return (vi)_mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)p));
#elif defined(__AVX2__)
    if (type == KN_INT_U8) return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    if (type == KN_INT_S8) return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
    return (vi)_mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)p));
#else
    vi x;
    for (int i = 0; i < VF; i++) {
        int16_t one;
        memcpy(&one, p + 2 * i, type == KN_INT_S16 ? 2 : 0);
        x[i] = type == KN_INT_U8 ? (uint8_t)p[i] : type == KN_INT_S8 ? (int8_t)p[i] : one;
    }
    return x;
#endif
}

// The same where what is behind the last element may not be read.
INL vi widened_some(const work *w, const char *p, int64_t type, int64_t count) {
    const int64_t size = type == KN_INT_S16 ? 2 : 1;
    if (p + VF * size <= w->x_end) return widened(p, type); // weights of 0 make up for it
    char part[VF * 2] = {0};
    memcpy(part, p, (size_t)(kn_min(VF, count) * size));
    return widened(part, type);
}

// A pixel whose taps lie `move` bytes behind those that are listed.
INL void one_pixel(const work *w, int32_t *to, int64_t count, int64_t move, int64_t type) {
    const int64_t size = type == KN_INT_S16 ? 2 : 1, cols = w->block.cols;
    int64_t c = 0;
    for (; c + 4 * VF <= cols; c += 4 * VF) {
        vi a = {0}, b = a, d = a, e = a;
        for (int64_t t = 0; t < count; t++) {
            const char *x = w->taps[t].x + move + c * size;
            const int32_t *y = w->taps[t].w + c;
            a = kn_dot_pairs(a, widened(x, type), ldi(y));
            b = kn_dot_pairs(b, widened(x + VF * size, type), ldi(y + VF));
            d = kn_dot_pairs(d, widened(x + 2 * VF * size, type), ldi(y + 2 * VF));
            e = kn_dot_pairs(e, widened(x + 3 * VF * size, type), ldi(y + 3 * VF));
        }
        sti(to + c, a), sti(to + c + VF, b), sti(to + c + 2 * VF, d), sti(to + c + 3 * VF, e);
    }
    for (; c < cols; c += VF) {
        vi a = {0};
        for (int64_t t = 0; t < count; t++) {
            const vi x = widened_some(w, w->taps[t].x + move + c * size, type, cols - c);
            a = kn_dot_pairs(a, x, ldi(w->taps[t].w + c));
        }
        sti(to + c, a);
    }
}

// Four pixels with the same taps, `step` bytes apart.
INL void four_pixels(const work *w, int32_t *to, int64_t count, int64_t move, int64_t step, int64_t type) {
    const int64_t size = type == KN_INT_S16 ? 2 : 1, next = w->block.step;
    for (int64_t c = 0; c < w->block.cols; c += VF) {
        vi a = {0}, b = a, d = a, e = a;
        for (int64_t t = 0; t < count; t++) {
            const char *x = w->taps[t].x + move + c * size;
            const vi y = ldi(w->taps[t].w + c);
            a = kn_dot_pairs(a, widened(x, type), y);
            b = kn_dot_pairs(b, widened(x + step, type), y);
            d = kn_dot_pairs(d, widened(x + 2 * step, type), y);
            e = kn_dot_pairs(e, widened(x + 3 * step, type), y);
        }
        sti(to + c, a), sti(to + c + next, b), sti(to + c + 2 * next, d), sti(to + c + 3 * next, e);
    }
}

INL int is_inside(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }

// Lists the taps of the window that begins at (z, y, x); returns how many there are.
static int64_t list_taps(const work *w, const char *image, const int32_t *weights, int64_t z, int64_t y, int64_t x) {
    const kn_integer_conv *s = w->s;
    tap *to = w->taps;
    for (int64_t d = 0; d < s->kernel[0]; d++, z += s->dilation[0])
        for (int64_t h = 0, at = y; h < s->kernel[1]; h++, at += s->dilation[1]) {
            const int there = is_inside(z, s->in[0]) && is_inside(at, s->in[1]);
            const int64_t line = z * s->x_space[0] + at * s->x_space[1];
            for (int64_t v = 0, i = x; v < s->kernel[2]; v++, i += s->dilation[2], weights += w->padded)
                if (there && is_inside(i, s->in[2]))
                    *to++ = (tap){image + (line + i * s->x_space[2]) * w->size, weights};
        }
    return to - w->taps;
}

// Whether whole vectors may be read for four pixels.
INL int reaches(const work *w, int64_t count, int64_t move, int64_t step) {
    if (count == 0) return 1;
    const char *last = w->taps[count - 1].x + move; // or the first, where x runs backwards
    if (w->taps[0].x + move > last) last = w->taps[0].x + move;
    return last + (step > 0 ? 3 * step : 0) + kn_ceil_div(w->block.cols, VF) * VF * w->size <= w->x_end;
}

// Pixels [column, end) of a line of the result whose windows begin at (z, y).
INL void run_line(const work *w, int32_t *to, const char *image, const int32_t *weights, int64_t z, int64_t y,
                  int64_t column, int64_t end, int64_t type) {
    const kn_integer_conv *s = w->s;
    const int64_t stride = s->stride[2], before = s->before[2], step = stride * s->x_space[2] * w->size;
    const int64_t room = s->in[2] - 1 - (s->kernel[2] - 1) * s->dilation[2] + before;
    const int64_t behind = room < 0 ? 0 : kn_min(end, room / stride + 1); // the windows before are inside
    while (column < end) {
        const int64_t count = list_taps(w, image, weights, z, y, column * stride - before);
        const int64_t alike = column * stride >= before && column < behind ? behind - column : 1;
        int64_t i = 0, move = 0;
        for (; i + 4 <= alike && reaches(w, count, move, step); i += 4, move += 4 * step, to += 4 * w->block.step)
            four_pixels(w, to, count, move, step, type);
        for (; i < alike; i++, move += step, to += w->block.step) one_pixel(w, to, count, move, type);
        column += alike;
    }
}

static void run_block(work *w, const char *image, const int32_t *weights, int64_t first) {
    const kn_integer_conv *s = w->s;
    const int64_t width = s->out[2], height = s->out[1];
    for (int64_t r = 0; r < w->block.rows;) {
        const int64_t column = (first + r) % width, line = (first + r) / width;
        const int64_t end = kn_min(width, column + w->block.rows - r);
        const int64_t z = line / height * s->stride[0] - s->before[0], y = line % height * s->stride[1] - s->before[1];
        int32_t *to = w->block.part + r * w->block.step;
        switch (s->factors.left) {
        case KN_INT_U8: run_line(w, to, image, weights, z, y, column, end, KN_INT_U8); break;
        case KN_INT_S8: run_line(w, to, image, weights, z, y, column, end, KN_INT_S8); break;
        default: run_line(w, to, image, weights, z, y, column, end, KN_INT_S16); break;
        }
        r += end - column;
    }
}

INL char *moved(char *p, int64_t bytes) { return p ? p + bytes : 0; }

static void depthwise_int(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_integer_conv *s = (const void *)n;
    const kn_requantize *q = &s->finish;
    const int64_t pixels = s->out[0] * s->out[1] * s->out[2];
    const int64_t row_blocks = kn_ceil_div(pixels, s->row_block), col_blocks = kn_ceil_div(s->cols, s->col_block);
    const int64_t size = q->to == KN_TO_U8 || q->to == KN_TO_S8 ? 1 : 4;
    work w = {.s = s, .size = s->factors.left == KN_INT_S16 ? 2 : 1, .padded = kn_ceil_div(s->cols, VF) * VF};
    divide_scratch(&w, scratch);
    int64_t last = (s->images - 1) * s->x_image + s->cols - 1;
    for (int axis = 0; axis < 3; axis++) last += (s->in[axis] - 1) * s->x_space[axis];
    w.x_end = p[0] + (last + 1) * w.size;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t col = unit / row_blocks % col_blocks * s->col_block, image = unit / row_blocks / col_blocks;
        const int64_t first = unit % row_blocks * s->row_block;
        w.block.rows = kn_min(s->row_block, pixels - first);
        w.block.cols = kn_min(s->col_block, s->cols - col);
        run_block(&w, p[0] + (image * s->x_image + col) * w.size, (const int32_t *)(void *)p[1] + col, first);
        char *out = p[2] + (image * s->out_image + first * q->out_row + col * q->out_col) * size;
        kn_finish_sums(q, &w.block, q->in_place ? 0 : out, (const int32_t *)(void *)moved(p[3], 4 * col * q->bias_col),
                       (const float *)(void *)moved(p[4], 4 * col * q->scale_col));
        if (q->in_place)
            kn_scalar_block(n + sizeof *s / sizeof *n, p + 5, w.rest, (const float *)(void *)w.block.part,
                            w.block.step, image * pixels + first, col, w.block.rows, w.block.cols);
    }
}

const kn_entry kn_integer_depthwise_entries[] = {{"depthwise_int", depthwise_int}, {0, 0}};
