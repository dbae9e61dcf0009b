// Instructions of scalar programs on integers, and conversions. Arithmetic wraps, and is done in
// unsigned types, where C says that it does.
#include "scalar_ops.h"

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define EACH(name, in, to, expression)                                                             \
    void vm_##name(void *d, const void *a, const void *b, const void *c, const float *k, int64_t n) { \
        to *out = d;                                                                               \
        const in *pa = a, *pb = b, *pc = c;                                                        \
        (void)k;                                                                                   \
        INDEPENDENT for (int64_t i = 0; i < n; i++) {                                              \
            in x = pa[i], y = pb[i], z = pc[i];                                                    \
            (void)y, (void)z;                                                                      \
            out[i] = (to)(expression);                                                             \
        }                                                                                          \
    }

// T is signed, U its unsigned twin. Division by zero gives 0, as the reference has it; by -1 it could
// overflow, and is a negation.
#define INTEGERS(T, U, bits)                                                                       \
    static inline T divide_##T(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b; }  \
    static inline T rest_##T(T a, T b) { return (b == 0 || b == -1) ? 0 : a % b; }                 \
    static inline T modulo_##T(T a, T b) {                                                         \
        T rest = rest_##T(a, b);                                                                   \
        return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;                             \
    }                                                                                              \
    static inline T power_##T(T base, T exponent) {                                                \
        if (exponent < 0) return base == 1 ? 1 : base != -1 ? 0 : (exponent & 1) ? -1 : 1;         \
        U result = 1, square = (U)base;                                                            \
        for (U left = (U)exponent; left; left >>= 1, square *= square)                             \
            if (left & 1) result *= square;                                                        \
        return (T)result;                                                                          \
    }                                                                                              \
    static inline T left_##T(T a, T b) { return (b < 0 || b >= bits) ? 0 : (T)((U)a << b); }       \
    static inline T right_##T(T a, T b) { return a >> ((b < 0 || b >= bits) ? bits - 1 : b); }

INTEGERS(int32_t, uint32_t, 32)
INTEGERS(int64_t, uint64_t, 64)

#define INSTRUCTIONS(s, T, U)                                                                      \
    EACH(add_##s, T, T, (U)x + (U)y)                                                               \
    EACH(sub_##s, T, T, (U)x - (U)y)                                                               \
    EACH(mul_##s, T, T, (U)x *(U)y)                                                                \
    EACH(fma_##s, T, T, (U)x *(U)y + (U)z)                                                         \
    EACH(div_##s, T, T, divide_##T(x, y))                                                          \
    EACH(mod_##s, T, T, modulo_##T(x, y))                                                          \
    EACH(fmod_##s, T, T, rest_##T(x, y))                                                           \
    EACH(pow_##s, T, T, power_##T(x, y))                                                           \
    EACH(neg_##s, T, T, 0 - (U)x)                                                                  \
    EACH(abs_##s, T, T, x < 0 ? 0 - (U)x : (U)x)                                                   \
    EACH(sign_##s, T, T, (x > 0) - (x < 0))                                                        \
    EACH(min_##s, T, T, x < y ? x : y)                                                             \
    EACH(max_##s, T, T, x > y ? x : y)                                                             \
    EACH(eq_##s, T, int32_t, x == y)                                                               \
    EACH(lt_##s, T, int32_t, x < y)                                                                \
    EACH(le_##s, T, int32_t, x <= y)                                                               \
    EACH(bit_not_##s, T, T, ~x)                                                                    \
    EACH(bit_and_##s, T, T, x &y)                                                                  \
    EACH(bit_or_##s, T, T, x | y)                                                                  \
    EACH(bit_xor_##s, T, T, x ^ y)                                                                 \
    EACH(shift_left_##s, T, T, left_##T(x, y))                                                     \
    EACH(shift_right_##s, T, T, right_##T(x, y))

INSTRUCTIONS(i32, int32_t, uint32_t)
INSTRUCTIONS(i64, int64_t, uint64_t)

EACH(logical_not_i32, int32_t, int32_t, x ^ 1)
// narrow integers lie in wider registers, as the numbers they are
EACH(wrap_i8, int32_t, int32_t, (int8_t)x)
EACH(wrap_u8, int32_t, int32_t, (uint8_t)x)
EACH(wrap_i16, int32_t, int32_t, (int16_t)x)
EACH(wrap_u16, int32_t, int32_t, (uint16_t)x)
EACH(wrap_u32, int64_t, int64_t, (uint32_t)x)
EACH(wrap_i4, int32_t, int32_t, (int8_t)((uint32_t)x << 4) >> 4)
EACH(wrap_u4, int32_t, int32_t, x & 15)
EACH(wrap_i2, int32_t, int32_t, (int8_t)((uint32_t)x << 6) >> 6)
EACH(wrap_u2, int32_t, int32_t, x & 3)

EACH(f32_f64, float, double, x)
EACH(f32_i32, float, int32_t, x)
EACH(f32_i64, float, int64_t, x)
EACH(f64_f32, double, float, x)
EACH(f64_i32, double, int32_t, x)
EACH(f64_i64, double, int64_t, x)
EACH(i32_f32, int32_t, float, x)
EACH(i32_f64, int32_t, double, x)
EACH(i32_i64, int32_t, int64_t, x)
EACH(i64_f32, int64_t, float, x)
EACH(i64_f64, int64_t, double, x)
EACH(i64_i32, int64_t, int32_t, x)
