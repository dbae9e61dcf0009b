"""Which nodes of a graph are the first to make what is no finite number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.compare.verdict import leaves
from kn_graph.compare.walk import Context, Step, walk
from kn_graph.dtype import DType, Kind
from kn_graph.graph import Graph
from kn_graph.ops.source import Constant
from kn_graph.random_bits import RandomStreams
from kn_graph.variants import open_call

__all__ = ["NotFinite", "find_not_finite"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class NotFinite:
    """A node that makes NaN from operands without NaN, or infinities from finite operands.

    Attributes:
        node: its ONNX name, else its number and operation.
        index: its number in the graph.
        op: the operation with its attributes.
        dtype: the element type of the result.
        nan: how many elements of its results are NaN.
        inf: how many are infinite.
        elements: how many there are.
        largest: the largest magnitude among the finite elements of its operands.
    """

    node: str
    index: int
    op: str
    dtype: str
    nan: int
    inf: int
    elements: int
    largest: float

    def describe(self) -> str:
        """Return one line of text."""
        kinds = ((self.nan, "NaN"), (self.inf, "infinite"))
        counts = " and ".join(f"{count:,} {kind}" for count, kind in kinds if count)
        return (
            f"{self.node}: {counts} of {self.elements:,} elements ({self.dtype}), "
            f"operands up to {self.largest:.4g}"
        )


def find_not_finite(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    dims: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
) -> list[NotFinite]:
    """Run the reference, and find the nodes that NaN and infinities begin at.

    A branch or a loop counts as one node. Constants are not named: masks are infinite on purpose.
    An input with NaN is, since it was given.

    Args:
        graph: the graph; one as loaded has the nodes of the file.
        inputs: by name, or a list in order.
        dims: numbers of symbolic sizes that no input shows.
        seed: of random operations.

    Returns:
        The nodes in the order in which they run; none where all is finite.

    Raises:
        InputError: the inputs do not fit.
        ExecutionError: a node failed.
    """
    call = open_call(graph, inputs, dims)
    context = Context(dict(call.env), RandomStreams(seed))
    with np.errstate(all="ignore"):
        begun = map(_begun, walk(call.graph, call.arrays, context))
        return [found for found in begun if found is not None]


def _begun(step: Step) -> NotFinite | None:
    """Return what begins at a node, if anything does."""
    node, results = step.node, _floats(step.results)
    nan, inf = (sum(int(test(x).sum()) for x in results) for test in (np.isnan, np.isinf))
    if isinstance(node.op, Constant) or not nan + inf:
        return None
    operands = _floats(step.operands)
    had_nan, had_inf = (any(test(x).any() for x in operands) for test in (np.isnan, np.isinf))
    if had_nan or (had_inf and not nan):
        return None
    largest = [float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in operands]
    return NotFinite(
        node.label, node.index, node.op.describe(), str(DType.from_numpy(results[0].dtype)),
        nan, inf, sum(x.size for x in results), max(largest, default=0.0),
    )  # fmt: skip


def _floats(values: Sequence[Any]) -> list[Array]:
    """Return the arrays of numbers that may be no finite ones."""
    arrays = [x for _, x in leaves("", list(values))]
    return [x for x in arrays if DType.from_numpy(x.dtype).kind in (Kind.FLOAT, Kind.COMPLEX)]
