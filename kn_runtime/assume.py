"""Numbers for symbolic sizes that nobody gave."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kn_graph.dim import Dim, Size, Symbol, evaluate, of_atom, symbols_of
from kn_graph.dim_facts import Constraint, ConstraintKind
from kn_graph.errors import KnError, SymbolError
from kn_graph.graph import Graph
from kn_graph.liveness import bodies_of
from kn_graph.types import TensorType

__all__ = ["assumed_sizes", "concrete_shape", "shown_sizes"]

CANDIDATES = (64, 512, 4096)
"""Tried in this order for sizes that are not of an input's first axis."""

MORE_CANDIDATES = (256, 128, 1024, 2048, 32, 16)
"""Tried after these where a body of control flow allows none of them, as windows of sound do."""

MAX_MIXED = 3
"""Of more sizes than this, only equal numbers for all are tried."""

AHEAD = (64, 65)
"""What sizes are taken to be while others are grown."""

GROWN: Sequence[int] = (*range(CANDIDATES[0], CANDIDATES[-1] + 1), *range(CANDIDATES[0] - 1, 0, -1))
"""Tried last, for one size after another, as a reshape into rows of 105 asks for."""


def shown_sizes(graph: Graph, values: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of symbolic sizes that given inputs show by their shapes, by name."""
    found = {}
    for v in graph.inputs:
        x = values.get(v.name)
        if isinstance(x, np.ndarray) and isinstance(v.type, TensorType) and x.ndim == v.type.rank:
            for declared, actual in zip(v.type.shape, x.shape, strict=True):
                symbol = None if isinstance(declared, int) else declared.as_symbol
                if symbol is not None:
                    found[symbol.name] = actual
    return found


def assumed_sizes(graph: Graph, known: Mapping[str, int]) -> dict[str, int]:
    """Choose a number for each symbol of the graph's inputs that is not known.

    What the graph requires a size to be; 1 for the first axis of an input; else the first of 64,
    512, 4096 for which the graph's requirements hold, and those of control-flow bodies, since any
    of them may run. Where none does, other powers of two are tried, and first axes take these,
    too; then bodies are left aside; then sizes are grown one after another (see `_Growth`).

    Args:
        graph: whose symbols are meant.
        known: numbers of other symbols, by name.

    Raises:
        SymbolError: no choice satisfies the graph.
    """
    first = {
        s.name
        for v in graph.inputs
        if isinstance(v.type, TensorType) and v.type.shape
        for s in symbols_of(v.type.shape[0])
    }
    pinned = {n: k for n, k in _pinned(graph).items() if n in graph.symbols and n not in known}
    free = [n for n in graph.symbols if n not in known and n not in pinned]
    within = _body_constraints(graph)
    equal = _equal(free, [*graph.constraints, *within], first)
    free = [n for n in free if equal[n] == n]
    batch = {n: 1 for n in free if n in first}
    rest = [n for n in free if n not in first]
    ways = (({**pinned, **batch}, rest), (pinned, free))
    chosen: dict[str, int] = {}
    for bodies, fixed, numbers in _proposals(graph, known, ways, equal, within):
        chosen = {**fixed, **numbers}
        chosen |= {n: chosen[same] for n, same in equal.items()}
        if _legal(graph, {**known, **chosen}, bodies):
            return chosen
    several = ", ".join(map(str, CANDIDATES))
    tried = [f"1, {several} for {n!r}" for n in batch] + [f"{several} for {n!r}" for n in rest]
    raise SymbolError(
        f"no assumption about sizes satisfies the model (tried {' and '.join(tried)}, then all "
        f"numbers up to {max(GROWN):,} for each in turn); give them with --dim NAME=N"
        f"{_broken(graph, {**known, **chosen})}"
    )


def _proposals(
    graph: Graph,
    known: Mapping[str, int],
    ways: Sequence[tuple[Mapping[str, int], Sequence[str]]],
    equal: Mapping[str, str],
    within: Sequence[Constraint],
) -> Iterator[tuple[Sequence[Constraint], Mapping[str, int], Mapping[str, int]]]:
    """Yield what bodies have to allow, numbers that are taken as given, and those of the others.

    Args:
        graph: whose symbols are meant.
        known: numbers of symbols that somebody gave.
        ways: numbers that may be taken as given, with the names of the others.
        equal: the name whose number each name has.
        within: requirements of bodies.
    """
    for bodies, numbers in ((within, CANDIDATES), (within, MORE_CANDIDATES), ((), CANDIDATES)):
        for fixed, names in ways:
            for choice in _choices(len(names), numbers):
                yield bodies, fixed, dict(zip(names, choice, strict=True))
    for bodies in (within, ()):
        growth = _Growth(graph, (*graph.constraints, *bodies, *_not_empty(graph)), equal)
        for fixed, names in ways:
            yield bodies, fixed, growth.sizes({**known, **fixed}, names)


@dataclass(frozen=True)
class _Growth:
    """Chooses sizes, last axes first: the first of `GROWN` for which what they have to meet holds.

    Sizes not chosen yet are 64 meanwhile, and 65 as well where some number allows both: what is
    legal since it shares a factor with 64 is not how wide an axis is meant to be.

    Attributes:
        graph: whose symbols are meant.
        required: what has to hold.
        equal: the name whose number each name has.
    """

    graph: Graph
    required: Sequence[Constraint]
    equal: Mapping[str, str]

    def sizes(self, fixed: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
        """Return numbers for some names, in the order of axes, where others have theirs."""
        found = dict.fromkeys(names, AHEAD[0])
        for at, name in reversed(list(enumerate(names))):
            ahead = [{**fixed, **found, **dict.fromkeys(names[:at], n)} for n in AHEAD]
            found[name] = self._first(name, ahead) or self._first(name, ahead[:1]) or AHEAD[0]
        return found

    def _first(self, name: str, others: Sequence[Mapping[str, int]]) -> int | None:
        """Return the first number that is legal with all others."""
        envs = [self._env({**numbers, name: 1}) for numbers in others]
        same = {s for s in envs[0] if self.equal.get(s.name) == name}
        own = [c for c in self.required if c.symbols <= envs[0].keys() and c.symbols & same]
        for n in GROWN:
            tried = [{**env, **dict.fromkeys(same, n)} for env in envs]
            broken = next((i for i, c in enumerate(own) if not all(map(c.holds, tried))), None)
            if broken is None:
                return n
            own.insert(0, own.pop(broken))  # the next number is likely to break it, too
        return None

    def _env(self, numbers: Mapping[str, int]) -> dict[Symbol, int]:
        missing = {n: numbers[same] for n, same in self.equal.items() if same in numbers}
        return _env(self.graph, {**numbers, **missing})


def _not_empty(graph: Graph) -> list[Constraint]:
    """Return the requirements that no tensor of the graph is empty, where its sizes decide that."""
    types = [v.type for node in graph.nodes for v in node.results]
    sizes = {s: None for t in types if isinstance(t, TensorType) for s in t.shape}
    less = (s - 1 for s in sizes if not isinstance(s, int))
    return [Constraint(ConstraintKind.GE, d, "not empty") for d in less if isinstance(d, Dim)]


def _broken(graph: Graph, numbers: Mapping[str, int]) -> str:
    """Return what the graph requires that numbers do not meet, as a text; '' if that is elsewhere.

    Which of several does not matter: it shows what kind of numbers to look for.
    """
    env = _env(graph, numbers)
    broken = (c for c in graph.constraints if c.symbols <= env.keys() and not c.holds(env))
    found = next(broken, None)
    return "" if found is None else f". They have to satisfy {found}"


def _pinned(graph: Graph) -> dict[str, int]:
    """Return the sizes for which a requirement leaves one number, such as the width of weights."""
    found = {}
    for c in graph.constraints:
        if c.kind is ConstraintKind.EQ and len(c.symbols) == 1:
            (symbol,) = c.symbols
            number = -c.dim.constant_term
            if c.dim - of_atom(symbol) + number == 0:
                found[symbol.name] = number
    for have, want in _repeated(graph):
        single = None if isinstance(have, int) else have.as_symbol
        if single is not None and isinstance(want, int) and want <= CANDIDATES[-1]:
            found.setdefault(single.name, want)
    return found


def _repeated(graph: Graph) -> list[tuple[Size, Size]]:
    """Return the axes that may be repeated: what their sizes are, and what they become."""
    from kn_plan.repeat import repeats_of

    return [p for r in repeats_of(graph.nodes) for p in zip(r.have, r.want, strict=True)]


def _choices(count: int, numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """Return what to try for so many sizes: equal numbers first, since most belong together."""
    equal = [(c,) * count for c in numbers]
    return equal + list(product(numbers, repeat=count)) if 1 < count <= MAX_MIXED else equal


def _equal(
    free: Sequence[str], constraints: Iterable[Constraint], first: Container[str]
) -> dict[str, str]:
    """Return for each size the one that it has to be equal to, rather one of a first axis."""
    found = {n: n for n in free}
    for c in constraints:
        pair = sorted(s.name for s in c.symbols)
        if c.kind is not ConstraintKind.EQ or len(pair) != 2 or not found.keys() >= {*pair}:
            continue
        a, b = sorted(c.symbols, key=lambda s: s.name)
        if c.dim in (of_atom(a) - of_atom(b), of_atom(b) - of_atom(a)):
            old, new = sorted((found[a.name], found[b.name]), key=lambda n: n in first)
            found = {n: new if same == old else same for n, same in found.items()}
    return found


def _body_constraints(graph: Graph) -> list[Constraint]:
    """Return what all control-flow bodies require of sizes that the graph's inputs show."""
    shown, found = graph.input_symbols(), []
    pending = [graph]
    while pending:
        bodies = [b for node in pending.pop().nodes for b in bodies_of(node)]
        found += [c for b in bodies for c in b.constraints if c.symbols <= shown]
        pending += bodies
    return found


def _legal(graph: Graph, numbers: Mapping[str, int], bodies: Iterable[Constraint]) -> bool:
    try:
        variant = graph.variant(_env(graph, numbers))
    except KnError:
        return False
    env, outer = _env(variant, numbers), _env(graph, numbers)
    shapes = [v.type.shape for v in variant.inputs if isinstance(v.type, TensorType)]
    sizes = [s for shape in shapes for s in shape if symbols_of(s) <= env.keys()]
    repeats = [(a, b) for a, b in _repeated(variant) if symbols_of(a) | symbols_of(b) <= env.keys()]
    return (
        all(evaluate(s, env) >= 0 for s in sizes)
        and all(c.holds(env) for c in variant.constraints if c.symbols <= env.keys())
        and all(c.holds(outer) for c in bodies if c.symbols <= outer.keys())
        and all(evaluate(a, env) in (1, evaluate(b, env)) for a, b in repeats)
    )


def _env(graph: Graph, numbers: Mapping[str, int]) -> dict[Symbol, int]:
    symbols = ((n, d.as_symbol) for n, d in graph.symbols.items() if n in numbers)
    return {s: numbers[n] for n, s in symbols if s is not None}


def concrete_shape(t: TensorType, numbers: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape with numbers, by name, in place of symbols."""
    env = {s: numbers[s.name] for size in t.shape for s in symbols_of(size)}
    return tuple(evaluate(s, env) for s in t.shape)
