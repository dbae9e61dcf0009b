"""What the classifiers and regressors of ai.onnx.ml share: class labels and score transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.dtype import DType

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["ML", "TRANSFORMS", "Labels", "rows_of", "transform_pair", "transform_scores"]

ML = "ai.onnx.ml"

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

NEARLY_ZERO = 1e-7
"""What SOFTMAX_ZERO takes for zero."""


def rows_of(ctx: NodeContext, dtypes: Sequence[DType] = (DType.FLOAT32,)) -> Value:
    """Take the input as [N, F] of one of some types, cast to the first where it has another.

    A single row may come as [F].
    """
    g, x = ctx.graph, ctx.input(0)
    if x.rank == 1:
        x = g.unsqueeze(x, [0])
    if x.rank != 2:
        ctx.fail(f"expected [N, F] or [F], got {x.type}")
    return x if x.dtype in dtypes else g.cast(x, dtypes[0])


class Labels:
    """The names of classes: integers or strings.

    Attributes:
        array: [classes].
    """

    def __init__(self, ctx: NodeContext, integers: str) -> None:
        self._graph = ctx.graph
        texts, numbers = ctx.texts("classlabels_strings", ()), ctx.integers(integers, ())
        if bool(texts) == bool(numbers):
            ctx.fail(f"needs one of classlabels_strings and {integers}")
        self.array = np.array(texts, object) if texts else np.array(numbers, np.int64)

    def __len__(self) -> int:
        """Return how many classes there are."""
        return len(self.array)

    def pick(self, index: Value) -> Value:
        """Return the labels of class numbers."""
        return self._graph.gather(self._graph.constant(self.array), index)

    def top(self, scores: Value) -> Value:
        """Return the label of the largest score of each row, the first of equal ones."""
        return self.pick(self._graph.arg_reduce(scores, 1))

    def choose(self, second: Value) -> Value:
        """Return the second label where a condition [N] holds, else the first.

        A model with another number of labels means 1 and 0.
        """
        pair: Any = self.array
        if len(pair) != 2:
            strings = pair.dtype == object
            pair = np.array(["0", "1"], object) if strings else np.array([0, 1], np.int64)
        g = self._graph
        return g.gather(g.constant(pair), g.cast(second, DType.INT64))


def transform_scores(ctx: NodeContext, scores: Value, transform: str) -> Value:
    """Apply a post_transform to scores [N, E]."""
    g = ctx.graph
    if transform == "LOGISTIC":
        return g.sigmoid(scores)
    if transform == "SOFTMAX":
        return g.softmax(scores, 1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(ctx, scores)
    return _probit(ctx, scores) if transform == "PROBIT" else scores


def transform_pair(ctx: NodeContext, score: Value, transform: str, *, odds: bool) -> Value:
    """Return the scores [N, 2] of two classes, where a model only has that of the second [N, 1].

    The ONNX text does not say how. As onnxruntime does, the first class gets 1 - s where s is a
    probability, -s where it is a logit (`odds`); LOGISTIC gives 1 - p and p, the softmaxes nothing.
    """
    g = ctx.graph
    if transform == "LOGISTIC":
        return g.concat([g.sigmoid(g.neg(score)), g.sigmoid(score)], 1)
    if transform == "PROBIT":
        score, odds = _probit(ctx, score), True
    return g.concat([g.neg(score) if odds else 1 - score, score], 1)


def _softmax_zero(ctx: NodeContext, x: Value) -> Value:
    """A softmax over the scores that are not 0; a score of 0 stays 0."""
    g = ctx.graph
    largest = g.reduce("max", x, (1,), keep=True)
    nonzero = g.compare("gt", g.unary("abs", x), g.scalar(NEARLY_ZERO, x.dtype))
    zero = g.scalar(0, x.dtype)
    powers = g.select(nonzero, g.exp(x - largest), zero)
    total = g.reduce("sum", powers, (1,), keep=True)
    return g.div(g.select(nonzero, powers, x * g.exp(g.neg(largest))), total)


def _probit(ctx: NodeContext, x: Value) -> Value:
    """sqrt(2) * erfinv(2x - 1), by Winitzki's approximation, as onnxruntime has it."""
    g = ctx.graph
    a, y = 0.147, x * 2 - 1
    log = g.log((1 - y) * (1 + y))
    v = log * 0.5 + 2 / (np.pi * a)
    root = g.sqrt(g.sqrt(v * v - log * (1 / a)) - v)
    return g.mul(g.unary("sign", y), root * np.sqrt(2))
