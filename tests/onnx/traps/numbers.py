"""Limits, rows and arithmetic."""

from __future__ import annotations

import numpy as np

from tests.onnx.traps.trap import INF, NAN, Trap, b, f, i, ramp, s

__all__ = ["LIMITS", "NUMBERS", "ROWS"]

INT = np.int32

LIMITS = [
    Trap(
        "min above max",
        "y = Clip(x, lo, hi)",
        {"x": f(0, 5, 10), "lo": s(7), "hi": s(3)},
        {"y": f(3, 3, 3)},
    ),
    Trap(
        "clamps of disjoint ranges",
        "a = Clip(x, l, m) y = Clip(a, n, o)",
        {"x": f(-9, 0.5, 9), "l": s(0), "m": s(1), "n": s(2), "o": s(3)},
        {"y": f(2, 2, 2)},
    ),
    Trap(
        "relu behind a negative range",
        "a = Clip(x, l, m) y = Relu(a)",
        {"x": f(-9, 0, 9), "l": s(-5), "m": s(-1)},
        {"y": f(0, 0, 0)},
    ),
    Trap("no lower limit", "y = Clip(x, , hi)", {"x": f(-9, 9), "hi": s(3)}, {"y": f(-9, 3)}),
    Trap("no upper limit", "y = Clip(x, lo)", {"x": f(-9, 9), "lo": s(-3)}, {"y": f(-3, 9)}),
    Trap(
        "NaN is no number to clip",
        "y = Clip(x, lo, hi)",
        {"x": f(NAN, 9), "lo": s(0), "hi": s(1)},
        {"y": f(NAN, 1)},
    ),
    Trap("relu keeps NaN", "y = Relu(x)", {"x": f(NAN, -1, -INF, INF)}, {"y": f(NAN, 0, 0, INF)}),
    Trap(
        "max keeps NaN on either side",
        "y = Max(x, z)",
        {"x": f(NAN, 1), "z": f(1, NAN)},
        {"y": f(NAN, NAN)},
    ),
    Trap(
        "a reduction keeps NaN wherever it stands",
        "y = ReduceMax <keepdims = 0> (x, a)",
        {"x": ramp(2, 3) + f(0, 0, NAN), "a": i(1)},
        {"y": f(NAN, NAN)},
        18,
    ),
    Trap("NaN differs from itself", "y = Equal(x, x)", {"x": f(NAN, 1)}, {"y": b(0, 1)}),
]

ROWS = [
    Trap(
        "softmax of all axes from 1 on, before 13",
        "y = Softmax(x)",
        {"x": np.zeros((2, 2, 2), np.float32)},
        {"y": np.full((2, 2, 2), 0.25, np.float32)},
        11,
    ),
    Trap(
        "softmax of everything, before 13",
        "y = Softmax <axis = 0> (x)",
        {"x": np.zeros((2, 2), np.float32)},
        {"y": np.full((2, 2), 0.25, np.float32)},
        12,
    ),
    Trap(
        "softmax of the last axis",
        "y = Softmax(x)",
        {"x": np.zeros((2, 2, 2), np.float32)},
        {"y": np.full((2, 2, 2), 0.5, np.float32)},
        13,
    ),
    Trap(
        "logarithm of a softmax, before 13",
        "y = LogSoftmax(x)",
        {"x": np.zeros((1, 2, 2), np.float32)},
        {"y": np.full((1, 2, 2), np.log(0.25), np.float32)},
        1,
    ),
    Trap(
        "hardmax of all axes from 1 on, before 13",
        "y = Hardmax(x)",
        {"x": ramp(1, 2, 2)},
        {"y": f(0, 0, 0, 1).reshape(1, 2, 2)},
        11,
    ),
    Trap(
        "hardmax of the last axis",
        "y = Hardmax(x)",
        {"x": ramp(1, 2, 2)},
        {"y": f(0, 1, 0, 1).reshape(1, 2, 2)},
        13,
    ),
    Trap(
        "hardmax takes the first of equals", "y = Hardmax(x)", {"x": f(1, 3, 3)}, {"y": f(0, 1, 0)}
    ),
    Trap(
        "the last of equals, where asked for",
        "y = ArgMax <axis = 0, keepdims = 0, select_last_index = 1> (x)",
        {"x": f(3, 1, 3)},
        {"y": s(2, np.int64)},
    ),
    Trap(
        "the smaller index of equals is first",
        "y, z = TopK <sorted = 1> (x, k)",
        {"x": f(1, 3, 3, 2), "k": i(3)},
        {"y": f(3, 3, 2), "z": i(1, 2, 3)},
    ),
]

NUMBERS = [
    Trap(
        "remainders have the sign of the divisor",
        "y = Mod(x, z)",
        {"x": np.array([-7, 7, -7, 7], INT), "z": np.array([3, -3, -3, 3], INT)},
        {"y": np.array([2, -2, -1, 1], INT)},
    ),
    Trap(
        "remainders of C have that of the dividend",
        "y = Mod <fmod = 1> (x, z)",
        {"x": np.array([-7, 7, -7, 7], INT), "z": np.array([3, -3, -3, 3], INT)},
        {"y": np.array([-1, 1, -1, 1], INT)},
    ),
    Trap(
        "integers divide towards zero",
        "y = Div(x, z)",
        {"x": np.array([-7, 7, -1], INT), "z": np.array([2, -2, 2], INT)},
        {"y": np.array([-3, -3, 0], INT)},
    ),
    Trap(
        "large integers pass no float",
        "y = Div(x, z)",
        {"x": i(2**60 + 1), "z": i(1)},
        {"y": i(2**60 + 1)},
    ),
    Trap(
        "halves round to even",
        "y = Round(x)",
        {"x": f(0.5, 1.5, 2.5, -0.5, -1.5)},
        {"y": f(0, 2, 2, -0.0, -2)},
    ),
    Trap(
        "quantized halves round to even",
        "y = QuantizeLinear(x, q, z)",
        {"x": f(0.5, 1.5, 2.5, 300, -1), "q": s(1), "z": s(0, np.uint8)},
        {"y": np.array([0, 2, 2, 255, 0], np.uint8)},
    ),
    Trap(
        "floats become integers towards zero",
        "y = Cast <to = 6> (x)",
        {"x": f(-1.9, 1.9)},
        {"y": np.array([-1, 1], INT)},
    ),
    Trap(
        "only zeros are false", "y = Cast <to = 9> (x)", {"x": f(0.5, -0.0, NAN)}, {"y": b(1, 0, 1)}
    ),
    Trap(
        "a power has the type of its base",
        "y = Pow(x, z)",
        {"x": np.array([9, 2], INT), "z": f(0.5, 3)},
        {"y": np.array([3, 8], INT)},
    ),
    Trap(
        "integer sums wrap",
        "y = ReduceSum <keepdims = 0> (x)",
        {"x": np.array([2**31 - 1, 1], INT)},
        {"y": s(-(2**31), INT)},
    ),
    Trap(
        "truths have a maximum",
        "y = ReduceMax <keepdims = 0> (x, a)",
        {"x": b(0, 1, 0, 0).reshape(2, 2), "a": i(1)},
        {"y": b(1, 0)},
        20,
    ),
    Trap(
        "a range is no running sum",
        "y = Range(x, e, d)",
        {"x": s(0), "e": s(1), "d": s(0.1)},
        {"y": (np.arange(10) * np.float32(0.1)).astype(np.float32)},
    ),
    Trap(
        "a range may fall",
        "y = Range(x, e, d)",
        {"x": s(3, np.int64), "e": s(0, np.int64), "d": s(-2, np.int64)},
        {"y": i(3, 1)},
    ),
]
