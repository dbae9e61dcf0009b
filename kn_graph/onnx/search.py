"""Finds assumptions under which a model can be loaded.

A TorchScript export asks `size == 1` to squeeze an axis, and what follows needs the squeezed rank.
A guess about the size that is wrong makes the rest of the model contradict itself, so the guess is
taken back: the latest first.

Where no decision about sizes leads anywhere, ranks may follow from the elements of an integer
input, such as the wanted size of a result. Then these elements are assumed, as axes given as inputs
are; a call that gives others takes a graph built for them (`kn_graph.variants`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kn_graph.dtype import DType
from kn_graph.errors import GraphError, UnsupportedModelError
from kn_graph.graph import Graph
from kn_graph.onnx.file import ModelFile
from kn_graph.onnx.loader import Loader, LoadOptions
from kn_graph.ops.control import If
from kn_graph.ops.source import Input, ReadSizes
from kn_graph.types import TensorType
from kn_graph.value import CONTENT_ELEMS, Value

__all__ = ["load_under_assumptions"]

MAX_ATTEMPTS = 64

LIKELY_ELEMENTS = (2, 1)
"""What an element of an input that decides about ranks is taken to be: 1 would be squeezed."""


@dataclass(frozen=True)
class _Failure:
    """Why the first attempt failed, and how far it came."""

    error: GraphError | UnsupportedModelError
    graph: Graph


def load_under_assumptions(file: ModelFile, options: LoadOptions) -> Graph:
    """Load a model, trying other assumptions where those first taken lead nowhere.

    Raises:
        GraphError, UnsupportedModelError: of the first attempt, where all fail.
    """
    found = _search(file, options)
    if isinstance(found, Graph):
        return found
    unknown = {
        name: count
        for name, count in _deciding_inputs(found.graph)
        if name not in options.assumed.values
    }
    for element in LIKELY_ELEMENTS if unknown else ():
        guessed = {name: (element,) * count for name, count in unknown.items()}
        assumed = replace(options.assumed, values={**options.assumed.values, **guessed})
        again = _search(file, replace(options, assumed=assumed))
        if isinstance(again, Graph):
            return again
    raise found.error


def _search(file: ModelFile, options: LoadOptions) -> Graph | _Failure:
    """Load a model, taking back decisions about sizes, the latest first."""
    first: _Failure | None = None
    pending = [(dict(options.assumed.decisions), options.assumed.forced)]
    for _ in range(MAX_ATTEMPTS):
        if not pending:
            break
        decisions, forced = pending.pop()
        assumed = replace(options.assumed, decisions=decisions, forced=forced)
        loader = Loader(file, replace(options, assumed=assumed))
        try:
            return loader.load()
        except (GraphError, UnsupportedModelError) as error:
            first = first or _Failure(error, loader.graph)
        guards = [*loader.graph.guards, *loader.graph.body_guards]
        taken = [(str(g.condition), g.decided) for g in guards]
        for i, (text, decided) in enumerate(taken):
            if text not in decisions:  # the last one flipped is tried next
                flipped = {**dict(taken[:i]), **decisions, text: not decided}
                pending.append((flipped, forced | {text}))
    assert first is not None
    return first


def _deciding_inputs(graph: Graph) -> Iterator[tuple[str, int]]:
    """Yield the small inputs that sizes or conditions are made of, with their element counts."""
    readers = [n for n in graph.nodes if isinstance(n.op, (If, ReadSizes))]
    pending: list[Value] = [n.operands[0] for n in readers]
    seen = set(pending)
    while pending:
        value = pending.pop()
        if isinstance(value.node.op, Input) and (count := _small(value)):
            yield value.name, count
        new = [v for v in value.node.operands if v not in seen]
        seen.update(new)
        pending += new


def _small(value: Value) -> int:
    """Return the number of elements of a tensor that can be known; 0 of any other."""
    t = value.type
    if not isinstance(t, TensorType) or t.dtype not in (DType.INT64, DType.INT32, DType.BOOL):
        return 0
    return t.numel if isinstance(t.numel, int) and t.numel <= CONTENT_ELEMS else 0
