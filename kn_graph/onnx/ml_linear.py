"""Converters of linear models and support vector machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.onnx.ml_scores import (
    ML,
    TRANSFORMS,
    Labels,
    rows_of,
    transform_pair,
    transform_scores,
)
from kn_graph.onnx.registry import converter
from kn_graph.ops.coupling import PairwiseCoupling

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

Array = np.ndarray[Any, Any]


def _reals(ctx: NodeContext, name: str) -> Array:
    return np.array(ctx.reals(name, ()), np.float32)


def _matrix(ctx: NodeContext, flat: Array, rows: int, what: str) -> Array:
    if not rows or len(flat) % rows:
        ctx.fail(f"has {len(flat)} {what} for {rows} rows")
    return flat.reshape(rows, -1)


@converter("LinearRegressor", domain=ML)
def linear_regressor(ctx: NodeContext) -> Value:
    """One matrix product."""
    g, x = ctx.graph, rows_of(ctx)
    targets, transform = ctx.integer("targets", 1), ctx.choice("post_transform", "NONE", TRANSFORMS)
    weights = _matrix(ctx, _reals(ctx, "coefficients"), targets, "coefficients")
    y = g.matmul(x, g.constant(weights.T.copy()))
    intercepts = _reals(ctx, "intercepts")
    if len(intercepts) not in (0, targets):
        ctx.fail(f"has {len(intercepts)} intercepts for {targets} targets")
    y = g.add(y, g.constant(intercepts)) if len(intercepts) else y
    return transform_scores(ctx, y, transform)


@converter("LinearClassifier", domain=ML)
def linear_classifier(ctx: NodeContext) -> list[Value]:
    """One matrix product; a single score is that of the second class."""
    ctx.ignore("multi_class")  # scores are the same, however they were trained
    g, x, labels = ctx.graph, rows_of(ctx), Labels(ctx, "classlabels_ints")
    transform = ctx.choice("post_transform", "NONE", TRANSFORMS)
    coefficients, intercepts = _reals(ctx, "coefficients"), _reals(ctx, "intercepts")
    features = x.shape[1]
    classes = len(intercepts) or (
        len(coefficients) // features if isinstance(features, int) else len(labels)
    )
    weights = _matrix(ctx, coefficients, classes, "coefficients")
    scores = g.matmul(x, g.constant(weights.T.copy()))
    scores = g.add(scores, g.constant(intercepts)) if len(intercepts) else scores
    if classes > 1:
        if classes > len(labels):
            ctx.fail(f"has {classes} scores for {len(labels)} labels")
        return [labels.top(scores), transform_scores(ctx, scores, transform)]
    label = labels.choose(g.compare("gt", g.squeeze(scores, [1]), g.scalar(0, scores.dtype)))
    if len(labels) == 2:
        return [label, transform_pair(ctx, scores, transform, odds=False)]
    return [label, transform_scores(ctx, scores, transform)]


# ---- support vector machines --------------------------------------------------------------------


def _kernel(ctx: NodeContext, x: Value, vectors: Array, *, linear: bool = False) -> Value:
    """Return the kernel of each row with each support vector: [N, V]."""
    g = ctx.graph
    kind = ctx.choice("kernel_type", "LINEAR", ("LINEAR", "POLY", "RBF", "SIGMOID"))
    gamma, coef0, degree = ctx.reals("kernel_params", None) or (0.0, 0.0, 0.0)
    if kind == "RBF" and not linear:
        apart = g.unsqueeze(x, [1]) - g.constant(vectors)
        return g.exp(g.reduce("sum", g.mul(apart, apart), (2,)) * -gamma)
    dot = g.matmul(x, g.constant(vectors.T.copy()))
    if kind == "LINEAR" or linear:
        return dot
    dot = dot * gamma + coef0
    return g.tanh(dot) if kind == "SIGMOID" else dot**degree


@converter("SVMRegressor", domain=ML)
def svm_regressor(ctx: NodeContext) -> Value:
    """A sum over support vectors; a one-class machine says 1 or -1."""
    g, x = ctx.graph, rows_of(ctx)
    supports, one_class = ctx.integer("n_supports", 0), ctx.integer("one_class", 0)
    transform = ctx.choice("post_transform", "NONE", TRANSFORMS)
    vectors, coefficients = _reals(ctx, "support_vectors"), _reals(ctx, "coefficients")
    rho = _reals(ctx, "rho")[:1]
    if supports:
        kernel = _kernel(ctx, x, _matrix(ctx, vectors, supports, "support vector elements"))
        y = g.matmul(kernel, g.constant(coefficients[:, None]))
    else:
        y = _kernel(ctx, x, coefficients[None], linear=True)
    y = g.add(y, g.constant(rho)) if len(rho) else y
    if one_class:
        above = g.compare("gt", y, g.scalar(0, y.dtype))
        return g.select(above, g.scalar(1, y.dtype), g.scalar(-1, y.dtype))
    return transform_scores(ctx, y, transform)


@converter("SVMClassifier", domain=ML)
def svm_classifier(ctx: NodeContext) -> list[Value]:
    """One machine for each pair of classes, which vote; or one for each class without vectors."""
    x, labels = rows_of(ctx), Labels(ctx, "classlabels_ints")
    transform = ctx.choice("post_transform", "NONE", TRANSFORMS)
    counts = ctx.integers("vectors_per_class", ())
    vectors, coefficients = _reals(ctx, "support_vectors"), _reals(ctx, "coefficients")
    rho, sigmoid = _reals(ctx, "rho"), (_reals(ctx, "prob_a"), _reals(ctx, "prob_b"))
    if not sum(counts):
        return _linear_machines(ctx, x, labels, coefficients, rho, transform)
    if len(counts) != len(labels) or len(labels) < 2:
        ctx.fail(f"has vectors of {len(counts)} classes for {len(labels)} labels")
    g, pairs = ctx.graph, _pairs(len(labels))
    for name, given in (("rho", rho), ("prob_a", sigmoid[0]), ("prob_b", sigmoid[1])):
        if len(given) != len(pairs) and (len(given) or name == "rho"):
            ctx.fail(f"has {len(given)} {name} for {len(pairs)} pairs of classes")
    matrix = _matrix(ctx, coefficients, len(labels) - 1, "coefficients")
    kernel = _kernel(ctx, x, _matrix(ctx, vectors, sum(counts), "support vector elements"))
    scores = g.add(g.matmul(kernel, g.constant(_pair_weights(matrix, counts))), g.constant(rho))
    label = labels.top(_votes(ctx, scores, pairs))
    if len(sigmoid[0]) and len(sigmoid[1]):
        return [label, _probabilities(ctx, scores, sigmoid, len(labels), transform)]
    if len(pairs) > 1:
        return [label, transform_scores(ctx, scores, transform)]
    return [label, transform_pair(ctx, scores, transform, odds=transform == "NONE")]


def _linear_machines(
    ctx: NodeContext, x: Value, labels: Labels, coefficients: Array, rho: Array, transform: str
) -> list[Value]:
    weights = _matrix(ctx, coefficients, len(labels), "coefficients")
    scores = _kernel(ctx, x, weights, linear=True)
    scores = ctx.graph.add(scores, ctx.graph.constant(rho[:1])) if len(rho) else scores
    return [labels.top(scores), transform_scores(ctx, scores, transform)]


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _pair_weights(matrix: Array, counts: tuple[int, ...]) -> Array:
    """Return the weight [V, P] of each support vector in the machine of each pair.

    Row r of the coefficients [C-1, V] holds for a vector of class c its weight against the r-th of
    the other classes.
    """
    ends = np.cumsum(counts)
    of_class = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
    pairs = _pairs(len(counts))
    weights = np.zeros((matrix.shape[1], len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        weights[of_class[i], p] = matrix[j - 1, of_class[i]]
        weights[of_class[j], p] = matrix[i, of_class[j]]
    return weights


def _votes(ctx: NodeContext, scores: Value, pairs: list[tuple[int, int]]) -> Value:
    """Count for each class the pairs that it wins: a positive score is one for the first."""
    g, classes = ctx.graph, pairs[-1][1] + 1
    first, second = (np.eye(classes, dtype=np.float32)[[p[k] for p in pairs]] for k in (0, 1))
    wins = g.cast(g.compare("gt", scores, g.scalar(0, scores.dtype)), scores.dtype)
    return g.add(g.matmul(wins, g.constant(first - second)), g.constant(second.sum(0)))


def _probabilities(
    ctx: NodeContext, scores: Value, sigmoid: tuple[Array, Array], classes: int, transform: str
) -> Value:
    """Estimate a probability for each pair, then for each class."""
    g = ctx.graph
    a, b = (g.constant(p) for p in sigmoid)
    chance = g.sigmoid(g.neg(g.add(g.mul(scores, a), b)))
    low, high = g.scalar(1e-7, chance.dtype), g.scalar(1 - 1e-7, chance.dtype)
    chance = g.minimum(g.maximum(chance, low), high)
    return transform_scores(ctx, g.push(PairwiseCoupling(classes), chance), transform)
