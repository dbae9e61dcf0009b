"""From a failing program to a small one that fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kn_graph import DType, Value
from kn_graph.compare.walk import Context, walk
from kn_graph.variants import open_call
from tests.fuzz.checks import ENDLESS, SECONDS, Failure, run_check
from tests.fuzz.program import Feed, Program

__all__ = ["shrink"]

MOST_ATTEMPTS = 1500
SHORT = 2.0
"""What never ends is tried for so many seconds each time."""


def shrink(program: Program, failure: Failure) -> tuple[Program, Failure]:
    """Return the smallest program found that fails the same check in the same way."""
    attempts = 0
    seconds = SHORT if failure.kind == ENDLESS else SECONDS
    smaller = True
    while smaller and attempts < MOST_ATTEMPTS:
        smaller = False
        for candidate in _candidates(program):
            attempts += 1
            if attempts >= MOST_ATTEMPTS:
                break
            found = run_check(failure.check, candidate, seconds)
            if found is not None and found.kind == failure.kind:
                program, failure, smaller = candidate, found, True
                break
    return program, failure


def _candidates(program: Program) -> Iterator[Program]:
    """Yield programs that are a little smaller, the ones that drop most first."""
    if len(program.outputs) > 1:
        yield from (program.only([name]) for name in program.outputs)
        yield from (program.only(n for n in program.outputs if n != o) for o in program.outputs)
    yield from _cut_short(program)
    yield from _without_lines(program)
    yield from _with_numbers(program)
    yield from _with_less(program)
    yield from _with_simpler_values(program)


def _cut_short(program: Program) -> Iterator[Program]:
    """Return something earlier instead of an output."""
    names = [n for line in program.lines for n in line.results]
    for name in names:
        if name not in program.outputs:
            yield program.only([name])


def _without_lines(program: Program) -> Iterator[Program]:
    """Put an input, a constant or an operand in place of a line's result."""
    arrays = _arrays(program)
    for position, line in enumerate(program.lines):
        rest = (*program.lines[:position], *program.lines[position + 1 :])
        if len(line.results) == 1:
            (name,) = line.results
            for arg in line.args:
                yield _renamed(replace(program, lines=rest), name, arg).only(
                    arg if n == name else n for n in program.outputs
                )
            if name in arrays:
                for constant in (False, True):
                    feed = Feed(name, arrays[name].shape, arrays[name], constant)
                    yield _kept(replace(program, lines=rest).with_feed(feed))


def _kept(program: Program) -> Program:
    return program.only(program.outputs)


def _renamed(program: Program, old: str, new: str) -> Program:
    def swap(args: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if a == old else a for a in args)

    lines = tuple(replace(line, args=swap(line.args)) for line in program.lines)
    return replace(program, lines=lines, outputs=tuple(dict.fromkeys(swap(program.outputs))))


def _arrays(program: Program) -> dict[str, Any]:
    """Return what every variable holds, as far as the program runs."""
    found: dict[Value, Any] = {}
    values: dict[str, Value] = {}
    try:
        graph, values = program.values()
        call = open_call(graph, program.inputs())
        with np.errstate(all="ignore"):
            for step in walk(graph, call.arrays, Context(dict(call.env)), values.values()):
                found |= dict(zip(step.node.results, step.results, strict=True))
    except Exception:
        pass  # perhaps what is looked for: what ran before it is known
    return {n: found[v] for n, v in values.items() if v in found}


def _with_numbers(program: Program) -> Iterator[Program]:
    """Replace symbols by numbers."""
    if program.sizes:
        feeds = tuple(replace(f, shape=f.array.shape) for f in program.feeds)
        yield replace(program, feeds=feeds, sizes=())
    for f in program.feeds:
        if not f.constant and f.dtype is not DType.BOOL and f.array.ndim == 0:
            yield program.with_feed(replace(f, constant=True))


def _with_less(program: Program) -> Iterator[Program]:
    """Keep fewer elements along an axis of an input, or of all that share its symbol."""
    for f in program.feeds:
        for axis, n in enumerate(f.array.shape):
            for k in {1, n // 2, n - 1}:
                if not 0 < k < n:
                    continue
                symbol = f.shape[axis]
                if isinstance(symbol, int):
                    array = f.array.take(range(k), axis)
                    yield program.with_feed(replace(f, array=array, shape=_shape(f, axis, k)))
                else:
                    yield _resized(program, symbol, k)


def _shape(f: Feed, axis: int, k: int) -> tuple[int | str, ...]:
    return (*f.shape[:axis], k, *f.shape[axis + 1 :])


def _resized(program: Program, symbol: str, k: int) -> Program:
    feeds = []
    for f in program.feeds:
        array = f.array
        for axis, size in enumerate(f.shape):
            if size == symbol:
                array = array.take(range(min(k, array.shape[axis])), axis)
        feeds.append(replace(f, array=array))
    sizes = tuple((n, k if n == symbol else s) for n, s in program.sizes)
    return replace(program, feeds=tuple(feeds), sizes=sizes)


def _with_simpler_values(program: Program) -> Iterator[Program]:
    """Replace arrays by zeros, ones, or small numbers; each has to be simpler than before."""
    for f in program.feeds:
        size, dtype = f.array.size, f.array.dtype
        if f.dtype is DType.BOOL or not size:
            continue
        options = [np.zeros(size), np.ones(size), np.arange(1, size + 1) % 100]
        if f.dtype.is_float:
            wide = f.array.astype(np.float64).ravel()
            options.append(np.round(wide))
            options.append(np.round(wide, 1))
        for option in options:
            array = option.astype(dtype).reshape(f.array.shape)
            if _cost(array) < _cost(f.array):
                yield program.with_feed(replace(f, array=array))


def _cost(x: Any) -> int:
    """Length of the numbers as text; equal numbers count once."""
    texts = [str(e) for e in x.ravel()]
    return sum(map(len, set(texts))) * 100 + sum(map(len, texts))
