"""Writers of ensembles of decision trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.onnx.write.tensor import tensor_proto
from kn_graph.ops.tree import TreeEnsemble

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []

Array = np.ndarray[Any, Any]
ML = "ai.onnx.ml"
AGGREGATES = ("average", "sum", "min", "max")
"""As TreeEnsemble-5 numbers them."""


@dataclass
class _Table:
    """Nodes and leaves in the order that they are written in."""

    nodes: list[list[int]] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def leaf(self, target: int, weight: float) -> int:
        """Add a leaf and return it as a child."""
        self.targets.append(target)
        self.weights.append(weight)
        return -len(self.targets)

    def node(self, row: list[int], threshold: float) -> int:
        """Add a node and return its number."""
        self.nodes.append(row)
        self.thresholds.append(threshold)
        return len(self.nodes) - 1


@writer(TreeEnsemble)
def tree_ensemble(ctx: NodeWriter, op: TreeEnsemble) -> str:
    """TreeEnsemble, whose leaves have one weight: a tree with n weights a leaf is n trees."""
    arrays = [v.constant for v in ctx.values[1:]]
    if any(a is None for a in arrays):
        refuse("trees that are data")
    nodes, thresholds, roots, starts, targets, weights = (np.asarray(a) for a in arrays)
    counts = np.diff(starts)
    table, trees = _Table(), []
    copies = max(1, int(counts.max(initial=1)))
    exact = bool((counts == copies).all())
    if not exact and op.aggregate in ("min", "max"):
        refuse(f"trees whose leaves have 0 to {copies} weights, combined by {op.aggregate}")
    for copy in range(copies):
        leaves = [
            (int(targets[s + copy]), float(weights[s + copy])) if copy < n else (0, 0.0)
            for s, n in zip(starts, counts, strict=False)
        ]
        trees += _copied(table, nodes, thresholds, roots, leaves)
    x_type, w_type = ctx.values[1 + 1].dtype, ctx.dtype
    if x_type is not w_type and x_type.bits > w_type.bits:
        x, wide = ctx.x, x_type
    else:
        x, wide = ctx.cast(ctx.x, w_type), w_type
    average = op.aggregate == "average" and copies > 1
    aggregate = "sum" if average else op.aggregate
    out = _write(ctx, op, x, table, trees, wide.numpy, AGGREGATES.index(aggregate))
    ctx.scope.model.dtypes[out] = wide
    if average:
        out = ctx.emit("Div", out, ctx.scalar(len(roots), out))
    return ctx.cast(out, w_type)


def _copied(
    table: _Table, nodes: Array, thresholds: Array, roots: Array, leaves: list[tuple[int, float]]
) -> list[int]:
    """Add all trees with one weight for each leaf, and return their roots."""
    first = len(table.nodes)
    places = [table.leaf(*leaf) for leaf in leaves]

    def child(c: int) -> int:
        return first + c if c >= 0 else places[-1 - c]

    for row, threshold in zip(nodes.tolist(), thresholds.tolist(), strict=True):
        feature, mode, yes, no, nan_is_true = row
        table.node([feature, mode, child(yes), child(no), nan_is_true], threshold)
    out = []
    for root in roots.tolist():
        if root < 0:  # a leaf alone: a node of which both children are it
            alone = places[-1 - root]
            root = table.node([0, 0, alone, alone, 0], 0.0) - first
        out.append(first + root)
    return out


def _write(
    ctx: NodeWriter,
    op: TreeEnsemble,
    x: str,
    table: _Table,
    roots: list[int],
    dtype: Any,
    aggregate: int,
) -> str:
    rows = np.array(table.nodes, np.int64).reshape(-1, 5)
    children = {"true": rows[:, 2], "false": rows[:, 3]}
    attributes: dict[str, Any] = {
        "n_targets": op.targets,
        "aggregate_function": aggregate,
        "tree_roots": roots,
        "nodes_featureids": rows[:, 0].tolist(),
        "nodes_modes": tensor_proto("", rows[:, 1].astype(np.uint8)),
        "nodes_splits": tensor_proto("", np.array(table.thresholds, dtype)),
        "leaf_targetids": table.targets,
        "leaf_weights": tensor_proto("", np.array(table.weights, dtype)),
    }
    for name, child in children.items():
        attributes[f"nodes_{name}nodeids"] = np.where(child < 0, -1 - child, child).tolist()
        attributes[f"nodes_{name}leafs"] = (child < 0).astype(int).tolist()
    if rows[:, 4].any():
        attributes["nodes_missing_value_tracks_true"] = rows[:, 4].tolist()
    return ctx.scope.append("TreeEnsemble", [x], 1, ML, attributes)[0]
