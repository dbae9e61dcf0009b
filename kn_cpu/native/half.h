// Conversions of narrow floats, rounded to nearest even; loops over them are vectorized.
#pragma once
#include <stdint.h>
#include <string.h>

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

static inline float bfloat_to_float(uint16_t h) { return bits_float((uint32_t)h << 16); }

static inline uint16_t float_to_bfloat(float x) {
    uint32_t bits = float_bits(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = (bits >> 16 & 0x8000) | 0x7fc0;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}
