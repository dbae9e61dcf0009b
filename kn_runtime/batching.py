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

__all__ = ["Batcher", "batch_symbol"]

Array = np.ndarray[Any, Any]


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


class Batcher:
    """Evaluates several calls of one graph as few.

    Args:
        graph: whose inputs are meant.

    Raises:
        UsageError: the graph has no batch.
    """

    def __init__(self, graph: Graph) -> None:
        batch_symbol(graph)
        self._graph = graph
        types = {v.name: v.type for v in graph.inputs if isinstance(v.type, TensorType)}
        self._declared = [(n, t.dtype.numpy, t.rank) for n, t in types.items()]
        self._outputs = list(graph.outputs)

    def eval(
        self,
        calls: Sequence[Mapping[str, Any] | Sequence[Any]],
        evaluate: Callable[[dict[str, Array]], Mapping[str, Any]],
        max_batch: int | None,
    ) -> list[dict[str, Any]]:
        """Evaluate calls, those whose other sizes are equal together.

        Args:
            calls: inputs of each.
            evaluate: returns outputs of inputs by name.
            max_batch: rows that are joined at most; a call with more runs by itself.

        Returns:
            Outputs of each call, in order; arrays that the caller owns.

        Raises:
            UsageError: `max_batch` is less than 1.
            InputError: inputs of a call are wrong, or have different numbers of rows.
        """
        if max_batch is not None and max_batch < 1:
            raise UsageError(f"max_batch is a number of rows, 1 or more, or None; got {max_batch}")
        inputs = [self._checked(number, call) for number, call in enumerate(calls)]
        results: list[dict[str, Any]] = [{} for _ in calls]
        for members in _batches(inputs, max_batch):
            joined = self._joined([inputs[m] for m in members])
            outputs = evaluate(joined)
            if len(members) == 1:
                results[members[0]] = dict(outputs)
                continue
            start = 0
            for member in members:
                end = start + len(inputs[member][0])
                results[member] = {n: outputs[n][start:end].copy() for n in self._outputs}
                start = end
        return results

    def _checked(self, number: int, call: Mapping[str, Any] | Sequence[Any]) -> list[Array]:
        """Return the inputs of a call in the graph's order."""
        arrays = self._as_declared(call)
        if arrays is None:
            arrays = list(check_inputs(self._graph, call).values())
        if len({len(x) for x in arrays}) > 1:
            rows = (f"{n!r} {len(x)}" for (n, _, _), x in zip(self._declared, arrays, strict=True))
            raise SymbolError(
                f"call {number}: inputs have different numbers of rows: {', '.join(rows)}"
            )
        return arrays

    def _as_declared(self, call: Mapping[str, Any] | Sequence[Any]) -> list[Array] | None:
        """Return the inputs of a call that needs no further check; None for others."""
        if not isinstance(call, dict) or len(call) != len(self._declared):
            return None
        arrays = []
        for name, dtype, rank in self._declared:
            x = call.get(name)
            if type(x) is not np.ndarray or x.dtype != dtype or x.ndim != rank:
                return None
            arrays.append(x)
        return arrays

    def _joined(self, calls: Sequence[list[Array]]) -> dict[str, Array]:
        names = [n for n, _, _ in self._declared]
        if len(calls) == 1:
            return dict(zip(names, calls[0], strict=True))
        return {n: np.concatenate([c[i] for c in calls]) for i, n in enumerate(names)}


def _batches(inputs: Sequence[list[Array]], max_batch: int | None) -> Iterator[list[int]]:
    """Yield the numbers of calls that run together."""
    alike: dict[Any, list[int]] = {}
    for number, arrays in enumerate(inputs):
        alike.setdefault(tuple([x.shape[1:] for x in arrays]), []).append(number)
    for members in alike.values():
        batch: list[int] = []
        total = 0
        for member in members:
            rows = len(inputs[member][0])
            if batch and max_batch is not None and total + rows > max_batch:
                yield batch
                batch, total = [], 0
            batch.append(member)
            total += rows
        yield batch
