"""Numbers that come from sizes alone."""

from __future__ import annotations

from kn_cuda.axes import blocks_for
from kn_cuda.builder import KernelBuilder
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.index import Iota
from kn_graph.ops.source import Sizes
from kn_plan.calls import UnsupportedError
from kn_plan.plan import Step

__all__ = ["iota", "sizes"]

MOST_SIZES = 128
"""How many elements fit among the arguments of a kernel."""


def iota(low: Lowering, step: Step, op: Iota) -> Calls:
    """Count."""
    out, type_ = low.typed(step.writes[0])
    b = KernelBuilder("fill", "fill_iota", low.threads)
    b.type("T", type_)
    b.writes("y", out, type_)
    b.number("count", op.length)
    b.number("stride", out.layout.strides[0])
    return [b.launch(blocks_for(op.length, low.threads))]


def sizes(low: Lowering, step: Step, op: Sizes) -> Calls:
    """Write sizes."""
    if len(op.values) > MOST_SIZES:
        raise UnsupportedError(f"there are more than {MOST_SIZES} sizes")
    out, type_ = low.typed(step.writes[0])
    rank = max(1, out.layout.rank)
    b = KernelBuilder("fill", "fill_sizes", 128)
    b.type("T", type_)
    b.constant("COUNT", len(op.values))
    b.writes("y", out, type_)
    b.numbers("sizes", out.layout.sizes or (1,) * rank)
    b.numbers("strides", out.layout.strides or (0,) * rank)
    b.numbers("values", op.values or (0,))
    return [b.launch(min(1, len(op.values)))]
