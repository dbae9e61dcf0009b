"""Programs over the builder methods of `Graph`: built, run, and printed as Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from kn_graph import DType, Graph, Value
from tests.fuzz import bodies

__all__ = ["Feed", "Line", "Program", "array_text", "namespace"]

Array = np.ndarray[Any, Any]

HEAD = """import numpy as np
from numpy import inf, nan

from kn_graph import DType, Graph
"""


@dataclass(frozen=True)
class Feed:
    """An input or a constant.

    Attributes:
        name: of the variable, and of the input.
        shape: numbers and names of symbols.
        array: what is given.
        constant: whether it is part of the graph.
    """

    name: str
    shape: tuple[int | str, ...]
    array: Array
    constant: bool = False

    @property
    def dtype(self) -> DType:
        """Element type."""
        return DType.from_numpy(self.array.dtype)


@dataclass(frozen=True)
class Line:
    """An assignment.

    Attributes:
        results: the variables that it sets.
        template: the expression, with `{0}`, `{1}` and so on for variables.
        args: those variables.
    """

    results: tuple[str, ...]
    template: str
    args: tuple[str, ...]

    @property
    def expression(self) -> str:
        """The expression as Python text."""
        return self.template.format(*self.args)


@dataclass(frozen=True)
class Program:
    """A graph as a program.

    Attributes:
        feeds: inputs and constants.
        lines: assignments, in order.
        outputs: variables that the graph returns.
        sizes: numbers of the symbols.
    """

    feeds: tuple[Feed, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    def values(self) -> tuple[Graph, dict[str, Value]]:
        """Build the graph, and return every variable."""
        g = Graph("fuzz")
        for name, _ in self.sizes:
            g.symbol(name, lo=0)
        found: dict[str, Value] = {}
        for feed in self.feeds:
            if feed.constant:
                found[feed.name] = g.constant(feed.array)
            else:
                found[feed.name] = g.input(feed.name, feed.dtype, feed.shape)
        names = {**namespace(g), **found}
        for line in self.lines:
            out = eval(line.expression, names)
            out = (out,) if isinstance(out, Value) else tuple(out)
            found |= dict(zip(line.results, out, strict=True))
            names |= found
        for name in self.outputs:
            g.output(name, found[name])
        return g, found

    def build(self) -> Graph:
        """Return the graph."""
        return self.values()[0]

    def inputs(self) -> dict[str, Array]:
        """Return what is given to the graph."""
        return {f.name: f.array for f in self.feeds if not f.constant}

    def only(self, outputs: Iterable[str]) -> Program:
        """Return the part that some outputs need."""
        wanted = tuple(outputs)
        needed = set(wanted)
        lines: list[Line] = []
        for line in reversed(self.lines):
            if needed & set(line.results):
                needed |= set(line.args)
                lines.append(line)
        feeds = tuple(f for f in self.feeds if f.name in needed)
        used = {s for f in feeds for s in f.shape}
        sizes = tuple((n, k) for n, k in self.sizes if n in used)
        return Program(feeds, tuple(reversed(lines)), wanted, sizes)

    def with_feed(self, feed: Feed) -> Program:
        """Return the program with one feed replaced, or added."""
        others = [f for f in self.feeds if f.name != feed.name]
        at = next((i for i, f in enumerate(self.feeds) if f.name == feed.name), len(others))
        return replace(self, feeds=(*others[:at], feed, *others[at:]))

    def __str__(self) -> str:
        """Return the program as Python text that runs."""
        text = [HEAD.rstrip()]
        used = [n for n in bodies.__all__ if any(n in line.template for line in self.lines)]
        if used:
            text.append(f"from tests.fuzz.bodies import {', '.join(used)}")
        text += ["", "g = Graph()"]
        text += [f"g.symbol({name!r}, lo=0)" for name, _ in self.sizes]
        for f in self.feeds:
            made = f"constant({array_text(f.array)})"
            if not f.constant:
                made = f"input({f.name!r}, {f.dtype.text!r}, {f.shape!r})"
            text.append(f"{f.name} = g.{made}")
        text += [f"{', '.join(line.results)} = {line.expression}" for line in self.lines]
        text += [f"g.output({n!r}, {n})" for n in self.outputs]
        text += ["inputs = {"]
        text += [f"    {n!r}: {array_text(x)}," for n, x in self.inputs().items()]
        return "\n".join([*text, "}"])


def namespace(g: Graph) -> dict[str, Any]:
    """Return what expressions may name beside variables."""
    known = {"g": g, "np": np, "DType": DType, "nan": np.nan, "inf": np.inf, "zip": zip}
    return {**known, **{n: getattr(bodies, n) for n in bodies.__all__}}


def array_text(x: Array) -> str:
    """Return an expression for an array."""
    dtype = DType.from_numpy(x.dtype)
    if x.size and (x == x.flat[0]).all() and not (x == 0).any() and x.size > 1:
        return _typed(f"np.full({x.shape}, {_number(x.flat[0])}", dtype)
    if not x.size or (not np.any(x.astype(np.float64) != 0) and not _negative_zero(x)):
        return _typed(f"np.zeros({x.shape}", dtype)
    flat = ", ".join(map(_number, x.ravel()))
    if x.ndim == 0:
        return _typed(f"np.array({flat}", dtype)
    shaped = "" if x.ndim == 1 else f".reshape{x.shape}"
    return _typed(f"np.array([{flat}]", dtype) + shaped


def _negative_zero(x: Array) -> bool:
    dtype = DType.from_numpy(x.dtype)
    return dtype.is_float and bool(np.signbit(x.astype(np.float64)).any())


def _typed(text: str, dtype: DType) -> str:
    if dtype.numpy.isbuiltin == 1:
        return f"{text}, {dtype.text!r})"
    return f"{text}).astype(DType.{dtype.name}.numpy)"


def _number(x: Any) -> str:
    if isinstance(x, (bool, np.bool_)):
        return str(bool(x))
    if isinstance(x, (np.integer, ml_dtypes.int4, ml_dtypes.uint4)):
        return str(int(x))
    return str(x)  # the shortest text that reads as the same number
