"""Steps of a plan as calls of native kernels, over symbolic sizes; or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kn_cpu.axes import MAX_RANK
from kn_cpu.calls import Refusal, UnsupportedError
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.steps.attention import attention
from kn_cpu.steps.conv import conv
from kn_cpu.steps.conv_transpose import conv_transpose
from kn_cpu.steps.index import gather, gather_elements, gather_nd, scatter_elements, scatter_nd
from kn_cpu.steps.layout import concat, pad
from kn_cpu.steps.matmul import matmul
from kn_cpu.steps.norm import norm, softmax
from kn_cpu.steps.pool import pool
from kn_cpu.steps.recurrent import recurrent
from kn_cpu.steps.reduce import arg_reduce, reduce, reduce_to
from kn_cpu.steps.resize import resize
from kn_cpu.steps.sample import grid_sample
from kn_cpu.steps.sort import cumulative, top_k
from kn_cpu.steps.source import iota, sizes
from kn_cpu.steps.tree import tree_ensemble
from kn_cpu.steps.wide import FLOATS, NUMBERS, widened
from kn_graph.dim import UnboundSymbolError
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.index import Iota
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.recurrent import Recurrent
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo
from kn_graph.ops.resize import Resize
from kn_graph.ops.sample import GridSample
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_graph.ops.sort import TopK
from kn_graph.ops.source import Sizes
from kn_graph.ops.tree import TreeEnsemble
from kn_plan.plan import Home, Step

__all__ = ["lower_step"]

WRITERS: Mapping[type[Op], Callable[[Lowering, Step, Any], Calls]] = {
    ArgReduce: widened(arg_reduce, NUMBERS),
    Attention: widened(attention, FLOATS),
    Concat: concat,
    Conv: widened(conv, FLOATS),
    ConvTranspose: widened(conv_transpose, FLOATS),
    Cumulative: widened(cumulative, NUMBERS),
    Gather: gather,
    GatherElements: gather_elements,
    GatherND: gather_nd,
    GridSample: widened(grid_sample, FLOATS),
    Iota: iota,
    MatMul: widened(matmul, FLOATS),
    Norm: widened(norm, FLOATS),
    Pad: pad,
    Pool: widened(pool, FLOATS),
    Recurrent: widened(recurrent, FLOATS),
    Reduce: widened(reduce, NUMBERS),
    ReduceTo: widened(reduce_to, NUMBERS),
    Resize: resize,
    ScatterElements: scatter_elements,
    ScatterND: scatter_nd,
    Sizes: sizes,
    Softmax: widened(softmax, FLOATS),
    TopK: top_k,
    TreeEnsemble: tree_ensemble,
}
"""The function that finds the kernels of an operation."""


def lower_step(low: Lowering, step: Step) -> Calls | Refusal:
    """Return the calls of a step."""
    low.begin(step)
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
        calls = writer(low, step, step.node.op)
        return low.taken() + calls
    except UnboundSymbolError:
        return Refusal("its weights have symbolic sizes")
    except (UnsupportedError, ValueError) as error:
        return Refusal(str(error))
