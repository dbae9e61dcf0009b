// The numbers of convolutions over few channels, in this order; kn_cpu/conv_lines.py writes them. Images
// have two axes; of one that is missing the size is 1.
#pragma once
#include "abi.h"

// conv_lines_f32: out = clamp(conv(x, w) + bias), without groups and dilation, stride 1, 2 or 4 along a line
// p: x, packed weights, out, bias [cols] (may be NULL)
// Weights: a packed matrix (product.h) whose depth is [channels, kernel]. The channels of out lie side by side.
// With a program (kn_scalar.h; its numbers follow, its pointers too) the pixels of a unit, which are
// evenly spaced then, go through it when they are finished: `out` is what it reads first. Its plane is
// [images * pixels, cols].
// A unit is `lines` lines of the output of one image.
typedef struct {
    int64_t images, channels, cols;
    int64_t in[2], out[2], kernel[2], stride[2], before[2];
    int64_t lines;
    int64_t low, high;   // bits of floats
    int64_t has_program; // a scalar program follows
    int64_t x_image, x_channel, x_space[2];
    int64_t out_image, out_space[2];
} kn_conv_lines;

extern const kn_entry kn_conv_lines_entries[];
