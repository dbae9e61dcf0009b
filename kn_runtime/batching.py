"""Several calls as one: rows of their inputs are joined along a symbolic first axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.binding import check_inputs
from kn_graph.dim import Dim, Symbol
from kn_graph.errors import SymbolError, UsageError
from kn_graph.types import TensorType

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Value

__all__ = ["batch_symbol", "eval_in_batches"]

Arrays = dict[str, Any]


def batch_symbol(graph: Graph) -> Symbol:
    """Return the size that the first axes of all inputs and outputs have.

    Raises:
        UsageError: there is none; the text names what differs.
    """
    ends: list[tuple[str, str, Value]] = [("input", v.name, v) for v in graph.inputs]
    ends += [("output", name, v) for name, v in graph.outputs.items()]
    firsts = {(kind, name): _first_symbol(v) for kind, name, v in ends}
    found = {s for s in firsts.values() if s is not None}
    odd = [f"{kind} {name!r} is {v.type}" for kind, name, v in ends if firsts[kind, name] is None]
    if len(found) != 1 or odd or not graph.inputs:
        why = "; ".join(odd) or f"first axes are {', '.join(sorted(s.name for s in found))}"
        raise UsageError(
            f"graph {graph.name!r} has no batch: the first axis of every input and output must be "
            f"the same symbolic size ({why or 'it has no inputs'}); use eval for each call"
        )
    return found.pop()


def _first_symbol(value: Value) -> Symbol | None:
    if not isinstance(value.type, TensorType) or not value.type.shape:
        return None
    size = value.type.shape[0]
    return size.as_symbol if isinstance(size, Dim) else None


def eval_in_batches(
    graph: Graph,
    calls: Sequence[Mapping[str, Any] | Sequence[Any]],
    evaluate: Callable[[Arrays], Arrays],
    max_batch: int | None,
) -> list[Arrays]:
    """Evaluate several calls, those whose other sizes are equal together.

    Args:
        graph: whose inputs are meant.
        calls: inputs of each.
        evaluate: returns outputs of inputs by name.
        max_batch: rows that are joined at most; a call with more runs by itself.

    Returns:
        Outputs of each call, in order; arrays that the caller owns.
    """
    if max_batch is not None and max_batch < 1:
        raise UsageError(f"max_batch is a number of rows, 1 or more, or None; got {max_batch}")
    batch_symbol(graph)
    inputs = [check_inputs(graph, call) for call in calls]
    rows = [_rows(number, arrays) for number, arrays in enumerate(inputs)]
    results: list[Arrays] = [{} for _ in calls]
    for members in _batches(inputs, rows, max_batch):
        if len(members) == 1:
            results[members[0]] = evaluate(inputs[members[0]])
            continue
        joined = {n: np.concatenate([inputs[m][n] for m in members]) for n in inputs[members[0]]}
        ends = np.cumsum([rows[m] for m in members])[:-1]
        for name, x in evaluate(joined).items():
            for member, part in zip(members, np.split(x, ends), strict=True):
                results[member][name] = part.copy()
    return results


def _rows(number: int, arrays: Arrays) -> int:
    sizes: dict[str, int] = {name: x.shape[0] for name, x in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise SymbolError(
            f"call {number}: inputs have different numbers of rows: "
            + ", ".join(f"{n!r} {k}" for n, k in sizes.items())
        )
    return next(iter(sizes.values()))


def _batches(
    inputs: Sequence[Arrays], rows: Sequence[int], max_batch: int | None
) -> Iterator[list[int]]:
    """Yield the numbers of calls that run together."""
    alike: dict[Any, list[int]] = {}
    for number, arrays in enumerate(inputs):
        alike.setdefault(tuple(x.shape[1:] for x in arrays.values()), []).append(number)
    for members in alike.values():
        batch: list[int] = []
        for member in members:
            total = sum(rows[m] for m in batch) + rows[member]
            if batch and max_batch is not None and total > max_batch:
                yield batch
                batch = []
            batch.append(member)
        yield batch
