// Products of matrices: blocks that fit the caches, around the micro-kernels of product.c.
#include "axes.h"
#include "kn_gemm.h"
#include "kn_scalar.h"
#include "product.h"

// What a unit works with.
typedef struct {
    const kn_gemm *s;
    int64_t row_block, col_block, depth_block; // col_block is whole panels
    const float *a, *b;
    int later; // whether there is a block after the next one, with other columns
    kn_block block;
    const float **left; // pointers to the rows of a
    float *left_copy;   // [rows][depth_block]
    float *right_copy;  // [depth_block][KN_NR]
    char *rest;         // scratch of the program
} work;

// ---- blocks -------------------------------------------------------------------------------------

// kn_cpu/gemm.py knows these, for the scratch
enum { ROWS = 192, COLS = 512, LONG = 2048, FEW_COLS = 256, ENOUGH = 16 };
enum { CACHE = 1 << 18 }; // floats that the second cache has room for

INL int64_t round_up(int64_t n, int64_t multiple) { return kn_ceil_div(n, multiple) * multiple; }

// The size of equal blocks of at most `most`.
INL int64_t balanced(int64_t total, int64_t most, int64_t multiple) {
    return kn_max(multiple, round_up(kn_ceil_div(total, kn_max(1, kn_ceil_div(total, most))), multiple));
}

// Whether a right operand is better read in place than in panels.
INL int has_few_rows(const kn_gemm *s, int64_t rows) {
    return !s->packed && rows <= KN_FEW && (s->b.col == 1 || s->b.row == 1);
}

// Blocks that fit the caches, halved until every unit has one.
static void choose_blocks(work *w) {
    const kn_gemm *s = w->s;
    const int64_t batch = s->batch[0] * s->batch[1] * s->batch[2], wanted = kn_min(s->units, ENOUGH);
    int64_t least = s->packed ? 2 * KN_NR : KN_NR, step = KN_NR;
    if (has_few_rows(s, s->rows) && s->b.col == 1) step = least = FEW_COLS; // they are read row by row
    int64_t rows = balanced(s->rows, ROWS, KN_MR), cols = balanced(s->cols, COLS, step);
    while (batch * kn_ceil_div(s->rows, rows) * kn_ceil_div(s->cols, cols) < wanted) {
        if (cols > least || (rows <= 8 * KN_MR && cols > step))
            cols = round_up(cols / 2, step);
        else if (rows > 8 * KN_MR)
            rows = round_up(rows / 2, KN_MR);
        else
            break;
    }
    w->row_block = rows;
    w->col_block = cols;
    // where nothing of b is used twice, it is read in long pieces
    w->depth_block = balanced(s->depth, s->rows <= KN_MR ? LONG : KN_DEPTH, 1);
}

// Pointers, sums, copy of a panel, copy of the left block, program; kn_cpu/gemm.py adds them up.
static void divide_scratch(work *w, char *scratch) {
    w->left = (const float **)(void *)scratch;
    scratch += round_up(w->row_block * (int64_t)sizeof(float *), KN_VB);
    w->block.part = (float *)(void *)scratch;
    w->block.part_step = w->col_block + VF;
    w->right_copy = w->block.part + w->row_block * w->block.part_step;
    w->left_copy = w->right_copy + w->depth_block * KN_NR;
    w->rest = kn_aligned(w->left_copy + w->row_block * (round_up(w->depth_block, VF) + VF));
}

// ---- one block ----------------------------------------------------------------------------------

// Points to the rows of a from element k on, `length` elements that lie side by side.
static void place_left(work *w, int64_t k, int64_t length) {
    const kn_gemm *s = w->s;
    const float *a = w->a + k * s->a.col;
    int64_t step = s->a.row;
    if (s->copy_left) {
        step = kn_ceil_div(length, VF) * VF + VF;
        kn_copy_block(w->left_copy, step, a, s->a.row, s->a.col, w->block.rows, length);
        a = w->left_copy;
    }
    for (int64_t i = 0; i < w->block.rows; i++) w->left[i] = a + i * step;
}

// The panel of the right operand that begins at column `col` of the block, from element k on.
static void place_right(const work *w, kn_tile *t, int64_t col, int64_t k) {
    const kn_gemm *s = w->s;
    const int64_t left = w->block.cols - col, width = kn_panel_width(left);
    if (s->packed) {
        kn_packed_panel(&w->block, t, w->b, s->depth, col, k);
        if (w->block.rows <= KN_MR)
            kn_fetch_ahead(t);
        else if (col + KN_NR < w->block.cols)
            kn_fetch_panel(&w->block, t, w->b, s->depth, col + KN_NR, k, t->length);
        else if (k + t->length < s->depth)
            kn_fetch_panel(&w->block, t, w->b, s->depth, 0, k + t->length, t->length);
        else if (w->later) // another thread may be at the next block
            kn_fetch_panel(&w->block, t, w->b, s->depth, 2 * w->col_block, 0, w->depth_block);
        return;
    }
    const float *b = w->b + k * s->b.row + col * s->b.col;
    if (w->block.rows < KN_MR && s->b.col == 1 && left >= width) { // not worth a copy
        t->right = b;
        t->right_step = s->b.row;
        return;
    }
    kn_pack_panel(w->right_copy, b, s->b.row, s->b.col, t->length, left);
    t->right = w->right_copy;
    t->right_step = width;
}

static void multiply_few(const work *w, int64_t k, int64_t length) {
    const kn_gemm *s = w->s;
    const kn_few few = {
        .rows = w->left,
        .right = w->b + k * s->b.row,
        .right_row = s->b.row,
        .right_col = s->b.col,
        .length = length,
        .cols = w->block.cols,
        .part = w->block.part,
        .part_step = w->block.part_step,
    };
    kn_few_rows(&few, w->block.rows, k == 0);
}

static void run_block(work *w) {
    const kn_gemm *s = w->s;
    const int few = has_few_rows(s, w->block.rows);
    const int64_t blocks = kn_max(1, kn_ceil_div(s->depth, w->depth_block));
    w->block.direct = !few && kn_is_direct(&w->block.finish);
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t k = i * w->depth_block, length = kn_min(w->depth_block, s->depth - k);
        place_left(w, k, length);
        if (few) {
            multiply_few(w, k, length);
            continue;
        }
        for (int64_t col = 0; col < w->block.cols; col += KN_NR) {
            kn_tile t = {.rows = w->left, .positions = 1, .length = length, .fresh = i == 0};
            place_right(w, &t, col, k);
            kn_block_panel(&w->block, t, col, i == blocks - 1);
        }
    }
    kn_block_end(&w->block);
}

INL int64_t batch_offset(const kn_matrix *m, const int64_t *at) {
    return at[0] * m->batch[0] + at[1] * m->batch[1] + at[2] * m->batch[2];
}

// Where the block at (row, col) of a matrix begins; NULL stays NULL.
INL float *block_of(char *p, const kn_matrix *m, const int64_t *at, int64_t row, int64_t col) {
    return p ? (float *)(void *)p + (batch_offset(m, at) + row * m->row + col * m->col) : 0;
}

static void gemm_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    const kn_gemm *s = (const void *)n;
    work w = {.s = s};
    w.block.far_left = s->rows * s->depth > CACHE;
    w.block.far_result = !s->has_program && s->rows * s->cols > CACHE;
    choose_blocks(&w);
    divide_scratch(&w, scratch);
    const int64_t row_blocks = kn_ceil_div(s->rows, w.row_block);
    const int64_t col_blocks = kn_ceil_div(s->cols, w.col_block);
    const int64_t total = s->batch[0] * s->batch[1] * s->batch[2] * row_blocks * col_blocks;
    const int64_t stop = kn_share(total, s->units, end);
    for (int64_t number = kn_share(total, s->units, begin); number < stop; number++) {
        const int64_t row = number % row_blocks * w.row_block;
        const int64_t col = number / row_blocks % col_blocks * w.col_block;
        const int64_t batch = number / row_blocks / col_blocks;
        const int64_t at[3] = {batch / s->batch[2] / s->batch[1], batch / s->batch[2] % s->batch[1],
                               batch % s->batch[2]};
        w.block.rows = kn_min(w.row_block, s->rows - row);
        w.block.cols = kn_min(w.col_block, s->cols - col);
        w.later = row_blocks == 1 && col + 2 * w.col_block < s->cols;
        w.a = block_of(p[s->turned], &s->a, at, row, 0);
        w.b = block_of(p[1 - s->turned], &s->b, at, 0, col);
        if (s->packed) w.b += col * s->depth;
        w.block.finish = (kn_finish){
            .out = s->has_program ? w.block.part : block_of(p[2], &s->out, at, row, col),
            .out_row = s->has_program ? w.block.part_step : s->out.row,
            .out_col = s->has_program ? 1 : s->out.col,
            .bias = block_of(p[3], &s->bias, at, row, col),
            .bias_row = s->bias.row,
            .bias_col = s->bias.col,
            .residual = block_of(p[4], &s->residual, at, row, col),
            .residual_row = s->residual.row,
            .residual_col = s->residual.col,
            .low = kn_float(s->low),
            .high = kn_float(s->high),
        };
        run_block(&w);
        if (s->has_program)
            kn_scalar_block(n + sizeof *s / sizeof *n, p + 5, w.rest, w.block.part, w.block.part_step,
                            batch * s->rows + row, col, w.block.rows, w.block.cols);
    }
}

const kn_entry kn_gemm_entries[] = {{"gemm_f32", gemm_f32}, {"pack_f32", kn_pack_f32}, {0, 0}};
