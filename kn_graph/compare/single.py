"""One operation as a graph of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.compare.walk import Context
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.op import Op, map_op_sizes
from kn_graph.ops.source import Constant
from kn_graph.transform import copy_graph, map_bodies
from kn_graph.types import TensorType, ValueType, map_type_sizes

__all__ = ["single_graph"]


def single_graph(
    op: Op,
    operands: Sequence[Any],
    context: Context,
    *,
    types: Sequence[ValueType] | None = None,
    constants: Mapping[int, Constant] | None = None,
) -> Graph:
    """Return a graph with one operation, numbers for all sizes, and outputs `out0`, `out1`...

    Args:
        op: the operation.
        operands: what it reads; arrays show their types.
        context: numbers of the sizes that the operation mentions.
        types: of the operands, for those that are no arrays.
        constants: operands that are constants of the graph, by position; the others are inputs
            `in0`, `in1` and so on.
    """
    graph = Graph(op.title)
    values = []
    for i, x in enumerate(operands):
        constant = (constants or {}).get(i)
        if constant is not None:
            values.append(graph.push(constant))
        elif isinstance(x, np.ndarray):
            t: ValueType = TensorType(DType.from_numpy(x.dtype), x.shape)
            values.append(graph.input_of_type(f"in{i}", t))
        else:
            assert types is not None, "an operand that is no array has no type"
            values.append(graph.input_of_type(f"in{i}", map_type_sizes(types[i], context.size)))
    op = map_bodies(
        map_op_sizes(op, context.size),
        lambda body: copy_graph(body, context.env, parent=graph),
    )
    for i, v in enumerate(graph.push_all(op, *values)):
        graph.output(f"out{i}", v)
    return graph
