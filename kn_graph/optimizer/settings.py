"""What the optimizer may do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OptimizerSettings"]


@dataclass(frozen=True)
class OptimizerSettings:
    """Flags of the optimizer. Each says what it may change numerically.

    Attributes:
        fold: compute constants before running. Changes nothing: the same reference does it.
        fuse_affine: combine consecutive scales and biases, and fold them into the weights of
            convolutions and products, dividing by multiplying with the inverse. Rounds differently,
            by a few ulps of the intermediate values; where one of these overflows, or a product of
            constants is 0 by underflow, infinities and NaNs may differ.
        fuse_clamp: combine minima and maxima with constants. Changes nothing.
        div_to_mul: divide by multiplying with the inverse where that is not exact. Up to 1 ulp.
            Powers of two are always multiplied: that is exact.
        fuse_rsqrt: compute 1 / sqrt(x) in one step. Up to 2 ulps.
        fuse_activation: recognise activations, such as those of sigmoid, tanh and erf. A few ulps
            of the operand, of narrow types a few of each intermediate result; what overflowed on
            the way (the exponential in a softplus) no longer does.
        fuse_norm: recognise layer, RMS, group and instance norms. A few ulps. Narrow types compute
            in float32, where their squares do not overflow.
        fuse_softmax: recognise softmax and log-softmax. A few ulps. What over- or underflowed on
            the way no longer does, so that NaN and infinities of large finite operands are gone;
            an infinite operand makes its whole row NaN.
        fuse_attention: recognise attention. A few ulps.
        fuse_quantized: compute with integers between Dequantize and Quantize. Sums of products of
            integers are exact. What is rounded to integers again is the same as before, except
            where it is as near to a tie as float32 may be wrong about the sum that is rounded:
            there it is one step more or less.
        merge_matmul: multiply with several weights at once. Changes nothing but the order of sums.
        slice_early: compute only the rows that are read. Changes nothing but the order of sums.
        disabled: names of single rules to leave out.
    """

    fold: bool = True
    fuse_affine: bool = True
    fuse_clamp: bool = True
    div_to_mul: bool = False
    fuse_rsqrt: bool = False
    fuse_activation: bool = True
    fuse_norm: bool = True
    fuse_softmax: bool = True
    fuse_attention: bool = True
    fuse_quantized: bool = True
    merge_matmul: bool = True
    slice_early: bool = True
    disabled: frozenset[str] = frozenset()

    def allows(self, rule: str, setting: str | None) -> bool:
        """Return whether a rule of this name, under this flag, may fire."""
        return rule not in self.disabled and (setting is None or bool(getattr(self, setting)))
