// roi_align_f32: regions of images as bins of samples between elements; p = {out, x, rois, images, status}
// max_roi_pool_f32: regions as maxima of bins of elements; p = {out, x, rois, NULL, status}
// The channels of x lie side by side. All are floats but for the number of each region's image (int64) and the status, three int64 that tell of
// a region whose image does not exist: 1, that number, the region; or 2, 0, a region that is not finite.
#pragma once
#include "abi.h"

typedef struct {
    int64_t units; // into how many shares the rows of bins are cut
    int64_t bins[2];
    int64_t samples;          // of a bin along each axis; 0: as many as a bin has elements
    int64_t largest, middles; // maximum, not mean; whether elements lie at their middles
    int64_t scale;            // of coordinates, the bits of a float
    int64_t images, channels, in[2];
    int64_t regions;
    int64_t out_region, out_channel, out_space[2];
    int64_t x_image, x_space[2];
    int64_t roi_region, roi_number; // strides of rois
    int64_t image_region;           // stride of images
} kn_roi;

extern const kn_entry kn_roi_entries[];
