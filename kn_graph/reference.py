"""The reference executor: one loop over the nodes, in NumPy. It defines what is right."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kn_graph.binding import bind_symbols
from kn_graph.context import RunContext
from kn_graph.dim import Symbol, UnboundSymbolError
from kn_graph.dim_facts import Constraint
from kn_graph.errors import ExecutionError, InternalError, KnError, OutOfMemoryError, SymbolError
from kn_graph.graph import Graph
from kn_graph.liveness import last_uses, live_nodes
from kn_graph.memory import available_bytes, check_fits, check_peak
from kn_graph.ops.source import Input
from kn_graph.random_bits import RandomStreams
from kn_graph.types import TensorType
from kn_graph.value import Node, Value
from kn_graph.variants import check_guards, open_call

__all__ = [
    "Kept",
    "check_constraints",
    "cpu_eval_graph",
    "eval_drawing",
    "owned",
    "reference_outputs",
]


@dataclass(frozen=True)
class Kept:
    """An intermediate value and what it took.

    Attributes:
        value: the array (or list, dict, None).
        node: ONNX name of the node that made it, else its number and operation.
        seconds: wall time of that node.
    """

    value: Any
    node: str
    seconds: float


def cpu_eval_graph(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    dims: Mapping[str, int] | None = None,
    *,
    keep: Literal["all"] | Iterable[str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Run a graph on the reference: simple, slow, right.

    Args:
        graph: any graph.
        inputs: by name, or a list in order; element types must match exactly.
        dims: numbers of symbolic sizes that no input shows.
        keep: also return intermediate values: "all" that the outputs need, or names of ONNX
            tensors (or `%number`).
        seed: of random operations.

    Returns:
        {output name: value} in output order. With `keep`, {name: Kept} of other values that were
        asked for follows; values without an ONNX name are called `%number`.

    Raises:
        InputError: an input is missing, unknown or does not fit.
        ExecutionError: a value breaks the rule of an operator; the text names the ONNX node.
        OutOfMemoryError: a result would not fit into memory; raised before it is made.
    """
    return eval_drawing(graph, inputs, dims, RandomStreams(seed), keep=keep)


def eval_drawing(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    dims: Mapping[str, int] | None,
    streams: RandomStreams,
    *,
    keep: Literal["all"] | Iterable[str] | None = None,
) -> dict[str, Any]:
    """Run a graph as `cpu_eval_graph` does, going on in streams of random numbers."""
    call = open_call(graph, inputs, dims)
    run = _Run(streams)
    wanted = _wanted(call.graph, keep)
    outputs = run.graph(call.graph, call.arrays, call.env, wanted)
    try:
        mine = map(owned, outputs)
        result: dict[str, Any] = dict(zip(call.graph.outputs, mine, strict=True))
    except MemoryError as error:
        raise OutOfMemoryError(f"the outputs do not fit into memory: {error}") from error
    return result | {n: k for n, k in run.kept.items() if n not in result}


def reference_outputs(graph: Graph, inputs: Sequence[Any], env: Mapping[Symbol, int]) -> list[Any]:
    """Run a graph without operands to check: for constant folding and host steps."""
    return _Run(RandomStreams(0)).graph(graph, list(inputs), dict(env), {})


def _wanted(graph: Graph, keep: Literal["all"] | Iterable[str] | None) -> dict[Value, list[str]]:
    if keep is None:
        return {}
    if keep == "all":
        values = (v for n in live_nodes(graph, graph.outputs.values()) for v in n.results)
        return {v: list(v.names) or [v.name] for v in values}
    wanted: dict[Value, list[str]] = {}
    for name in [keep] if isinstance(keep, str) else keep:
        wanted.setdefault(graph.find(name), []).append(name)
    return wanted


def owned(x: Any) -> Any:
    """Return a value that the caller may write to and that no weight or input shares."""
    if isinstance(x, np.ndarray):
        return np.array(x, order="C")
    if isinstance(x, np.generic):
        return np.asarray(x)
    if isinstance(x, dict):
        return {k: owned(e) for k, e in x.items()}
    return [owned(e) for e in x] if isinstance(x, list) else x


class _Context(RunContext):
    """One graph (or body) of a run."""

    def __init__(self, run: _Run, env: dict[Symbol, int]) -> None:
        super().__init__(env, run.streams)
        self._run = run

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a body with the sizes around it known."""
        env = bind_symbols(body.inputs, list(inputs), self.env)
        return self._run.graph(body, list(inputs), env, {})


class _Run:
    """One evaluation."""

    def __init__(self, streams: RandomStreams) -> None:
        self.streams = streams
        self.kept: dict[str, Kept] = {}
        self.limit_bytes = available_bytes()

    def graph(
        self,
        graph: Graph,
        inputs: list[Any],
        env: dict[Symbol, int],
        wanted: Mapping[Value, list[str]],
    ) -> list[Any]:
        """Evaluate the live nodes in order and free what nobody reads any more."""
        context = _Context(self, env)
        check_guards(graph, env)
        pending = check_constraints(graph.constraints, env)
        bound = len(env)
        outputs = list(graph.outputs.values())
        nodes = live_nodes(graph, [*outputs, *wanted])
        frees = last_uses(nodes, outputs)
        late = check_peak(nodes, frees, env, self.limit_bytes)
        values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
        for node in nodes:
            start = time.perf_counter()
            if node in late:
                check_fits(node, env, self.limit_bytes)
            if not isinstance(node.op, Input):
                self._evaluate(node, values, context)
            if pending and len(env) > bound:
                where = f"node {node.label} ({node.op.title}): "
                pending, bound = check_constraints(pending, env, where), len(env)
            seconds = time.perf_counter() - start
            if wanted:
                self._keep(node, values, wanted, seconds)
            for v in frees.get(node, ()):
                del values[v]
        return [values[v] for v in outputs]

    def _evaluate(self, node: Node, values: dict[Value, Any], context: _Context) -> None:
        try:
            out = node.op.eval(context, *[values[v] for v in node.operands])
        except KnError as error:
            error.add_context(f"node {node.label} ({node.op.title})")
            raise
        except UnboundSymbolError as error:
            raise SymbolError(
                f"node {node.label} ({node.op.title}): {error}, since no input shows it; "
                "give it in dims"
            ) from None
        except MemoryError as error:
            raise OutOfMemoryError(f"node {node.label} ({node.op.title}): {error}") from error
        except Exception as error:
            given = ", ".join(str(v.type) for v in node.operands)
            raise InternalError(
                f"node {node.label}: the reference of {node.op.describe()} failed on ({given}) "
                f"with {type(error).__name__}: {error}. Please report this."
            ) from error
        results = out if isinstance(out, tuple) else (out,)
        for v, x in zip(node.results, results, strict=True):
            values[v] = _as_result(v, x, node, context)

    def _keep(
        self,
        node: Node,
        values: Mapping[Value, Any],
        wanted: Mapping[Value, list[str]],
        seconds: float,
    ) -> None:
        for v in node.results:
            for name in wanted.get(v, ()):
                self.kept[name] = Kept(owned(values[v]), node.label, seconds)


def check_constraints(
    constraints: Iterable[Constraint], env: Mapping[Symbol, int], where: str = ""
) -> list[Constraint]:
    """Check what the graph requires of sizes, and return what cannot be checked yet.

    Args:
        constraints: the requirements.
        env: numbers of the symbols known so far.
        where: the node that gave the newest of them; without it, they come from the caller.
    """
    pending = []
    for constraint in constraints:
        try:
            holds = constraint.holds(env)
        except UnboundSymbolError:
            pending.append(constraint)
            continue
        if not holds:
            symbols = sorted(constraint.symbols, key=lambda s: s.name)
            sizes = ", ".join(f"{s.name}={env[s]}" for s in symbols)
            text = f"{where}the model does not allow these sizes ({sizes}): {constraint}"
            raise ExecutionError(text) if where else SymbolError(text)
    return pending


def _as_result(v: Value, x: Any, node: Node, context: _Context) -> Any:
    """Check a result against its type, and bind the data symbols that its shape shows."""
    t = v.type
    if not isinstance(t, TensorType):
        return x
    x = np.asarray(x)
    if x.dtype != t.dtype.numpy or x.ndim != t.rank:
        raise InternalError(
            f"node {node.label}: {node.op.describe()} gave {x.dtype}{list(x.shape)}, "
            f"expected {t}. Please report this."
        )
    env = context.env
    for declared, actual in zip(t.shape, x.shape, strict=True):
        if declared is actual or declared == actual:
            continue
        symbol = None if isinstance(declared, int) else declared.as_symbol
        if symbol is not None and symbol not in env:
            context.bind(symbol, actual)
        elif context.size(declared) != actual:
            raise InternalError(
                f"node {node.label}: {node.op.describe()} gave shape {list(x.shape)}, "
                f"expected {t} = {list(context.sizes(t.shape))}. Please report this."
            )
    return x
