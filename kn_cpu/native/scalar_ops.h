// The instructions of scalar programs. Each works on a tile: registers are arrays of floats, of 32-bit
// integers (which hold bools, as 0 and 1, and narrow integers too), of doubles or of 64-bit integers.
#pragma once
#include <stdint.h>

// d = f(a, b, c) for n elements, with immediate numbers k[4]. d may be one of the operands, if its
// elements are as wide; operands that an instruction lacks are any readable register.
typedef void (*vm_op)(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n);

#define VM_OPS(X)                                                                                  \
    X(move_f32) X(affine_f32) X(clamp_f32) X(affine_clamp_f32) X(add_clamp_f32) X(mul_add_f32)     \
    X(mul_add_clamp_f32) X(fma_f32)                                                                \
    X(add_f32) X(sub_f32) X(mul_f32) X(div_f32) X(min_f32) X(max_f32) X(neg_f32) X(abs_f32)        \
    X(sign_f32) X(sqrt_f32) X(floor_f32) X(ceil_f32) X(trunc_f32) X(round_even_f32)                \
    X(exp_f32) X(expm1_f32) X(log_f32) X(log1p_f32) X(erf_f32) X(tanh_f32) X(sigmoid_f32)          \
    X(silu_f32) X(gelu_f32) X(gelu_tanh_f32) X(hard_swish_f32) X(softplus_f32) X(mish_f32)         \
    X(scaled_silu_f32) X(eq_f32) X(lt_f32) X(le_f32) X(isnan_f32) X(isinf_f32) X(select_f32)       \
    X(sigmoid_once_f32) X(silu_once_f32) X(round_f16) X(round_bf16) X(round_small)                                                      \
    X(sin_f32) X(cos_f32) X(tan_f32) X(asin_f32) X(acos_f32) X(atan_f32) X(sinh_f32) X(cosh_f32)   \
    X(asinh_f32) X(acosh_f32) X(atanh_f32) X(pow_f32) X(mod_f32) X(fmod_f32)                       \
    X(move_f64) X(add_f64) X(sub_f64) X(mul_f64) X(div_f64) X(fma_f64) X(min_f64) X(max_f64)       \
    X(neg_f64) X(abs_f64) X(sign_f64) X(sqrt_f64) X(floor_f64) X(ceil_f64) X(trunc_f64)            \
    X(round_even_f64) X(exp_f64) X(expm1_f64) X(log_f64) X(log1p_f64) X(erf_f64) X(tanh_f64)       \
    X(sin_f64) X(cos_f64) X(tan_f64) X(asin_f64) X(acos_f64) X(atan_f64) X(sinh_f64) X(cosh_f64)   \
    X(asinh_f64) X(acosh_f64) X(atanh_f64) X(pow_f64) X(mod_f64) X(fmod_f64)                       \
    X(eq_f64) X(lt_f64) X(le_f64) X(isnan_f64) X(isinf_f64) X(select_f64)                          \
    X(add_i32) X(sub_i32) X(mul_i32) X(div_i32) X(mod_i32) X(fmod_i32) X(pow_i32) X(fma_i32)       \
    X(neg_i32) X(abs_i32) X(sign_i32) X(min_i32) X(max_i32) X(eq_i32) X(lt_i32) X(le_i32)          \
    X(bit_not_i32) X(bit_and_i32) X(bit_or_i32) X(bit_xor_i32) X(shift_left_i32)                   \
    X(shift_right_i32) X(logical_not_i32)                                                          \
    X(add_i64) X(sub_i64) X(mul_i64) X(div_i64) X(mod_i64) X(fmod_i64) X(pow_i64) X(fma_i64)       \
    X(neg_i64) X(abs_i64) X(sign_i64) X(min_i64) X(max_i64) X(eq_i64) X(lt_i64) X(le_i64)          \
    X(bit_not_i64) X(bit_and_i64) X(bit_or_i64) X(bit_xor_i64) X(shift_left_i64)                   \
    X(shift_right_i64)                                                                             \
    X(wrap_i8) X(wrap_u8) X(wrap_i16) X(wrap_u16) X(wrap_u32)                                      \
    X(wrap_i4) X(wrap_u4) X(wrap_i2) X(wrap_u2)                                                    \
    X(f32_f64) X(f32_i32) X(f32_i64) X(f64_f32) X(f64_i32) X(f64_i64) X(i32_f32) X(i32_f64)        \
    X(i32_i64) X(i64_f32) X(i64_f64) X(i64_i32)

#define VM_DECLARE(name) void vm_##name(void *, const void *, const void *, const void *, const float *, int64_t);
VM_OPS(VM_DECLARE)
#undef VM_DECLARE
