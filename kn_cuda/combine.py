"""What reductions and running totals combine elements with, as C++ functions."""

from __future__ import annotations

from collections.abc import Mapping

from kn_cuda.builder import KernelBuilder
from kn_cuda.expression import literal
from kn_cuda.types import compute_type
from kn_graph.dtype import DType, Kind
from kn_graph.ops.reduce import identity_of

__all__ = ["add_combine"]

_COMBINE: Mapping[str, str] = {
    "sum": "a + b",
    "mean": "a + b",
    "prod": "a * b",
    "max": "a > b || a != a ? a : b",
    "min": "a < b || a != a ? a : b",
    "any": "a || b",
    "all": "a && b",
}
"""A NaN stays what it is."""


def add_combine(b: KernelBuilder, fn: str, dtype: DType) -> None:
    """Give a kernel the type `Acc`, `start()` that changes nothing, and `Combine::of(a, b)`.

    Args:
        b: the kernel.
        fn: of `kn_graph.ops.reduce`.
        dtype: of the elements; integers wrap.
    """
    b.type("Acc", compute_type(dtype))
    text = _COMBINE[fn]
    if dtype.kind in (Kind.INT, Kind.UINT) and fn in ("sum", "mean", "prod"):
        unsigned = "uint64_t" if dtype.bits > 32 else "uint32_t"
        text = f"Acc({unsigned}(a) {text[2]} {unsigned}(b))"
    b.code(f"KN_DEVICE static Acc start() {{ return {literal(identity_of(fn, dtype), dtype)}; }}")
    b.code(f"struct Combine {{ KN_DEVICE static Acc of(Acc a, Acc b) {{ return {text}; }} }};")
