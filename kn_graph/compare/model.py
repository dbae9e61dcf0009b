"""The model band: how far the outputs of a whole graph may be from the reference."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph.compare.precision import WIDENED, recast_values, unit_roundoff
from kn_graph.compare.step import rounds
from kn_graph.compare.verdict import Array, Band, Ties, leaves
from kn_graph.compare.walk import Context, run_changed
from kn_graph.dim import Symbol
from kn_graph.dtype import DType, Kind
from kn_graph.errors import KnError
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.ops.elementwise import Cast
from kn_graph.ops.layout import View
from kn_graph.ops.reduce import ArgReduce
from kn_graph.ops.sort import TopK
from kn_graph.random_bits import RandomStreams
from kn_graph.types import TensorType
from kn_graph.value import Node, Value
from kn_graph.variants import open_call

__all__ = ["measured_tolerance", "model_band"]

log = logging.getLogger(__name__)

FEW = 256
"""Fewer differences than this say little about how large rounding errors may be."""

EXTRA_RUNS = 3
"""So many runs with other roundings make up for it."""

FAILED = (KnError, ValueError)
"""What a run with other roundings may end in: they may decide sizes, which no longer fit then."""


def model_band(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    dims: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    samples: int | None = None,
) -> Band:
    """Run the reference, and estimate how far another correct executor may be from it.

    With d = ref - ref64, the difference between the reference in the model's precision and in
    float64, an element may be off by

        tol = max(16*rms(d) + 8*|d| + u*|ref|, 4*u*rms(ref))

    where u is the roundoff of the output's type. Outputs that only copy, choose or compare inputs
    must be exact, as well as integers and bools; an index of an extreme may be another one whose
    score is as good inside the band of the scores. Where the references differ in being finite, or
    in an integer, the model's own precision does not determine the element: it counts as undecided.

    Args:
        graph: the graph.
        inputs: by name, or a list in order.
        dims: numbers of symbolic sizes that no input shows.
        seed: of random operations.
        samples: runs of the reference whose results are moved by up to one roundoff at every node:
            d is then the largest difference of all. By default none; or some, where an output has
            few elements or few that differ by much, since what shares one sum moves together.
    """
    call = open_call(graph, inputs, dims)
    run = _References(call.graph, call.arrays, call.env, seed)
    expected = run.outputs()
    exact = _exact_outputs(call.graph)
    others = run.others(samples or 0)
    if samples is None and len(others) == 1 and _say_little(expected, others[0], exact):
        others += run.moved(EXTRA_RUNS)
    tolerance: dict[str, Array] = {}
    for position, (name, value) in enumerate(expected.items()):
        if name in exact:
            continue
        found = [dict(leaves(name, o[position])) for o in others]
        for at, x in leaves(name, value):
            alike = [f[at] for f in found if at in f and f[at].shape == x.shape]
            limits = _limits(x, alike)
            if limits is not None:
                tolerance[at] = limits
    return Band(expected, tolerance, run.ties(expected, others))


def _say_little(expected: Mapping[str, Any], other: Sequence[Any], exact: set[str]) -> bool:
    """Return whether another run shows too few differences of some output."""
    for (name, value), moved in zip(expected.items(), other, strict=False):
        found = dict(leaves(name, moved))
        pairs = [(x, found[at]) for at, x in leaves(name, value) if at in found and _is_float(x)]
        pairs = [(x, y) for x, y in pairs if x.shape == y.shape and x.size]
        if name not in exact and any(_differences(x, y) < FEW for x, y in pairs):
            return True
    return False


def _differences(x: Array, other: Array) -> float:
    """Return how many normally distributed differences are as uneven as these.

    That is 3 (sum d^2)^2 / sum d^4, as the fourth moment of a normal distribution is three times
    the square of the second; never more than there are elements.
    """
    with np.errstate(all="ignore"):
        d = np.abs(x.astype(np.float64) - other.astype(np.float64))
    d = d[np.isfinite(d)]
    if not d.any():
        return 0.0
    squares = np.square(d / d.max())
    return float(min(d.size, 3 * squares.sum() ** 2 / np.square(squares).sum()))


def _limits(x: Array, others: Sequence[Array]) -> Array | None:
    if _is_float(x):
        return measured_tolerance(x, others)
    if x.dtype == object or not others:
        return None
    differs = np.any([o != x for o in others], axis=0)
    return np.where(differs, np.inf, 0.0) if differs.any() else None


def measured_tolerance(reference: Array, others: Sequence[Array]) -> Array:
    """Return the tolerance of each element, given other results that are as good or better.

    Args:
        reference: the result in the model's precision.
        others: results in float64, and with other roundings.
    """
    dtype = DType.from_numpy(reference.dtype)
    u, x = unit_roundoff(dtype), reference.astype(np.float64)
    d, undecided = np.zeros(x.shape), np.zeros(x.shape, bool)
    with np.errstate(all="ignore"):
        for other in others:
            rounded = other.astype(reference.dtype).astype(np.float64)
            both = np.isfinite(x) & np.isfinite(rounded)
            d = np.where(both, np.fmax(d, np.abs(x - other.astype(np.float64))), d)
            undecided |= ~both & ~((x == rounded) | (np.isnan(x) & np.isnan(rounded)))
        size = np.where(np.isfinite(x), np.abs(x), 0.0)
        tolerance = np.fmax(16 * _rms(d) + 8 * d + u * size, 4 * u * _rms(size))
    return np.where(undecided, np.inf, tolerance)


def _rms(x: Array) -> float:
    if not x.size:
        return 0.0
    largest = float(x.max())
    # squares of what is large or tiny would leave the type
    return largest * float(np.sqrt(np.mean(np.square(x / largest)))) if largest else 0.0


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and DType.from_numpy(x.dtype).is_float


class _References:
    """Runs of one graph on the same inputs, in several precisions."""

    def __init__(
        self, graph: Graph, arrays: Sequence[Any], env: Mapping[Symbol, int], seed: int
    ) -> None:
        self.graph, self.arrays, self.env, self.seed = graph, list(arrays), dict(env), seed
        self.scores = _scores_of_indices(graph)

    def outputs(self) -> dict[str, Any]:
        """Return the outputs in the model's own precision."""
        out = self._run(self.graph, None)
        self._chosen = out[len(self.graph.outputs) :]
        return dict(zip(self.graph.outputs, out, strict=False))

    def others(self, samples: int) -> list[list[Any]]:
        """Return outputs and scores in float64, and with moved results."""
        found = []
        try:
            found.append(self._run(*recast_values(self.graph, WIDENED)))
        except FAILED as error:
            log.info("no float64 reference of %r: %s", self.graph.name, error)
            samples = max(samples, EXTRA_RUNS)
        if _has_float64(self.graph):
            samples = max(samples, EXTRA_RUNS)  # that reference says nothing about it
        return found + self.moved(samples)

    def moved(self, samples: int) -> list[list[Any]]:
        """Return outputs and scores of runs whose results are moved."""
        found = []
        for i in range(samples):
            try:
                found.append(self._run(self.graph, None, _mover(i)))
            except FAILED as error:
                log.info("a run with other roundings failed: %s", error)
        return found

    def ties(self, expected: Mapping[str, Any], others: Sequence[Sequence[Any]]) -> dict[str, Ties]:
        """Return the scores of outputs that are indices of extremes."""
        ties = {}
        for i, (name, (_, axis)) in enumerate(self.scores.items()):
            x: Array = self._chosen[i]
            alike = [y for o in others if (y := o[len(expected) + i]).shape == x.shape]
            shape = list(x.shape)
            shape[axis] = expected[name].size // max(x.size // max(x.shape[axis], 1), 1)
            numbers = _is_float(x)
            tolerance = measured_tolerance(x, alike) if numbers else np.zeros(x.shape)
            wide = x.astype(np.float64 if numbers else np.longdouble)
            ties[name] = Ties(wide, tolerance, axis, tuple(shape))
        return ties

    def _run(
        self,
        graph: Graph,
        values: Mapping[Value, Value] | None,
        change: Callable[[Node, Any], Any] | None = None,
    ) -> list[Any]:
        wanted = [v for v, _ in self.scores.values()]
        more = wanted if values is None else [values[v] for v in wanted]
        with np.errstate(all="ignore"):
            context = Context(dict(self.env), RandomStreams(self.seed), change)
            return run_changed(graph, self.arrays, context, more)


def _has_float64(graph: Graph) -> bool:
    nodes = live_nodes(graph, graph.outputs.values())
    types = (v.type for n in nodes for v in n.results)
    return any(isinstance(t, TensorType) and t.dtype is DType.FLOAT64 for t in types)


def _mover(sample: int) -> Callable[[Node, Any], Any]:
    """Return a change of results by up to one roundoff; zeros get any sign."""
    rng = np.random.default_rng(sample)

    def move(node: Node, x: Any) -> Any:
        if not _is_float(x) or not rounds(node.op):
            return x
        u = unit_roundoff(DType.from_numpy(x.dtype))
        with np.errstate(all="ignore"):
            factor = 1 + rng.uniform(-2 * u, 2 * u, x.shape)
            moved = (x.astype(np.float64) * factor).astype(x.dtype)
            signs = np.where(rng.random(x.shape) < 0.5, -1, 1)
            moved = np.where(x == 0, (moved * signs.astype(x.dtype)).astype(x.dtype), moved)
            return np.where(np.isfinite(moved), moved, x)

    return move


def _exact_outputs(graph: Graph) -> set[str]:
    """Return the outputs that no rounding leads to."""
    rounded: set[Node] = set()
    for node in live_nodes(graph, graph.outputs.values()):
        floats = any(isinstance(v.type, TensorType) and v.type.dtype.is_float for v in node.results)
        if (floats and rounds(node.op)) or any(v.node in rounded for v in node.operands):
            rounded.add(node)
    return {name for name, v in graph.outputs.items() if v.node not in rounded}


def _scores_of_indices(graph: Graph) -> dict[str, tuple[Value, int]]:
    """Return what the outputs that are indices of extremes were chosen by, and along which axis."""
    found = {}
    for name, end in graph.outputs.items():
        v = end
        while _whole(v) and isinstance(v.node.op, (View, Cast)):
            (v,) = v.node.operands
        op, chosen = v.node.op, v.result == 1
        if _whole(end) and (isinstance(op, ArgReduce) or (isinstance(op, TopK) and chosen)):
            found[name] = (v.node.operands[0], op.axis)
    return found


def _whole(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.kind in (Kind.INT, Kind.UINT)
