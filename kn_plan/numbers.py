"""Numbers for all symbols of a plan, where only those of the inputs are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kn_graph.dim import Size, Symbol, SymbolKind, evaluate, symbols_of
from kn_graph.dim_facts import Constraint, ConstraintKind
from kn_graph.errors import SymbolError
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.types import TensorType
from kn_graph.variants import symbols_by_name
from kn_plan.repeat import Repeat, repeats_of

__all__ = ["all_numbers"]

CANDIDATES = (2, 3, 1, 0)
"""Numbers that are tried for sizes that show only when a node has run."""

MORE_CANDIDATES = (*CANDIDATES, 4, 8, 16, 64)
"""Those tried for one such size after another, where all cannot have the same."""

POINTS = (0, 64)
"""Where a requirement is taken to be linear, to guess what meets it."""

MOST_TRIES = 20_000
"""Guesses after which no sizes are taken to be legal."""


def all_numbers(
    graph: Graph, dims: Mapping[str, int] | None, found: Mapping[Symbol, int] | None = None
) -> tuple[dict[Symbol, int], dict[str, int]]:
    """Return numbers of all symbols, and those that were assumed, by name.

    Sizes that nodes find are all 2 (3, 1 or 0, if that is not legal); where no number is legal for
    all, one after another gets the first that is, in the order in which they are found.

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
    rules = _rules(graph, {*env, *free})
    for choice in CANDIDATES:
        chosen = {**env, **{s: _within(s, choice) for s in free}}
        if all(_holds(r, chosen) for r in rules):
            return chosen, {s.name: chosen[s] for s in free}
    searched = _searched(free, rules, env)
    if searched is not None:
        return searched, {s.name: searched[s] for s in free}
    raise SymbolError(
        "no sizes are found that the graph allows; give others than "
        + ", ".join(f"{s.name} = {n}" for s, n in env.items())
    )


def _within(symbol: Symbol, wanted: int) -> int:
    assert symbol.kind is SymbolKind.DATA
    least = max(wanted, symbol.lo)
    return least if symbol.hi is None else min(least, symbol.hi)


# ---- what is legal ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _NotNegative:
    """That a size of a result is not negative."""

    size: Size

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset(symbols_of(self.size))

    def holds(self, env: Mapping[Symbol, int]) -> bool:
        return evaluate(self.size, env) >= 0


Rule = Constraint | Repeat | _NotNegative


def _rules(graph: Graph, known: set[Symbol]) -> list[Rule]:
    """Return what numbers of some symbols have to meet."""
    types = [v.type for node in graph.nodes for v in node.results]
    sizes = {s for t in types if isinstance(t, TensorType) for s in t.shape if symbols_of(s)}
    repeats = repeats_of(live_nodes(graph, graph.outputs.values()))
    rules: list[Rule] = [*map(_NotNegative, sizes), *graph.constraints, *repeats]
    return [r for r in rules if r.symbols <= known]


def _holds(rule: Rule, env: Mapping[Symbol, int]) -> bool:
    try:
        return rule.holds(env)
    except ZeroDivisionError:  # a size is a part of another, which would be 0
        return False


# ---- a search -----------------------------------------------------------------------------------


def _searched(
    free: Sequence[Symbol], rules: Sequence[Rule], env: Mapping[Symbol, int]
) -> dict[Symbol, int] | None:
    """Choose sizes in the order in which nodes find them, going back where none is legal."""
    place = {s: i for i, s in enumerate(free)}
    decided: list[list[Rule]] = [[] for _ in free]
    for rule in rules:
        last = max((place[s] for s in rule.symbols if s in place), default=None)
        if last is not None:
            decided[last].append(rule)
        elif not _holds(rule, env):
            return None
    chosen, tries = dict(env), list[Iterator[int]]()
    for _ in range(MOST_TRIES):
        at = len(tries) - 1
        if len(tries) == 0 or all(_holds(r, chosen) for r in decided[at]):
            if len(tries) == len(free):
                return chosen
            at += 1
            tries.append(iter(_guesses(free[at], decided[at], chosen)))
        number = next(tries[at], None)
        while number is None:
            del tries[at]
            chosen.pop(free[at], None)
            if not tries:
                return None
            at -= 1
            number = next(tries[at], None)
        chosen[free[at]] = number
    return None


def _guesses(symbol: Symbol, rules: Sequence[Rule], env: Mapping[Symbol, int]) -> dict[int, None]:
    """Return numbers for a symbol, the best guess first, where those before it have theirs."""
    equal, least = list[int](), list[int]()
    for rule in rules:
        for dim, exact in _differences(rule):
            (equal if exact else least).extend(_roots(dim, symbol, env))
    wanted = (*equal, *MORE_CANDIDATES, *least, *sorted(set(env.values()), reverse=True))
    return dict.fromkeys(_within(symbol, n) for n in wanted)


def _differences(rule: Rule) -> Iterator[tuple[Size, bool]]:
    """Yield what should be 0, or at least (False) 0."""
    if isinstance(rule, Constraint):
        yield rule.dim, rule.kind is ConstraintKind.EQ
    elif isinstance(rule, Repeat):
        for have, want in zip(rule.have, rule.want, strict=True):
            if have != want:
                yield have - want, True
    else:
        yield rule.size, False


def _roots(dim: Size, symbol: Symbol, env: Mapping[Symbol, int]) -> Iterator[int]:
    """Yield where a size would be 0, or just above, if it were linear in a symbol."""
    for point in POINTS:
        try:
            a, b = (evaluate(dim, {**env, symbol: point + i}) for i in (0, 1))
        except ZeroDivisionError:
            continue
        if a != b:
            yield point - a // (b - a)
