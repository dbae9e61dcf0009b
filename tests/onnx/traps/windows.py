"""Windows, and sizes of images."""

from __future__ import annotations

import numpy as np

from tests.onnx.traps.trap import NAN, Trap, f, i, line, s

__all__ = ["RESIZED", "WINDOWS"]

WINDOWS = [
    Trap(
        "a mean does not count what is beyond the padding",
        "y = AveragePool <kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1, "
        "count_include_pad = 1> (x)",
        {"x": line(1, 2, 3, 4)},
        {"y": line(1, 3, 2)},
        22,
    ),
    Trap(
        "a mean of what is no padding",
        "y = AveragePool <kernel_shape = [3], strides = [2], pads = [1, 1], ceil_mode = 1> (x)",
        {"x": line(1, 2, 3, 4)},
        {"y": line(1.5, 3, 4)},
        22,
    ),
    Trap(
        "no window starts in the padding at the end",
        "y = MaxPool <kernel_shape = [2], strides = [4], pads = [0, 1], ceil_mode = 1> (x)",
        {"x": line(1, 2, 3, 4)},
        {"y": line(2)},
        22,
    ),
    Trap(
        "a maximum keeps NaN",
        "y = MaxPool <kernel_shape = [2]> (x)",
        {"x": line(1, NAN, 3, 2)},
        {"y": line(NAN, NAN, 3)},
    ),
    Trap(
        "a maximum of negative numbers sees no zero padding",
        "y = MaxPool <kernel_shape = [3], pads = [1, 1]> (x)",
        {"x": line(-5, -7)},
        {"y": line(-5, -5)},
    ),
    Trap(
        "the odd element of SAME_LOWER is in front",
        'y = AveragePool <kernel_shape = [2], auto_pad = "SAME_LOWER"> (x)',
        {"x": line(1, 2, 3, 4)},
        {"y": line(1, 1.5, 2.5, 3.5)},
        22,
    ),
    Trap(
        "the odd element of SAME_UPPER is at the end",
        'y = AveragePool <kernel_shape = [2], auto_pad = "SAME_UPPER"> (x)',
        {"x": line(1, 2, 3, 4)},
        {"y": line(1.5, 2.5, 3.5, 4)},
        22,
    ),
    Trap(
        "output_padding adds at the end",
        "y = ConvTranspose <strides = [2], output_padding = [1]> (x, w)",
        {"x": line(1, 1), "w": line(1, 1, 1)},
        {"y": line(1, 1, 2, 1, 1, 0)},
    ),
    # pads[start] = total - total/2 unless auto_pad is SAME_UPPER
    Trap(
        "output_shape cuts the odd element in front",
        "y = ConvTranspose <strides = [2], output_shape = [4]> (x, w)",
        {"x": line(1, 1), "w": line(1, 1, 1)},
        {"y": line(1, 2, 1, 1)},
    ),
    Trap(
        "output_shape of SAME_UPPER cuts it at the end",
        'y = ConvTranspose <strides = [2], output_shape = [4], auto_pad = "SAME_UPPER"> (x, w)',
        {"x": line(1, 1), "w": line(1, 1, 1)},
        {"y": line(1, 1, 2, 1)},
    ),
    Trap(
        "the channels of an even neighbourhood begin at the own one",
        "y = LRN <size = 2, alpha = 2.0, beta = 1.0, bias = 1.0> (x)",
        {"x": f(1, 2).reshape(1, 2, 1, 1)},
        {"y": f(1 / 6, 0.4).reshape(1, 2, 1, 1)},
    ),
    Trap(
        "a real signal may leave its last axis out",  # as PyTorch's exporter writes it
        "y = STFT(x, t, , n)",
        {"x": line(1, 2, 3, 4)[0], "t": s(2, np.int64), "n": s(1, np.int64)},
        {"y": np.array([[[[1, 0]], [[3, 0]]]], np.float32)},
    ),
]

RESIZED = [
    Trap(
        "halves round to the floor",
        'y = Resize <mode = "nearest"> (x, , scales)',
        {"x": line(1, 2, 3, 4), "scales": f(1, 1, 0.5)},
        {"y": line(1, 3)},
    ),
    Trap(
        "halves round to the ceiling",
        'y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", '
        'nearest_mode = "round_prefer_ceil"> (x, , scales)',
        {"x": line(1, 2), "scales": f(1, 1, 2)},
        {"y": line(1, 2, 2, 2)},
    ),
    Trap(
        "corners lie on corners",
        'y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , '
        "scales)",
        {"x": line(1, 2, 3, 4), "scales": f(1, 1, 0.5)},
        {"y": line(1, 4)},
    ),
    Trap(
        "pixels have a middle",
        'y = Resize <mode = "linear"> (x, , scales)',
        {"x": line(1, 3), "scales": f(1, 1, 2)},
        {"y": line(1, 1.5, 2.5, 3)},
    ),
    Trap(
        "pixels without a middle",
        'y = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric"> (x, , scales)',
        {"x": line(1, 3), "scales": f(1, 1, 2)},
        {"y": line(1, 2, 3, 3)},
    ),
    Trap(
        "a lone pixel of pytorch is the first",
        'y = Resize <mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"> '
        "(x, , , sizes)",
        {"x": line(1, 2, 3, 4), "sizes": i(1, 1, 1)},
        {"y": line(1)},
    ),
    Trap(
        "a lone pixel is in the middle",
        'y = Resize <mode = "linear"> (x, , , sizes)',
        {"x": line(1, 2, 3, 4), "sizes": i(1, 1, 1)},
        {"y": line(2.5)},
    ),
]
