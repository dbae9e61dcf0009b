"""Graphs that hold for some sizes only, and how to get the one for others.

A loader may have to decide whether `seq == 1` before it can go on (a squeeze that happens only
then changes the rank). It decides, records a `Guard`, and leaves a `variant_source` behind that
builds the graph again under other assumptions. The same serves a size of 0 where 1 or more was
assumed, and an initializer that is fed like an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kn_graph.dim import Symbol, evaluate
from kn_graph.errors import SymbolError

if TYPE_CHECKING:
    from kn_graph.condition import Condition, Guard
    from kn_graph.graph import Graph

__all__ = [
    "Assumptions",
    "Call",
    "VariantSource",
    "check_guards",
    "open_call",
    "symbols_by_name",
    "variant_for",
]

TYPICAL_SIZES = (64, 512, 4096)
"""What a symbolic size is taken to be, where a condition on it has to be decided first: the first
for which what is compared with 1 is a size at all, as frames of samples are none for a few."""


@dataclass(frozen=True)
class Assumptions:
    """What a graph is built for.

    Attributes:
        sizes: symbols pinned to a number, by name.
        likely: numbers by which open conditions are decided, by name of the symbol.
        decisions: truth of conditions that are decided already, by their text.
        fed: initializers that the caller feeds.
        values: elements of small integer inputs on which the structure depends, such as axes.
        forced: those of the decisions whose opposite leads nowhere.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    likely: Mapping[str, int] = field(default_factory=dict)
    decisions: Mapping[str, bool] = field(default_factory=dict)
    fed: frozenset[str] = frozenset()
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    forced: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        """Hash what `==` compares."""
        tables = (self.sizes, self.likely, self.decisions, self.values)
        return hash((*(frozenset(t.items()) for t in tables), self.fed))

    def decide(self, condition: Condition, prefer: bool | None = None) -> bool:
        """Return what a condition is assumed to be; `prefer` where its sizes are unknown."""
        known = self.decisions.get(str(condition))
        if known is not None:
            return known
        if prefer is not None and not any(s.name in self.likely for s in condition.symbols):
            return prefer
        for typical in TYPICAL_SIZES:
            numbers = {s: self.likely.get(s.name, max(s.lo, typical)) for s in condition.symbols}
            with_one = condition.equal and condition.dim.constant_term == -1
            if not with_one or evaluate(condition.dim, numbers) >= 0:
                break
        return condition.holds(numbers)


MAX_VALUE_STEPS = 16
"""One value may decide which further ones matter."""

VariantSource = Callable[[Assumptions], "Graph"]

_built: WeakKeyDictionary[Graph, dict[Assumptions, Graph]] = WeakKeyDictionary()
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

    fed: frozenset[str] = frozenset()
    if isinstance(inputs, Mapping):
        fed = frozenset(n for n in inputs if n in graph.overridable)
    assumed = Assumptions(fed=fed)
    if fed:
        graph = _build(graph, assumed)
    arrays = list(check_inputs(graph, inputs).values())
    env = bind_symbols(graph.inputs, arrays, symbols_by_name(graph, dims))
    first = graph
    graph, assumed = _with_values(graph, arrays, assumed)
    if graph is not first:
        env = bind_symbols(graph.inputs, arrays, symbols_by_name(graph, dims))
    variant = variant_for(graph, env, assumed)
    if variant is not graph:
        known = {n: k for n, k in (dims or {}).items() if n in variant.symbols}
        env = bind_symbols(variant.inputs, arrays, symbols_by_name(variant, known))
    return Call(variant, arrays, env)


def _with_values(
    graph: Graph, arrays: Sequence[Any], assumed: Assumptions
) -> tuple[Graph, Assumptions]:
    """Return the graph whose structure suits the values of its small integer inputs."""
    for _ in range(MAX_VALUE_STEPS):
        given = {
            v.name: tuple(x.ravel().tolist())
            for v, x in zip(graph.inputs, arrays, strict=True)
            if v.name in graph.assumed_values
        }
        if given == graph.assumed_values:
            return graph, assumed
        if graph.variant_source is None:
            name = next(n for n, x in given.items() if x != graph.assumed_values[n])
            raise SymbolError(
                f"this graph holds for {name!r} = {list(graph.assumed_values[name])} only, "
                f"got {list(given[name])}"
            )
        assumed = replace(assumed, values=given)
        graph = _build(graph, assumed)
    raise SymbolError("the structure of the model depends on more and more values of its inputs")


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
        try:
            found[symbol] = index(number)
        except TypeError:
            found[symbol] = -1
        if found[symbol] < 0:
            raise SymbolError(f"size {name!r} cannot be {number!r}", name=name)
    return found


def variant_for(
    graph: Graph, env: Mapping[Symbol, int], assumed: Assumptions | None = None
) -> Graph:
    """Return the graph that holds for the numbers of the input symbols: itself where it does.

    Args:
        graph: the graph or a variant of it.
        env: numbers of its input symbols.
        assumed: what the graph was built for.

    Raises:
        SymbolError: the numbers break an assumption, and the graph cannot be built again.
    """
    if _holds(env, _reasons(graph)):
        return graph
    numbers = {s.name: n for s, n in env.items()}
    low = {s.name: n for s, n in env.items() if n < s.lo}
    if graph.variant_source is None:
        if _holds(env, graph.guards):
            return graph  # a body may still refuse these sizes, if it runs
        raise SymbolError(f"this graph does not hold for these sizes: {_broken(graph, env)}")
    wanted = replace(assumed or Assumptions(), sizes=low, likely=numbers)
    known = _known_variant(graph, wanted, numbers)
    if known is not None:
        return known
    variant = _build(graph, wanted)
    if not _holds(_env(variant, numbers), variant.guards):
        # the file contradicts itself under these numbers
        sizes = ", ".join(f"{n}={k}" for n, k in numbers.items())
        raise SymbolError(f"the model does not allow these sizes: {sizes}")
    return variant


def _known_variant(graph: Graph, wanted: Assumptions, numbers: Mapping[str, int]) -> Graph | None:
    """Return a variant that was built for other numbers, but holds for these as well."""
    with _lock:
        built = list(_built.get(graph, {}).items())
    for assumed, variant in built:
        alike = replace(assumed, likely={}) == replace(wanted, likely={})
        if alike and _holds(_env(variant, numbers), _reasons(variant)):
            return variant
    return None


def check_guards(graph: Graph, env: Mapping[Symbol, int]) -> None:
    """Check what a graph or body assumes, when it is about to run.

    Raises:
        SymbolError: an assumption is broken.
    """
    wrong = _wrong(graph.guards, env)
    if wrong:
        raise SymbolError(f"the model does not allow these sizes: {wrong[0].condition} must hold")


def _reasons(graph: Graph) -> list[Guard]:
    """Return the guards that are a reason to build a graph anew where they do not hold.

    A body whose guard is forced would be the same there, and fails if it runs.
    """
    return [*graph.guards, *(g for g in graph.body_guards if not g.forced)]


def _holds(env: Mapping[Symbol, int], guards: Sequence[Guard]) -> bool:
    return all(n >= s.lo for s, n in env.items()) and not _wrong(guards, env)


def _wrong(guards: Sequence[Guard], env: Mapping[Symbol, int]) -> list[Guard]:
    return [
        g
        for g in guards
        if g.condition.symbols <= env.keys() and g.condition.holds(env) != g.decided
    ]


def _env(graph: Graph, numbers: Mapping[str, int]) -> dict[Symbol, int]:
    return {
        s: numbers[name]
        for name, d in graph.symbols.items()
        if (s := d.as_symbol) is not None and name in numbers
    }


def _broken(graph: Graph, env: Mapping[Symbol, int]) -> str:
    sizes = [f"size {s.name!r} is {n}" for s, n in env.items() if n < s.lo]
    guards = [f"{g.condition} is {not g.decided}" for g in _wrong(graph.guards, env)]
    return ", ".join(sizes + guards)


def _build(graph: Graph, assumed: Assumptions) -> Graph:
    with _lock:
        known = _built.setdefault(graph, {})
        found = known.get(assumed)
    if found is None:
        assert graph.variant_source is not None
        found = graph.variant_source(assumed)
        with _lock:
            # several numbers often lead to the same decisions: one graph serves them all
            same = [
                v
                for a, v in known.items()
                if (a.fed, a.values) == (assumed.fed, assumed.values) and _alike(v, found)
            ]
            found = known[assumed] = same[0] if same else found
    return found


def _alike(a: Graph, b: Graph) -> bool:
    def decisions(graph: Graph) -> list[tuple[str, bool]]:
        guards = [*graph.guards, *graph.body_guards]
        return [(str(g.condition), g.decided) for g in guards]

    types = [[str(v.type) for v in g.inputs] for g in (a, b)]
    return types[0] == types[1] and decisions(a) == decisions(b)
