"""Steps of a plan as launches and calls of libraries, over symbolic sizes; or why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kn_cuda.axes import MAX_RANK
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.steps.attention import attention
from kn_cuda.steps.conv import conv, conv_transpose
from kn_cuda.steps.index import gather, gather_elements, gather_nd, scatter_elements, scatter_nd
from kn_cuda.steps.layout import concat, pad
from kn_cuda.steps.matmul import matmul
from kn_cuda.steps.nms import kept_boxes
from kn_cuda.steps.norm import norm, softmax
from kn_cuda.steps.pool import pool
from kn_cuda.steps.random import random
from kn_cuda.steps.recurrent import recurrent
from kn_cuda.steps.reduce import arg_reduce, reduce, reduce_to
from kn_cuda.steps.resize import resize
from kn_cuda.steps.roi import max_roi_pool, roi_align
from kn_cuda.steps.sample import grid_sample
from kn_cuda.steps.sort import cumulative, top_k
from kn_cuda.steps.source import iota, sizes
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
from kn_plan.calls import Refusal
from kn_plan.lowering import lowered
from kn_plan.plan import Step

__all__ = ["lower_step"]

WRITERS: Mapping[type[Op], Callable[[Lowering, Step, Any], Calls]] = {
    ArgReduce: arg_reduce,
    Attention: attention,
    Concat: concat,
    Conv: conv,
    ConvTranspose: conv_transpose,
    Cumulative: cumulative,
    Gather: gather,
    GatherElements: gather_elements,
    GatherND: gather_nd,
    GridSample: grid_sample,
    Iota: iota,
    KeptBoxes: kept_boxes,
    MatMul: matmul,
    MaxRoiPool: max_roi_pool,
    Norm: norm,
    Pad: pad,
    Pool: pool,
    Random: random,
    Recurrent: recurrent,
    Reduce: reduce,
    ReduceTo: reduce_to,
    Resize: resize,
    RoiAlign: roi_align,
    ScatterElements: scatter_elements,
    ScatterND: scatter_nd,
    Sizes: sizes,
    Softmax: softmax,
    TopK: top_k,
}
"""The function that finds the calls of an operation."""


def lower_step(low: Lowering, step: Step) -> Calls | Refusal:
    """Return the calls of a step."""
    return lowered(low, step, WRITERS, MAX_RANK)
