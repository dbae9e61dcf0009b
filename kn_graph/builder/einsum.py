"""Einstein summation, decomposed into diagonals, sums, products and matmuls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kn_graph.dim import size_prod
from kn_graph.errors import ShapeError
from kn_graph.sizes import broadcast_size

if TYPE_CHECKING:
    from kn_graph.builder.base import Builder
    from kn_graph.dim import Size
    from kn_graph.graph import Graph
    from kn_graph.value import Value

__all__ = ["einsum", "parse_equation"]

Labels = tuple[str, ...]


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand's axes and of the result's.

    The axes of an ellipsis are labelled '.0', '.1' and so on, counted from the right.

    Args:
        equation: such as 'ij,jk->ik', with or without the part from the arrow on.
        ranks: number of axes of each operand.

    Raises:
        ShapeError: the equation is malformed or does not fit the ranks.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"einsum {equation!r} has {len(terms)} terms for {len(ranks)} operands")
    operands = [_labels(term, rank, equation) for term, rank in zip(terms, ranks, strict=True)]
    hidden = max((o for o in map(_hidden, operands)), key=len, default=())
    if arrow:
        result = _result_labels(right, hidden, equation)
    else:
        counts = Counter(label for o in operands for label in o)
        once = sorted(c for c, n in counts.items() if n == 1 and not c.startswith("."))
        result = (*hidden, *once)
    known = {label for o in operands for label in o}
    unknown = [label for label in result if label not in known]
    if unknown or len(set(result)) != len(result):
        raise ShapeError(
            f"einsum {equation!r}: the result needs distinct labels that operands have"
        )
    return operands, result


def _hidden(labels: Labels) -> Labels:
    return tuple(label for label in labels if label.startswith("."))


def _split(term: str, equation: str) -> tuple[str, str, bool]:
    before, dots, after = term.partition("...")
    if any(not (c.isascii() and c.isalpha()) for c in before + after):
        raise ShapeError(f"einsum {equation!r}: {term!r} is no row of letters")
    return before, after, bool(dots)


def _labels(term: str, rank: int, equation: str) -> Labels:
    before, after, dots = _split(term, equation)
    named = len(before) + len(after)
    if named > rank or (named < rank and not dots):
        raise ShapeError(f"einsum {equation!r}: {term!r} does not label {rank} axes")
    return (*before, *(f".{i}" for i in reversed(range(rank - named))), *after)


def _result_labels(term: str, hidden: Labels, equation: str) -> Labels:
    before, after, dots = _split(term, equation)
    return (*before, *(hidden if dots else ()), *after)


@dataclass(frozen=True)
class _Term:
    """A tensor whose axes have distinct labels."""

    value: Value
    labels: Labels

    def size(self, label: str) -> Size:
        return self.value.shape[self.labels.index(label)]


def einsum(builder: Builder, equation: str, xs: Sequence[Value]) -> Value:
    """Build an Einstein summation; operands are combined from left to right.

    Integers wrap. Labels of size 1 broadcast, as in NumPy.

    Raises:
        ShapeError: the equation is malformed or does not fit the operands.
    """
    graph = cast("Graph", builder)
    operands, result = parse_equation(equation, [x.rank for x in xs])
    terms = [_distinct(graph, x, labels) for x, labels in zip(xs, operands, strict=True)]
    total = _summed(graph, terms[0], _needed(terms[1:], result))
    for i, term in enumerate(terms[1:], 1):
        needed = _needed(terms[i + 1 :], result)
        own = _summed(graph, term, {*needed, *total.labels})
        total = _combined(graph, total, own, needed)
    return graph.permute(total.value, [total.labels.index(label) for label in result])


def _needed(rest: Iterable[_Term], result: Labels) -> set[str]:
    return {*result, *(label for t in rest for label in t.labels)}


def _distinct(graph: Graph, x: Value, labels: Labels) -> _Term:
    """Take the diagonal of axes that share a label."""
    while len(set(labels)) != len(labels):
        label = next(c for c in labels if labels.count(c) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        x = _diagonal(graph, x, first, second)
        labels = (*(c for i, c in enumerate(labels) if i not in (first, second)), label)
    return _Term(x, labels)


def _diagonal(graph: Graph, x: Value, first: int, second: int) -> Value:
    """Move two axes of one size to the end, as their diagonal."""
    n = x.shape[first]
    graph.require_eq(x.shape[second], n, f"einsum takes the diagonal of axes {first} and {second}")
    rest = [a for a in range(x.rank) if a not in (first, second)]
    x = graph.permute(x, [*rest, first, second])
    lead = x.shape[:-2]
    flat = graph.view(x, (*lead, n * n))
    # with n more elements behind, each row has n + 1 and starts with the next diagonal element
    longer = graph.pad(flat, [*((0, 0),) * len(lead), (0, n)])
    rows = graph.view(longer, (*lead, n, n + 1))
    return graph.squeeze(graph.slice(rows, -1, 0, 1), [-1])


def _summed(graph: Graph, term: _Term, needed: set[str]) -> _Term:
    """Sum over the axes that nobody else needs."""
    axes = tuple(i for i, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    kept = tuple(label for label in term.labels if label in needed)
    return _Term(graph.reduce("sum", term.value, axes, keep=False), kept)


def _combined(graph: Graph, x: _Term, y: _Term, needed: set[str]) -> _Term:
    """Multiply two terms, and sum over what both have and nobody else needs."""
    shared = tuple(label for label in x.labels if label in y.labels)
    x, y = _broadcast(graph, x, y, shared), _broadcast(graph, y, x, shared)
    inner = tuple(label for label in shared if label not in needed)
    batch = tuple(label for label in shared if label in needed)
    rows = tuple(label for label in x.labels if label not in shared)
    columns = tuple(label for label in y.labels if label not in shared)
    labels = (*batch, *rows, *columns)
    if not inner:
        return _Term(graph.mul(_aligned(graph, x, labels), _aligned(graph, y, labels)), labels)
    left = _merged(graph, x, (batch, rows, inner))
    right = _merged(graph, y, (batch, inner, columns))
    shape = [*map(x.size, (*batch, *rows)), *map(y.size, columns)]
    return _Term(graph.view(graph.matmul(left, right), shape), labels)


def _broadcast(graph: Graph, x: _Term, y: _Term, shared: Labels) -> _Term:
    """Repeat shared axes of x to the size that they have together with y."""
    shape = list(x.value.shape)
    for label in shared:
        size = broadcast_size(x.size(label), y.size(label))
        if size is None:
            raise ShapeError(
                f"einsum label {label!r} has sizes {x.size(label)} and {y.size(label)}"
            )
        shape[x.labels.index(label)] = size
    return _Term(graph.broadcast(x.value, shape), x.labels)


def _aligned(graph: Graph, x: _Term, labels: Labels) -> Value:
    """Reorder the axes to those of `labels`, with size 1 where x has none."""
    own = [label for label in labels if label in x.labels]
    moved = graph.permute(x.value, [x.labels.index(label) for label in own])
    return graph.view(moved, [x.size(c) if c in x.labels else 1 for c in labels])


def _merged(graph: Graph, x: _Term, groups: Sequence[Labels]) -> Value:
    """Reorder the axes by groups, and merge each group into one axis."""
    order = [x.labels.index(label) for group in groups for label in group]
    merged: list[Any] = [size_prod(map(x.size, group)) for group in groups]
    return graph.view(graph.permute(x.value, order), merged)
