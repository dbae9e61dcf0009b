// Conversions of narrow floats, rounded to nearest even; loops over them are vectorized.
#pragma once
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, size = (uint32_t)(h & 0x7fff) << 13;
    float scaled = bits_float(size) * 0x1p112f; // moves the exponent, and makes denormals normal
    uint32_t bits = size >= 0x0f800000 ? size | 0x7f800000 : float_bits(scaled);
    return bits_float(sign | bits);
}

static inline uint16_t float_to_half(float x) {
    uint32_t bits = float_bits(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    uint32_t normal = (size + 0xc8000fff + (size >> 13 & 1)) >> 13;
    uint32_t denormal = float_bits(bits_float(size) + 0.5f) - 0x3f000000; // the sum rounds
    uint32_t finite = size < 0x38800000 ? denormal : normal;
    uint32_t beyond = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)(sign | (size >= 0x47800000 ? beyond : finite));
}

// Rows of them; the processor may have instructions for it, which keep the bits of a NaN.
static inline void halves_to_floats(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
#endif
    for (; i < n; i++) y[i] = half_to_float(x[i]);
}

static inline void floats_to_halves(uint16_t *y, const float *x, int64_t n) {
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) _mm256_storeu_si256((void *)(y + i), _mm512_cvtps_ph(_mm512_loadu_ps(x + i), 8));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((void *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 8));
#endif
    for (; i < n; i++) y[i] = float_to_half(x[i]);
}

static inline void round_to_halves(float *y, const float *x, int64_t n) {
    int64_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_loadu_ps(x + i), 8)));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(x + i), 8)));
#endif
    for (; i < n; i++) y[i] = half_to_float(float_to_half(x[i]));
}

static inline float bfloat_to_float(uint16_t h) { return bits_float((uint32_t)h << 16); }

static inline uint16_t float_to_bfloat(float x) {
    uint32_t bits = float_bits(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = (bits >> 16 & 0x8000) | 0x7fc0;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}
