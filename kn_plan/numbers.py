"""Numbers for all symbols of a plan, where only those of the inputs are given."""

from __future__ import annotations

from collections.abc import Mapping

from kn_graph.dim import Symbol, SymbolKind, evaluate, symbols_of
from kn_graph.errors import SymbolError
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.types import TensorType
from kn_graph.variants import symbols_by_name
from kn_plan.repeat import repeats_of

__all__ = ["all_numbers"]

CANDIDATES = (2, 3, 1, 0)
"""Numbers that are tried for sizes that show only when a node has run."""


def all_numbers(
    graph: Graph, dims: Mapping[str, int] | None, found: Mapping[Symbol, int] | None = None
) -> tuple[dict[Symbol, int], dict[str, int]]:
    """Return numbers of all symbols, and those that were assumed, by name.

    Args:
        graph: whose symbols are meant.
        dims: numbers of the symbols of its inputs, by name.
        found: numbers of sizes that nodes find; some that are legal are chosen otherwise.

    Raises:
        SymbolError: a size of an input has no number, or no numbers are found that are legal.
    """
    env = {**symbols_by_name(graph, dims), **(found or {})}
    missing = graph.input_symbols() - env.keys()
    if missing:
        name = min(s.name for s in missing)
        raise SymbolError(f"the symbolic size {name!r} has no number; give it in dims", name=name)
    free = [s for s in graph.size_sources if s not in env]
    for choice in CANDIDATES:
        chosen = {s: _within(s, choice) for s in free}
        if _legal(graph, {**env, **chosen}):
            return {**env, **chosen}, {s.name: n for s, n in chosen.items()}
    raise SymbolError(
        "no sizes are found that the graph allows; give others than "
        + ", ".join(f"{s.name} = {n}" for s, n in env.items())
    )


def _within(symbol: Symbol, wanted: int) -> int:
    assert symbol.kind is SymbolKind.DATA
    least = max(wanted, symbol.lo)
    return least if symbol.hi is None else min(least, symbol.hi)


def _legal(graph: Graph, env: Mapping[Symbol, int]) -> bool:
    types = [v.type for node in graph.nodes for v in node.results]
    sizes = {s for t in types if isinstance(t, TensorType) for s in t.shape}
    known = [s for s in sizes if symbols_of(s) <= env.keys()]
    repeats = repeats_of(live_nodes(graph, graph.outputs.values()))
    try:
        return (
            all(c.holds(env) for c in graph.constraints if c.symbols <= env.keys())
            and all(evaluate(s, env) >= 0 for s in known)
            and all(r.holds(env) for r in repeats if r.symbols <= env.keys())
        )
    except ZeroDivisionError:  # one size is counted in another, which is 0
        return False
