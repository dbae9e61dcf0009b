// The numbers of transposed convolution, in this order; kn_cpu/conv_transpose.py writes them. There are
// three spatial axes; those that are missing have size 1.
#pragma once
#include "abi.h"

// conv_transpose_f32: out = clamp(conv_transpose(x, w) + bias + residual)
// p: x, packed weights, out, bias [groups * cols], residual (the last two may be NULL)
// Weights: a packed matrix (product.h) for each group, depth [kernel, channels]. The channels of x lie
// side by side.
// The places of the result that are as far from a multiple of the stride are a phase: they read the
// same elements of the kernel. A unit is `lines` lines of a phase and a block of output channels of one
// group and image; lines run fastest, then phases, columns, groups. Units may be empty.
typedef struct {
    int64_t images, groups;
    int64_t channels, cols; // of a group, in and out
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
    int64_t lines, col_block, depth_block;
    int64_t low, high; // bits of floats
    int64_t x_image, x_space[3];
    int64_t out_image, out_space[3], out_channel;
    int64_t residual_image, residual_space[3], residual_channel;
} kn_conv_transpose;

extern const kn_entry kn_conv_transpose_entries[];
