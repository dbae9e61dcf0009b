"""Attention: see `native/kn_attention.h`."""

from __future__ import annotations

from kn_cpu.axes import KernelCall, float_bits
from kn_graph.dim import Size, ceildiv
from kn_graph.dtype import DType
from kn_graph.ops.attention import Attention
from kn_plan.layout import StridedLayout

__all__ = ["attention_call", "attention_supported"]

QUERIES_OF_UNIT = 64
KEYS_OF_BLOCK = 256
PANEL = 32
"""Columns of a panel with the widest vectors: the others take no more scratch."""

BIAS_KINDS = {None: 0, DType.FLOAT32: 1, DType.BOOL: 2}


def attention_supported(op: Attention, dtype: DType) -> bool:
    """Return whether there is a kernel: for float32 throughout, and without the scores."""
    narrow = op.softmax_dtype in (None, DType.FLOAT32)
    return dtype is DType.FLOAT32 and narrow and op.scores == "none"


def attention_call(
    op: Attention,
    out: StridedLayout,
    q: StridedLayout,
    k: StridedLayout,
    v: StridedLayout,
    bias: StridedLayout | None = None,
    bias_dtype: DType | None = None,
) -> KernelCall:
    """Compute attention, p = {out, q, k, v, bias, lengths}; lengths are contiguous."""
    batch, heads, queries, size = q.sizes
    numbers: list[Size] = [batch, heads, k.sizes[1], queries, k.sizes[2], size, v.sizes[3]]
    for layout in (out, q, k, v):
        numbers += layout.strides
    numbers += (0, 0, 0, 0) if bias is None else bias.strides
    numbers.append(BIAS_KINDS[bias_dtype])
    numbers += (0, 0) if op.scale is None else (1, float_bits(op.scale))
    numbers.append(0 if op.softcap is None else float_bits(op.softcap))
    for bound in (op.left, op.right):
        numbers += (0, 0) if bound is None else (1, bound)
    numbers.append(op.offset)
    units = batch * heads * ceildiv(queries, QUERIES_OF_UNIT)
    floats = 2 * KEYS_OF_BLOCK * PANEL + QUERIES_OF_UNIT * (size + v.sizes[3] + 3)
    return KernelCall("attention_f32", tuple(numbers), units, scratch=4 * floats)
