// Winograd's convolution F(4 x 4, 3 x 3): a quarter of the multiplications, for about ten times the
// rounding errors. Each tile of 6 x 6 pixels is transformed, multiplied channel by channel with
// transformed weights (36 products of matrices), and 4 x 4 results are transformed back.
#include "kn_scalar.h"
#include "kn_winograd.h"
#include "product.h"

#define POINTS 36 // of a tile

typedef struct {
    const kn_winograd *s;
    const float *x, *u, *bias, *residual;
    float *out;
    kn_block block;      // sums of one point: [tiles][columns]
    const float **rows;  // [tile_block]
    float *tiles;        // [POINTS][tile_block][tile_step], transformed
    int64_t tile_step, tile_plane;
    float *sums;         // [POINTS][tile_block][part_step]
    int64_t sum_plane;
    char *rest;          // scratch of the program
} work;

static int64_t count_tiles(const kn_winograd *s) {
    return s->images * kn_ceil_div(s->out[0], 4) * kn_ceil_div(s->out[1], 4);
}

// Rows, tiles, sums, program; kn_cpu/winograd.py adds them up. Planes are a cache line longer than needed: a
// tile goes to all of them, which must not meet in one set of the cache.
static void divide_scratch(work *w, char *scratch) {
    const kn_winograd *s = w->s;
    w->rows = (const float **)(void *)scratch;
    scratch += kn_ceil_div(s->tile_block * (int64_t)sizeof(float *), KN_VB) * KN_VB;
    w->tiles = w->sums = (float *)(void *)scratch;
    w->tile_step = kn_ceil_div(s->channels, VF) * VF;
    w->tile_plane = (s->has_tiles ? count_tiles(s) : s->tile_block) * w->tile_step + VF;
    if (!s->has_tiles) w->sums += POINTS * w->tile_plane;
    w->block.part_step = s->col_block;
    w->sum_plane = s->tile_block * s->col_block + VF;
    w->rest = kn_aligned(w->sums + POINTS * w->sum_plane);
}

// to[0..5] = B^T from[0..5]
INL void forward(const vf *from, const int step, vf *to, const int to_step) {
    vf d0 = from[0], d1 = from[step], d2 = from[2 * step];
    vf d3 = from[3 * step], d4 = from[4 * step], d5 = from[5 * step];
    vf p = d4 - 4 * d2, q = d3 - 4 * d1, r = d4 - d2, t = 2 * (d3 - d1);
    to[0] = 4 * d0 - 5 * d2 + d4;
    to[to_step] = p + q;
    to[2 * to_step] = p - q;
    to[3 * to_step] = r + t;
    to[4 * to_step] = r - t;
    to[5 * to_step] = 4 * d1 - 5 * d3 + d5;
}

// to[0..3] = A^T from[0..5]
INL void backward(const vf *from, const int step, vf *to, const int to_step) {
    vf a = from[step] + from[2 * step], b = from[step] - from[2 * step];
    vf c = from[3 * step] + from[4 * step], d = from[3 * step] - from[4 * step];
    to[0] = from[0] + a + c;
    to[to_step] = b + 2 * d;
    to[2 * to_step] = a + 4 * c;
    to[3 * to_step] = b + 8 * d + from[5 * step];
}

// Where a tile lies.
typedef struct {
    int64_t image, line, pixel; // of the result
} position;

static position locate(const kn_winograd *s, int64_t tile) {
    const int64_t across = kn_ceil_div(s->out[1], 4), down = kn_ceil_div(s->out[0], 4);
    return (position){tile / across / down, tile / across % down * 4, tile % across * 4};
}

static void transform_tile(const work *w, int64_t tile, float *to) {
    const kn_winograd *s = w->s;
    const position at = locate(s, tile);
    const int64_t y0 = at.line - s->before[0], x0 = at.pixel - s->before[1];
    const float *x = w->x + at.image * s->x_image;
    const float *pixel[POINTS]; // NULL in the padding
    for (int64_t i = 0; i < POINTS; i++) {
        const int64_t line = y0 + i / 6, column = x0 + i % 6;
        const int there = line >= 0 && line < s->in[0] && column >= 0 && column < s->in[1];
        pixel[i] = there ? x + line * s->x_line + column * s->x_pixel : 0;
    }
    for (int64_t c = 0; c < s->channels; c += VF) {
        const int64_t count = s->channels - c;
        vf d[POINTS], half[POINTS];
        for (int i = 0; i < POINTS; i++)
            d[i] = !pixel[i] ? (vf){0} : count < VF ? ld_part(pixel[i] + c, count) : ld(pixel[i] + c);
        for (int i = 0; i < 6; i++)
            for (int j = 2; j < 6; j++) // what the tile beside will read
                if (pixel[6 * i + j]) __builtin_prefetch(pixel[6 * i + j] + 4 * s->x_pixel + c);
        for (int i = 0; i < 6; i++) forward(d + i, 6, half + i, 6);
        for (int i = 0; i < 6; i++) forward(half + 6 * i, 1, d + 6 * i, 1);
        for (int i = 0; i < POINTS; i++) st(to + i * w->tile_plane + c, d[i]);
    }
}

// Has the panel fetched that comes after the one at column j: of this point, or of the next one.
static void fetch_next(const work *w, kn_tile *t, const float *right, int64_t point, int64_t j) {
    const kn_winograd *s = w->s;
    const int64_t matrix = s->channels * kn_ceil_div(s->cols, VF) * VF;
    t->next = 0;
    if (2 * w->block.rows <= KN_MR) return; // memory is read without pause anyway
    if (j + KN_NR < w->block.cols)
        kn_fetch_panel(&w->block, t, right, s->channels, j + KN_NR, t->offset, t->length);
    else if (t->offset + t->length < s->channels)
        kn_fetch_panel(&w->block, t, right, s->channels, 0, t->offset + t->length, t->length);
    else if (point + 1 < POINTS)
        kn_fetch_panel(&w->block, t, right + matrix, s->channels, 0, 0, t->length);
}

static void multiply(work *w, int64_t col) {
    const kn_winograd *s = w->s;
    const int64_t matrix = s->channels * kn_ceil_div(s->cols, VF) * VF;
    for (int64_t point = 0; point < POINTS; point++) {
        const float *tiles = w->tiles + point * w->tile_plane;
        const float *right = w->u + point * matrix + col * s->channels;
        for (int64_t i = 0; i < w->block.rows; i++) w->rows[i] = tiles + i * w->tile_step;
        w->block.part = w->sums + point * w->sum_plane;
        for (int64_t k = 0; k < s->channels; k += s->depth_block) {
            kn_tile t = {.rows = w->rows, .positions = 1, .offset = k, .fresh = k == 0};
            t.length = kn_min(s->depth_block, s->channels - k);
            for (int64_t j = 0; j < w->block.cols; j += KN_NR) {
                kn_packed_panel(&w->block, &t, right, s->channels, j, k);
                fetch_next(w, &t, right, point, j);
                kn_block_panel(&w->block, t, j, 0);
            }
        }
    }
}

INL vf finished(const work *w, vf x, const float *bias, const float *residual, int64_t count) {
    if (bias) x += count < VF ? ld_part(bias, count) : ld(bias);
    if (residual) x += count < VF ? ld_part(residual, count) : ld(residual);
    return vclamp(x, set1(w->block.finish.low), set1(w->block.finish.high));
}

static void write_tile(const work *w, int64_t tile, const float *from, int64_t col) {
    const kn_winograd *s = w->s;
    const position at = locate(s, tile);
    const int64_t lines = kn_min(4, s->out[0] - at.line), pixels = kn_min(4, s->out[1] - at.pixel);
    float *out = w->out + at.image * s->out_image + at.line * s->out_line + at.pixel * s->out_pixel + col;
    const float *residual = w->residual;
    if (residual)
        residual += at.image * s->residual_image + at.line * s->residual_line +
                    at.pixel * s->residual_pixel + col;
    for (int64_t c = 0; c < w->block.cols; c += VF) {
        const int64_t count = w->block.cols - c;
        vf m[POINTS], half[24], y[16];
        for (int i = 0; i < POINTS; i++) m[i] = ld(from + i * w->sum_plane + c);
        for (int i = 0; i < 6; i++) backward(m + i, 6, half + i, 6);
        for (int i = 0; i < 4; i++) backward(half + 6 * i, 1, y + 4 * i, 1);
        for (int64_t i = 0; i < lines; i++)
            for (int64_t j = 0; j < pixels; j++) {
                float *to = out + i * s->out_line + j * s->out_pixel + c;
                const float *bias = w->bias ? w->bias + col + c : 0;
                const float *more = residual;
                if (more) more += i * s->residual_line + j * s->residual_pixel + c;
                vf value = finished(w, y[4 * i + j], bias, more, count);
                if (count < VF)
                    st_part(to, value, count);
                else
                    st(to, value);
            }
    }
}

// The program on tiles that are finished: neighbours in a line of tiles together.
static void apply_program(const work *w, char *const *p, int64_t first, int64_t col) {
    const kn_winograd *s = w->s;
    const int64_t across = kn_ceil_div(s->out[1], 4), end = first + w->block.rows;
    for (int64_t tile = first, run; tile < end; tile += run) {
        const position at = locate(s, tile);
        run = kn_min(end - tile, across - at.pixel / 4);
        int64_t lines = kn_min(4, s->out[0] - at.line), pixels = kn_min(4 * run, s->out[1] - at.pixel);
        int64_t pixel = (at.image * s->out[0] + at.line) * s->out[1] + at.pixel;
        const float *block = w->out + at.image * s->out_image + at.line * s->out_line + at.pixel * s->out_pixel;
        if (run == across) pixels *= lines, lines = 1; // lines lie behind one another
        for (; lines > 0; lines--, block += s->out_line, pixel += s->out[1])
            kn_scalar_block((const int64_t *)(s + 1), p + 5, w->rest, block + col, s->out_pixel, pixel, col,
                            pixels, w->block.cols);
    }
}

INL float *as_floats(char *p) { return (float *)(void *)p; }

static void winograd_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_winograd *s = (const void *)n;
    const int64_t tiles = count_tiles(s), blocks = kn_ceil_div(tiles, s->tile_block);
    work w = {.s = s, .x = as_floats(p[0]), .u = as_floats(p[1]), .out = as_floats(p[2])};
    w.bias = as_floats(p[3]);
    w.residual = as_floats(p[4]);
    w.block.finish.low = kn_float(s->low);
    w.block.finish.high = kn_float(s->high);
    divide_scratch(&w, scratch);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % blocks * s->tile_block, col = unit / blocks * s->col_block;
        w.block.rows = kn_min(s->tile_block, tiles - first);
        w.block.cols = kn_min(s->col_block, s->cols - col);
        if (s->has_tiles)
            w.tiles = as_floats(p[0]) + first * w.tile_step;
        else
            for (int64_t i = 0; i < w.block.rows; i++)
                transform_tile(&w, first + i, w.tiles + i * w.tile_step);
        multiply(&w, col);
        for (int64_t i = 0; i < w.block.rows; i++)
            write_tile(&w, first + i, w.sums + i * w.block.part_step, col);
        if (s->has_program) apply_program(&w, p, first, col);
    }
}

static void winograd_tiles_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    const kn_winograd *s = (const void *)n;
    const int64_t tiles = count_tiles(s), step = kn_ceil_div(s->channels, VF) * VF;
    const work w = {.s = s, .x = as_floats(p[0]), .tile_plane = tiles * step + VF};
    const int64_t stop = kn_min(tiles, end * s->tile_block);
    for (int64_t tile = begin * s->tile_block; tile < stop; tile++)
        transform_tile(&w, tile, as_floats(p[1]) + tile * step);
}

// to[0..5] = G from[0..2]
INL void expand(const vf *from, const int step, vf *to, const int to_step) {
    vf a = from[0], b = from[step], c = from[2 * step];
    vf even = (a + c) * (-1.f / 6), odd = b * (1.f / 6), wide = a * (1.f / 24) + c * (1.f / 6);
    to[0] = a * .25f;
    to[to_step] = even - odd;
    to[2 * to_step] = even + odd;
    to[3 * to_step] = wide + b * (1.f / 12);
    to[4 * to_step] = wide - b * (1.f / 12);
    to[5 * to_step] = c;
}

static void winograd_weights_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin,
                                 int64_t end) {
    (void)scratch;
    const kn_winograd_weights *s = (const void *)n;
    const int64_t matrix = s->channels * kn_ceil_div(s->cols, VF) * VF;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t col = unit * KN_NR, width = kn_panel_width(s->cols - col);
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t j = 0; j < width; j += VF) {
                float w[9][VF] = {{0}};
                for (int64_t l = 0; l < kn_min(VF, s->cols - col - j); l++)
                    for (int i = 0; i < 9; i++)
                        w[i][l] = as_floats(p[0])[((col + j + l) * s->channels + c) * 9 + i];
                vf g[9], half[18], u[POINTS];
                for (int i = 0; i < 9; i++) g[i] = ld(w[i]);
                for (int i = 0; i < 3; i++) expand(g + i, 3, half + i, 3);
                for (int i = 0; i < 6; i++) expand(half + 3 * i, 1, u + 6 * i, 1);
                float *to = as_floats(p[1]) + col * s->channels + c * width + j;
                for (int i = 0; i < POINTS; i++) st(to + i * matrix, u[i]);
            }
    }
}

const kn_entry kn_winograd_entries[] = {
    {"winograd_f32", winograd_f32},
    {"winograd_tiles_f32", winograd_tiles_f32},
    {"winograd_weights_f32", winograd_weights_f32},
    {0, 0},
};
