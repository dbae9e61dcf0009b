"""Normalisation over axes: softmax, and zero mean with unit variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.ops.layout import check_axis
from kn_graph.ops.matmul import accumulator
from kn_graph.types import TensorType

__all__ = ["Norm", "Softmax"]

Array = np.ndarray[Any, Any]


def _check_float(x: TensorType, what: str) -> None:
    if not x.dtype.is_float:
        raise DTypeError(f"{what} of {x.dtype}: expected a float type")


@dataclass(frozen=True)
class Softmax(Op):
    """Exponentials along an axis, divided by their sum; or the logarithm of that.

    out = exp(x - m) / sum(exp(x - m)) with m = max(x), all along `axis`. With `log`:
    out = x - m - log(sum(exp(x - m))). Narrow floats compute in float32.
    A NaN, a plus infinity, or nothing but minus infinities make the whole row NaN. An empty axis
    gives an empty result.

    Shapes: unchanged.
    """

    axis: int
    log: bool = False

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Return the operand's type."""
        _check_float(x, "softmax")
        check_axis(self.axis, x.rank, "softmax axis")
        return x

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Compute in the accumulator's type."""
        if not x.size:
            return x
        wide = x.astype(accumulator(DType.from_numpy(x.dtype)), copy=False)
        with np.errstate(all="ignore"):
            shifted = wide - wide.max(self.axis, keepdims=True)
            powers = np.exp(shifted)
            total = powers.sum(self.axis, keepdims=True)
            out = shifted - np.log(total) if self.log else powers / total
            return np.asarray(out.astype(x.dtype))

    @property
    def title(self) -> str:
        """Return Softmax or LogSoftmax."""
        return "LogSoftmax" if self.log else "Softmax"


@dataclass(frozen=True)
class Norm(Op):
    """Layer, instance, group and RMS normalisation, without scale and bias.

    out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon), all over `axes`. Without `center`
    the means of x are left out: out = x / sqrt(mean(x^2) + epsilon). Narrow floats compute in
    float32 and round once. NaN and infinities spread over their group. Empty tensors stay empty.

    Shapes: unchanged.

    Attributes:
        axes: what is normalised together, ascending.
        epsilon: keeps the divisor from 0.
        center: whether the mean is subtracted (RMS normalisation does not).
    """

    axes: tuple[int, ...]
    epsilon: float
    center: bool = True

    def infer(self, ctx: InferContext, x: TensorType) -> TensorType:
        """Return the operand's type."""
        _check_float(x, "normalisation")
        for axis in self.axes:
            check_axis(axis, x.rank, "normalised axis")
        if list(self.axes) != sorted(set(self.axes)):
            raise ShapeError(f"normalised axes {self.axes} are not ascending")
        return x

    def eval(self, ctx: EvalContext, x: Array) -> Array:
        """Compute in the accumulator's type, in two passes."""
        if not x.size:
            return x
        wide = x.astype(accumulator(DType.from_numpy(x.dtype)), copy=False)
        with np.errstate(all="ignore"):
            if self.center:
                wide = wide - wide.mean(self.axes, keepdims=True)
            variance = np.mean(np.square(wide), self.axes, keepdims=True)
            out = wide / np.sqrt(variance + wide.dtype.type(self.epsilon))
            return np.asarray(out.astype(x.dtype))

    @property
    def title(self) -> str:
        """Return Norm or RMSNorm."""
        return "Norm" if self.center else "RMSNorm"
