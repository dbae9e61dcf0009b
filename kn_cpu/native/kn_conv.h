// The numbers of the convolutions, in this order; kn_cpu/conv.py writes them. All have three spatial
// axes; those that are missing have size 1.
#pragma once
#include "abi.h"

// How windows are read, and in which order their weights are packed.
enum {
    KN_IN_PLACE,      // [kernel, channels], pixel by pixel: the channels of x lie side by side
    KN_KERNEL_FIRST,  // [kernel, channels], line by line
    KN_CHANNELS_FIRST // [channels, kernel], line by line
};

// conv_f32: out = clamp(conv(x, w) + bias + residual), as a product of windows with packed weights
// p: x, packed weights, out, bias [groups * cols], residual (the last two may be NULL)
// Weights: a packed matrix (product.h) for each group; with `has_rows` [groups, cols, depth].
// With a program (kn_scalar.h; its numbers follow, its pointers too) finished blocks go through it. It
// reads them in `out`, where channels lie side by side there; else `out` is not written. Its plane is [images * pixels, groups * cols].
// A unit is a block of pixels and of output channels of one group and image; pixels run fastest.
typedef struct {
    int64_t images, groups;
    int64_t channels, cols; // of a group, in and out
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t row_block, col_block, depth_block;
    int64_t order;       // one of the values above
    int64_t has_rows;    // weights lie in rows, not in panels
    int64_t low, high;   // bits of floats
    int64_t has_program; // a scalar program follows
    int64_t x_image, x_channel, x_space[3];
    int64_t out_image, out_pixel, out_channel;
    int64_t residual_image, residual_pixel, residual_channel;
} kn_conv;

extern const kn_entry kn_conv_entries[];
