"""A program under construction: every line is tried, typed and run before it stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kn_graph import DType, Graph, KnError, TensorType, Value
from kn_graph.compare.step import rounds
from kn_graph.compare.walk import Context, bind_result
from kn_graph.dim import UnboundSymbolError
from kn_graph.errors import InternalError
from kn_graph.ops.source import Input
from kn_graph.value import Node
from tests.fuzz.program import Feed, Line, Program, namespace
from tests.fuzz.values import fill

__all__ = ["Maker"]

MAX_ELEMS = 3000
MAX_RANK = 6
SYMBOLS = ("n", "m")


class Maker:
    """Builds a program line by line, and knows type and value of every variable.

    Attributes:
        rng: the source of all choices.
        g: the graph so far, with what did not stay.
        values: graph values by variable.
        arrays: what they hold.
        crash: the program with the first line that failed with anything but an error of this
            library, if one did.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = Graph("fuzz")
        self.values: dict[str, Value] = {}
        self.arrays: dict[str, Any] = {}
        self.sizes = {n: int(self.rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5])) for n in SYMBOLS}
        dims = {n: self.g.symbol(n, lo=0).as_symbol for n in self.sizes}
        self._context = Context({s: self.sizes[n] for n, s in dims.items() if s is not None})
        self._feeds: list[Feed] = []
        self._lines: list[Line] = []
        self._held: dict[Value, Any] = {}
        self._rounded: set[Node] = set()
        self._names = namespace(self.g)
        self.crash: Program | None = None

    # ---- choices ----------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < p)

    def one_of(self, options: Sequence[Any]) -> Any:
        """Return one of some options."""
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """Return an integer between two bounds, both possible."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, allowed: Callable[[str], bool]) -> str | None:
        """Return a variable that is allowed; late ones are likelier."""
        options = [n for n in self.values if allowed(n)]
        if not options:
            return None
        weights = np.arange(1, len(options) + 1) ** 1.5
        return str(self.rng.choice(options, p=weights / weights.sum()))

    def floats(self, *, rank: int | None = None, least: int = 0) -> str | None:
        """Return a variable of floats, of a rank or at least of one."""

        def allowed(n: str) -> bool:
            r = self.arrays[n].ndim
            return self.dtype(n).is_float and r >= least and rank in (None, r)

        return self.pick(allowed)

    def numbers(self, *, least: int = 0) -> str | None:
        """Return a variable of floats or integers."""

        def allowed(n: str) -> bool:
            return (self.dtype(n).is_float or self.dtype(n).is_int) and self.rank(n) >= least

        return self.pick(allowed)

    # ---- variables --------------------------------------------------------------------------

    def dtype(self, name: str) -> DType:
        """Return the element type of a variable."""
        return self.values[name].dtype

    def rank(self, name: str) -> int:
        """Return the rank of a variable."""
        return int(self.arrays[name].ndim)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a variable's shape."""
        shape: tuple[int, ...] = self.arrays[name].shape
        return shape

    def exact(self, name: str) -> bool:
        """Return whether no rounding led to a variable."""
        return self.values[name].node not in self._rounded

    def new_input(self, dtype: DType, shape: Sequence[int | str], kind: str | None = None) -> str:
        """Add an input; names in the shape are symbols."""
        numbers = tuple(self.sizes[s] if isinstance(s, str) else s for s in shape)
        name = f"x{len(self._feeds)}"
        array = fill(self.rng, dtype, numbers, kind)
        self._feed(Feed(name, tuple(shape), array), self.g.input(name, dtype, shape))
        return name

    def constant(self, array: Any) -> str:
        """Add a constant."""
        array = np.asarray(array)
        name = f"c{len(self._feeds)}"
        self._feed(Feed(name, array.shape, array, constant=True), self.g.constant(array))
        return name

    def weights(self, dtype: DType, shape: Sequence[int], kind: str | None = None) -> str:
        """Add numbers: mostly a constant, sometimes an input."""
        if self.chance(0.2):
            return self.new_input(dtype, shape, kind)
        return self.constant(fill(self.rng, dtype, tuple(shape), kind, tiny=False))

    def _feed(self, feed: Feed, value: Value) -> None:
        self._feeds.append(feed)
        self.values[feed.name], self.arrays[feed.name] = value, feed.array
        self._held[value] = feed.array
        self._names[feed.name] = value

    # ---- lines ------------------------------------------------------------------------------

    def add(self, template: str, *args: str, results: int | None = 1) -> str | None:
        """Add an assignment; None where it does not fit, and nothing is added.

        Args:
            template: the expression.
            args: variables for its places.
            results: how many there are; None for any number.
        """
        out = self.add_all(template, *args, results=results)
        return out[0] if out else None

    def add_all(self, template: str, *args: str, results: int | None = None) -> list[str]:
        """Add an assignment with several results; see `add`."""
        before, constraints = len(self.g.nodes), len(list(self.g.constraints))
        line, made = Line((), template, args), []
        try:
            out = eval(line.expression, self._names)
            made = [out] if isinstance(out, Value) else list(out)
            ranks = [len(v.shape) for v in made if isinstance(v.type, TensorType)]
            if len(ranks) < len(made) or max(ranks, default=0) > MAX_RANK:
                return []
            if results not in (None, len(made)):
                return []
            if not self._holds(constraints):
                return []
            arrays = self._run(before, made)
        except Exception as error:
            if not isinstance(error, KnError) or isinstance(error, InternalError):
                self._crashed(template, args, len(made))
            return []
        if arrays is None:
            return []
        names = self._new_names(len(made))
        self._lines.append(Line(names, template, args))
        for name, value, array in zip(names, made, arrays, strict=True):
            self.values[name], self.arrays[name], self._names[name] = value, array, value
        return list(names)

    def _new_names(self, count: int) -> tuple[str, ...]:
        return tuple(f"v{len(self._lines)}" + (f"_{i}" if i else "") for i in range(count))

    def _crashed(self, template: str, args: tuple[str, ...], count: int) -> None:
        if self.crash is None:
            names = self._new_names(max(count, 1))
            lines = (*self._lines, Line(names, template, args))
            program = Program(tuple(self._feeds), lines, (), tuple(self.sizes.items()))
            self.crash = program.only(names)

    def _holds(self, before: int) -> bool:
        for constraint in list(self.g.constraints)[before:]:
            try:
                if not constraint.holds(self._context.env):
                    return False
            except UnboundSymbolError:
                continue
        return True

    def _run(self, before: int, made: Sequence[Value]) -> list[Any] | None:
        """Run the nodes that are new, and return what the results hold."""
        with np.errstate(all="ignore"):
            for node in self.g.nodes[before:]:
                if isinstance(node.op, Input):
                    continue
                if any(v not in self._held for v in node.operands):
                    continue  # something before it failed
                out = node.op.eval(self._context, *[self._held[v] for v in node.operands])
                for v, x in zip(
                    node.results, out if isinstance(out, tuple) else (out,), strict=True
                ):
                    self._held[v] = np.asarray(x)
                    bind_result(v, self._held[v], self._context)
                self._note(node)
        if any(v not in self._held for v in made):
            return None
        arrays = [self._held[v] for v in made]
        return None if max((x.size for x in arrays), default=0) > MAX_ELEMS else arrays

    def _note(self, node: Node) -> None:
        floats = any(getattr(v.type, "dtype", DType.BOOL).is_float for v in node.results)
        if (floats and rounds(node.op)) or any(v.node in self._rounded for v in node.operands):
            self._rounded.add(node)

    # ---- the end ----------------------------------------------------------------------------

    def program(self) -> Program:
        """Return what was built, with some outputs: what nobody reads, mostly."""
        used = {a for line in self._lines for a in line.args}
        made = [n for line in self._lines for n in line.results]
        ends = [n for n in made if n not in used][-4:] or list(self.values)[-1:]
        if made and self.chance(0.3):
            ends.append(self.one_of(made))
        sizes = tuple(self.sizes.items())
        return Program(tuple(self._feeds), tuple(self._lines), (), sizes).only(dict.fromkeys(ends))
