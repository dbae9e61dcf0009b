// Transposes of square blocks in registers: out[j][i] = x[i][j].
#pragma once
#include "simd.h"

// Interleaving rows i and i + n/2 of n, log2(n) times over, transposes: each round moves one bit of
// the row number to the column number.
#define KN_TRANSPOSE(name, type, lanes, rounds, low, high)                                               \
    typedef type name##_row __attribute__((vector_size(sizeof(type) * lanes)));                          \
    typedef type name##_any __attribute__((vector_size(sizeof(type) * lanes), aligned(1), may_alias));   \
    INL void name(char *out, int64_t out_step, const char *x, int64_t x_step) {                          \
        name##_row a[lanes], b[lanes];                                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < lanes; i++) a[i] =                                  \
            *(const name##_any *)(const void *)(x + i * x_step);                                         \
        _Pragma("GCC unroll 4") for (int round = 0; round < rounds; round++) {                           \
            _Pragma("GCC unroll 16") for (int i = 0; i < lanes / 2; i++) {                               \
                b[2 * i] = __builtin_shufflevector(a[i], a[i + lanes / 2], low);                         \
                b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + lanes / 2], high);                    \
            }                                                                                            \
            _Pragma("GCC unroll 16") for (int i = 0; i < lanes; i++) a[i] = b[i];                        \
        }                                                                                                \
        _Pragma("GCC unroll 16") for (int i = 0; i < lanes; i++) *                                       \
            (name##_any *)(void *)(out + i * out_step) = a[i];                                           \
    }

#define KN_LOW2 0, 2
#define KN_HIGH2 1, 3
#define KN_LOW4 0, 4, 1, 5
#define KN_HIGH4 2, 6, 3, 7
#define KN_LOW8 0, 8, 1, 9, 2, 10, 3, 11
#define KN_HIGH8 4, 12, 5, 13, 6, 14, 7, 15
#define KN_LOW16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define KN_HIGH16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

// narrow elements fill 16 bytes, where one instruction interleaves; wide ones a whole register
KN_TRANSPOSE(kn_transpose1, uint8_t, 16, 4, KN_LOW16, KN_HIGH16)
KN_TRANSPOSE(kn_transpose2, uint16_t, 8, 3, KN_LOW8, KN_HIGH8)
#if KN_VB == 64
KN_TRANSPOSE(kn_transpose4, uint32_t, 16, 4, KN_LOW16, KN_HIGH16)
KN_TRANSPOSE(kn_transpose8, uint64_t, 8, 3, KN_LOW8, KN_HIGH8)
enum { KN_BLOCK4 = 16, KN_BLOCK8 = 8 };
#elif KN_VB == 32
KN_TRANSPOSE(kn_transpose4, uint32_t, 8, 3, KN_LOW8, KN_HIGH8)
KN_TRANSPOSE(kn_transpose8, uint64_t, 4, 2, KN_LOW4, KN_HIGH4)
enum { KN_BLOCK4 = 8, KN_BLOCK8 = 4 };
#else
KN_TRANSPOSE(kn_transpose4, uint32_t, 4, 2, KN_LOW4, KN_HIGH4)
KN_TRANSPOSE(kn_transpose8, uint64_t, 2, 1, KN_LOW2, KN_HIGH2)
enum { KN_BLOCK4 = 4, KN_BLOCK8 = 2 };
#endif
enum { KN_BLOCK1 = 16, KN_BLOCK2 = 8 };
