"""What is known of the elements of a result before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.known import Exact, Limit, tracked
from kn_graph.op import Content, Op
from kn_graph.ops.source import Constant, Input
from kn_graph.types import TensorType, ValueType
from kn_graph.value import CONTENT_DTYPES, CONTENT_ELEMS, Value

if TYPE_CHECKING:
    from kn_graph.decisions import Decisions

__all__ = ["content_of"]

WHY = "floats hold sizes exactly"


def content_of(
    graph: Decisions, op: Op, operands: Sequence[Value], types: Sequence[ValueType]
) -> Content | None:
    """Return the elements of a node's result, where all of them are known.

    Args:
        graph: is asked to assume that floats did not round.
        op: the operation.
        operands: what it reads.
        types: of its results; several are never known.
    """
    t = types[0]
    if len(types) != 1 or not isinstance(t, TensorType) or t.dtype not in CONTENT_DTYPES:
        return None
    if isinstance(op, (Constant, Input)):
        return None
    for v in operands:
        if v.constant is None and v.content is None:
            return None
    numel = t.numel
    if not isinstance(numel, int) or numel > CONTENT_ELEMS:
        return None
    if not all(isinstance(n, int) for n in t.shape):
        return None  # nothing, of a shape that is not known
    contents = [c for v in operands if (c := v.content) is not None]
    if len(contents) < len(operands):
        return None
    content = op.content(*contents)
    if content is None:
        return None
    content = np.asarray(content, object)
    elements = [tracked(t.dtype, e) for e in content.ravel().tolist()]
    if None in elements or not (t.dtype.is_float or _are_exact(graph, contents)):
        return None
    known = np.empty(content.shape, object)
    known.reshape(-1)[:] = elements
    return known


def _are_exact(graph: Decisions, contents: Sequence[Content]) -> bool:
    """Assume that the floats among what is known were never rounded, where that is open."""
    limits: set[Limit] = set()
    for content in contents:
        for e in content.ravel().tolist():
            if isinstance(e, Exact):
                limits |= e.limits
    return all(
        graph.decide_ge(most, n, WHY) and graph.decide_ge(n, -most, WHY)
        for n, most in sorted(limits, key=str)
    )
