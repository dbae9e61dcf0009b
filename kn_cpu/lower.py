"""Steps of a plan as calls of native kernels, over symbolic sizes; or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kn_cpu.axes import MAX_RANK
from kn_cpu.lowering import Calls, Lowering
from kn_cpu.steps.attention import attention
from kn_cpu.steps.conv import conv
from kn_cpu.steps.conv_transpose import conv_transpose
from kn_cpu.steps.index import gather, gather_elements, gather_nd, scatter_elements, scatter_nd
from kn_cpu.steps.layout import concat, pad
from kn_cpu.steps.matmul import matmul
from kn_cpu.steps.nms import kept_boxes
from kn_cpu.steps.norm import norm, softmax
from kn_cpu.steps.pool import pool
from kn_cpu.steps.random import random
from kn_cpu.steps.recurrent import recurrent
from kn_cpu.steps.reduce import arg_reduce, reduce, reduce_to
from kn_cpu.steps.resize import resize
from kn_cpu.steps.roi import max_roi_pool, roi_align
from kn_cpu.steps.sample import grid_sample
from kn_cpu.steps.sort import cumulative, top_k
from kn_cpu.steps.source import iota, sizes
from kn_cpu.steps.tree import tree_ensemble
from kn_cpu.steps.wide import FLOATS, NUMBERS, widened
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.index import Iota
from kn_graph.ops.layout import Concat, Pad
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.nms import KeptBoxes
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.random import Random
from kn_graph.ops.recurrent import Recurrent
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo
from kn_graph.ops.resize import Resize
from kn_graph.ops.roi import MaxRoiPool, RoiAlign
from kn_graph.ops.sample import GridSample
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_graph.ops.sort import TopK
from kn_graph.ops.source import Sizes
from kn_graph.ops.tree import TreeEnsemble
from kn_plan.calls import Refusal
from kn_plan.lowering import lowered
from kn_plan.plan import Step

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
    KeptBoxes: kept_boxes,
    MatMul: widened(matmul, FLOATS),
    MaxRoiPool: widened(max_roi_pool, FLOATS),
    Norm: widened(norm, FLOATS),
    Pad: pad,
    Pool: widened(pool, FLOATS),
    Random: random,
    Recurrent: widened(recurrent, FLOATS),
    Reduce: widened(reduce, NUMBERS),
    ReduceTo: widened(reduce_to, NUMBERS),
    Resize: resize,
    RoiAlign: widened(roi_align, FLOATS),
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
    calls = lowered(low, step, WRITERS, MAX_RANK)
    return calls if isinstance(calls, Refusal) else low.taken() + calls
