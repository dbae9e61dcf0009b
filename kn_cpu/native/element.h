// Elements as bytes, for kernels that move them and do not look.
#pragma once
#include "simd.h"

// 1, 2, 4 or 8 bytes, a constant where this is inlined.
INL void move_element(char *out, const char *x, int64_t bytes) {
    switch (bytes) {
    case 1: memcpy(out, x, 1); break;
    case 2: memcpy(out, x, 2); break;
    case 4: memcpy(out, x, 4); break;
    default: memcpy(out, x, 8); break;
    }
}
