"""Ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.types import TensorType

__all__ = ["NODE_FIELDS", "NODE_MODES", "Aggregate", "TreeEnsemble"]

Array = np.ndarray[Any, Any]
Aggregate = Literal["sum", "average", "min", "max"]

NODE_MODES: dict[str, Callable[[Array, Array], Array]] = {
    "LEQ": np.less_equal, "LT": np.less, "GTE": np.greater_equal, "GT": np.greater,
    "EQ": np.equal, "NEQ": np.not_equal,
}  # fmt: skip
"""Comparisons of a feature with a threshold; a node holds the place in this table."""

NODE_FIELDS = ("feature", "mode", "true_child", "false_child", "nan_is_true")
"""Columns of the node table. A child below 0 is a leaf: child c is leaf -1 - c."""


@dataclass(frozen=True)
class TreeEnsemble(Op):
    """Let each row fall through every tree, and combine the weights of the leaves it reaches.

    At a node, the row goes to the true child if `x[feature] mode threshold` holds, or if the
    feature is NaN and the node says that NaN is true. Leaf l adds weights[k] to target targets[k]
    for starts[l] <= k < starts[l + 1]. Sums are taken in float64 and rounded once. A target that no
    leaf of a row adds to is 0.

    Shapes: x float [N, F], nodes int64 [n, 5] (columns as in NODE_FIELDS), thresholds of x's type
    [n], roots int64 [T] (as children), starts int64 [L + 1], targets int64 [W], weights float [W]
    -> weights' type [N, targets].

    Attributes:
        targets: how many.
        depth: the largest number of decisions on a path.
        aggregate: sum; average over all trees; min or max of what leaves add.
    """

    targets: int
    depth: int
    aggregate: Aggregate = "sum"

    def infer(self, ctx: InferContext, x: TensorType, *tables: TensorType) -> TensorType:
        """Check the tables against each other."""
        nodes, thresholds, roots, starts, targets, weights = tables
        if not x.dtype.is_float or thresholds.dtype is not x.dtype or not weights.dtype.is_float:
            raise DTypeError(f"rows are {x.dtype}, thresholds {thresholds.dtype}")
        if any(t.dtype is not DType.INT64 for t in (nodes, roots, starts, targets)):
            raise DTypeError("nodes, roots, starts and targets must be int64")
        if x.rank != 2 or nodes.rank != 2 or nodes.shape[1] != len(NODE_FIELDS):
            raise ShapeError(f"expected rows [N, F] and nodes [n, 5], got {x} and {nodes}")
        ctx.require_eq(nodes.shape[0], thresholds.shape[0], "one threshold for each node")
        ctx.require_eq(targets.shape[0], weights.shape[0], "one target for each weight")
        return TensorType(weights.dtype, (x.shape[0], self.targets))

    def eval(self, ctx: EvalContext, x: Array, *tables: Array) -> Array:
        """Move all rows down all trees by one node at a time."""
        nodes, thresholds, roots, starts, targets, weights = tables
        leaves = self._leaves(x, nodes, thresholds, roots)
        counts = (starts[leaves + 1] - starts[leaves]).ravel()
        # the k-th weight of a leaf stands k places after its first one
        row = np.repeat(np.repeat(np.arange(len(x)), len(roots)), counts)
        first = np.repeat(starts[leaves].ravel() - (np.cumsum(counts) - counts), counts)
        entry = first + np.arange(len(first))
        return self._combine(row, targets[entry], weights[entry], len(x), len(roots))

    def _leaves(self, x: Array, nodes: Array, thresholds: Array, roots: Array) -> Array:
        """Return the leaf that each row reaches in each tree: [N, T]."""
        at = np.repeat(roots[None], len(x), axis=0)
        compare = list(NODE_MODES.values())
        for _ in range(self.depth):
            row, tree = np.nonzero(at >= 0)
            node = at[row, tree]
            feature, mode, yes, no, nan_is_true = nodes[node].T
            value, threshold = x[row, feature], thresholds[node]
            holds = np.isnan(value) & (nan_is_true != 0)
            for i in np.unique(mode):
                holds |= (mode == i) & compare[i](value, threshold)
            at[row, tree] = np.where(holds, yes, no)
        return -1 - at

    def _combine(self, row: Array, target: Array, weight: Array, rows: int, trees: int) -> Array:
        shape = (rows, self.targets)
        wide = weight.astype(np.float64)
        if self.aggregate in ("sum", "average"):
            total = np.zeros(shape)
            np.add.at(total, (row, target), wide)
            if self.aggregate == "average" and trees:
                total /= trees
            return total.astype(weight.dtype)
        lowest = self.aggregate == "max"
        best = np.full(shape, -np.inf if lowest else np.inf)
        (np.maximum if lowest else np.minimum).at(best, (row, target), wide)
        voted = np.zeros(shape, bool)
        voted[row, target] = True
        return np.where(voted, best, 0).astype(weight.dtype)
