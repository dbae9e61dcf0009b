"""Numbers for symbolic sizes that nobody gave."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from kn_graph.dim import Symbol, evaluate, symbols_of
from kn_graph.dim_facts import ConstraintKind
from kn_graph.errors import KnError, SymbolError
from kn_graph.graph import Graph
from kn_graph.types import TensorType

__all__ = ["assumed_sizes", "concrete_shape"]

CANDIDATES = (64, 512, 4096)
"""Tried in this order for sizes that are not of an input's first axis."""


def assumed_sizes(
    graph: Graph, dims: Mapping[str, int], values: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Choose a number for each symbol that neither `dims` nor given inputs bind.

    1 for the first axis of an input; else the first of 64, 512, 4096 for which the graph's
    requirements hold.

    Args:
        graph: whose symbols are meant.
        dims: numbers given by name.
        values: inputs given, by name.

    Raises:
        SymbolError: no choice satisfies the graph.
    """
    known = {**dims, **_bound_by(graph, values or {})}
    first = {
        s.name
        for v in graph.inputs
        if isinstance(v.type, TensorType) and v.type.shape
        for s in symbols_of(v.type.shape[0])
    }
    free = [n for n in graph.symbols if n not in known]
    batch = {n: 1 for n in free if n in first}
    rest = [n for n in free if n not in first]
    # all alike first: lengths that belong together are usually equal
    choices = [tuple([c] * len(rest)) for c in CANDIDATES]
    if len(rest) <= 3:
        choices += list(product(CANDIDATES, repeat=len(rest)))
    for choice in choices:
        chosen = {**batch, **dict(zip(rest, choice, strict=True))}
        if _legal(graph, {**known, **chosen}):
            return chosen
    raise SymbolError(
        f"no sizes of {CANDIDATES} for {', '.join(rest)} satisfy the model; give them with --dim"
    )


def _bound_by(graph: Graph, values: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for v in graph.inputs:
        x = values.get(v.name)
        if isinstance(x, np.ndarray) and isinstance(v.type, TensorType) and x.ndim == v.type.rank:
            for declared, actual in zip(v.type.shape, x.shape, strict=True):
                symbol = None if isinstance(declared, int) else declared.as_symbol
                if symbol is not None:
                    found[symbol.name] = actual
    return found


def _legal(graph: Graph, numbers: Mapping[str, int]) -> bool:
    env = _env(graph, numbers)
    try:
        variant = graph.variant(env)
    except KnError:
        return False
    env = _env(variant, numbers)
    return all(
        c.holds(env)
        for c in variant.constraints
        if c.symbols <= env.keys() and c.kind is not ConstraintKind.ASSUME
    )


def _env(graph: Graph, numbers: Mapping[str, int]) -> dict[Symbol, int]:
    symbols = ((n, d.as_symbol) for n, d in graph.symbols.items() if n in numbers)
    return {s: numbers[n] for n, s in symbols if s is not None}


def concrete_shape(t: TensorType, numbers: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape with numbers, by name, in place of symbols."""
    env = {s: numbers[s.name] for size in t.shape for s in symbols_of(size)}
    return tuple(evaluate(s, env) for s in t.shape)

