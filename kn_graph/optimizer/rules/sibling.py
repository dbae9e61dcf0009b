"""Products of one matrix with several constant weights become one product.

x @ w1 + b1, x @ w2 + b2, ... = slices of x @ [w1 w2 ...] + [b1 b2 ...]: the queries, keys and
values of an attention, or gate and up projection. Weights are copied once, side by side, up to
256 MiB for one product. Biases directly behind all products, or some, are merged with them; where
one is missing, 0 is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary
from kn_graph.ops.layout import View
from kn_graph.ops.matmul import MatMul
from kn_graph.optimizer.compact import compact_constant
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "MergeMatMuls"]

Array = np.ndarray[Any, Any]

LARGEST = 256 << 20
"""Bytes that may be copied for one product."""


@dataclass(frozen=True)
class Bias:
    """A bias behind a product.

    Attributes:
        sum: the addition.
        vector: what is added, [n].
        view: a reshape between the product and the addition, if there is one.
    """

    sum: Node
    vector: Array
    view: View | None


@dataclass(frozen=True)
class Sibling:
    """One of several products of the same matrix."""

    node: Node
    weights: Array
    bias: Bias | None

    @property
    def width(self) -> int:
        """How many columns it has."""
        return int(self.weights.shape[1])


@dataclass(frozen=True)
class Found:
    """Products of one matrix, the root among them."""

    x: Value
    root: Node
    siblings: tuple[Sibling, ...]


class MergeMatMuls(Rule[Found]):
    """See the module."""

    name = "merge_matmul"
    roots: ClassVar[tuple[type[Op], ...]] = (MatMul,)
    setting = "merge_matmul"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find other products of the left operand."""
        x = edit.operands(node)[0]
        nodes = [n for n in edit.users(x) if n.op == node.op]
        if x.rank != 2 or len(nodes) < 2:
            return None
        nodes.sort(key=lambda n: n.index)
        siblings = [s for n in nodes if (s := _sibling(edit, n, x)) is not None]
        if len(siblings) < 2 or all(s.node is not node for s in siblings):
            return None
        first = siblings[0].weights
        siblings = [s for s in siblings if s.weights.dtype == first.dtype]
        if len(siblings) < 2 or all(s.node is not node for s in siblings):
            return None
        if sum(s.weights.nbytes for s in siblings) > LARGEST:
            return Refused(f"the weights take more than {LARGEST >> 20} MiB together")
        return Found(x, node, tuple(siblings))

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the product, and a slice of it for each sibling."""
        g = edit.graph
        weights = _side_by_side([s.weights for s in found.siblings])
        product = g.push(found.root.op, found.x, g.constant(weights))
        biased = _biased(edit, product, found.siblings)
        start = 0
        mine = biased
        for sibling in found.siblings:
            part = g.slice(biased, 1, start, sibling.width)
            start += sibling.width
            if sibling.bias is not None:
                out = part if sibling.bias.view is None else g.push(sibling.bias.view, part)
                edit.replace(sibling.bias.sum.results[0], out)
            if sibling.node is found.root:
                mine = part  # nobody reads it where there was a bias
            elif sibling.bias is None:
                edit.replace(sibling.node.results[0], part)
        return mine


def _side_by_side(weights: Sequence[Array]) -> Array:
    """Return [w1 w2 ...], stored transposed where the parts are."""
    if all(w.flags.f_contiguous for w in weights):
        return np.concatenate([w.T for w in weights]).T
    return np.concatenate(weights, 1)


def _biased(edit: Editor, product: Value, siblings: tuple[Sibling, ...]) -> Value:
    """Add all biases, 0 where there is none."""
    if all(s.bias is None for s in siblings):
        return product
    dtype = product.dtype.numpy
    parts = [np.zeros(s.width, dtype) if s.bias is None else s.bias.vector for s in siblings]
    row = edit.graph.constant(np.concatenate(parts)[None])
    return edit.graph.add(product, edit.graph.broadcast(row, product.shape))


def _sibling(edit: Editor, node: Node, x: Value) -> Sibling | None:
    left, right = edit.operands(node)
    if left is not x or right is x:
        return None
    weights = compact_constant(edit, right)
    if weights is None or weights.shape != right.shape:
        return None
    return Sibling(node, weights, _bias(edit, node, weights.shape[1]))


def _bias(edit: Editor, node: Node, width: int) -> Bias | None:
    """Find an addition of a row to the product, or to its last axis behind a reshape."""
    v, view = node.results[0], None
    user = _only_user(edit, v)
    if user is not None and isinstance(user.op, View) and user.op.shape[-1:] == v.shape[-1:]:
        v, view = user.results[0], user.op
        user = _only_user(edit, v)
    if user is None or user.op != Binary("add") or v.dtype is not node.results[0].dtype:
        return None
    (other,) = [w for w in edit.operands(user) if w is not v] or (None,)
    vector = None if other is None else compact_constant(edit, other)
    if vector is None or vector.size != max(vector.shape[-1:], default=1):
        return None
    return Bias(user, np.broadcast_to(vector.reshape(-1), width), view)


def _only_user(edit: Editor, v: Value) -> Node | None:
    if edit.is_output(v) or edit.uses(v) != 1:
        return None
    (user,) = edit.users(v)
    return user


RULES = (MergeMatMuls(),)
