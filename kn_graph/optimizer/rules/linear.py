"""A product of many matrices with one constant matrix is a product of one tall matrix.

[.., m, k] @ [1, .., k, n] = view([..*m, k] @ [k, n]), and with the constant on the left only where
there is one matrix to multiply: [1, .., m, k] @ [1, .., k, n]. Products of two computed matrices
stay as they are: they are those of attention. Weights that are stored transposed are folded by
`fold`, and two products in a row are never merged: that would lose precision and, mostly, speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.dim import size_prod
from kn_graph.op import Op
from kn_graph.ops.layout import Broadcast
from kn_graph.ops.matmul import MatMul
from kn_graph.optimizer.compact import compact_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "FlattenMatMul"]


@dataclass(frozen=True)
class Found:
    """A product of stacked matrices.

    Attributes:
        node: the product.
        x: the left operand.
        y: the right operand; one of the two is a constant without repetitions.
    """

    node: Node
    x: Value
    y: Value


class FlattenMatMul(Rule[Found]):
    """See the module."""

    name = "flatten_matmul"
    roots: ClassVar[tuple[type[Op], ...]] = (MatMul,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Found | None:
        """Find the one constant matrix."""
        x, y = edit.operands(node)
        if x.rank == 2:
            return None
        lead = x.shape[:-2]
        if (matrix := _one_matrix(edit, y)) is not None:
            return Found(node, x, matrix)
        if any(s != 1 for s in lead) or any(s != 1 for s in y.shape[:-2]):
            return None
        matrix = _one_matrix(edit, x)
        return None if matrix is None else Found(node, matrix, y)

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build views around the product of two matrices."""
        g = edit.graph
        x = g.view(found.x, (size_prod(found.x.shape[:-1]), found.x.shape[-1]))
        y = g.view(found.y, found.y.shape[-2:])
        return g.view(g.push(found.node.op, x, y), found.node.results[0].shape)


def _one_matrix(edit: Editor, v: Value) -> Value | None:
    """Return a constant [1, .., m, n] that a value is, or repeats along the leading axes."""
    if isinstance(v.node.op, Broadcast):
        (inner,) = edit.operands(v.node)
        if inner.shape[-2:] != v.shape[-2:]:
            return None
        v = inner
    if any(s != 1 for s in v.shape[:-2]) or compact_constant(edit, v) is None:
        return None
    return v


RULES = (FlattenMatMul(),)
