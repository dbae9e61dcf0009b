"""How kernels add products up."""

from __future__ import annotations

from kn_cuda.builder import KernelBuilder
from kn_graph.dtype import DType

__all__ = ["add_products"]


def add_products(b: KernelBuilder, dtype: DType) -> None:
    """Give a kernel `Acc` and `add(acc, a, b)`; integers wrap.

    Args:
        b: the kernel.
        dtype: of the results.
    """
    acc, text = "float", "fmaf(a, b, acc)"
    if dtype is DType.FLOAT64:
        acc, text = "double", "fma(a, b, acc)"
    elif dtype.is_int:
        acc, text = "uint64_t" if dtype.bits > 32 else "uint32_t", "acc + a * b"
    b.type("Acc", acc)
    b.code(f"KN_DEVICE static Acc add(Acc acc, Acc a, Acc b) {{ return {text}; }}")
