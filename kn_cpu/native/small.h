// Floats of 8 bits. Their values are rounded in float32 registers; what is stored is one already.
#pragma once
#include "half.h"

#include <math.h>

// A format: bits of the exponent and of the mantissa, and what is added to an exponent.
typedef struct {
    int exponent, mantissa, bias;
    uint8_t nan;
    int unsigned_nan; // whether the code of a negative 0 is the NaN
} small_format;

#define SMALL_E4M3FN ((small_format){4, 3, 7, 0x7f, 0})
#define SMALL_E4M3FNUZ ((small_format){4, 3, 8, 0x80, 1})
#define SMALL_E5M2FNUZ ((small_format){5, 2, 16, 0x80, 1})

static inline float small_to_float(uint8_t x, small_format f) {
    uint32_t size = x & 0x7f, sign = (uint32_t)(x & 0x80) << 24;
    uint32_t normal = (size << (23 - f.mantissa)) + ((uint32_t)(127 - f.bias) << 23);
    float denormal = (float)size * bits_float((uint32_t)(128 - f.bias - f.mantissa) << 23);
    uint32_t bits = size >> f.mantissa ? normal : float_bits(denormal);
    uint32_t nan = f.unsigned_nan ? x == f.nan : size == f.nan;
    return bits_float(nan ? 0x7fc00000 : sign | bits);
}

static inline uint8_t float_to_small(float x, small_format f) {
    uint32_t bits = float_bits(x), size = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
    uint32_t least = (uint32_t)(128 - f.bias) << 23; // normal number
    uint32_t normal = (size - ((uint32_t)(127 - f.bias) << 23)) >> (23 - f.mantissa);
    uint32_t denormal = (uint32_t)(bits_float(size) * bits_float((uint32_t)(126 + f.bias + f.mantissa) << 23));
    uint32_t code = size < least ? denormal : normal;
    if (f.unsigned_nan && code == 0) sign = 0;
    return (uint8_t)(size > 0x7f800000 ? (f.unsigned_nan ? f.nan : sign | f.nan) : sign | code);
}

static inline float e4m3fn_to_float(uint8_t x) { return small_to_float(x, SMALL_E4M3FN); }
static inline uint8_t float_to_e4m3fn(float x) { return float_to_small(x, SMALL_E4M3FN); }
static inline float e4m3fnuz_to_float(uint8_t x) { return small_to_float(x, SMALL_E4M3FNUZ); }
static inline uint8_t float_to_e4m3fnuz(float x) { return float_to_small(x, SMALL_E4M3FNUZ); }
static inline float e5m2fnuz_to_float(uint8_t x) { return small_to_float(x, SMALL_E5M2FNUZ); }
static inline uint8_t float_to_e5m2fnuz(float x) { return float_to_small(x, SMALL_E5M2FNUZ); }
// the upper half of a float16
static inline float e5m2_to_float(uint8_t x) { return half_to_float((uint16_t)(x << 8)); }
static inline uint8_t float_to_e5m2(float x) { return (uint8_t)(float_to_half(x) >> 8); }

// Rounds to a format: to `mantissa` bits, or a multiple of the least number that it has, 2^smallest, ties
// to even. What is larger than `most` then becomes `beyond`.
static inline float round_to_small(float x, float mantissa, float smallest, float most, float beyond) {
    uint32_t size = float_bits(x) & 0x7fffffff, sign = float_bits(x) & 0x80000000;
    int exponent = (int)(size >> 23) - 127 - (int)mantissa; // of the last bit
    exponent = exponent < (int)smallest ? (int)smallest : exponent > 126 ? 126 : exponent;
    float unit = bits_float((uint32_t)(exponent + 127) << 23), each = bits_float((uint32_t)(127 - exponent) << 23);
    float rounded = rintf(bits_float(size) * each) * unit;
    rounded = rounded > most ? beyond : rounded;
    return size > 0x7f800000 ? x : bits_float(float_bits(rounded) | sign);
}
