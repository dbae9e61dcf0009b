"""Random layers between quantized tensors, as files in QDQ format have them.

Scales are powers of two, so that sums are exact in floats, too: a tie is one for everybody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kn_graph import DType
from tests.fuzz.maker import Maker

__all__ = ["quantized_layers"]

CODES = (DType.UINT8, DType.INT8)
ZEROS = {DType.UINT8: (0, 3, 128, 255), DType.INT8: (0, -9, -128)}

MOVES = (
    "g.flip({0}, 1)",
    "{0}[1:]",
    "g.concat([{0}, {0}], 0)",
    "g.relu({0})",
    "g.minimum({0}, g.scalar(1.5, {0}.dtype))",
    "{0} * 0.5",
    "{0} + 1.0",
    "{0} / {0}",
    "g.softmax({0}, -1)",
)
IMAGE_MOVES = ("g.pool({0}, 'max', [2, 2], pads=[(1, 0), (1, 0)])", "g.permute({0}, (0, 1, 3, 2))")


def parameters(m: Maker, dtype: DType) -> tuple[str, str]:
    """Return a scale and a zero point."""
    scale = m.constant(np.array(m.one_of([0.125, 0.25, 0.5, 1.0]), np.float32))
    return scale, m.constant(np.array(m.one_of(ZEROS[dtype]), dtype.numpy))


def rounded(m: Maker, x: str | None, given: tuple[str, str, DType] | None = None) -> str | None:
    """Quantize and dequantize, mostly with one scale and zero point."""
    if x is None:
        return None
    dtype = given[2] if given else m.one_of(CODES)
    scale, zero = given[:2] if given else parameters(m, dtype)
    q = m.add(f"g.quantize({{0}}, {{1}}, {{2}}, dtype=DType.{dtype.name})", x, scale, zero)
    if q is None:
        return None
    if m.chance(0.1):
        scale, zero = parameters(m, dtype)
    return m.add("g.dequantize({0}, {1}, {2})", q, scale, zero)


def weights(m: Maker, shape: tuple[int, ...], axis: int) -> tuple[str | None, np.ndarray]:
    """Return dequantized weights, and their scales: one, or one for each element of an axis."""
    dtype = m.one_of(CODES)
    each = [n if a == axis else 1 for a, n in enumerate(shape)] if m.chance(0.5) else [1]
    scale = (2.0 ** m.rng.integers(-3, 2, each)).astype(np.float32)
    zero = np.full(each, m.one_of(ZEROS[dtype])).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    codes = m.rng.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy)
    names = [m.constant(a) for a in (codes, scale, zero)]
    return m.add("g.dequantize({0}, {1}, {2})", *names), scale


def product(m: Maker, x: str) -> str | None:
    """Multiply or convolve with weights; mostly add a bias, mostly of the right scale."""
    shape = m.shape(x)
    if len(shape) == 2:
        w, scale = weights(m, (shape[1], 3), 1)
        template = "{0} @ {1}"
    else:
        w, scale = weights(m, (4, shape[1], 2, 2), 0)
        template = "g.conv({0}, {1}, pads=[(1, 0), (0, 1)])"
        scale = scale.reshape(-1, *(1,) * 2) if scale.size > 1 else scale
    y = None if w is None else m.add(template, x, w)
    if y is None or m.chance(0.4):
        return y
    wide: Any = np.float32(m.one_of([0.125, 0.25, 0.5, 1.0])) * scale
    bias = m.rng.integers(-500, 500, (3,) if len(shape) == 2 else (4, 1, 1)).astype(np.int32)
    added = m.add("g.dequantize({0}, {1})", m.constant(bias), m.constant(wide))
    return y if added is None else m.add("{0} + {1}", y, added)


def quantized_layers(m: Maker) -> None:
    """A few products and other steps, quantized and dequantized between."""
    flat = m.chance(0.5)
    n = m.one_of(["n", 1, 2])
    x = m.new_input(DType.FLOAT32, (n, 4) if flat else (n, 2, 4, 3), m.one_of(["normal", None]))
    dtype = m.one_of(CODES)
    given = (*parameters(m, dtype), dtype)
    out = rounded(m, x, given)
    for _ in range(m.number(1, 4)):
        if out is None:
            return
        roll = m.number(0, 3)
        if roll <= 1:
            step = product(m, out)
        else:
            step = m.add(m.one_of(MOVES if flat or roll == 2 else IMAGE_MOVES), out)
        if step is not None and m.chance(0.3):
            step = m.add("g.relu({0})", step)
        if step is not None and m.shape(step) == m.shape(out) and m.chance(0.3):
            step = m.add("{0} + {1}", step, out)
        out = rounded(m, step, given if m.chance(0.6) else None)
