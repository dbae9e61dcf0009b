// grid_sample_f32: elements of images at positions that a grid holds; p = {out, x, grid}, all floats
// There are three spatial axes, of x and of out; those that are missing come first, with size 1. The
// numbers of a grid vector are for the spatial axes that x has, from the last to the first.
#pragma once
#include "abi.h"

enum { KN_SAMPLE_NEAREST, KN_SAMPLE_LINEAR, KN_SAMPLE_CUBIC };

enum { KN_SAMPLE_ZEROS, KN_SAMPLE_BORDER, KN_SAMPLE_REFLECTION };

typedef struct {
    int64_t units; // into how many shares the samples are cut
    int64_t mode, padding, align, elements; // elements: the grid holds positions
    int64_t rank; // how many spatial axes x has
    int64_t most; // elements that a sample is made of at most
    int64_t images, channels;
    int64_t in[3], out[3];     // spatial sizes
    int64_t out_image, out_channel, out_space[3];
    int64_t x_image, x_channel, x_space[3];
    int64_t grid_image, grid_space[3], grid_number;
} kn_sample;

extern const kn_entry kn_sample_entries[];
