// Depthwise convolution: tiles of neighbouring pixels of a line, so that what is loaded serves
// several windows; channels run innermost, as they lie in memory. Tiles that reach over an end of
// the line read through a table of pointers, a page of zeros outside.
#include "kn_depthwise.h"
#include "kn_scalar.h"
#include "simd.h"

#define PIXELS 7                        // of a tile: what is common divides by it
#define LARGEST 7                       // kernel of its own
#define MOST ((PIXELS - 1) * 2 + LARGEST) // pixels that a line of a tile reads
#define GENERAL 4                       // pixels of a tile of the general kernel

// One tile.
typedef struct {
    const float *x;            // its first pixel, where it is inside
    int64_t x_line, x_pixel;   // steps from a line of the kernel, and a pixel, to the next
    int64_t top, bottom;       // the lines [top, bottom) of the kernel lie in the image
    const float *const *table; // [LARGEST][MOST] pointers to pixels, where it is not inside
    int64_t pixels, channels;  // of the result
    const float *w, *bias;
    float *out;
    int64_t out_pixel;
    const float *residual;
    int64_t residual_pixel;
    float low, high;
    int64_t out_line, residual_line;
    int64_t run; // tiles side by side
} tile;

INL vf load(const float *p, const int part, int64_t count) { return part ? ld_part(p, count) : ld(p); }

INL void store_sum(const tile *t, vf sum, int64_t j, int64_t c, const int part, int64_t count) {
    float *out = t->out + j * t->out_pixel + c;
    if (t->residual) sum += load(t->residual + j * t->residual_pixel + c, part, count);
    sum = vclamp(sum, set1(t->low), set1(t->high));
    if (part)
        st_part(out, sum, count);
    else
        st(out, sum);
}

#ifdef __clang__
#define KN_UNROLL
#else
#define KN_UNROLL _Pragma("GCC unroll 16")
#endif

// The channels from c on of a tile of windows that are k wide, without dilation along the line. The
// weights of a line of the kernel, and all sums, stay in registers.
INL void windows(const tile *t, const int k, const int stride, const int inside, int64_t c, const int part) {
    const int64_t count = t->channels - c;
    vf sum[PIXELS], weight[LARGEST];
    vf start = t->bias ? load(t->bias + c, part, count) : (vf){0};
    KN_UNROLL for (int j = 0; j < PIXELS; j++) sum[j] = start;
    for (int64_t y = t->top; y < t->bottom; y++) {
        const float *line = t->x + y * t->x_line + c, *w = t->w + y * k * t->channels + c;
        const float *const *pixel = t->table + y * MOST;
        KN_UNROLL for (int h = 0; h < k; h++) weight[h] = load(w + h * t->channels, part, count);
        KN_UNROLL for (int x = 0; x < (PIXELS - 1) * stride + k; x++) {
            vf value = load(inside ? line + x * t->x_pixel : pixel[x] + c, part, count);
            KN_UNROLL for (int j = 0; j < PIXELS; j++) {
                const int h = x - j * stride;
                if (h >= 0 && h < k) sum[j] += value * weight[h];
            }
        }
    }
    KN_UNROLL for (int j = 0; j < PIXELS; j++) {
        if (inside || j < t->pixels) store_sum(t, sum[j], j, c, part, count);
    }
}

#if defined(__AVX512F__)
// The same for two lines of windows of 3 x 3, stride 1, whose sums and weights fill the registers.
INL void window_pairs(const tile *t, int64_t c, const int part) {
    const int64_t count = t->channels - c;
    vf above[PIXELS], below[PIXELS], weight[9];
    vf start = t->bias ? load(t->bias + c, part, count) : (vf){0};
    KN_UNROLL for (int j = 0; j < PIXELS; j++) above[j] = below[j] = start;
    KN_UNROLL for (int i = 0; i < 9; i++) weight[i] = load(t->w + i * t->channels + c, part, count);
    KN_UNROLL for (int y = 0; y < 4; y++) {
        const float *line = t->x + y * t->x_line + c;
        KN_UNROLL for (int x = 0; x < PIXELS + 2; x++, line += t->x_pixel) {
            vf value = load(line, part, count);
            KN_UNROLL for (int h = 0; h < 3; h++) {
                const int j = x - h;
                if (j < 0 || j >= PIXELS) continue;
                if (y < 3) above[j] += value * weight[y * 3 + h];
                if (y > 0) below[j] += value * weight[y * 3 - 3 + h];
            }
        }
    }
    tile second = *t;
    second.out += t->out_line;
    if (t->residual) second.residual += t->residual_line;
    KN_UNROLL for (int j = 0; j < PIXELS; j++) {
        store_sum(t, above[j], j, c, part, count);
        store_sum(&second, below[j], j, c, part, count);
    }
}

static void pair_3_1(const tile *shared) {
    tile t = *shared;
    for (int64_t i = 0; i < t.run; i++) {
        int64_t c = 0;
        for (; c + VF <= t.channels; c += VF) window_pairs(&t, c, 0);
        if (c < t.channels) window_pairs(&t, c, 1);
        t.x += PIXELS * t.x_pixel;
        t.out += PIXELS * t.out_pixel;
        if (t.residual) t.residual += PIXELS * t.residual_pixel;
    }
}
#else
#define pair_3_1 0
#endif

// Works on copies in local variables: a store might change what a pointer leads to.
INL void all_channels(const tile *shared, const int k, const int stride, const int inside) {
    tile t = *shared;
    for (int64_t i = 0; i < t.run; i++) {
        int64_t c = 0;
        for (; c + VF <= t.channels; c += VF) windows(&t, k, stride, inside, c, 0);
        if (c < t.channels) windows(&t, k, stride, inside, c, 1);
        t.x += PIXELS * stride * t.x_pixel;
        t.out += PIXELS * t.out_pixel;
        if (t.residual) t.residual += PIXELS * t.residual_pixel;
    }
}

#define KERNEL(k, stride)                                                                                \
    static void inside_##k##_##stride(const tile *t) { all_channels(t, k, stride, 1); }                  \
    static void edge_##k##_##stride(const tile *t) { all_channels(t, k, stride, 0); }

KERNEL(3, 1)
KERNEL(3, 2)
KERNEL(5, 1)
KERNEL(5, 2)
KERNEL(7, 1)
KERNEL(7, 2)

typedef struct {
    int64_t k, stride; // along the line
    void (*inside)(const tile *);
    void (*edge)(const tile *);
    void (*pair)(const tile *); // two lines at once; or NULL
} kernel;

static const kernel kernels[] = {
    {3, 1, inside_3_1, edge_3_1, pair_3_1}, {3, 2, inside_3_2, edge_3_2, 0},
    {5, 1, inside_5_1, edge_5_1, 0},        {5, 2, inside_5_2, edge_5_2, 0},
    {7, 1, inside_7_1, edge_7_1, 0},        {7, 2, inside_7_2, edge_7_2, 0},
};

// The kernel for windows of a plane; NULL where the general one is needed.
static const kernel *find_kernel(const kn_depthwise *s) {
    const int plane = s->kernel[0] == 1 && s->in[0] == 1 && s->out[0] == 1 && s->before[0] == 0;
    if (!plane || s->kernel[1] > LARGEST || s->dilation[2] != 1) return 0;
    for (unsigned i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (s->kernel[2] == kernels[i].k && s->stride[2] == kernels[i].stride) return kernels + i;
    return 0;
}

typedef struct {
    const kn_depthwise *s;
    const float *x; // of the image
    tile t;         // what all tiles share, of the image
    float *zeros;   // [channels]
    const float **table;
} work;

INL int is_inside(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }
INL int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
INL int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INL int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static void place_tile(work *w, tile *t, int64_t plane, int64_t line, int64_t pixel) {
    const kn_depthwise *s = w->s;
    t->out += plane * s->out_space[0] + line * s->out_space[1] + pixel * s->out_space[2];
    if (t->residual)
        t->residual += plane * s->residual_space[0] + line * s->residual_space[1] +
                       pixel * s->residual_space[2];
}

// The tile number i of a line, and how far its kernel reaches into the image.
static tile make_tile(work *w, const kernel *f, int64_t line, int64_t i) {
    const kn_depthwise *s = w->s;
    const int64_t pixel = i * PIXELS, dilation = s->dilation[1];
    const int64_t y0 = line * s->stride[1] - s->before[1], x0 = pixel * f->stride - s->before[2];
    tile t = w->t;
    place_tile(w, &t, 0, line, pixel);
    t.x = w->x + y0 * s->x_space[1] + x0 * s->x_space[2];
    t.top = y0 < 0 ? least(ceil_div(-y0, dilation), s->kernel[1]) : 0;
    t.bottom = y0 < s->in[1] ? least(s->kernel[1], ceil_div(s->in[1] - y0, dilation)) : 0;
    t.pixels = least(PIXELS, s->out[2] - pixel);
    return t;
}

static void run_edge(work *w, const kernel *f, int64_t line, int64_t i) {
    const kn_depthwise *s = w->s;
    const tile t = make_tile(w, f, line, i);
    const int64_t x0 = i * PIXELS * f->stride - s->before[2];
    for (int64_t y = t.top; y < t.bottom; y++)
        for (int64_t x = 0; x < (PIXELS - 1) * f->stride + f->k; x++)
            w->table[y * MOST + x] =
                is_inside(x0 + x, s->in[2]) ? t.x + y * t.x_line + x * t.x_pixel : w->zeros;
    f->edge(&t);
}

INL int is_whole(const kn_depthwise *s, int64_t line) {
    const int64_t y0 = line * s->stride[1] - s->before[1];
    return y0 >= 0 && y0 + (s->kernel[1] - 1) * s->dilation[1] < s->in[1];
}

// One line of the output, or two; returns how many.
static int64_t run_lines(work *w, const kernel *f, int64_t line, int64_t left) {
    const kn_depthwise *s = w->s;
    const int paired = f->pair && left > 1 && s->kernel[1] == 3 && s->dilation[1] == 1 &&
                       s->stride[1] == 1 && is_whole(s, line) && is_whole(s, line + 1);
    const int64_t cols = (PIXELS - 1) * f->stride + f->k, step = PIXELS * f->stride;
    const int64_t room = s->in[2] - cols + s->before[2];
    const int64_t first = ceil_div(s->before[2], step); // the tiles [first, behind) lie inside
    const int64_t behind = room < 0 ? 0 : least(room / step + 1, s->out[2] / PIXELS);
    for (int64_t i = 0; i * PIXELS < s->out[2]; i++) {
        if (i >= first && i < behind) {
            tile t = make_tile(w, f, line, i);
            t.run = behind - i;
            if (paired)
                f->pair(&t);
            else
                f->inside(&t);
            i = behind - 1;
            continue;
        }
        run_edge(w, f, line, i);
        if (paired) run_edge(w, f, line + 1, i);
    }
    return paired ? 2 : 1;
}

// Any window: pointers to all its pixels, GENERAL windows side by side.
INL void general_channels(const tile *t, int64_t positions, int64_t c, const int part) {
    const int64_t count = t->channels - c;
    vf start = t->bias ? load(t->bias + c, part, count) : (vf){0};
    vf a = start, b = start, d = start, e = start;
    for (int64_t k = 0; k < positions; k++) {
        const float *const *from = t->table + k * GENERAL;
        vf weight = load(t->w + k * t->channels + c, part, count);
        a += weight * load(from[0] + c, part, count);
        b += weight * load(from[1] + c, part, count);
        d += weight * load(from[2] + c, part, count);
        e += weight * load(from[3] + c, part, count);
    }
    store_sum(t, a, 0, c, part, count);
    if (t->pixels > 1) store_sum(t, b, 1, c, part, count);
    if (t->pixels > 2) store_sum(t, d, 2, c, part, count);
    if (t->pixels > 3) store_sum(t, e, 3, c, part, count);
}

static void general_line(work *w, int64_t plane, int64_t line) {
    const kn_depthwise *s = w->s;
    for (int64_t pixel = 0; pixel < s->out[2]; pixel += GENERAL) {
        tile t = w->t;
        place_tile(w, &t, plane, line, pixel);
        t.pixels = least(GENERAL, s->out[2] - pixel);
        const float **to = w->table;
        for (int64_t d = 0; d < s->kernel[0]; d++)
            for (int64_t h = 0; h < s->kernel[1]; h++)
                for (int64_t v = 0; v < s->kernel[2]; v++)
                    for (int64_t q = 0; q < GENERAL; q++) {
                        const int64_t z = plane * s->stride[0] - s->before[0] + d * s->dilation[0];
                        const int64_t y = line * s->stride[1] - s->before[1] + h * s->dilation[1];
                        const int64_t x = (pixel + q) * s->stride[2] - s->before[2] + v * s->dilation[2];
                        const int there = q < t.pixels && is_inside(z, s->in[0]) &&
                                          is_inside(y, s->in[1]) && is_inside(x, s->in[2]);
                        *to++ = there ? w->x + z * s->x_space[0] + y * s->x_space[1] + x * s->x_space[2]
                                      : w->zeros;
                    }
        const int64_t positions = s->kernel[0] * s->kernel[1] * s->kernel[2];
        int64_t c = 0;
        for (; c + VF <= t.channels; c += VF) general_channels(&t, positions, c, 0);
        if (c < t.channels) general_channels(&t, positions, c, 1);
    }
}

INL float *moved(char *p, int64_t offset) { return p ? (float *)(void *)p + offset : 0; }

INL float as_float(int64_t bits) {
    int32_t low = (int32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

// The program on lines that are finished.
static void apply_program(const work *w, char *const *p, char *scratch, int64_t image, int64_t plane,
                          int64_t line, int64_t lines) {
    const kn_depthwise *s = w->s;
    const float *block = w->t.out + plane * s->out_space[0] + line * s->out_space[1];
    const int64_t pixel = ((image * s->out[0] + plane) * s->out[1] + line) * s->out[2];
    kn_scalar_block((const int64_t *)(s + 1), p + 5, scratch, block, s->out_space[2], pixel, 0,
                    lines * s->out[2], s->channels);
}

// Scratch: zeros, table, program; kn_cpu/depthwise.py adds them up.
static void depthwise_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_depthwise *s = (const void *)n;
    const int64_t blocks = (s->out[1] + s->lines - 1) / s->lines;
    const int64_t page = (s->channels + VF - 1) / VF * VF;
    const kernel *f = find_kernel(s);
    work w = {.s = s, .zeros = (float *)(void *)scratch};
    w.table = (const float **)(void *)(w.zeros + page);
    const int64_t points = s->kernel[0] * s->kernel[1] * s->kernel[2];
    char *rest = kn_aligned(w.table + most(LARGEST * MOST, points * GENERAL));
    for (int64_t i = 0; i < page; i++) w.zeros[i] = 0;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % blocks * s->lines, last = least(s->out[1], first + s->lines);
        const int64_t plane = unit / blocks % s->out[0], image = unit / blocks / s->out[0];
        w.x = moved(p[0], image * s->x_image);
        w.t = (tile){
            .x_line = s->x_space[1] * s->dilation[1],
            .x_pixel = s->x_space[2],
            .table = w.table,
            .run = 1,
            .channels = s->channels,
            .w = moved(p[1], 0),
            .bias = moved(p[3], 0),
            .out = moved(p[2], image * s->out_image),
            .out_line = s->out_space[1],
            .out_pixel = s->out_space[2],
            .residual = moved(p[4], image * s->residual_image),
            .residual_line = s->residual_space[1],
            .residual_pixel = s->residual_space[2],
            .low = as_float(s->low),
            .high = as_float(s->high),
        };
        for (int64_t line = first; line < last;)
            if (f)
                line += run_lines(&w, f, line, last - line);
            else
                general_line(&w, plane, line++);
        if (s->has_program) apply_program(&w, p, rest, image, plane, first, last - first);
    }
}

const kn_entry kn_depthwise_entries[] = {{"depthwise_f32", depthwise_f32}, {0, 0}};
