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
            convolutions and products. Rounds differently, by a few ulps of the intermediate values.
        fuse_clamp: combine minima and maxima with constants. Changes nothing.
        div_to_mul: divide by multiplying with the inverse where that is not exact. Up to 1 ulp.
            Powers of two are always multiplied: that is exact.
        fuse_activation: recognise sigmoid-, tanh- and erf-based activations. A few ulps.
        fuse_norm: recognise layer, RMS, group and instance norms. A few ulps.
        fuse_softmax: recognise softmax and log-softmax. A few ulps, and no overflow any more.
        fuse_attention: recognise attention. A few ulps.
        fuse_quantized: compute with integers between Dequantize and Quantize. Within half a step
            of the quantization.
        merge_matmul: multiply with several weights at once. Changes nothing but the order of sums.
        disabled: names of single rules to leave out.
    """

    fold: bool = True
    fuse_affine: bool = True
    fuse_clamp: bool = True
    div_to_mul: bool = False
    fuse_activation: bool = True
    fuse_norm: bool = True
    fuse_softmax: bool = True
    fuse_attention: bool = True
    fuse_quantized: bool = True
    merge_matmul: bool = True
    disabled: frozenset[str] = frozenset()

    def allows(self, rule: str, setting: str | None) -> bool:
        """Return whether a rule of this name, under this flag, may fire."""
        return rule not in self.disabled and (setting is None or bool(getattr(self, setting)))
