// Products of integer matrices: blocks that fit the caches, around the micro-kernels of integer_dot.c.
#include "integer.h"
#include "kn_integer_gemm.h"
#include "kn_scalar.h"

typedef struct {
    const kn_integer_gemm *s;
    kn_dot_block block;
    int32_t *sums;  // [row_block][block.step], where they do not go to the result at once
    char *left;     // [row_block][row_bytes], where rows are copied
    int64_t row_bytes;
    char *panel;    // a panel of a right operand that is not packed
    int32_t *start; // of its columns
    char *rest;     // scratch of the program
} work;

// Sums, starts, panel, rows, program; kn_cpu/integer_gemm.py adds them up.
static void divide_scratch(work *w, char *scratch) {
    const kn_integer_gemm *s = w->s;
    const int64_t bytes = 4 * kn_ceil_div(s->factors.depth, kn_group(s->factors.kind));
    const int64_t step = s->col_block + VF;
    w->sums = (int32_t *)(void *)scratch;
    w->start = w->sums + s->row_block * step;
    w->panel = (char *)(w->start + KN_NR);
    w->left = w->panel + (s->packed ? 0 : KN_NR * bytes);
    w->row_bytes = kn_ceil_div(bytes, 64) * 64 + 64;
    w->rest = kn_aligned(w->left + (s->copy_left ? s->row_block * w->row_bytes : 0));
}

// Whether whole vectors of sums are the result.
INL int is_plain(const kn_integer_gemm *s, int64_t cols) {
    const kn_requantize *q = &s->finish;
    return q->to == KN_TO_I32 && !q->in_place && !q->bias_sign && q->out_col == 1 && cols % VF == 0;
}

static void place_left(work *w, const char *a) {
    const kn_integer_gemm *s = w->s;
    const int64_t size = s->factors.left == KN_INT_S16 ? 2 : 1;
    w->block.left = a;
    w->block.left_step = s->a.row * size;
    if (!s->copy_left) return;
    w->block.left = w->left;
    w->block.left_step = w->row_bytes;
    // what is behind the last element of a group does not matter: its weights are 0
    for (int64_t i = 0; i < w->block.rows; i++, a += s->a.row * size)
        kn_dot_copy(w->left + i * w->row_bytes, &s->factors, a, s->a.col, s->factors.depth);
}

static void multiply_panels(work *w, const char *b) {
    const kn_integer_gemm *s = w->s;
    for (int64_t col = 0; col < w->block.cols; col += KN_NR) {
        const int64_t left = w->block.cols - col;
        kn_dot_pack(w->panel, w->start, &s->factors, kn_element(b, col * s->b.col, s->factors.right),
                    s->b.row, s->b.col, kn_min(left, KN_NR), kn_panel_width(left));
        kn_dot_panel(&w->block, &s->factors, w->panel, w->start, col);
    }
}

INL int64_t offset_of(const kn_matrix *m, const int64_t *at, int64_t row, int64_t col) {
    return at[0] * m->batch[0] + at[1] * m->batch[1] + at[2] * m->batch[2] + row * m->row + col * m->col;
}

INL char *moved(char *p, int64_t bytes) { return p ? p + bytes : 0; }

static void gemm_int(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_integer_gemm *s = (const void *)n;
    const kn_factors *f = &s->factors;
    const int64_t row_blocks = kn_ceil_div(s->rows, s->row_block);
    const int64_t col_blocks = kn_ceil_div(s->cols, s->col_block);
    const int64_t size = s->finish.to == KN_TO_U8 || s->finish.to == KN_TO_S8 ? 1 : 4;
    work w = {.s = s};
    divide_scratch(&w, scratch);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t row = unit % row_blocks * s->row_block;
        const int64_t col = unit / row_blocks % col_blocks * s->col_block;
        const int64_t batch = unit / row_blocks / col_blocks;
        const int64_t at[3] = {batch / s->batch[2] / s->batch[1], batch / s->batch[2] % s->batch[1],
                               batch % s->batch[2]};
        w.block.rows = kn_min(s->row_block, s->rows - row);
        w.block.cols = kn_min(s->col_block, s->cols - col);
        char *out = s->finish.in_place ? 0 : p[2] + offset_of(&s->out, at, row, col) * size;
        const int plain = is_plain(s, w.block.cols) && !p[4];
        w.block.part = plain ? (int32_t *)(void *)out : w.sums;
        w.block.step = plain ? s->finish.out_row : s->col_block + VF;
        place_left(&w, kn_element(p[0], offset_of(&s->a, at, row, 0), f->left));
        if (s->packed)
            kn_dot_packed(&w.block, f, p[1] + 4 * col * kn_ceil_div(f->depth, kn_group(f->kind)),
                          (const int32_t *)(void *)p[3] + col);
        else
            multiply_panels(&w, kn_element(p[1], offset_of(&s->b, at, 0, col), f->right));
        if (p[4]) kn_add_lows(&w.block, f, (const int32_t *)(void *)p[4] + col);
        if (plain) continue;
        kn_finish_sums(&s->finish, &w.block, out,
                       (const int32_t *)(void *)moved(p[5], 4 * col * s->finish.bias_col),
                       (const float *)(void *)moved(p[6], 4 * col * s->finish.scale_col));
        if (s->finish.in_place)
            kn_scalar_block(n + sizeof *s / sizeof *n, p + 7, w.rest, (const float *)(void *)w.block.part,
                            w.block.step, batch * s->rows + row, col, w.block.rows, w.block.cols);
    }
}

static void pack_int(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    const kn_integer_pack *s = (const void *)n;
    const kn_factors *f = &s->factors;
    const int64_t panels = kn_ceil_div(s->cols, KN_NR), padded = kn_ceil_div(s->cols, VF) * VF;
    const int64_t bytes = 4 * kn_ceil_div(f->depth, kn_group(f->kind)); // of a column
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t batch = unit / panels, col = unit % panels * KN_NR, left = s->cols - col;
        const int64_t to = batch * padded + col;
        kn_dot_pack(p[1] + to * bytes, (int32_t *)(void *)p[2] + to, f,
                    kn_element(p[0], batch * f->depth * s->cols + col, f->right), s->cols, 1,
                    kn_min(left, KN_NR), kn_panel_width(left));
    }
}

const kn_entry kn_integer_gemm_entries[] = {{"gemm_int", gemm_int}, {"pack_int", pack_int}, {0, 0}};
