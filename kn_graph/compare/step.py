"""The step band: how far the results of one operation may be from the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import kn_graph.compare.rules as rules
from kn_graph.compare.rules import WIDENINGS, Case, Rule
from kn_graph.compare.single import single_graph
from kn_graph.compare.verdict import Band
from kn_graph.compare.walk import Context
from kn_graph.dtype import DType
from kn_graph.errors import UsageError
from kn_graph.op import Op, map_op_sizes
from kn_graph.ops.attention import Attention
from kn_graph.ops.control import If, Loop, Scan
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.coupling import PairwiseCoupling
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.deform import DeformConv
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary
from kn_graph.ops.fold import Col2Im
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.host import HostCall
from kn_graph.ops.index import Iota
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, Permute, Slice, View
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.nms import KeptBoxes, NonMaxSuppression
from kn_graph.ops.nonzero import NonZero, Unique
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.random import Random
from kn_graph.ops.recurrent import Recurrent
from kn_graph.ops.reduce import ArgReduce, Det, Reduce, ReduceTo
from kn_graph.ops.resize import Resize
from kn_graph.ops.roi import MaxRoiPool, RoiAlign
from kn_graph.ops.sample import GridSample
from kn_graph.ops.scatter import ScatterElements, ScatterND
from kn_graph.ops.signal import Dft
from kn_graph.ops.sort import TopK
from kn_graph.ops.source import Constant, Input, ReadSizes, Sizes
from kn_graph.ops.tree import TreeEnsemble
from kn_graph.types import ValueType

__all__ = ["EXACT", "Products", "rounds", "step_band"]

Products = Literal["float32", "tf32", "float16", "bfloat16", "winograd"]
"""How a device computes products of float32; see `rules.WIDENINGS`."""

EXACT: frozenset[type[Op]] = frozenset(
    {
        *(Input, Constant, Sizes, ReadSizes, Iota),
        *(View, Broadcast, Permute, Slice, Flip, Concat, Pad),
        *(Gather, GatherElements, GatherND, TopK, ArgReduce),
        *(Compare, Select, Cast, BitCast),
        *(NonZero, Unique, NonMaxSuppression, KeptBoxes, MaxRoiPool, HostCall),
    }
)
"""Operations that copy, choose or convert: there is one right result."""

RULES: dict[type[Op], Rule] = {
    **dict.fromkeys((Unary, Binary), rules.scalar),
    **dict.fromkeys((MatMul, Conv, ConvTranspose, Col2Im), rules.products),
    **dict.fromkeys((Reduce, ReduceTo, Cumulative, Pool), rules.reduction),
    **dict.fromkeys((ScatterElements, ScatterND), rules.reduction),
    Softmax: rules.softmax,
    Norm: rules.norm,
    Attention: rules.attention,
    Dft: rules.fourier,
    Det: rules.determinant,
    # what follows has no bound of its own: (relative to the result, to the largest operand)
    Random: rules.declared(16, 0),
    Resize: rules.declared(16, 64),
    GridSample: rules.declared(16, 256),
    RoiAlign: rules.declared(16, 256),
    DeformConv: rules.declared(64, 1024),
    TreeEnsemble: rules.declared(64, 64),
    PairwiseCoupling: rules.declared(1024, 0),
}

CHOOSING: dict[type[Op], frozenset[str]] = {
    Reduce: frozenset({"max", "min", "any", "all"}),
    ReduceTo: frozenset({"max", "min", "any", "all"}),
    Pool: frozenset({"max"}),
    ScatterElements: frozenset({"none", "max", "min"}),
    ScatterND: frozenset({"none", "max", "min"}),
    Resize: frozenset({"nearest"}),
    GridSample: frozenset({"nearest"}),
    Random: frozenset({"uniform"}),
    Unary: frozenset(
        {"neg", "abs", "sign", "relu", "thresholded_relu", "floor", "ceil", "trunc", "round_even"}
        | {"isnan", "isinf", "is_inf", "logical_not", "bit_not"}
    ),
    Binary: frozenset({"min", "max"}),
}
"""What else is exact, by `fn`, `mode`, `reduction` or `distribution`."""

MEASURED: frozenset[type[Op]] = frozenset({If, Loop, Scan, Recurrent})
"""Operations of many steps: their band is measured as that of a model is; see `model_band`."""


def function_of(op: Op) -> str | None:
    """Return the attribute that says what an operation computes, where it has one."""
    names = ("fn", "mode", "reduction", "distribution")
    found = (getattr(op, n, None) for n in names)
    return next((f for f in found if isinstance(f, str)), None)


def rounds(op: Op) -> bool:
    """Return whether an operation on floats may round its results."""
    return type(op) not in EXACT and function_of(op) not in CHOOSING.get(type(op), ())


def step_band(
    op: Op,
    operands: Sequence[Any],
    reference: Any,
    *,
    context: Context | None = None,
    products: Products = "float32",
    types: Sequence[ValueType] | None = None,
) -> Band:
    """Return the band of one operation that is fed the reference's operands.

    Args:
        op: the operation.
        operands: what it reads.
        reference: its result by the NumPy reference, or a tuple of results.
        context: numbers of the sizes that the operation mentions.
        products: how the device multiplies: what is less precise widens the band by its factor.
        types: of the operands, where some are no arrays.

    Returns:
        A band for results `out0`, `out1` and so on.
    """
    if products not in WIDENINGS:
        raise UsageError(f"products are computed in {', '.join(WIDENINGS)}, not {products!r}")
    context = context or Context()
    results = reference if isinstance(reference, tuple) else (reference,)
    expected = {f"out{i}": x for i, x in enumerate(results)}
    if not rounds(op) or not any(map(_is_float, results)):
        return Band(expected)
    if type(op) in MEASURED:
        return _measured(op, operands, expected, context, types)
    op = map_op_sizes(op, context.size)
    case = Case(op, tuple(operands), results, context, WIDENINGS[products])
    found = zip(expected, results, RULES[type(op)](case), strict=False)
    return Band(expected, {name: t for name, x, t in found if _is_float(x)})


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and DType.from_numpy(x.dtype).is_float


def _measured(
    op: Op,
    operands: Sequence[Any],
    expected: Mapping[str, Any],
    context: Context,
    types: Sequence[ValueType] | None,
) -> Band:
    """Compare the operation with itself in other precisions, as `model_band` does with a model."""
    from kn_graph.compare.model import model_band

    graph = single_graph(op, operands, context, types=types)
    band = model_band(graph, list(operands), seed=context.streams.seed)
    return replace(band, expected=expected)
