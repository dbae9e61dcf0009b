"""Random numbers: see `native/kn_random.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, units_for
from kn_graph.dim import size_prod
from kn_graph.dtype import DType
from kn_graph.ops.random import SIGNIFICANT_BITS, Random

__all__ = ["random_call"]

TYPES = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
"""As the kernel numbers them."""

NANOSECONDS = 16
"""What a number takes, about."""


def random_call(op: Random) -> KernelCall:
    """Write numbers one after another, p = {out, draw}."""
    is_normal = op.distribution == "normal"
    words = 2 if is_normal or op.dtype is DType.FLOAT64 else 1
    count = size_prod(op.shape)
    units = units_for(count * NANOSECONDS)
    bits, type_ = SIGNIFICANT_BITS[op.dtype], TYPES.index(op.dtype)
    return KernelCall("random", (units, type_, int(is_normal), bits, words, count), units)
