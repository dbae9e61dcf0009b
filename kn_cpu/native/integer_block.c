// Blocks of integer sums: packing, the way of panels through the micro-kernels, and what becomes of
// the sums.
#include "integer.h"

enum { ROWS = 16 }; // that results are made of together

typedef uint8_t byte_any __attribute__((may_alias));
typedef int16_t short_any __attribute__((may_alias));
typedef uint32_t word_any __attribute__((may_alias));

// ---- products -------------------------------------------------------------------------------

INL uint32_t flip_of(const kn_factors *f) {
    const int64_t wanted = f->kind == KN_DOT_S8 ? KN_INT_U8 : KN_INT_S8;
    return f->kind != KN_DOT_16 && f->left != wanted ? 0x80808080u : 0;
}

void kn_dot_panel(const kn_dot_block *b, const kn_factors *f, const char *right, const int32_t *start,
                  int64_t col) {
    const kn_dot *dots = b->cols - col > VF ? kn_dot_wide[f->kind] : kn_dot_narrow[f->kind];
    const int64_t tiles = kn_max(1, kn_ceil_div(b->rows, KN_MR)), step = kn_ceil_div(b->rows, tiles);
    kn_dot_tile t = {
        .left = b->left,
        .left_step = b->left_step,
        .groups = kn_ceil_div(f->depth, kn_group(f->kind)),
        .right = right,
        .start = start,
        .part = b->part + col,
        .part_step = b->step,
        .flip = flip_of(f),
    };
    for (int64_t r = 0; r < b->rows; r += step) {
        const int64_t count = kn_min(step, b->rows - r);
        dots[count](&t);
        t.left += count * t.left_step;
        t.part += count * t.part_step;
    }
}

void kn_dot_packed(const kn_dot_block *b, const kn_factors *f, const char *right, const int32_t *start) {
    const int64_t bytes = 4 * kn_ceil_div(f->depth, kn_group(f->kind)); // of a column
    for (int64_t col = 0; col < b->cols; col += KN_NR)
        kn_dot_panel(b, f, right + col * bytes, start + col, col);
}

INL int32_t sum_of(const char *row, int64_t type, int64_t count) {
    uint32_t sum = 0;
    if (type == KN_INT_U8)
        for (int64_t k = 0; k < count; k++) sum += (uint32_t)((const uint8_t *)row)[k];
    else if (type == KN_INT_S8)
        for (int64_t k = 0; k < count; k++) sum += (uint32_t)((const int8_t *)row)[k];
    else
        for (int64_t k = 0; k < count; k++) sum += (uint32_t)((const short_any *)(const void *)row)[k];
    return (int32_t)sum;
}

void kn_add_lows(const kn_dot_block *b, const kn_factors *f, const int32_t *low) {
    for (int64_t i = 0; i < b->rows; i++) {
        const vu sum = (vu)set1i(sum_of(b->left + i * b->left_step, f->left, f->depth));
        int32_t *part = b->part + i * b->step;
        for (int64_t j = 0; j < b->cols; j += VF)
            sti(part + j, kn_wrapping(ldi(part + j), (vi)(sum * (vu)ldi(low + j))));
    }
}

// ---- operands -------------------------------------------------------------------------------

#define COPY(name, to_t, from_t)                                                                         \
    static void name(char *to, const char *from, int64_t step, int64_t count) {                          \
        to_t *out = (void *)to;                                                                          \
        const from_t *in = (const void *)from;                                                           \
        if (step == 1)                                                                                   \
            for (int64_t i = 0; i < count; i++) out[i] = in[i];                                          \
        else                                                                                             \
            for (int64_t i = 0; i < count; i++) out[i] = in[i * step];                                   \
    }
COPY(copy_8, byte_any, byte_any)
COPY(copy_16, short_any, short_any)
COPY(widen_u8, short_any, byte_any)
COPY(widen_s8, short_any, signed char)

void kn_dot_copy(char *to, const kn_factors *f, const char *from, int64_t step, int64_t count) {
    if (f->kind != KN_DOT_16)
        copy_8(to, from, step, count);
    else if (f->left == KN_INT_S16)
        copy_16(to, from, step, count);
    else
        (f->left == KN_INT_U8 ? widen_u8 : widen_s8)(to, from, step, count);
}

// Elements of the rows of a group, as the word that they are packed as, and their sum.
#define WORD_OF_4(line) ((uint32_t)(uint8_t)(line)[j] | (uint32_t)(uint8_t)(line)[j + row] << 8 |          \
                         (uint32_t)(uint8_t)(line)[j + 2 * row] << 16 | (uint32_t)(uint8_t)(line)[j + 3 * row] << 24)
#define SUM_OF_4(line) ((uint32_t)(line)[j] + (uint32_t)(line)[j + row] + (uint32_t)(line)[j + 2 * row] +  \
                        (uint32_t)(line)[j + 3 * row])
#define WORD_OF_2(line) ((uint32_t)(uint16_t)(line)[j] | (uint32_t)(uint16_t)(line)[j + row] << 16)
#define SUM_OF_2(line) ((uint32_t)(line)[j] + (uint32_t)(line)[j + row])

// Packs groups of `size` rows; to_t is what elements are packed as. Element by element where columns do
// not lie side by side, and for the rows of the last group where some are missing.
#define PACK(name, to_t, from_t, size)                                                                   \
    static void name(char *restrict dst, uint32_t *restrict sums, const char *restrict src, int64_t row, \
                     int64_t col, int64_t depth, int64_t cols, int64_t width) {                          \
        const from_t *in = (const void *)src;                                                            \
        const int64_t whole = col == 1 ? depth / size * size : 0;                                        \
        memset(dst, 0, (size_t)(kn_ceil_div(depth, size) * size * width) * sizeof(to_t));                \
        for (int64_t k = 0; k < whole; k += size) {                                                      \
            word_any *out = (word_any *)(void *)dst + k / size * width;                                  \
            const from_t *line = in + k * row;                                                           \
            for (int64_t j = 0; j < cols; j++) {                                                         \
                out[j] = WORD_OF_##size(line);                                                           \
                sums[j] += SUM_OF_##size(line);                                                          \
            }                                                                                            \
        }                                                                                                \
        for (int64_t k = whole; k < depth; k++) {                                                        \
            to_t *out = (to_t *)(void *)dst + k / size * size * width + k % size;                        \
            const from_t *line = in + k * row;                                                           \
            for (int64_t j = 0; j < cols; j++)                                                           \
                out[j * size] = line[j * col], sums[j] += (uint32_t)line[j * col];                       \
        }                                                                                                \
    }
PACK(pack_8, byte_any, signed char, 4)
PACK(pack_u8, byte_any, byte_any, 4)
PACK(pack_16, short_any, short_any, 2)
PACK(pack_16_s8, short_any, signed char, 2)
PACK(pack_16_u8, short_any, byte_any, 2)

void kn_dot_pack(char *dst, int32_t *start, const kn_factors *f, const char *src, int64_t row, int64_t col,
                 int64_t cols, int64_t width) {
    memset(start, 0, (size_t)width * sizeof *start);
    if (f->kind == KN_DOT_16)
        (f->right == KN_INT_S16 ? pack_16 : f->right == KN_INT_S8 ? pack_16_s8 : pack_16_u8)(
            dst, (uint32_t *)start, src, row, col, f->depth, cols, width);
    else
        (f->right == KN_INT_S8 ? pack_8 : pack_u8)(dst, (uint32_t *)start, src, row, col, f->depth, cols, width);
    // an unsigned left operand taken for a signed one, after flipping, is 128 too small, and so on
    const int32_t off = !flip_of(f) ? 0 : f->kind == KN_DOT_S8 ? -128 : 128;
    for (int64_t j = 0; j < width; j++) start[j] = (int32_t)((uint32_t)start[j] * (uint32_t)off);
}

// ---- results --------------------------------------------------------------------------------

INL vi ldi_some(const int32_t *p, int64_t count) { return count < VF ? ldi_part(p, count) : ldi(p); }
INL vf ld_some(const float *p, int64_t count) { return count < VF ? ld_part(p, count) : ld(p); }

// What the sums of some columns have in common.
typedef struct {
    vi bias;
    vf scale, low, high;
    vi zero;
} finish;

INL finish finish_of(const kn_requantize *q, const int32_t *bias, const float *scale, int64_t col,
                     int64_t count) {
    finish f = {.scale = set1(kn_float(q->scale_bits))};
    if (q->bias_sign) f.bias = q->bias_col ? ldi_some(bias + col, count) : set1i(*bias);
    if (q->bias_sign < 0) f.bias = (vi)((vu){0} - (vu)f.bias);
    if (scale) f.scale = q->scale_col ? ld_some(scale + col, count) : set1(*scale);
    f.low = set1((float)(q->low - q->zero));
    f.high = set1((float)(q->high - q->zero));
    f.zero = set1i((int32_t)q->zero);
    return f;
}

// To the nearest integer, halves to even.
INL vi rounded(vf x) {
#if defined(__AVX512F__)
    return (vi)_mm512_cvtps_epi32((__m512)x);
#elif defined(__AVX2__)
    return (vi)_mm256_cvtps_epi32((__m256)x);
#elif defined(__SSE2__)
    return (vi)_mm_cvtps_epi32((__m128)x);
#else
    return vto_int(vround(x));
#endif
}

// Clamping before rounding gives the same, as the bounds are integers, and no integer overflows. NaN
// becomes the lower bound.
INL vi quantized(const finish *f, vi sums) {
    const vf x = vto_float(kn_wrapping(sums, f->bias)) * f->scale;
    return rounded(vmin_second(vmax_second(x, f->low), f->high)) + f->zero;
}

// The low byte of each lane. Compilers take lanes apart one by one where nobody tells them.
#if defined(__AVX512F__)
typedef __m128i bytes;
INL bytes low_bytes(vi x) {
    bytes low = _mm512_cvtepi32_epi8((__m512i)x);
    __asm__("" : "+v"(low)); // the same instruction with memory behind it is several times slower
    return low;
}
#elif defined(__AVX2__)
typedef int64_t bytes;
INL bytes low_bytes(vi x) {
    const __m256i first = _mm256_set_epi32(-1, -1, -1, 0x0c080400, -1, -1, -1, 0x0c080400);
    const __m256i lanes = _mm256_shuffle_epi8((__m256i)x, first);
    return _mm_cvtsi128_si64(_mm_unpacklo_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1)));
}
#elif defined(__SSSE3__)
typedef int32_t bytes;
INL bytes low_bytes(vi x) {
    return _mm_cvtsi128_si32(_mm_shuffle_epi8((__m128i)x, _mm_set_epi32(-1, -1, -1, 0x0c080400)));
}
#else
typedef uint8_t bytes __attribute__((vector_size(VF)));
INL bytes low_bytes(vi x) { return __builtin_convertvector((vu)x, bytes); }
#endif

INL void store(char *to, vi x, int64_t count, int64_t size) {
    if (size == 4) {
        if (count < VF)
            sti_part((int32_t *)(void *)to, x, count);
        else
            sti((int32_t *)(void *)to, x);
        return;
    }
    const bytes low = low_bytes(x);
    if (count < VF)
        memcpy(to, &low, (size_t)count);
    else
        memcpy(to, &low, sizeof low);
}

INL vi finished(const finish *f, const int32_t *part, int64_t to) {
    const vi sums = ldi(part);
    if (to == KN_TO_I32) return kn_wrapping(sums, f->bias);
    return to == KN_TO_F32 ? (vi)(vto_float(kn_wrapping(sums, f->bias)) * f->scale) : quantized(f, sums);
}

// VF columns or fewer, of all rows.
INL void finish_column(const finish *f, const int32_t *part, int64_t part_step, char *out, int64_t out_step,
                       int64_t rows, int64_t count, int64_t to) {
    const int64_t size = to == KN_TO_U8 ? 1 : 4;
    const finish copy = *f; // what is written may be it, for all the compiler knows
    for (int64_t i = 0; i < rows; i++, part += part_step, out += out_step)
        store(out, finished(&copy, part, to), count, size);
}

INL void store_four(char *to, vi a, vi b, vi c, vi d, int64_t is_signed) {
#if defined(__AVX512F__)
    const __m512i first = _mm512_packs_epi32((__m512i)a, (__m512i)b), second = _mm512_packs_epi32((__m512i)c, (__m512i)d);
    const __m512i x = is_signed ? _mm512_packs_epi16(first, second) : _mm512_packus_epi16(first, second);
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, x)); // packing mixes the quarters of vectors
#else
    (void)is_signed;
    store(to, a, VF, 1), store(to + VF, b, VF, 1), store(to + 2 * VF, c, VF, 1), store(to + 3 * VF, d, VF, 1);
#endif
}

// Four vectors of bytes: whole lines of the cache are written at once.
INL void finish_bytes(const finish *f, const int32_t *part, int64_t part_step, char *out, int64_t out_step,
                      int64_t rows, int64_t is_signed) {
    const finish a = f[0], b = f[1], c = f[2], d = f[3];
    for (int64_t i = 0; i < rows; i++, part += part_step, out += out_step)
        store_four(out, quantized(&a, ldi(part)), quantized(&b, ldi(part + VF)), quantized(&c, ldi(part + 2 * VF)),
                   quantized(&d, ldi(part + 3 * VF)), is_signed);
}

// The same where the columns of the result do not lie side by side.
INL void scatter_column(const finish *f, const int32_t *part, int64_t part_step, char *out, int64_t out_step,
                        int64_t out_col, int64_t rows, int64_t count, int64_t to) {
    const int64_t size = to == KN_TO_U8 ? 1 : 4;
    char some[VF * 4];
    for (int64_t i = 0; i < rows; i++, part += part_step, out += out_step) {
        store(some, finished(f, part, to), VF, size);
        for (int64_t j = 0; j < count; j++) memcpy(out + j * out_col, some + j * size, (size_t)size);
    }
}

INL void finish_block(const kn_requantize *q, const kn_dot_block *b, char *out, const int32_t *bias,
                      const float *scale, int64_t to) {
    const int64_t size = to == KN_TO_U8 ? 1 : 4;
    const int64_t out_row = (q->in_place ? b->step : q->out_row) * size;
    const int64_t out_col = (q->in_place ? 1 : q->out_col) * size;
    if (q->in_place) out = (char *)b->part;
    int64_t col = 0;
    for (; to == KN_TO_U8 && out_col == 1 && col + 4 * VF <= b->cols; col += 4 * VF) {
        finish f[4];
        for (int i = 0; i < 4; i++) f[i] = finish_of(q, bias, scale, col + i * VF, VF);
        if (q->to == KN_TO_S8)
            finish_bytes(f, b->part + col, b->step, out + col, out_row, b->rows, 1);
        else
            finish_bytes(f, b->part + col, b->step, out + col, out_row, b->rows, 0);
    }
    for (; col < b->cols; col += VF) {
        const int64_t count = kn_min(VF, b->cols - col);
        const finish f = finish_of(q, bias, scale, col, count);
        const int32_t *part = b->part + col;
        char *at = out + col * out_col;
        if (out_col != size)
            scatter_column(&f, part, b->step, at, out_row, out_col, b->rows, count, to);
        else if (q->in_place || count == VF)
            finish_column(&f, part, b->step, at, out_row, b->rows, VF, to);
        else
            finish_column(&f, part, b->step, at, out_row, b->rows, count, to);
    }
}

void kn_finish_sums(const kn_requantize *q, const kn_dot_block *b, char *out, const int32_t *bias,
                    const float *scale) {
    if (q->in_place && q->to == KN_TO_I32 && !q->bias_sign) return;
    const int64_t size = q->to == KN_TO_U8 || q->to == KN_TO_S8 ? 1 : 4;
    // of wide results few rows at a time: each may lie in a page of its own
    const int64_t rows = size == 4 && !q->in_place ? ROWS : b->rows;
    kn_dot_block some = *b;
    for (int64_t row = 0; row < b->rows; row += rows) {
        some.rows = kn_min(rows, b->rows - row);
        switch (q->to) {
        case KN_TO_I32: finish_block(q, &some, out, bias, scale, KN_TO_I32); break;
        case KN_TO_F32: finish_block(q, &some, out, bias, scale, KN_TO_F32); break;
        default: finish_block(q, &some, out, bias, scale, KN_TO_U8); break;
        }
        some.part += rows * b->step;
        if (!q->in_place) out += rows * q->out_row * size;
    }
}
