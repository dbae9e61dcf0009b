"""Elements that kernels meet along rows: where they lie, how vectors are read and stored.

What is read may be made by a scalar program in front, from operands of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kn_cuda.builder import KernelBuilder
from kn_cuda.lowering import Lowering
from kn_cuda.scalar import Typed, vector_width
from kn_cuda.types import compute_type
from kn_graph.dim import Size, size_prod
from kn_graph.types import Shape
from kn_plan.plan import Operand
from kn_plan.program import ScalarProgram

__all__ = ["Axes", "Elements", "Front", "Place", "apply_lines", "read_places", "vector_function"]

Axes = tuple[Shape, tuple[Shape, ...]]
"""Sizes, and the strides of each operand."""


@dataclass(frozen=True)
class Front:
    """A scalar program that makes the elements of rows, in place of a launch of its own.

    Attributes:
        program: what it is.
        reads: its inputs, in the shape of what is read.
        writes: its outputs, likewise; None for what nobody else reads.
        chosen: the output that rows are of.
        made: that output, as the step behind reads it.
    """

    program: ScalarProgram
    reads: tuple[Operand, ...]
    writes: tuple[Operand | None, ...]
    chosen: int
    made: Operand

    @property
    def stores(self) -> bool:
        """Whether others read what it makes."""
        return any(self.writes)


@dataclass(frozen=True)
class Place:
    """An operand of a kernel: its name, its elements, and whether they are written."""

    name: str
    typed: Typed
    written: bool = False


def read_places(low: Lowering, x: Operand, front: Front | None) -> list[Place]:
    """Return x and, where a program makes its elements, the operands of that."""
    places = [Place("x", low.typed(x))]
    if front is not None:
        places += [Place(f"f{i}", low.typed(o)) for i, o in enumerate(front.reads)]
        writes = enumerate(front.writes)
        places += [Place(f"w{i}", low.typed(o), written=True) for i, o in writes if o is not None]
    return places


@dataclass(frozen=True)
class Elements:
    """The operands of a kernel, along rows.

    Attributes:
        places: x first.
        kept: the axes that tell rows apart.
        gone: the axes of a row, the densest last.
        front: what makes x; None where it lies in memory.
    """

    places: tuple[Place, ...]
    kept: Axes
    gone: Axes
    front: Front | None = None

    @property
    def rows(self) -> Size:
        """How many rows there are."""
        return size_prod(self.kept[0])

    @property
    def length(self) -> Size:
        """How many elements each has."""
        return size_prod(self.gone[0])

    @property
    def along(self) -> bool:
        """Whether the elements of a row lie side by side in x."""
        return self.length == 1 or self.gone[1][0][-1] == 1

    def vector(self, low: Lowering) -> int:
        """Return how many elements of a row may be loaded and stored at once."""
        strides = [(*k, *g) for k, g in zip(self.kept[1], self.gone[1], strict=True)]
        operands = [p.typed[0] for p in self.places]
        widest = max(low.itemsize(o) for o in operands)
        sizes = (*self.kept[0], *self.gone[0])
        return vector_width(sizes, strides, [o.layout.offset for o in operands], widest)

    def add(self, b: KernelBuilder) -> None:
        """Give a kernel its operands, the numbers of its rows, and `begin`."""
        b.constant("OPERANDS", len(self.places))
        for place in self.places:
            if place.name != "x" or self.front is None:
                (b.writes if place.written else b.reads)(place.name, *place.typed)
        b.number("rows", self.rows)
        b.number("length", self.length)
        for name, (sizes, strides) in (("kept", self.kept), ("gone", self.gone)):
            b.numbers(name, sizes)
            b.rows(f"{name}_strides", strides)
        b.code(vector_function("begin", "Acc (&x)[N]", self._begin(b)))

    def _begin(self, b: KernelBuilder) -> list[str]:
        """Return what gives elements: loaded, or made by the program in front."""
        front = self.front
        if front is None:
            made = f"x[i] = Acc({self.loaded('x')});"
            return [self._load("x"), "KN_UNROLL", f"for (int i = 0; i < N; i++) {made}"]
        b.program(front.program, "front")
        names = [f"f{i}" for i in range(len(front.reads))]
        outputs = [f"w{i}" for i in range(len(front.writes))]
        stored = [n for n, w in zip(outputs, front.writes, strict=True) if w is not None]
        given = [self.loaded(n) for n in names]
        lines = apply_lines("front", front.program, given, outputs, stored)
        return self.elementwise(names, stored, [*lines, f"x[i] = w{front.chosen}_i;"])

    def elementwise(
        self, loaded: Sequence[str], stored: Sequence[str], lines: Sequence[str]
    ) -> list[str]:
        """Return lines that load vectors, handle their i-th elements, and store vectors."""
        packs = [f"Pack<Element<decltype(Pointers::{n})>, N> {n};" for n in stored]
        loop = ["KN_UNROLL", "for (int i = 0; i < N; i++) {", *(f"    {x}" for x in lines), "}"]
        stores = [f"store<N>(p.{n} + at[{self._number(n)}], {n});" for n in stored]
        return [*map(self._load, loaded), *packs, *loop, *stores]

    def loaded(self, name: str) -> str:
        """Return the i-th element of a loaded vector."""
        return f"widened({_pack(name)}.lane[{'i' if self._dense(name) else '0'}])"

    def _load(self, name: str) -> str:
        count = "N" if self._dense(name) else "1"
        return f"const auto {_pack(name)} = load<{count}>(p.{name} + at[{self._number(name)}]);"

    def _number(self, name: str) -> int:
        return next(i for i, p in enumerate(self.places) if p.name == name)

    def _dense(self, name: str) -> bool:
        return bool(self.gone[1][self._number(name)][-1] == 1)


def _pack(name: str) -> str:
    """Return what a loaded vector is called: x are the elements that rows are of."""
    return "pack" if name == "x" else name


def vector_function(name: str, argument: str, lines: Sequence[str]) -> str:
    """Return a function over N elements of each operand, from the offsets `at` on."""
    body = "".join(f"    {line}\n" for line in lines)
    arguments = f"const Pointers& p, const Index (&at)[OPERANDS], {argument}"
    return f"template <int N> KN_DEVICE static void {name}({arguments}) {{\n{body}}}\n"


def apply_lines(
    function: str,
    program: ScalarProgram,
    given: Sequence[str],
    outputs: Sequence[str],
    stored: Sequence[str],
) -> list[str]:
    """Return lines that apply a program to the i-th elements."""
    types = [compute_type(program.dtype(r)) for r in program.outputs]
    return [
        *(f"{type_} {y}_i;" for type_, y in zip(types, outputs, strict=True)),
        f"{function}({', '.join(['p', *given, *(f'{y}_i' for y in outputs)])});",
        *(f"put({y}.lane[i], {y}_i);" for y in stored),
    ]
