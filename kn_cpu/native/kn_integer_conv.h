// The numbers of integer convolutions, in this order; kn_cpu/integer_conv.py writes them. All have
// three spatial axes; those that are missing have size 1.
#pragma once
#include "kn_integer.h"

// conv_int: out = requantized(conv(x, w)), as a product of windows with packed weights
// p: x, packed weights, out, starts and lows of the output channels, bias, scale (the last three may be
// NULL)
// Weights: a packed matrix for each group, [kernel, channels, cols] or [channels, kernel, cols].
// With a program (kn_scalar.h; its numbers follow, its pointers too) finished blocks go through it and
// `out` is not written. Its plane is [images * pixels, groups * cols].
// A unit is a block of pixels and of output channels of one group and image; pixels run fastest.
typedef struct {
    int64_t images, groups;
    int64_t cols; // output channels of a group
    int64_t channels;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    kn_factors factors;
    int64_t row_block, col_block;
    int64_t channels_first; // in windows, as pixels lie side by side
    int64_t in_place;       // windows are single pixels, evenly spaced, and need no copy
    kn_requantize finish;
    int64_t x_image, x_channel, x_space[3];
    int64_t out_image;
} kn_integer_conv;

// depthwise_int: the same for one channel a group, as one group of `cols` channels that lie side by
// side; p: x, weights, out, bias, scale
// Weights: int32 [kernel, cols filled up to whole vectors], of which the lower 16 bits count, the others
// are 0. `factors.depth` is the size of the kernel.

extern const kn_entry kn_integer_conv_entries[];
extern const kn_entry kn_integer_depthwise_entries[];
