// What kernels over rows of floats share: partial vectors, and sums in blocks of a fixed size.
#pragma once
#include "simd.h"
#include "transpose.h"

// Sums run in single precision over this many elements; their totals add up in double precision.
enum { KN_SUM_BLOCK = 64 * VF };

// Lanes 0, 1, 2, ...
INL vi kn_lanes(void) {
    vi lanes;
    for (int i = 0; i < VF; i++) lanes[i] = i;
    return lanes;
}

// The first `count` < VF floats, and `fill` beyond.
INL vf ld_part_or(const float *p, int64_t count, float fill) {
    return vselect(kn_lanes() < (int32_t)count, ld_part(p, count), set1(fill));
}

INL vf ld_count(const float *p, int64_t count) { return count >= VF ? ld(p) : ld_part(p, count); }
INL void st_count(float *p, vf v, int64_t count) {
    if (count >= VF)
        st(p, v);
    else
        st_part(p, v, count);
}

// The larger and the smaller of two, NaN where either is.
INL vf kn_larger(vf a, vf b) {
#if defined(__AVX512F__)
    __mmask16 number = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q);
    return (vf)_mm512_mask_max_ps((__m512)a, number, (__m512)a, (__m512)b); // b where that is NaN
#else
    return vmax(a, b);
#endif
}
INL vf kn_smaller(vf a, vf b) {
#if defined(__AVX512F__)
    __mmask16 number = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q);
    return (vf)_mm512_mask_min_ps((__m512)a, number, (__m512)a, (__m512)b);
#else
    return vmin(a, b);
#endif
}

// e^x for x <= 0; NaN for NaN, and 0 for minus infinity.
INL vf kn_exp_below(vf x) {
#if defined(__AVX512F__)
    // as vexp, with one bound less, and without the way through integers
    x = vmax_second(set1(-104.0f), x);
    const vf magic = set1(12582912.0f);
    vf k = vfma(x, set1(1.44269504f), magic) - magic;
    vf r = vfma(k, set1(2.12194440e-4f), vfma(k, set1(-0.693359375f), x));
    return (vf)_mm512_scalef_ps((__m512)(vexpm1_small(r) + 1.0f), (__m512)k);
#else
    return vexp_negative(x);
#endif
}

// ---- over lanes: halves are combined until one is left ------------------------------------------

#if KN_VB == 64
#define KN_TURN(x, i) __builtin_shufflevector(x, x, (i) & 15, (i + 1) & 15, (i + 2) & 15, (i + 3) & 15, \
    (i + 4) & 15, (i + 5) & 15, (i + 6) & 15, (i + 7) & 15, (i + 8) & 15, (i + 9) & 15, (i + 10) & 15,  \
    (i + 11) & 15, (i + 12) & 15, (i + 13) & 15, (i + 14) & 15, (i + 15) & 15)
#elif KN_VB == 32
#define KN_TURN(x, i) __builtin_shufflevector(x, x, (i) & 7, (i + 1) & 7, (i + 2) & 7, (i + 3) & 7,     \
    (i + 4) & 7, (i + 5) & 7, (i + 6) & 7, (i + 7) & 7)
#else
#define KN_TURN(x, i) __builtin_shufflevector(x, x, (i) & 3, (i + 1) & 3, (i + 2) & 3, (i + 3) & 3)
#endif

INL float kn_lanes_sum(vf x) {
#if KN_VB == 64
    x += KN_TURN(x, 8);
#endif
#if KN_VB >= 32
    x += KN_TURN(x, 4);
#endif
    x += KN_TURN(x, 2);
    x += KN_TURN(x, 1);
    return x[0];
}

// Halves of two vectors: what a tree of them makes of VF vectors has one lane for each.
INL vf kn_low(vf a, vf b) {
#if KN_VB == 64
    return __builtin_shufflevector(a, b, KN_LOW16);
#elif KN_VB == 32
    return __builtin_shufflevector(a, b, KN_LOW8);
#else
    return __builtin_shufflevector(a, b, KN_LOW4);
#endif
}
INL vf kn_high(vf a, vf b) {
#if KN_VB == 64
    return __builtin_shufflevector(a, b, KN_HIGH16);
#elif KN_VB == 32
    return __builtin_shufflevector(a, b, KN_HIGH8);
#else
    return __builtin_shufflevector(a, b, KN_HIGH4);
#endif
}

// The sum of each of VF vectors.
INL vf kn_vector_sums(vf *x) {
    _Pragma("GCC unroll 4") for (int n = VF / 2; n > 0; n /= 2) {
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) x[i] = kn_low(x[i], x[i + n]) + kn_high(x[i], x[i + n]);
    }
    return x[0];
}

// The largest element of each; a NaN may or may not come through.
INL vf kn_vector_max(vf *x) {
    _Pragma("GCC unroll 4") for (int n = VF / 2; n > 0; n /= 2) {
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)
            x[i] = vmax_second(kn_low(x[i], x[i + n]), kn_high(x[i], x[i + n]));
    }
    return x[0];
}

// A NaN may or may not come through.
INL float kn_lanes_max(vf x) {
#if KN_VB == 64
    x = vmax_second(x, KN_TURN(x, 8));
#endif
#if KN_VB >= 32
    x = vmax_second(x, KN_TURN(x, 4));
#endif
    x = vmax_second(x, KN_TURN(x, 2));
    x = vmax_second(x, KN_TURN(x, 1));
    return x[0];
}

// The largest element of a row; a NaN may or may not come through.
static inline float kn_row_max(const float *x, int64_t step, int64_t n) {
    float largest = -__builtin_inff();
    if (step != 1) {
        for (int64_t i = 0; i < n; i++) largest = x[i * step] > largest ? x[i * step] : largest;
        return largest;
    }
    vf a = set1(largest), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF) {
        a = vmax_second(a, ld(x + i));
        b = vmax_second(b, ld(x + i + VF));
        c = vmax_second(c, ld(x + i + 2 * VF));
        d = vmax_second(d, ld(x + i + 3 * VF));
    }
    for (; i + VF <= n; i += VF) a = vmax_second(a, ld(x + i));
    if (i < n) b = vmax_second(b, ld_part_or(x + i, n - i, largest));
    return kn_lanes_max(vmax_second(vmax_second(a, b), vmax_second(c, d)));
}
