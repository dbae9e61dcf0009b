"""Graphs that hold for some sizes only, and how to get the one for others.

A loader may have to decide whether `seq == 1` before it can go on (a squeeze that happens only
then changes the rank). It decides, records a `Guard`, and leaves a `variant_source` behind that
builds the graph again under other assumptions. The same serves a size of 0 where 1 or more was
assumed, and an initializer that is fed like an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kn_graph.dim import Symbol
from kn_graph.errors import SymbolError

if TYPE_CHECKING:
    from kn_graph.graph import Graph

__all__ = ["Assumptions", "Call", "VariantSource", "open_call", "symbols_by_name", "variant_for"]

MAX_STEPS = 64


@dataclass(frozen=True)
class Assumptions:
    """What a graph is built for.

    Attributes:
        sizes: symbols pinned to a number, by name.
        decisions: truth of conditions on sizes, by their text.
        fed: initializers that the caller feeds.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    decisions: Mapping[str, bool] = field(default_factory=dict)
    fed: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable form."""
        return (tuple(sorted(self.sizes.items())), tuple(sorted(self.decisions.items())), self.fed)


VariantSource = Callable[[Assumptions], "Graph"]

_cache: WeakKeyDictionary[Graph, dict[tuple[Any, ...], Graph]] = WeakKeyDictionary()
_lock = Lock()


@dataclass(frozen=True)
class Call:
    """One evaluation, made ready: the graph that holds for it, checked inputs, numbers of sizes.

    Attributes:
        graph: the graph given, or a variant of it.
        arrays: one value for each of its inputs.
        env: numbers of the symbols known so far.
    """

    graph: Graph
    arrays: list[Any]
    env: dict[Symbol, int]


def open_call(
    graph: Graph, inputs: Mapping[str, Any] | Sequence[Any], dims: Mapping[str, int] | None = None
) -> Call:
    """Check inputs, bind sizes and choose the variant that holds for them.

    Args:
        graph: the graph to run.
        inputs: by name, or a list in order.
        dims: numbers of symbols that no input shows.

    Raises:
        InputError: an input or a size does not fit.
    """
    from kn_graph.binding import bind_symbols, check_inputs

    fed = frozenset()
    if isinstance(inputs, Mapping):
        fed = frozenset(n for n in inputs if n in graph.overridable)
    if fed:
        graph = _build(graph, Assumptions(fed=fed))
    arrays = list(check_inputs(graph, inputs).values())
    env = bind_symbols(graph.inputs, arrays, symbols_by_name(graph, dims))
    variant = variant_for(graph, env)
    if variant is not graph:
        known = {n: k for n, k in (dims or {}).items() if n in variant.symbols}
        env = bind_symbols(variant.inputs, arrays, symbols_by_name(variant, known))
    return Call(variant, arrays, env)


def symbols_by_name(graph: Graph, dims: Mapping[str, int] | None) -> dict[Symbol, int]:
    """Return numbers by symbol.

    Raises:
        SymbolError: the graph has no symbol of a name; the text lists those it has.
    """
    found = {}
    for name, number in (dims or {}).items():
        dim = graph.symbols.get(name)
        symbol = None if dim is None else dim.as_symbol
        if symbol is None:
            raise SymbolError(
                f"the model has no symbolic size {name!r}; it has "
                f"{', '.join(map(repr, graph.symbols)) or 'none'}",
                name=name,
            )
        if number < 0:
            raise SymbolError(f"size {name!r} cannot be {number}", name=name)
        found[symbol] = number
    return found


def variant_for(graph: Graph, env: Mapping[Symbol, int]) -> Graph:
    """Return the graph that holds for the numbers of the input symbols: itself where it does.

    Raises:
        SymbolError: the numbers break an assumption, and the graph cannot be built again.
    """
    numbers = {s.name: n for s, n in env.items()}
    assumed = Assumptions()
    current = graph
    for _ in range(MAX_STEPS):
        here = _env(current, numbers)
        wrong = {
            str(g.condition): not g.decided
            for g in current.guards
            if g.condition.symbols <= here.keys() and g.condition.holds(here) != g.decided
        }
        low = {s.name: n for s, n in here.items() if n < s.lo}
        if not wrong and not low:
            return current
        if graph.variant_source is None:
            broken = [f"size {s!r} is {n}" for s, n in low.items()] + [
                f"{c} changed" for c in wrong
            ]
            raise SymbolError(f"this graph does not hold for these sizes: {', '.join(broken)}")
        taken = {str(g.condition): g.decided for g in current.guards}
        assumed = Assumptions({**assumed.sizes, **low}, {**assumed.decisions, **taken, **wrong})
        current = _build(graph, assumed)
    raise SymbolError(f"no variant of the graph was found for the sizes {numbers}")


def _env(graph: Graph, numbers: Mapping[str, int]) -> dict[Symbol, int]:
    return {
        s: numbers[name]
        for name, d in graph.symbols.items()
        if (s := d.as_symbol) is not None and name in numbers
    }


def _build(graph: Graph, assumed: Assumptions) -> Graph:
    with _lock:
        known = _cache.setdefault(graph, {})
        found = known.get(assumed.key)
    if found is None:
        assert graph.variant_source is not None
        found = graph.variant_source(assumed)
        with _lock:
            found = known.setdefault(assumed.key, found)
    return found
