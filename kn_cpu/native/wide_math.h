// Elementary functions of doubles to about an ulp, for loops that compilers vectorize: the C library takes
// one element at a time.
#pragma once
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
INLINE double wide_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
INLINE double wide_fma(double a, double b, double c) { return a * b + c; }
#endif

#define WIDE_MAGIC 0x1.8p52 // what is added to it is rounded to a whole number, which lies in the low bits

INLINE uint64_t wide_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
INLINE double wide_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// e^(x - k * ln 2), where k is x / ln 2, rounded
INLINE double wide_exp_rest(double x, double k) {
    // ln 2 in two parts; the product with the first is exact
    const double r = wide_fma(k, -0x1.cf79abc9e3b3ap-40, wide_fma(k, -0x1.62e42fefap-1, x));
    double p = 0x1.af38a9b0ec855p-26; // fitted to (e^r - 1 - r) / r^2
    p = wide_fma(p, r, 0x1.289185613a3d6p-22);
    p = wide_fma(p, r, 0x1.71de0dae63bb3p-19);
    p = wide_fma(p, r, 0x1.a019b90d2ae7ap-16);
    p = wide_fma(p, r, 0x1.a01a01a7c41d5p-13);
    p = wide_fma(p, r, 0x1.6c16c1788bd90p-10);
    p = wide_fma(p, r, 0x1.11111111109b3p-7);
    p = wide_fma(p, r, 0x1.5555555553d63p-5);
    p = wide_fma(p, r, 0x1.5555555555556p-3);
    p = wide_fma(p, r, 0x1.0000000000001p-1);
    return wide_fma(p, r * r, r) + 1.0;
}

// 2^k for a whole k with -1022 <= k <= 1023
INLINE double wide_power(double k) { return wide_of_bits((wide_bits(k + WIDE_MAGIC) + 1023) << 52); }

// NaN gives NaN.
INLINE double wide_exp(double x) {
    x = x > 710.0 ? 710.0 : x;
    x = x < -746.0 ? -746.0 : x;
    const double k = wide_fma(x, 0x1.71547652b82fep+0, WIDE_MAGIC) - WIDE_MAGIC;
    // in two steps: 2^k itself may be out of range
    const double half = wide_fma(k, 0.5, WIDE_MAGIC) - WIDE_MAGIC;
    return wide_exp_rest(x, k) * wide_power(half) * wide_power(k - half);
}

// 1 / (1 + e^-x); 0 where e^x is less than a normal number.
INLINE double wide_sigmoid(double x) {
    const double least = -708.0, away = x < 0.0 ? x : -x, below = away < least ? least : away;
    const double sum = wide_fma(below, 0x1.71547652b82fep+0, WIDE_MAGIC);
    const uint64_t rest = wide_bits(wide_exp_rest(below, sum - WIDE_MAGIC));
    const double decay = away < least ? 0.0 : wide_of_bits(rest + (wide_bits(sum) << 52));
    return (x < 0.0 ? decay : 1.0) / (1.0 + decay);
}
