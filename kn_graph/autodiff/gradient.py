"""The walk from a result back to what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kn_graph.autodiff.rules import RULES
from kn_graph.errors import DTypeError, GraphError, ShapeError, UnsupportedModelError
from kn_graph.types import TensorType

if TYPE_CHECKING:
    from kn_graph.value import Node, Value

__all__ = ["gradients", "nodes_between", "replay"]


def gradients(
    y: Value, xs: Sequence[Value], seed: Value | None = None, *, held: Sequence[Value] = ()
) -> list[Value]:
    """Add the nodes that compute the derivatives of a result, and return these.

    Args:
        y: a float tensor of a graph that is not sealed.
        xs: float tensors of that graph, taken to be independent of each other; they need not be
            inputs.
        seed: the derivative of what comes after by `y`, of its type; ones by default, which gives
            the derivatives of the sum of all elements of `y`.
        held: values that stay as they are, though they may depend on `xs`.

    Returns:
        For each of `xs` a tensor of its type; zeros where `y` does not depend on it.

    Raises:
        UnsupportedModelError: an operation on the way has no derivative here; names it.
        DTypeError, ShapeError: `y` or one of `xs` is no float tensor, or `seed` does not fit.
    """
    graph = y.graph
    graph._check_owned(xs)
    for v in (y, *xs):
        if not isinstance(v.type, TensorType) or not v.dtype.is_float:
            raise DTypeError(f"the gradient of {y} by {v}: {v} is {v.type}, not a float tensor")
    if seed is None:
        seed = graph.broadcast(graph.scalar(1.0, y.dtype), y.shape)
    elif seed.type != y.type:
        raise ShapeError(f"the seed of the gradient of {y} is {seed.type}, expected {y.type}")
    found = {y: seed}
    for node in reversed(nodes_between(y, xs, held)):
        _step_back(node, found)
    zeros = (graph.broadcast(graph.scalar(0.0, x.dtype), x.shape) for x in xs)
    return [found.get(x, zero) for x, zero in zip(xs, zeros, strict=True)]


def _step_back(node: Node, found: dict[Value, Value]) -> None:
    """Hand the derivatives by the results of a node on to its operands."""
    given = [found.get(v) for v in node.results]
    if all(d is None for d in given):
        return
    rule = RULES.get(type(node.op))
    if rule is None:
        raise UnsupportedModelError(
            f"node {node.label}: the derivative of {node.op.title} is not supported"
        )
    for x, d in zip(node.operands, rule(node, *given), strict=True):
        if d is not None:
            found[x] = found[x] + d if x in found else d


def nodes_between(y: Value, xs: Sequence[Value], held: Sequence[Value] = ()) -> list[Node]:
    """Return the nodes on the ways from `xs` to `y` that lead through none of either, in order."""
    needed: set[Node] = set()
    ends = {*xs, *held}
    stack = [] if y in ends else [y.node]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += [v.node for v in node.operands if v not in ends]
    depending = set(xs)
    between = []
    for node in sorted(needed, key=lambda n: n.index):
        if any(v in depending for v in node.operands):
            depending.update(node.results)
            between.append(node)
    return between


def replay(y: Value, given: Mapping[Value, Value]) -> Value:
    """Repeat what leads to a result with other values in place of some.

    Args:
        y: the result.
        given: what takes the place of which value, of equal types.

    Returns:
        `y` computed from the values given.

    Raises:
        GraphError: a type differs.
    """
    for old, new in given.items():
        if old.type != new.type:
            raise GraphError(f"{new} ({new.type}) cannot take the place of {old} ({old.type})")
    values = {old: new for old, new in given.items() if old is not new}
    for node in nodes_between(y, list(values), list(given)):
        operands = [values.get(v, v) for v in node.operands]
        results = y.graph.push_all(node.op, *operands)
        values.update(zip(node.results, results, strict=True))
    return values.get(y, y)
