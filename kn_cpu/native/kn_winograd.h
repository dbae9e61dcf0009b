// The numbers of Winograd's convolution F(4 x 4, 3 x 3), in this order; kn_cpu/winograd.py writes them.
#pragma once
#include "abi.h"

// winograd_f32: out = clamp(conv(x, w) + bias + residual), 3 x 3, stride 1
// p: x, weights of winograd_weights_f32, out, bias [cols], residual (the last two may be NULL)
// The channels of x, out and residual lie side by side.
// With a program (kn_scalar.h; its numbers follow, its pointers too) the pixels of a unit, which are
// evenly spaced then, go through it when they are finished: `out` is what it reads first. Its plane is
// [images * pixels, cols].
// Where tiles are few, units of other output channels would transform the same ones again: with
// `has_tiles` x is what winograd_tiles_f32 made of it.
// The result is cut into tiles of 4 x 4 pixels. A unit is a block of tiles (of all images behind one
// another) and of output channels; tiles run fastest.
typedef struct {
    int64_t images, channels, cols;
    int64_t in[2], out[2], before[2];
    int64_t tile_block, col_block, depth_block;
    int64_t low, high;   // bits of floats
    int64_t has_program; // a scalar program follows
    int64_t has_tiles;
    int64_t x_image, x_line, x_pixel;
    int64_t out_image, out_line, out_pixel;
    int64_t residual_image, residual_line, residual_pixel;
} kn_winograd;

// winograd_tiles_f32: x -> [36][tiles][channels, filled up to whole vectors] of transformed tiles, where
// planes are a vector longer than that. p: x, result. n: as of winograd_f32. A unit is a block of tiles.

// winograd_weights_f32: w [cols, channels, 3, 3], contiguous -> 36 packed matrices [channels, cols]
// p: w, result. A unit is a panel of all of them.
typedef struct {
    int64_t channels, cols;
} kn_winograd_weights;

extern const kn_entry kn_winograd_entries[];
