// norm_f32: out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + bias + residual
// p = {out, x, scale, bias, residual}; the last three may be NULL. out may be x.
#pragma once
#include "abi.h"

enum {
    KN_NORM_UNITS,   // into how many shares the kept axes are cut
    KN_NORM_EPSILON, // bits of a float
    KN_NORM_CENTER,  // whether the mean is subtracted
    KN_NORM_KEPT,    // number of axes that are not normalised over
    KN_NORM_REDUCED, // and of those that are
    KN_NORM_AXES     // kept: sizes, strides of the five operands; then the same of the reduced ones
};

extern const kn_entry kn_norm_entries[];
