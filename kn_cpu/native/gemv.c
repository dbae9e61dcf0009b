// Products with few rows on the left and a right operand that is not packed: every element of it is
// used a handful of times, so it is read where it lies, in the order in which it lies.
#include "product.h"

#define TOGETHER 4 // rows, or columns, of the right operand that are read side by side

// Adds `rows` multiples of TOGETHER neighbouring rows of the right operand to the sums.
INL void add_rows(const kn_few *f, const int rows, int64_t k) {
    const float *b = f->right + k * f->right_row;
    const int64_t step = f->right_row;
    float a[KN_FEW][TOGETHER];
    for (int i = 0; i < rows; i++)
        for (int q = 0; q < TOGETHER; q++) a[i][q] = f->rows[i][k + q];
    int64_t j = 0;
    for (; j + VF <= f->cols; j += VF, b += VF) {
        vf b0 = ld(b), b1 = ld(b + step), b2 = ld(b + 2 * step), b3 = ld(b + 3 * step);
        for (int i = 0; i < rows; i++) {
            float *part = f->part + i * f->part_step + j;
            vf sum = set1(a[i][0]) * b0 + set1(a[i][1]) * b1;
            vf other = set1(a[i][2]) * b2 + set1(a[i][3]) * b3;
            st(part, ld(part) + (sum + other));
        }
    }
    for (; j < f->cols; j++, b++)
        for (int i = 0; i < rows; i++)
            f->part[i * f->part_step + j] += (a[i][0] * b[0] + a[i][1] * b[step]) +
                                             (a[i][2] * b[2 * step] + a[i][3] * b[3 * step]);
}

static void by_rows(const kn_few *f, const int64_t rows) {
    int64_t k = 0;
    for (; k + TOGETHER <= f->length; k += TOGETHER) switch (rows) {
        case 1: add_rows(f, 1, k); break;
        case 2: add_rows(f, 2, k); break;
        case 3: add_rows(f, 3, k); break;
        default: add_rows(f, 4, k);
        }
    for (; k < f->length; k++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < f->cols; j++)
                f->part[i * f->part_step + j] += f->rows[i][k] * f->right[k * f->right_row + j];
}

typedef float v4 __attribute__((vector_size(16)));

INL v4 quarter_sum(vf x) {
    v4 parts[VF / 4];
    memcpy(parts, &x, sizeof x);
    for (int n = VF / 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++) parts[i] += parts[i + n];
    return parts[0];
}

// The sums of the lanes of four vectors.
INL v4 sums_of(vf a, vf b, vf c, vf d) {
    v4 p = quarter_sum(a), q = quarter_sum(b), r = quarter_sum(c), s = quarter_sum(d);
    v4 e = __builtin_shufflevector(p, q, 0, 4, 1, 5) + __builtin_shufflevector(p, q, 2, 6, 3, 7);
    v4 g = __builtin_shufflevector(r, s, 0, 4, 1, 5) + __builtin_shufflevector(r, s, 2, 6, 3, 7);
    return __builtin_shufflevector(e, g, 0, 1, 4, 5) + __builtin_shufflevector(e, g, 2, 3, 6, 7);
}

// Dot products of one row with TOGETHER columns whose elements lie side by side.
INL void dots(const kn_few *f, int64_t i, int64_t j) {
    const float *a = f->rows[i], *b = f->right + j * f->right_col;
    const int64_t step = f->right_col, whole = f->length / VF * VF, rest = f->length - whole;
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (int64_t k = 0; k < whole; k += VF) {
        vf x = ld(a + k);
        s0 += x * ld(b + k), s1 += x * ld(b + step + k);
        s2 += x * ld(b + 2 * step + k), s3 += x * ld(b + 3 * step + k);
    }
    if (rest) {
        vf x = ld_part(a + whole, rest);
        b += whole;
        s0 += x * ld_part(b, rest), s1 += x * ld_part(b + step, rest);
        s2 += x * ld_part(b + 2 * step, rest), s3 += x * ld_part(b + 3 * step, rest);
    }
    v4 sums = sums_of(s0, s1, s2, s3);
    float *part = f->part + i * f->part_step + j;
    for (int q = 0; q < 4; q++) part[q] += sums[q];
}

INL void dot(const kn_few *f, int64_t i, int64_t j) {
    const float *a = f->rows[i], *b = f->right + j * f->right_col;
    vf s = {0};
    int64_t k = 0;
    for (; k + VF <= f->length; k += VF) s += ld(a + k) * ld(b + k);
    if (k < f->length) s += ld_part(a + k, f->length - k) * ld_part(b + k, f->length - k);
    f->part[i * f->part_step + j] += vsum(s);
}

void kn_few_rows(const kn_few *f, int64_t rows, int64_t fresh) {
    for (int64_t i = 0; i < rows && fresh; i++)
        for (int64_t j = 0; j < f->cols; j++) f->part[i * f->part_step + j] = 0;
    if (f->right_col == 1) {
        by_rows(f, rows);
        return;
    }
    int64_t j = 0;
    for (; j + TOGETHER <= f->cols; j += TOGETHER)
        for (int64_t i = 0; i < rows; i++) dots(f, i, j);
    for (; j < f->cols; j++)
        for (int64_t i = 0; i < rows; i++) dot(f, i, j);
}
