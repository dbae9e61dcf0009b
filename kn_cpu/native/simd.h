// Vectors of the widest registers of the instruction set, by the vector extensions of GCC and Clang.
// KN_VB is their size in bytes: 64 with AVX-512, 32 with AVX2, else 16. Intrinsics stand only where
// the compilers miss the instruction, with a portable form beside.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define KN_VB 64
#elif defined(__AVX2__)
#define KN_VB 32
#else
#define KN_VB 16
#endif
#define VF (KN_VB / 4) // floats of a vector
#define VD (KN_VB / 8) // doubles

#define INL static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(KN_VB)));
typedef int32_t vi __attribute__((vector_size(KN_VB)));
typedef uint32_t vu __attribute__((vector_size(KN_VB)));
typedef double vd __attribute__((vector_size(KN_VB)));
typedef float vf_any __attribute__((vector_size(KN_VB), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(KN_VB), aligned(4), may_alias));

typedef float float_any __attribute__((aligned(1), may_alias)); // at any address

// A float that is a number of a step.
INL float kn_float(int64_t bits) {
    int32_t low = (int32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

// The next cache line.
INL char *kn_aligned(void *p) { return (char *)(((uintptr_t)p + 63) & ~(uintptr_t)63); }

// ---- memory ---------------------------------------------------------------------------------

INL vf ld(const float *p) { return *(const vf_any *)p; }
INL void st(float *p, vf v) { *(vf_any *)p = v; }
// Stores a vector past the caches, at a multiple of its size; others see it behind `vfence`.
#if defined(__AVX512F__)
INL void vstream(float *p, vf v) { _mm512_stream_ps(p, (__m512)v); }
INL void vfence(void) { _mm_sfence(); }
#elif defined(__AVX2__)
INL void vstream(float *p, vf v) { _mm256_stream_ps(p, (__m256)v); }
INL void vfence(void) { _mm_sfence(); }
#else
INL void vstream(float *p, vf v) { st(p, v); }
INL void vfence(void) {}
#endif
INL vi ldi(const int32_t *p) { return *(const vi_any *)p; }
INL void sti(int32_t *p, vi v) { *(vi_any *)p = v; }

#if defined(__AVX512F__)
INL vf set1(float x) { return (vf)_mm512_set1_ps(x); }
INL vi set1i(int32_t x) { return (vi)_mm512_set1_epi32(x); }
#elif defined(__AVX2__)
INL vf set1(float x) { return (vf)_mm256_set1_ps(x); }
INL vi set1i(int32_t x) { return (vi)_mm256_set1_epi32(x); }
#else
INL vf set1(float x) { return x - (vf){0}; } // exact for every x, -0 and NaN too
INL vi set1i(int32_t x) { return x + (vi){0}; }
#endif

// The first `count` < VF floats; what is beyond is neither read nor written, and reads as 0.
#if defined(__AVX512F__)
INL vf ld_part(const float *p, int64_t count) {
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
}
INL void st_part(float *p, vf v, int64_t count) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), (__m512)v);
}
#else
INL vf ld_part(const float *p, int64_t count) {
    float part[VF] = {0};
    for (int64_t i = 0; i < count; i++) part[i] = ((const float_any *)p)[i];
    return ld(part);
}
INL void st_part(float *p, vf v, int64_t count) {
    for (int64_t i = 0; i < count; i++) p[i] = v[i];
}
#endif
INL vi ldi_part(const int32_t *p, int64_t count) { return (vi)ld_part((const float *)(const void *)p, count); }
INL void sti_part(int32_t *p, vi v, int64_t count) { st_part((float *)(void *)p, (vf)v, count); }

// ---- selection, minimum, maximum ------------------------------------------------------------

// mask lanes are 0 or -1, as comparisons of vectors give them
#if defined(__AVX512F__)
INL vf vselect(vi mask, vf a, vf b) {
    return (vf)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)b, (__m512)a);
}
#elif defined(__AVX2__)
INL vf vselect(vi mask, vf a, vf b) {
    return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask);
}
#else
INL vf vselect(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
#endif
INL vi vselecti(vi mask, vi a, vi b) { return (mask & a) | (~mask & b); }

// The larger, the smaller; where one is NaN, the SECOND operand: put what must not lose a NaN there.
#if defined(__AVX512F__)
INL vf vmax_second(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INL vf vmin_second(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
INL vf vmax_second(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INL vf vmin_second(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
#elif defined(__SSE2__)
INL vf vmax_second(vf a, vf b) { return (vf)_mm_max_ps((__m128)a, (__m128)b); }
INL vf vmin_second(vf a, vf b) { return (vf)_mm_min_ps((__m128)a, (__m128)b); }
#else
INL vf vmax_second(vf a, vf b) { return vselect(a > b, a, b); }
INL vf vmin_second(vf a, vf b) { return vselect(a < b, a, b); }
#endif

// NaN where either operand is, as NumPy's maximum and minimum have it
INL vf vmax(vf a, vf b) { return vselect(a != a, a, vmax_second(a, b)); }
INL vf vmin(vf a, vf b) { return vselect(a != a, a, vmin_second(a, b)); }

// x between bounds that are no NaN; a NaN of x stays. The upper bound wins where they cross.
INL vf vclamp(vf x, vf low, vf high) { return vmin_second(high, vmax_second(low, x)); }
INL vf vrelu(vf x) { return vmax_second((vf){0}, x); }

// ---- arithmetic -----------------------------------------------------------------------------

INL vf vabs(vf x) { return (vf)((vi)x & 0x7fffffff); }
INL vf vcopysign(vf size, vf sign) { return (vf)((vi)vabs(size) | ((vi)sign & INT32_MIN)); }

// a * b + c, rounded once where the instruction set can (the base of x86 rounds twice)
#if defined(__AVX512F__)
INL vf vfma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INL vf vsqrt(vf x) { return (vf)_mm512_sqrt_ps((__m512)x); }
INL vf vround(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 8); }
INL vf vfloor(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 9); }
INL vf vceil(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 10); }
INL vf vtrunc(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, 11); }
INL vi vto_int(vf x) { return (vi)_mm512_cvttps_epi32((__m512)x); }
#elif defined(__AVX2__)
INL vf vfma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INL vf vsqrt(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
INL vf vround(vf x) { return (vf)_mm256_round_ps((__m256)x, 8); }
INL vf vfloor(vf x) { return (vf)_mm256_round_ps((__m256)x, 9); }
INL vf vceil(vf x) { return (vf)_mm256_round_ps((__m256)x, 10); }
INL vf vtrunc(vf x) { return (vf)_mm256_round_ps((__m256)x, 11); }
INL vi vto_int(vf x) { return (vi)_mm256_cvttps_epi32((__m256)x); }
#elif defined(__SSE4_1__)
INL vf vfma(vf a, vf b, vf c) { return a * b + c; }
INL vf vsqrt(vf x) { return (vf)_mm_sqrt_ps((__m128)x); }
INL vf vround(vf x) { return (vf)_mm_round_ps((__m128)x, 8); }
INL vf vfloor(vf x) { return (vf)_mm_round_ps((__m128)x, 9); }
INL vf vceil(vf x) { return (vf)_mm_round_ps((__m128)x, 10); }
INL vf vtrunc(vf x) { return (vf)_mm_round_ps((__m128)x, 11); }
INL vi vto_int(vf x) { return (vi)_mm_cvttps_epi32((__m128)x); }
#else
#define KN_LANES(name, call)                                                                             \
    INL vf name(vf x) {                                                                                  \
        vf y;                                                                                            \
        for (int i = 0; i < VF; i++) y[i] = call(x[i]);                                                  \
        return y;                                                                                        \
    }
#if defined(__aarch64__)
INL vf vfma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
INL vf vfma(vf a, vf b, vf c) { return a * b + c; }
#endif
KN_LANES(vsqrt, __builtin_sqrtf)
KN_LANES(vround, __builtin_rintf)
KN_LANES(vfloor, __builtin_floorf)
KN_LANES(vceil, __builtin_ceilf)
KN_LANES(vtrunc, __builtin_truncf)
#undef KN_LANES
INL vi vto_int(vf x) { return __builtin_convertvector(x, vi); }
#endif
INL vf vto_float(vi x) { return __builtin_convertvector(x, vf); }

// ---- sums over lanes ------------------------------------------------------------------------

// The order of the additions is fixed: halves are added until one is left.
INL float vsum(vf x) {
    float part[VF];
    st(part, x);
    for (int n = VF / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
}

// the largest lane, NaN if there is one
INL float vlargest(vf x) {
    float largest = x[0];
    for (int i = 1; i < VF; i++) largest = (x[i] > largest || x[i] != x[i]) ? x[i] : largest;
    return largest;
}

#include "simd_math.h"
