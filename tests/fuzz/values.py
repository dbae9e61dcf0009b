"""Numbers for inputs and constants, odd ones among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kn_graph import DType
from kn_graph.dtype import Kind

__all__ = ["fill"]

Array = np.ndarray[Any, Any]
Generator = np.random.Generator

KINDS = ("normal", "normal", "normal", "small", "positive", "special", "denormal", "same")


def fill(
    rng: Generator,
    dtype: DType,
    shape: tuple[int, ...],
    kind: str | None = None,
    *,
    tiny: bool = True,
) -> Array:
    """Return an array of a kind; a random one by default.

    Args:
        rng: the source of the numbers.
        dtype: element type.
        shape: numbers.
        kind: one of `KINDS`.
        tiny: whether numbers may be denormal. As factors they vanish when they are combined.
    """
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_int:
        return _integers(rng, dtype, shape)
    kind = str(rng.choice(KINDS)) if kind is None else kind
    kind = "small" if kind == "denormal" and not tiny else kind
    if kind == "small":
        x = rng.integers(-3, 4, shape).astype(np.float64)
    elif kind == "same":
        x = np.full(shape, rng.choice([0.0, 1.0, -1.0, 2.0, 0.5]))
    else:
        x = rng.standard_normal(shape)
    if kind == "positive":
        x = np.abs(x) + 0.1
    if kind == "denormal":
        x = x * 1e-6 * _tiny(dtype)
    if kind == "special":
        least = _tiny(dtype) / 4 if tiny else 0.25
        odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, least, 1e4, -1e-4, 1.0])
        x = np.where(rng.random(shape) < 0.4, rng.choice(odd, shape), x)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype.numpy)


def _tiny(dtype: DType) -> float:
    return {DType.FLOAT32: 1e-38, DType.BFLOAT16: 1e-38}.get(dtype, 6e-5)


def _integers(rng: Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    low = 0 if dtype.kind is Kind.UINT else -4
    x = rng.integers(low, 7, shape)
    if rng.random() < 0.2:  # overflow has to wrap
        info = np.iinfo(dtype.numpy)
        x = np.where(rng.random(shape) < 0.3, rng.choice([info.min, info.max], shape), x)
    return x.astype(dtype.numpy)
