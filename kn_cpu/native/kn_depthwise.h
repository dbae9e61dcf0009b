// The numbers of depthwise convolution, in this order; kn_cpu/depthwise.py writes them. There are
// three spatial axes; those that are missing have size 1.
#pragma once
#include "abi.h"

// depthwise_f32: out = clamp(conv(x, w) + bias + residual), each channel by itself
// p: x, w [kernel, channels], out, bias [channels], residual (the last two may be NULL)
// The channels of x, out and residual lie side by side.
// With a program (kn_scalar.h; its numbers follow, its pointers too) the pixels of a unit, which are
// evenly spaced then, go through it when they are finished: `out` is what it reads first. Its plane is
// [images * pixels, channels].
// A unit is `lines` lines of the output of one image, of one plane of it.
typedef struct {
    int64_t images, channels;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t lines;
    int64_t low, high;   // bits of floats
    int64_t has_program; // a scalar program follows
    int64_t x_image, x_space[3];
    int64_t out_image, out_space[3];
    int64_t residual_image, residual_space[3];
} kn_depthwise;

extern const kn_entry kn_depthwise_entries[];
