"""Converters of tree ensembles: all become one table of nodes and one of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.ml_scores import (
    ML,
    TRANSFORMS,
    Labels,
    rows_of,
    transform_pair,
    transform_scores,
)
from kn_graph.onnx.registry import converter
from kn_graph.ops.tree import NODE_MODES, TreeEnsemble

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

Array = np.ndarray[Any, Any]

AGGREGATES: Any = ("average", "sum", "min", "max")
"""As TreeEnsemble-5 numbers them."""
LEAF = -1
MODES = {"LEAF": LEAF, **{f"BRANCH_{name}": i for i, name in enumerate(NODE_MODES)}}
MEMBER = 6
FLOATS = (DType.FLOAT32, DType.FLOAT64)


@dataclass
class Trees:
    """A forest as `TreeEnsemble` takes it.

    Attributes:
        nodes: [n, 5].
        thresholds: [n].
        roots: [T].
        starts: [L + 1].
        targets: [W].
        weights: [W].
    """

    nodes: Array
    thresholds: Array
    roots: Array
    starts: Array
    targets: Array
    weights: Array

    def apply(self, ctx: NodeContext, x: Value, targets: int, aggregate: Any) -> Value:
        """Return scores [N, targets], in the type of the weights."""
        wide = self.thresholds.dtype == np.float64 or x.dtype is DType.FLOAT64
        dtype = DType.FLOAT64 if wide else DType.FLOAT32
        self._check(ctx, targets, x.shape[1])
        tables = (
            self.nodes, self.thresholds.astype(dtype.numpy), self.roots,
            self.starts, self.targets, self.weights,
        )  # fmt: skip
        g = ctx.graph
        op = TreeEnsemble(targets, _depth(ctx, self.nodes[:, 2:4], self.roots), aggregate)
        return g.push(op, g.cast(x, dtype), *(g.constant(t) for t in tables))

    def _check(self, ctx: NodeContext, targets: int, features: Any) -> None:
        features = features if isinstance(features, int) else None
        leaves, count = len(self.starts) - 1, len(self.nodes)
        for what, numbers, low, high in (
            ("feature", self.nodes[:, 0], 0, features),
            ("child", self.nodes[:, 2:4], -leaves, count),
            ("root", self.roots, -leaves, count),
            ("target", self.targets, 0, targets),
        ):
            wrong = (numbers < low) | (False if high is None else numbers >= high)
            if np.any(wrong):
                ctx.fail(f"{what} {numbers[wrong].flat[0]} does not exist")


def _depth(ctx: NodeContext, children: Array, roots: Array) -> int:
    """Return the largest number of nodes on a path from a root."""
    depth, level = 0, np.unique(roots[roots >= 0])
    while len(level):
        depth += 1
        if depth > len(children):
            ctx.fail("a tree contains a cycle")
        below = children[level]
        reached = np.zeros(len(children), bool)
        reached[below[below >= 0]] = True
        level = np.flatnonzero(reached)
    return depth


# ---- TreeEnsembleRegressor and TreeEnsembleClassifier -------------------------------------------


def _numbers(ctx: NodeContext, name: str) -> Array:
    """Take an attribute of floats, or its form of doubles."""
    tensor = ctx.tensor(f"{name}_as_tensor", None) if ctx.opset >= 3 else None
    if tensor is not None:
        return np.asarray(tensor.array).ravel()
    return np.array(ctx.reals(name, ()), np.float32)


def _trees_of_tuples(ctx: NodeContext, votes: str) -> Trees:
    """Read the form in which nodes and leaves are one list of tuples; `votes` names weights."""
    ctx.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    tree, node, feature, yes, no = (
        np.array(ctx.integers(f"nodes_{n}", ()), np.int64) for n in names
    )
    modes, thresholds = ctx.texts("nodes_modes", ()), _numbers(ctx, "nodes_values")
    nan_is_true = np.array(ctx.integers("nodes_missing_value_tracks_true", ()), np.int64)
    if not len(nan_is_true):
        nan_is_true = np.zeros(len(tree), np.int64)
    lengths = {len(a) for a in (tree, node, feature, yes, no, modes, thresholds, nan_is_true)}
    if len(lengths) != 1:
        ctx.fail(f"the attributes nodes_* differ in length: {sorted(lengths)}")
    unknown = set(modes) - MODES.keys()
    if unknown:
        ctx.fail(f"{min(unknown)!r} is no mode of a node")
    places = _Places(ctx, tree, node)
    mode = np.array([MODES[m] for m in modes], np.int64)
    leaf = mode == LEAF
    # interior nodes and leaves are numbered apart, in their order
    number = np.where(leaf, -np.cumsum(leaf), np.cumsum(~leaf) - 1)
    inner = np.flatnonzero(~leaf)
    children = [number[places.of(tree[inner], child[inner])] for child in (yes, no)]
    nodes = np.array([feature[inner], mode[inner], *children, nan_is_true[inner]], np.int64).T
    first = np.flatnonzero(np.diff(tree, prepend=tree[0] - 1 if len(tree) else 0))
    starts, targets, weights = _votes(ctx, votes, places, number, int(leaf.sum()))
    return Trees(nodes.reshape(-1, 5), thresholds[inner], number[first], starts, targets, weights)


class _Places:
    """Where the node with an id of a tree is in the list of all nodes; forests have millions."""

    def __init__(self, ctx: NodeContext, tree: Array, node: Array) -> None:
        self._ctx = ctx
        self._trees, tree_rank = np.unique(tree, return_inverse=True)
        self._nodes, node_rank = np.unique(node, return_inverse=True)
        keys = tree_rank * len(self._nodes) + node_rank
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        if (self._keys[1:] == self._keys[:-1]).any():
            ctx.fail("a node id is used twice in one tree")

    def of(self, tree: Array, node: Array) -> Array:
        """Return places for pairs of ids."""
        ranks, known = zip(_rank(self._trees, tree), _rank(self._nodes, node), strict=True)
        at, there = _rank(self._keys, ranks[0] * len(self._nodes) + ranks[1])
        found = known[0] & known[1] & there
        if not found.all():
            wrong = int(np.argmin(found))
            self._ctx.fail(f"tree {tree[wrong]} has no node {node[wrong]}")
        return self._order[at]


def _rank(ordered: Array, wanted: Array) -> tuple[Array, Array]:
    """Return where numbers are in an ordered list, and which of them are there."""
    at = np.minimum(np.searchsorted(ordered, wanted), max(len(ordered) - 1, 0))
    there = ordered[at] == wanted if len(ordered) else np.zeros(len(wanted), bool)
    return at, there


def _votes(
    ctx: NodeContext, name: str, places: _Places, number: Array, leaves: int
) -> tuple[Array, Array, Array]:
    """Return where the weights of each leaf start, their targets, and the weights, by leaf."""
    tree, node, target = (ctx.integers(f"{name}_{n}", ()) for n in ("treeids", "nodeids", "ids"))
    weights = _numbers(ctx, f"{name}_weights")
    if not len(tree) == len(node) == len(target) == len(weights):
        ctx.fail(f"the attributes {name}_* differ in length")
    at = number[places.of(np.array(tree, np.int64), np.array(node, np.int64))]
    kept = at < 0  # weights of interior nodes are never reached
    leaf = -1 - at[kept]
    order = np.argsort(leaf, kind="stable")
    starts = np.searchsorted(leaf[order], np.arange(leaves + 1))
    targets = np.array(target, np.int64)[kept][order]
    return starts.astype(np.int64), targets, weights[kept][order]


@converter("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(ctx: NodeContext) -> Value:
    """Aggregate, add base values, transform."""
    names = {a.upper(): a for a in AGGREGATES}
    targets = ctx.integer("n_targets", 1)
    aggregate = names[ctx.choice("aggregate_function", "SUM", tuple(names))]
    transform = ctx.choice("post_transform", "NONE", TRANSFORMS)
    trees, base = _trees_of_tuples(ctx, "target"), _numbers(ctx, "base_values")
    if len(base) not in (0, 1, targets):
        ctx.fail(f"has {len(base)} base values for {targets} targets")
    scores = trees.apply(ctx, rows_of(ctx, FLOATS), targets, aggregate)
    return _finished(ctx, scores, base, transform)


def _finished(ctx: NodeContext, scores: Value, base: Array, transform: str) -> Value:
    g = ctx.graph
    if len(base):
        scores = g.add(scores, g.constant(base.astype(scores.dtype.numpy)))
    return g.cast(transform_scores(ctx, scores, transform), DType.FLOAT32)


@converter("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(ctx: NodeContext) -> list[Value]:
    """Scores of all classes; where only one of two gets votes, its score stands for the second."""
    g, labels = ctx.graph, Labels(ctx, "classlabels_int64s")
    transform = ctx.choice("post_transform", "NONE", TRANSFORMS)
    trees, base = _trees_of_tuples(ctx, "class"), _numbers(ctx, "base_values")
    classes, voted = len(labels), np.unique(trees.targets)
    if len(base) not in (0, classes) and (classes, len(base)) != (2, 1):
        ctx.fail(f"has {len(base)} base values for {classes} classes")
    scores = trees.apply(ctx, rows_of(ctx, FLOATS), classes, "sum")
    if classes == 2 and len(voted) == 1 and len(base) < 2:
        return _one_sided(ctx, g.slice(scores, 1, int(voted[0]), 1), trees, base, transform, labels)
    if len(base) == 1:
        base = np.array([base[0], 0], base.dtype)
    raw = g.add(scores, g.constant(base.astype(scores.dtype.numpy))) if len(base) else scores
    return [labels.top(raw), _finished(ctx, scores, base, transform)]


def _one_sided(
    ctx: NodeContext, score: Value, trees: Trees, base: Array, transform: str, labels: Labels
) -> list[Value]:
    """Return label and scores of two classes of which only one gets votes.

    Votes that are all positive are probabilities, others add up to a logit.
    """
    g = ctx.graph
    odds = bool((trees.weights < 0).any())
    if len(base):
        score = g.add(score, g.constant(base.astype(score.dtype.numpy)))
    limit = g.scalar(0 if odds else 0.5, score.dtype)
    label = labels.choose(g.compare("gt", g.squeeze(score, [1]), limit))
    pair = transform_pair(ctx, score, transform, odds=odds)
    return [label, g.cast(pair, DType.FLOAT32)]


# ---- TreeEnsemble -------------------------------------------------------------------------------


@converter("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(ctx: NodeContext) -> Value:
    """Interior nodes and leaves are lists of their own; a leaf has one weight."""
    g, x = ctx.graph, rows_of(ctx, (*FLOATS, DType.FLOAT16))
    targets, aggregate = ctx.integer("n_targets", 0), ctx.integer("aggregate_function", 1)
    transform = ctx.integer("post_transform", 0)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        ctx.fail(f"aggregate_function {aggregate} or post_transform {transform} does not exist")
    trees = _trees_of_lists(ctx)
    wide = g.cast(x, DType.FLOAT32) if x.dtype is DType.FLOAT16 else x
    trees.weights = trees.weights.astype(wide.dtype.numpy)
    trees.thresholds = trees.thresholds.astype(wide.dtype.numpy)
    scores = trees.apply(ctx, wide, targets, AGGREGATES[aggregate])
    return g.cast(transform_scores(ctx, scores, TRANSFORMS[transform]), x.dtype)


def _trees_of_lists(ctx: NodeContext) -> Trees:
    ctx.ignore("nodes_hitrates")
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    feature, yes, no, yes_leaf, no_leaf = (
        np.array(ctx.integers(f"nodes_{n}"), np.int64) for n in names
    )
    thresholds = np.asarray(ctx.tensor("nodes_splits").array).ravel()
    mode = np.asarray(ctx.tensor("nodes_modes").array).ravel().astype(np.int64)
    nan_is_true = np.array(ctx.integers("nodes_missing_value_tracks_true", ()), np.int64)
    if not len(nan_is_true):
        nan_is_true = np.zeros(len(feature), np.int64)
    columns = (feature, mode, yes, no, yes_leaf, no_leaf, thresholds, nan_is_true)
    if len({len(c) for c in columns}) != 1 or np.any((mode < 0) | (mode > MEMBER)):
        ctx.fail("the attributes nodes_* differ in length, or a mode does not exist")
    weights = np.asarray(ctx.tensor("leaf_weights").array).ravel()
    targets = np.array(ctx.integers("leaf_targetids"), np.int64)
    if len(weights) != len(targets):
        ctx.fail(f"has {len(weights)} leaf weights and {len(targets)} leaf targets")
    yes, no = np.where(yes_leaf != 0, -1 - yes, yes), np.where(no_leaf != 0, -1 - no, no)
    nodes = np.stack([feature, mode, yes, no, nan_is_true], 1)
    nodes, thresholds = _members_as_equalities(ctx, nodes, thresholds)
    roots = np.array(ctx.integers("tree_roots"), np.int64)
    return Trees(nodes, thresholds, roots, np.arange(len(targets) + 1), targets, weights)


def _members_as_equalities(
    ctx: NodeContext, nodes: Array, thresholds: Array
) -> tuple[Array, Array]:
    """Turn each test for membership into a chain of tests for equality."""
    tensor = ctx.tensor("membership_values", None)
    values = np.zeros(0) if tensor is None else np.asarray(tensor.array).ravel()
    sets = _sets(values)
    where = np.flatnonzero(nodes[:, 1] == MEMBER)
    if len(sets) != len(where):
        ctx.fail(f"has {len(sets)} sets of members for {len(where)} nodes that test membership")
    rows, limits = nodes.copy(), thresholds.copy()
    extra: list[Any] = []
    extra_limits: list[Any] = []
    for node, members in zip(where, sets, strict=True):
        rows[node, 1] = MODES["BRANCH_EQ"]
        if not len(members):  # nothing is a member: a NaN equals nothing either
            limits[node] = np.nan
            continue
        limits[node] = members[0]
        last, otherwise = int(node), rows[node, 3]
        for member in members[1:]:
            new = len(nodes) + len(extra)
            (rows[last] if last < len(nodes) else extra[last - len(nodes)])[3] = new
            extra.append(rows[node].copy())
            extra[-1][3] = otherwise
            extra_limits.append(member)
            last = new
    if not extra:
        return rows, limits
    return (
        np.concatenate([rows, np.array(extra)]),
        np.concatenate([limits, np.array(extra_limits, limits.dtype)]),
    )


def _sets(values: Array) -> Sequence[Array]:
    """Cut a list at its NaNs; one after the last set may be left out."""
    ends = np.flatnonzero(np.isnan(values.astype(np.float64)))
    sets = np.split(values, ends)
    parts = [sets[0], *(s[1:] for s in sets[1:])]
    return parts if len(parts[-1]) else parts[:-1]
