"""Indices, and what is around nodes."""

from __future__ import annotations

import numpy as np

from tests.onnx.traps.trap import X4, Trap, b, f, i, ramp, s

__all__ = ["GRAPHS", "INDICES"]

INDICES = [
    Trap(
        "negative indices count from the end",
        "y = Gather(x, j)",
        {"x": f(10, 20, 30), "j": i(-1, -3)},
        {"y": f(30, 10)},
    ),
    Trap(
        "an index of rank 0 removes the axis",
        "y = Gather <axis = 1> (x, j)",
        {"x": ramp(2, 2), "j": s(-1, np.int64)},
        {"y": f(1, 3)},
    ),
    Trap(
        "negative index tuples",
        "y = GatherND(x, j)",
        {"x": ramp(2, 2), "j": np.array([[-1, 0]])},
        {"y": f(2)},
    ),
    Trap(
        "negative places of elements",
        "y = ScatterElements(x, j, u)",
        {"x": X4, "j": i(-1, 0), "u": f(8, 9)},
        {"y": f(9, 2, 3, 8)},
    ),
    Trap(
        "equal places add up",
        'y = ScatterElements <reduction = "add"> (x, j, u)',
        {"x": X4, "j": i(1, 1), "u": f(8, 9)},
        {"y": f(1, 19, 3, 4)},
    ),
    Trap(
        "indices outside have no hot element",
        "y = OneHot(x, d, v)",
        {"x": i(-1, 0, 3, -4), "d": s(3, np.int64), "v": f(0, 1)},
        {"y": f(0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0).reshape(4, 3)},
    ),
    Trap(
        "what follows, from the end",
        "y = CumSum <exclusive = 1, reverse = 1> (x, a)",
        {"x": X4, "a": s(-1, np.int64)},
        {"y": f(9, 7, 4, 0)},
    ),
    Trap(
        "a true scalar has an element without coordinates",
        "y = NonZero(x)",
        {"x": s(3)},
        {"y": np.zeros((0, 1), np.int64)},
    ),
]

GRAPHS = [
    Trap(
        "equal zeros of two users",
        "zero = Constant <value = float {0.0}> () none = Constant <value = float {0.0}> () a = "
        "Max(x, zero) c = Max(z, none) y = Sub(a, c)",
        {"x": f(-1, 2), "z": f(5, -5)},
        {"y": f(-5, 2)},
    ),
    Trap(
        "doubling again and again",
        " ".join(f"x{n + 1} = Add(x{n}, x{n})" for n in range(60)),
        {"x0": f(1, 3)},
        {"x60": f(2**60, 3 * 2**60)},
    ),
    Trap(
        "a result that is an input",
        "y = Neg(x) same = Identity(x)",
        {"x": f(1)},
        {"y": f(-1), "same": f(1)},
    ),
    Trap(
        "a result that nothing computes",
        "y = Neg(x) fixed = Constant <value = float[1] {4.0}> ()",
        {"x": f(1)},
        {"y": f(-1), "fixed": f(4)},
    ),
    Trap(
        "branches see what is around them",
        "y = If (c) <then_branch = t () => (float[1] p) { p = Add(x, x) }, else_branch = e () "
        "=> (float[1] q) { q = Neg(x) }>",
        {"x": f(3), "c": s(False, np.bool_)},
        {"y": f(-3)},
    ),
    Trap(
        "masks of a dropout that drops nothing",
        "y, m = Dropout(x)",
        {"x": f(1, 2)},
        {"y": f(1, 2), "m": b(1, 1)},
        13,
    ),
    Trap(
        "declared shapes of values are hints",
        "h = Concat <axis = 0> (x, x) y = Neg(h)",
        {"x": f(1)},
        {"y": f(-1, -1)},
        value_info={"h": (7,)},
    ),
]
