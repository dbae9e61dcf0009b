"""Steps of a plan as launches and calls of libraries, over symbolic sizes; or why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kn_cuda.axes import MAX_RANK
from kn_cuda.calls import Refusal, UnsupportedError
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.steps.layout import concat, pad
from kn_cuda.steps.matmul import matmul
from kn_cuda.steps.reduce import reduce
from kn_cuda.steps.source import iota, sizes
from kn_graph.dim import UnboundSymbolError
from kn_graph.op import Op
from kn_graph.ops.index import Iota
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.reduce import Reduce
from kn_graph.ops.source import Sizes
from kn_plan.plan import Home, Step

__all__ = ["lower_step"]

WRITERS: Mapping[type[Op], Callable[[Lowering, Step, Any], Calls]] = {
    Concat: concat,
    Iota: iota,
    MatMul: matmul,
    Pad: pad,
    Reduce: reduce,
    Sizes: sizes,
}
"""The function that finds the calls of an operation."""


def lower_step(low: Lowering, step: Step) -> Calls | Refusal:
    """Return the calls of a step."""
    try:
        if any(low.buffers[o.buffer].dtype is None for o in (*step.inputs, *step.writes)):
            raise UnsupportedError("objects are handled by the host")
        if any(o.layout.rank > MAX_RANK for o in (*step.inputs, *step.writes)):
            raise UnsupportedError(f"there are more than {MAX_RANK} axes")
        if any(low.buffers[o.buffer].home is Home.LATE for o in step.writes):
            raise UnsupportedError("the size of the result shows when it has run")
        if step.node is None:
            assert step.program is not None
            return low.scalar(step.program, step.writes, step.extras)
        writer = WRITERS.get(type(step.node.op))
        if writer is None:
            raise UnsupportedError("there is no kernel for it")
        return writer(low, step, step.node.op)
    except UnboundSymbolError:
        return Refusal("its weights have symbolic sizes")
    except (UnsupportedError, ValueError) as error:
        return Refusal(str(error))
