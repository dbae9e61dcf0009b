// kept_boxes_f32: which of ordered boxes overlap none that is kept before them
// p = {kept, corners, order, candidates, limit, iou}: bytes, floats, int64, bytes, one int64, one float
#pragma once
#include "abi.h"

typedef struct {
    int64_t units; // into how many shares the rows are cut
    int64_t images, classes, boxes;
    int64_t kept[3]; // strides along images, classes and boxes
    int64_t corners[3]; // along images, boxes and the numbers of a box
    int64_t order[3], candidates[3];
} kn_nms;

extern const kn_entry kn_nms_entries[];
