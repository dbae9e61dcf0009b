"""Edges, axes, and tensors without elements."""

from __future__ import annotations

import numpy as np

from tests.onnx.traps.trap import INF, LARGEST, NAN, SMALLEST, X4, Trap, f, i, line, ramp, s

__all__ = ["AXES", "EDGES", "EMPTY"]

EDGES = [
    Trap(
        "negative pads cut",
        "y = Pad(x, p, v)",
        {"x": X4, "p": i(-1, 1), "v": s(9)},
        {"y": f(2, 3, 4, 9)},
    ),
    Trap(
        "negative pads cut what is reflected afterwards",
        'y = Pad <mode = "reflect"> (x, p)',
        {"x": X4, "p": i(0, -1)},
        {"y": f(1, 2, 3)},
    ),
    Trap(
        "reflection leaves the edge out",
        'y = Pad <mode = "reflect"> (x, p)',
        {"x": f(1, 2, 3), "p": i(2, 2)},
        {"y": f(3, 2, 1, 2, 3, 2, 1)},
    ),
    Trap(
        "wrapping goes around",
        'y = Pad <mode = "wrap"> (x, p)',
        {"x": f(1, 2, 3), "p": i(1, 2)},
        {"y": f(3, 1, 2, 3, 1, 2)},
    ),
    Trap(
        "pads of some axes only",
        "y = Pad(x, p, , a)",
        {"x": ramp(1, 2), "p": i(0, 1), "a": i(-1)},
        {"y": f(0, 1, 0).reshape(1, 3)},
    ),
    Trap(
        "an end beyond the end",
        "y = Slice(x, s, e)",
        {"x": X4, "s": i(-2), "e": i(LARGEST)},
        {"y": f(3, 4)},
    ),
    Trap(
        "backwards to the very beginning",
        "y = Slice(x, s, e, a, t)",
        {"x": X4, "s": i(-1), "e": i(SMALLEST), "a": i(0), "t": i(-1)},
        {"y": f(4, 3, 2, 1)},
    ),
    Trap(
        "backwards from beyond the end",
        "y = Slice(x, s, e, a, t)",
        {"x": X4, "s": i(LARGEST), "e": i(SMALLEST), "a": i(0), "t": i(-2)},
        {"y": f(4, 2)},
    ),
    # the end is clamped to n - 1 for negative steps: nothing lies between
    Trap(
        "backwards to beyond the end",
        "y = Slice(x, s, e, a, t)",
        {"x": X4, "s": i(-1), "e": i(LARGEST), "a": i(0), "t": i(-1)},
        {"y": f()},
    ),
    Trap(
        "an end of -1 is the last element",
        "y = Slice(x, s, e)",
        {"x": X4, "s": i(0), "e": i(-1)},
        {"y": f(1, 2, 3)},
    ),
    Trap(
        "a start in front of the beginning",
        "y = Slice(x, s, e)",
        {"x": X4, "s": i(-9), "e": i(2)},
        {"y": f(1, 2)},
    ),
    Trap(
        "parts of unequal length",
        "a, c, y = Split <num_outputs = 3> (x)",
        {"x": ramp(7)},
        {"a": f(0, 1, 2), "c": f(3, 4, 5), "y": f(6)},
        18,
    ),
    Trap(
        "sizes of the last axes", "y = Shape <start = -2> (x)", {"x": ramp(2, 3, 4)}, {"y": i(3, 4)}
    ),
]

AXES = [
    Trap("absent axes are all", "y = ReduceSum <keepdims = 0> (x)", {"x": ramp(2, 2)}, {"y": s(6)}),
    Trap(
        "no axes are all, unless said otherwise",
        "y = ReduceSum <keepdims = 0> (x, a)",
        {"x": ramp(2, 2), "a": i()},
        {"y": s(6)},
    ),
    Trap(
        "no axes are none, where said so",
        "y = ReduceSum <noop_with_empty_axes = 1> (x, a)",
        {"x": ramp(2, 2), "a": i()},
        {"y": ramp(2, 2)},
    ),
    Trap(
        "a sum of squares over no axes still squares",
        "y = ReduceSumSquare <noop_with_empty_axes = 1> (x, a)",
        {"x": f(2, 3), "a": i()},
        {"y": f(4, 9)},
    ),
    Trap(
        "squeezing no axes changes nothing",
        "y = Squeeze(x, a)",
        {"x": ramp(1, 2), "a": i()},
        {"y": ramp(1, 2)},
    ),
    Trap(
        "squeezing absent axes squeezes all of size 1",
        "y = Squeeze(x)",
        {"x": ramp(1, 2, 1)},
        {"y": ramp(2)},
    ),
    Trap(
        "a new axis at the end",
        "y = Unsqueeze(x, a)",
        {"x": f(1, 2), "a": i(-1)},
        {"y": f(1, 2).reshape(2, 1)},
    ),
    Trap(
        "axes are reversed by default",
        "y = Transpose(x)",
        {"x": ramp(1, 2, 3)},
        {"y": ramp(1, 2, 3).transpose()},
    ),
    Trap(
        "zero copies a size",
        "y = Reshape(x, to)",
        {"x": ramp(2, 3), "to": i(0, -1)},
        {"y": ramp(2, 3)},
    ),
    Trap(
        "zero is zero, where said so",
        "y = Reshape <allowzero = 1> (x, to)",
        {"x": np.zeros((0, 3), np.float32), "to": i(3, 0)},
        {"y": np.zeros((3, 0), np.float32)},
    ),
    Trap(
        "zero leaves nothing to infer from",
        "y = Reshape <allowzero = 1> (x, to)",
        {"x": np.zeros((0, 3), np.float32), "to": i(0, -1)},
        {"MalformedModelError": "both 0 and -1"},
        fed=False,
    ),
    Trap(
        "a smaller shape does not shrink",
        "y = Expand(x, to)",
        {"x": ramp(2, 3), "to": i(1)},
        {"y": ramp(2, 3)},
    ),
    Trap(
        "vectors multiply to a scalar",
        "y = MatMul(x, z)",
        {"x": f(1, 2), "z": f(3, 4)},
        {"y": s(11)},
    ),
]

EMPTY = [
    Trap("rank 0 stays rank 0", "y = Add(x, z)", {"x": s(1), "z": s(2)}, {"y": s(3)}),
    Trap(
        "a shape without sizes is a scalar's",
        "y = ConstantOfShape <value = float[1] {7.0}> (x)",
        {"x": i()},
        {"y": s(7)},
    ),
    Trap(
        "a sum over nothing is 0",
        "y = ReduceSum <keepdims = 0> (x, a)",
        {"x": np.zeros((2, 0), np.float32), "a": i(1)},
        {"y": f(0, 0)},
    ),
    Trap(
        "a product over nothing is 1",
        "y = ReduceProd <keepdims = 0> (x, a)",
        {"x": np.zeros((2, 0), np.float32), "a": i(1)},
        {"y": f(1, 1)},
    ),
    Trap(
        "a maximum over nothing is minus infinity",
        "y = ReduceMax <keepdims = 0> (x, a)",
        {"x": np.zeros((2, 0), np.float32), "a": i(1)},
        {"y": f(-INF, -INF)},
        20,
    ),
    Trap(
        "a mean over nothing is no number",
        "y = ReduceMean <keepdims = 0> (x, a)",
        {"x": np.zeros((2, 0), np.float32), "a": i(1)},
        {"y": f(NAN, NAN)},
    ),
    Trap(
        "a product of matrices over nothing is 0",
        "y = MatMul(x, z)",
        {"x": np.zeros((2, 0), np.float32), "z": np.zeros((0, 2), np.float32)},
        {"y": np.zeros((2, 2), np.float32)},
    ),
    Trap(
        "a convolution of no images",
        "y = Conv(x, w)",
        {"x": np.zeros((0, 1, 3), np.float32), "w": line(1, 1)},
        {"y": np.zeros((0, 1, 2), np.float32)},
    ),
    Trap(
        "nothing joined with something",
        "y = Concat <axis = 0> (x, z)",
        {"x": f(), "z": f(1)},
        {"y": f(1)},
    ),
    Trap("no repetition leaves nothing", "y = Tile(x, n)", {"x": X4, "n": i(0)}, {"y": f()}),
    Trap(
        "0 against 1 is 0",
        "y = Add(x, z)",
        {"x": np.zeros((0, 3), np.float32), "z": np.ones((1, 3), np.float32)},
        {"y": np.zeros((0, 3), np.float32)},
    ),
]
