"""Which node of a graph is the first that another executor computes differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kn_graph.compare.single import single_graph
from kn_graph.compare.step import Products, step_band
from kn_graph.compare.verdict import CompareReport, compare_outputs
from kn_graph.compare.walk import Context, Step, walk
from kn_graph.errors import KnError
from kn_graph.graph import Graph
from kn_graph.ops.source import Constant, Input, ReadSizes, Sizes
from kn_graph.random_bits import RandomStreams
from kn_graph.value import Node
from kn_graph.variants import open_call

__all__ = ["Divergence", "Runner", "bisect"]

Runner = Callable[[Graph, dict[str, Any]], Mapping[str, Any]]
"""Runs a graph on inputs by name, and returns its outputs by name."""

SOURCES = (Constant, Input, ReadSizes, Sizes)


@dataclass(frozen=True)
class Divergence:
    """A node whose results leave the step band.

    Attributes:
        node: its ONNX name, else its number and operation.
        index: its number in the graph.
        op: the operation with its attributes.
        graph: the node alone, with numbers for all sizes: outputs `out0`, `out1` and so on.
        inputs: what it read, by name: `in0`, `in1` and so on.
        report: how its results compare; nothing where it failed.
        error: how it failed, where it did.
    """

    node: str
    index: int
    op: str
    graph: Graph
    inputs: dict[str, Any]
    report: CompareReport
    error: str = ""

    def describe(self) -> str:
        """Return the node and its verdicts as text."""
        types = ", ".join(str(v.type) for v in self.graph.inputs)
        head = f"first difference at node {self.node} (%{self.index}): {self.op} of ({types})"
        return f"{head}\n{self.error or self.report.describe()}"


def bisect(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    runner: Runner,
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    products: Products = "float32",
) -> Divergence | None:
    """Find the first node whose result leaves the step band when fed the reference's operands.

    Every node is run as a graph of its own, so one that only makes an earlier difference larger is
    not blamed.

    Args:
        graph: the graph.
        inputs: by name, or a list in order.
        runner: the executor under test.
        dims: numbers of symbolic sizes that no input shows.
        seed: of random operations; the runner has to use the same.
        products: see `step_band`.

    Returns:
        The node, or nothing where each one agrees by itself.
    """
    call = open_call(graph, inputs, dims)
    context = Context(dict(call.env), RandomStreams(seed))
    constants: dict[Node, Constant] = {}
    for step in walk(call.graph, call.arrays, context):
        op = step.node.op
        if isinstance(op, Constant):
            constants[step.node] = op
        if not isinstance(op, SOURCES):
            found = _check(step, context, constants, runner, products)
            if found is not None:
                return found
    return None


def _check(
    step: Step,
    context: Context,
    constants: Mapping[Node, Constant],
    runner: Runner,
    products: Products,
) -> Divergence | None:
    node = step.node
    types = [v.type for v in node.operands]
    known = {i: c for i, v in enumerate(node.operands) if (c := constants.get(v.node)) is not None}
    alone = single_graph(node.op, step.operands, context, types=types, constants=known)
    names = [v.name for v in alone.inputs]
    inputs = {f"in{i}": x for i, x in enumerate(step.operands) if f"in{i}" in names}

    def blame(report: CompareReport, error: str = "") -> Divergence:
        return Divergence(node.label, node.index, node.op.describe(), alone, inputs, report, error)

    try:
        actual = runner(alone, inputs)
    except KnError as error:
        return blame(CompareReport(()), f"it failed: {error}")
    band = step_band(
        node.op, step.operands, step.results, context=context, products=products, types=types
    )
    report = compare_outputs(actual, band)
    return None if report.ok else blame(report)
