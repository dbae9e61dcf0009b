// Copies of strided blocks, and the end of a block of sums.
#include "product.h"
#include "abi.h"
#include "kn_gemm.h"

// Weights may lie at any address in a file: what is copied is read as of any alignment.
typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(1), may_alias));
typedef float row_any __attribute__((vector_size(KN_VB), aligned(1), may_alias));

// A 4 x 4 block whose rows lie side by side in the source, turned over.
INL void transpose_4x4(float *dst, int64_t dst_row, const float *src, int64_t src_col) {
    v4 a = *(const v4_any *)src, b = *(const v4_any *)(src + src_col);
    v4 c = *(const v4_any *)(src + 2 * src_col), d = *(const v4_any *)(src + 3 * src_col);
    v4 e = __builtin_shufflevector(a, b, 0, 4, 1, 5), f = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4 g = __builtin_shufflevector(c, d, 0, 4, 1, 5), h = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(v4_any *)dst = __builtin_shufflevector(e, g, 0, 1, 4, 5);
    *(v4_any *)(dst + dst_row) = __builtin_shufflevector(e, g, 2, 3, 6, 7);
    *(v4_any *)(dst + 2 * dst_row) = __builtin_shufflevector(f, h, 0, 1, 4, 5);
    *(v4_any *)(dst + 3 * dst_row) = __builtin_shufflevector(f, h, 2, 3, 6, 7);
}

static void copy_any(float *dst, int64_t dst_row, const float_any *src, int64_t src_row, int64_t src_col,
                     int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) dst[i * dst_row + j] = src[i * src_row + j * src_col];
}

static void copy_rows(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows,
                      int64_t cols) {
    for (int64_t i = 0; i < rows; i++, dst += dst_row, src += src_row) {
        int64_t j = 0;
        for (; j + VF <= cols; j += VF) st(dst + j, *(const row_any *)(src + j));
        if (j < cols) st_part(dst + j, ld_part(src + j, cols - j), cols - j);
    }
}

static void copy_turned(float *dst, int64_t dst_row, const float *src, int64_t src_col, int64_t rows,
                        int64_t cols) {
    int64_t whole = rows & ~3, j = 0;
    for (; j + 4 <= cols; j += 4)
        for (int64_t i = 0; i < whole; i += 4)
            transpose_4x4(dst + i * dst_row + j, dst_row, src + i + j * src_col, src_col);
    copy_any(dst + j, dst_row, src + j * src_col, 1, src_col, whole, cols - j);
    copy_any(dst + whole * dst_row, dst_row, src + whole, 1, src_col, rows - whole, cols);
}

void kn_copy_block(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t src_col,
                   int64_t rows, int64_t cols) {
    if (src_col == 1)
        copy_rows(dst, dst_row, src, src_row, rows, cols);
    else if (src_row == 1)
        copy_turned(dst, dst_row, src, src_col, rows, cols);
    else
        copy_any(dst, dst_row, src, src_row, src_col, rows, cols);
}

void kn_pack_panel(float *dst, const float *src, int64_t src_row, int64_t src_col, int64_t depth,
                   int64_t cols) {
    int64_t width = kn_panel_width(cols);
    if (cols >= width) {
        kn_copy_block(dst, width, src, src_row, src_col, depth, width);
        return;
    }
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = cols; j < width; j++) dst[k * width + j] = 0;
    kn_copy_block(dst, width, src, src_row, src_col, depth, cols);
}

INL vf finished(const kn_finish *f, vf x, int64_t i, int64_t j, int64_t count) {
    if (f->bias) {
        const float *bias = f->bias + i * f->bias_row + j * f->bias_col;
        x += f->bias_col ? (count < VF ? ld_part(bias, count) : ld(bias)) : set1(*bias);
    }
    if (f->residual) {
        const float *residual = f->residual + i * f->residual_row + j * f->residual_col;
        if (f->residual_col == 1) {
            x += count < VF ? ld_part(residual, count) : ld(residual);
        } else {
            float some[VF] = {0};
            for (int64_t l = 0; l < count; l++) some[l] = residual[l * f->residual_col];
            x += ld(some);
        }
    }
    return vclamp(x, set1(f->low), set1(f->high));
}

void kn_finish_block(const kn_finish *f, float *part, int64_t part_step, int64_t rows, int64_t cols) {
    const int direct = f->out && f->out_col == 1;
    float *out = direct ? f->out : part;
    const int64_t step = direct ? f->out_row : part_step;
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0;
        for (; j + VF <= cols; j += VF)
            st(out + i * step + j, finished(f, ld(part + i * part_step + j), i, j, VF));
        if (j < cols) {
            vf x = finished(f, ld_part(part + i * part_step + j, cols - j), i, j, cols - j);
            st_part(out + i * step + j, x, cols - j);
        }
    }
    if (direct || !f->out) return;
    if (f->out_row == 1) {
        kn_copy_block(f->out, f->out_col, part, 1, part_step, cols, rows);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            f->out[i * f->out_row + j * f->out_col] = part[i * part_step + j];
}

void kn_pack_f32(const int64_t *n, char *const *p, char *scratch, int64_t begin, int64_t end) {
    (void)scratch;
    const kn_pack *s = (const void *)n;
    const int64_t panels = kn_ceil_div(s->cols, KN_NR);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t batch = unit / panels, col = unit % panels * KN_NR;
        const float *src = (const float *)(void *)p[0] + batch * s->src_batch + col * s->src_col;
        float *dst = (float *)(void *)p[1] + batch * s->dst_batch + col * s->outer * s->inner;
        const int64_t step = s->inner * kn_panel_width(s->cols - col);
        for (int64_t i = 0; i < s->outer; i++, src += s->src_outer, dst += step)
            kn_pack_panel(dst, src, s->src_inner, s->src_col, s->inner, s->cols - col);
    }
}

const kn_entry kn_pack_entries[] = {{"pack_f32", kn_pack_f32}, {0, 0}};
