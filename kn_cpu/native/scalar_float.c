// Instructions of scalar programs on floats, by vectors. What is written as two operations is rounded
// twice, as in the graph (`build.py` says so): a last bit decides what a result is quantized to.
#if defined(__AVX512F__) && !defined(__clang__)
// what four vectors need is mixed, so that none waits for its own results
#pragma GCC optimize("schedule-insns", "sched-pressure")
#endif
#include "small.h"
#include "scalar_ops.h"
#include "simd.h"
#include "wide_math.h"

#include <math.h>

// A macro, because the expression is what differs. Operands that it does not use are not loaded; the
// immediates are read first, as what is written might be them for all the compiler knows.
#define VECTOR(result, place, expression)                                                          \
    {                                                                                              \
        vf x = ld(pa + i + place), y = ld(pb + i + place), z = ld(pc + i + place);                 \
        (void)y, (void)z;                                                                          \
        result = expression;                                                                       \
    }

#define F32(name, expression)                                                                      \
    void vm_##name(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n) { \
        float *out = d;                                                                            \
        const float *pa = a, *pb = b, *pc = c;                                                     \
        const vf k0 = set1(k[0]), k1 = set1(k[1]), k2 = set1(k[2]), k3 = set1(k[3]);               \
        (void)k0, (void)k1, (void)k2, (void)k3;                                                    \
        int64_t i = 0;                                                                             \
        for (; i + 4 * VF <= n; i += 4 * VF) {                                                     \
            vf r0, r1, r2, r3;                                                                     \
            VECTOR(r0, 0, expression)                                                              \
            VECTOR(r1, VF, expression)                                                             \
            VECTOR(r2, 2 * VF, expression)                                                         \
            VECTOR(r3, 3 * VF, expression)                                                         \
            st(out + i, r0), st(out + i + VF, r1), st(out + i + 2 * VF, r2), st(out + i + 3 * VF, r3); \
        }                                                                                          \
        for (; i + VF <= n; i += VF) {                                                             \
            vf r;                                                                                  \
            VECTOR(r, 0, expression)                                                               \
            st(out + i, r);                                                                        \
        }                                                                                          \
        if (i < n) {                                                                               \
            vf x = ld_part(pa + i, n - i), y = ld_part(pb + i, n - i), z = ld_part(pc + i, n - i); \
            (void)y, (void)z;                                                                      \
            st_part(out + i, expression, n - i);                                                   \
        }                                                                                          \
    }

F32(move_f32, x)
F32(affine_f32, x *k0 + k1)
F32(clamp_f32, vclamp(x, k2, k3))
F32(affine_clamp_f32, vclamp(x *k0 + k1, k2, k3))
F32(add_clamp_f32, vclamp(x + y, k2, k3))
F32(fma_f32, vfma(x, y, z))
F32(mul_add_f32, x *y + z)
F32(mul_add_clamp_f32, vclamp(x *y + z, k2, k3))
F32(add_f32, x + y)
F32(sub_f32, x - y)
F32(mul_f32, x *y)
F32(div_f32, x / y)
F32(min_f32, vmin(x, y))
F32(max_f32, vmax(x, y))
F32(neg_f32, (vf)((vi)x ^ INT32_MIN))
F32(abs_f32, vabs(x))
F32(sign_f32, vselect(x == x, (vf)((vi)vcopysign(set1(1.0f), x) & (x != 0.0f)), x))
F32(sqrt_f32, vsqrt(x))
F32(floor_f32, vfloor(x))
F32(ceil_f32, vceil(x))
F32(trunc_f32, vtrunc(x))
F32(round_even_f32, vround(x))
F32(exp_f32, vexp(x))
F32(expm1_f32, vexpm1(x))
F32(log_f32, vlog(x))
F32(log1p_f32, vlog1p(x))
F32(erf_f32, verf(x))
F32(tanh_f32, vtanh(x))
F32(sigmoid_f32, vsigmoid(x))
F32(silu_f32, vsilu(x))
F32(gelu_f32, vgelu(x))
F32(gelu_tanh_f32, vgelu_tanh(x))
F32(hard_swish_f32, vhardswish(x))
F32(softplus_f32, vsoftplus(x))
F32(mish_f32, vmish(x))
F32(scaled_silu_f32, x *vsigmoid(x *k0))
// masks are 0 and -1, bools 0 and 1
F32(eq_f32, (vf)((x == y) & 1))
F32(lt_f32, (vf)((x < y) & 1))
F32(le_f32, (vf)((x <= y) & 1))
F32(isnan_f32, (vf)((x != x) & 1))
F32(isinf_f32, (vf)((vabs(x) == INFINITY) & 1))
F32(select_f32, vselect(-(vi)x, y, z))

// ---- element by element, through the C library or for the compiler to vectorize --------------

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define EACH(name, type, expression)                                                               \
    void vm_##name(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n) { \
        type *out = d;                                                                             \
        const type *pa = a, *pb = b, *pc = c;                                                      \
        (void)k;                                                                                   \
        INDEPENDENT for (int64_t i = 0; i < n; i++) {                                              \
            type x = pa[i], y = pb[i], z = pc[i];                                                  \
            (void)y, (void)z;                                                                      \
            out[i] = expression;                                                                   \
        }                                                                                          \
    }

// a predicate of floats, as 0 or 1; or a choice between them
#define TRUTH(name, type, expression)                                                              \
    void vm_##name(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n) { \
        int32_t *out = d;                                                                          \
        const type *pa = a, *pb = b;                                                               \
        (void)c, (void)k;                                                                          \
        INDEPENDENT for (int64_t i = 0; i < n; i++) {                                              \
            type x = pa[i], y = pb[i];                                                             \
            (void)y;                                                                               \
            out[i] = expression;                                                                   \
        }                                                                                          \
    }

// a - floor(a / b) * b
#define MODULO(type, fmod, copysign)                                                               \
    static inline type modulo_##type(type a, type b) {                                             \
        type rest = fmod(a, b);                                                                    \
        if (rest == 0) return copysign(rest, b);                                                   \
        return (rest < 0) != (b < 0) ? rest + b : rest;                                            \
    }
MODULO(float, fmodf, copysignf)
MODULO(double, fmod, copysign)

void vm_round_f16(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n) {
    (void)b, (void)c, (void)k;
    round_to_halves(d, a, n);
}
EACH(round_bf16, float, bfloat_to_float(float_to_bfloat(x)))

EACH(round_small, float, round_to_small(x, k[0], k[1], k[2], k[3]))

// rounded once, as the reference does
EACH(sigmoid_once_f32, float, (float)wide_sigmoid(x))
EACH(silu_once_f32, float, (float)(x * wide_sigmoid(x)))

EACH(sin_f32, float, sinf(x))
EACH(cos_f32, float, cosf(x))
EACH(tan_f32, float, tanf(x))
EACH(asin_f32, float, asinf(x))
EACH(acos_f32, float, acosf(x))
EACH(atan_f32, float, atanf(x))
EACH(sinh_f32, float, sinhf(x))
EACH(cosh_f32, float, coshf(x))
EACH(asinh_f32, float, asinhf(x))
EACH(acosh_f32, float, acoshf(x))
EACH(atanh_f32, float, atanhf(x))
EACH(pow_f32, float, powf(x, y))
EACH(mod_f32, float, modulo_float(x, y))
EACH(fmod_f32, float, fmodf(x, y))

EACH(move_f64, double, x)
EACH(add_f64, double, x + y)
EACH(sub_f64, double, x - y)
EACH(mul_f64, double, x *y)
EACH(div_f64, double, x / y)
EACH(fma_f64, double, fma(x, y, z))
EACH(min_f64, double, (x < y || x != x) ? x : y)
EACH(max_f64, double, (x > y || x != x) ? x : y)
EACH(neg_f64, double, -x)
EACH(abs_f64, double, fabs(x))
EACH(sign_f64, double, x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x)
EACH(sqrt_f64, double, sqrt(x))
EACH(floor_f64, double, floor(x))
EACH(ceil_f64, double, ceil(x))
EACH(trunc_f64, double, trunc(x))
EACH(round_even_f64, double, rint(x))
EACH(exp_f64, double, wide_exp(x))
EACH(expm1_f64, double, expm1(x))
EACH(log_f64, double, log(x))
EACH(log1p_f64, double, log1p(x))
EACH(erf_f64, double, erf(x))
EACH(tanh_f64, double, tanh(x))
EACH(sin_f64, double, sin(x))
EACH(cos_f64, double, cos(x))
EACH(tan_f64, double, tan(x))
EACH(asin_f64, double, asin(x))
EACH(acos_f64, double, acos(x))
EACH(atan_f64, double, atan(x))
EACH(sinh_f64, double, sinh(x))
EACH(cosh_f64, double, cosh(x))
EACH(asinh_f64, double, asinh(x))
EACH(acosh_f64, double, acosh(x))
EACH(atanh_f64, double, atanh(x))
EACH(pow_f64, double, pow(x, y))
EACH(mod_f64, double, modulo_double(x, y))
EACH(fmod_f64, double, fmod(x, y))
TRUTH(eq_f64, double, x == y)
TRUTH(lt_f64, double, x < y)
TRUTH(le_f64, double, x <= y)
TRUTH(isnan_f64, double, x != x)
TRUTH(isinf_f64, double, fabs(x) == INFINITY)

// serves 64-bit integers as well
void vm_select_f64(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n) {
    int64_t *out = d;
    const int32_t *pa = a;
    const int64_t *pb = b, *pc = c;
    (void)k;
    INDEPENDENT for (int64_t i = 0; i < n; i++) out[i] = pa[i] ? pb[i] : pc[i];
}
