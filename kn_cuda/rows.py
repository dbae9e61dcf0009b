"""Rows of elements that threads compute together: one by itself, a warp, or a block.

See `kernels/prelude.h`: what is here says where the elements of a row lie in every operand of a
step, how many threads share it and what they hold, how elements are read and results are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import UnsupportedError
from kn_cuda.expression import program_function
from kn_cuda.lowering import Lowering
from kn_cuda.scalar import Typed, vector_width
from kn_cuda.types import compute_type, storage_type, wide
from kn_graph.dim import Size, size_max, size_min, size_prod
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step
from kn_plan.program import ScalarProgram

__all__ = ["Front", "Split", "StepRows", "at_most"]

FEW = 16
"""Elements up to which a thread computes a row by itself."""

WARP_ROW = 512
"""Elements up to which a warp does, and not a block."""

MOST_HELD = 16
"""Elements of 4 bytes that a thread holds in registers."""


@dataclass(frozen=True)
class Split:
    """How threads share rows.

    Attributes:
        group: threads of a row.
        vector: elements that a thread handles at once.
        keep: vectors that it holds.
        limit: the longest row that it can hold; None for any.
    """

    group: int
    vector: int
    keep: int
    limit: int | None


@dataclass(frozen=True)
class Front:
    """A scalar program that makes the elements of rows, in place of a launch of its own.

    Attributes:
        program: what it is.
        reads: its inputs, in the shape of what is read.
        writes: its outputs, likewise; None for what nobody else reads.
        chosen: the output that rows are of.
    """

    program: ScalarProgram
    reads: tuple[Operand, ...]
    writes: tuple[Operand | None, ...]
    chosen: int


@dataclass(frozen=True)
class _Place:
    """An operand of a kernel: its name, elements, and whether they are written."""

    name: str
    typed: Typed
    written: bool


class StepRows:
    """The rows of a step: one operand is read, results have its shape.

    Attributes:
        low: whose step it is.
        step: see above.
        front: what makes the operand; None where it lies in memory.
        rows: how many there are.
        length: elements of each.
        along: whether the elements of a row lie side by side.
    """

    def __init__(
        self, low: Lowering, step: Step, axes: Sequence[int], front: Front | None = None
    ) -> None:
        """Find where rows lie.

        Args:
            low: whose step it is.
            step: reads one operand.
            axes: along which its rows go.
            front: makes the operand.
        """
        self.low, self.step, self.front = low, step, front
        self.places = [_Place(name, low.typed(o), written) for name, o, written in self._operands()]
        x, layouts = step.reads[0].layout, [p.typed[0].layout for p in self.places]
        order = in_order(x.strides)
        kept = [a for a in order if a not in axes]
        gone = [a for a in order if a in axes]
        self.kept, self.gone = (joined(*_chosen([x, *layouts], a)) for a in (kept, gone))
        self.rows, self.length = (size_prod(sizes) for sizes, _ in (self.kept, self.gone))
        self.along = self.gone[1][0][-1] == 1 or self.length == 1

    def _operands(self) -> Iterator[tuple[str, Operand, bool]]:
        if self.front is None:
            yield "x", self.step.reads[0], False
        else:
            for i, o in enumerate(self.front.reads):
                yield f"f{i}", o, False
            for i, w in enumerate(self.front.writes):
                if w is not None:
                    yield f"w{i}", w, True
        for i, o in enumerate(self.step.writes):
            yield f"y{i}", o, True
        for i, o in enumerate(self.step.extras):
            yield f"e{i}", o, False

    @property
    def itemsize(self) -> int:
        """Bytes of an element in registers."""
        return wide(self.low.dtype(self.step.reads[0])).itemsize

    def splits(self) -> list[Split]:
        """Return how threads may share rows: short ones first, where lengths are symbols."""
        found = self._splits()
        if self.front is not None and any(self.front.writes) and any(not s.keep for s in found):
            raise UnsupportedError("what is stored in front is made once")
        return found

    def _splits(self) -> list[Split]:
        threads, most = self.low.threads, MOST_HELD * 4 // self.itemsize
        vector = min(self._vector(), most)
        if not self.along:
            held = isinstance(self.length, int) and self.length <= FEW
            return [Split(1, 1, self.length if held else 0, None)]  # type: ignore[arg-type]
        block = Split(threads, vector, 0, None)
        if not isinstance(self.length, int):
            return [Split(32, vector, 8 // vector or 1, 32 * max(8, vector)), block]
        if self.length <= FEW:
            return [Split(1, 1, self.length, None)]
        group = 32 if self.length <= WARP_ROW else threads
        keep = -(-self.length // (group * vector))
        return [Split(group, vector, keep, None)] if keep * vector <= most else [block]

    def _vector(self) -> int:
        """Return how many elements may be loaded and stored at once."""
        strides = [(*k, *g) for k, g in zip(self.kept[1], self.gone[1], strict=True)]
        operands = [self.step.reads[0], *(p.typed[0] for p in self.places)]
        widest = max(self.low.itemsize(o) for o in operands)
        sizes = (*self.kept[0], *self.gone[0])
        return vector_width(sizes, strides, [o.layout.offset for o in operands], widest)

    def blocks(self, split: Split) -> Size:
        """Return how many blocks compute all rows."""
        per_block = self.low.threads // split.group
        return blocks_for(self.rows, per_block) * size_min(1, self.length)

    def add(self, b: KernelBuilder, split: Split) -> None:
        """Give a kernel its operands, the numbers of its rows, `begin` and `end`."""
        b.type("Acc", compute_type(self.low.dtype(self.step.reads[0])))
        for name, number in (
            ("THREADS", self.low.threads), ("GROUP", split.group), ("VECTOR", split.vector),
            ("KEEP", split.keep), ("OPERANDS", len(self.places)),
        ):  # fmt: skip
            b.constant(name, number)
        for place in self.places:
            (b.writes if place.written else b.reads)(place.name, *place.typed)
        b.number("rows", self.rows)
        b.number("length", self.length)
        for name, (sizes, strides) in (("kept", self.kept), ("gone", self.gone)):
            b.numbers(name, sizes)
            b.rows(f"{name}_strides", strides[1:])
        self._add_begin(b)
        self._add_end(b)

    def _add_begin(self, b: KernelBuilder) -> None:
        """Add the function that gives elements: loaded, or made by the program in front."""
        front = self.front
        if front is None:
            made = f"x[i] = {self._loaded('x')};"
            body = [self._load("x"), "KN_UNROLL", f"for (int i = 0; i < N; i++) {made}"]
        else:
            b.code(program_function(front.program, "front"))
            names = [f"f{i}" for i in range(len(front.reads))]
            outputs = [f"w{i}" for i in range(len(front.writes))]
            stored = [n for n, w in zip(outputs, front.writes, strict=True) if w is not None]
            lines = _call("front", front.program, [self._loaded(n) for n in names], outputs, stored)
            body = self._elementwise(names, stored, [*lines, f"x[i] = w{front.chosen}_i;"])
        b.code(_function("begin", "Acc (&x)[N]", body))

    def _add_end(self, b: KernelBuilder) -> None:
        """Add the function that applies the program behind results, and stores."""
        assert self.step.node is not None
        program, dtype = self.step.program, self.step.node.results[0].dtype
        names = [f"e{i}" for i in range(len(self.step.extras))]
        outputs = [f"y{i}" for i in range(len(self.step.writes))]
        if program is None:
            lines = ["put(y0.lane[i], x[i]);"]
        else:
            b.code(program_function(program))
            narrow = wide(dtype) is not dtype
            rounded = f"Rounded<{storage_type(dtype)}>::of(x[i])" if narrow else "x[i]"
            given = [rounded, *map(self._loaded, names)]
            lines = _call("program", program, given, outputs, outputs)
        b.code(_function("end", "const Acc (&x)[N]", self._elementwise(names, outputs, lines)))

    def _elementwise(
        self, loaded: Sequence[str], stored: Sequence[str], lines: Sequence[str]
    ) -> list[str]:
        """Return lines that load vectors, handle their i-th elements, and store vectors."""
        packs = [f"Pack<Element<decltype(Pointers::{n})>, N> {n};" for n in stored]
        loop = ["KN_UNROLL", "for (int i = 0; i < N; i++) {", *(f"    {x}" for x in lines), "}"]
        stores = [f"store<N>(p.{n} + at[{self._number(n)}], {n});" for n in stored]
        return [*map(self._load, loaded), *packs, *loop, *stores]

    def _number(self, name: str) -> int:
        return next(i for i, p in enumerate(self.places) if p.name == name)

    def _dense(self, name: str) -> bool:
        return bool(self.gone[1][1 + self._number(name)][-1] == 1)

    def _load(self, name: str) -> str:
        count = "N" if self._dense(name) else "1"
        return f"const auto {_pack(name)} = load<{count}>(p.{name} + at[{self._number(name)}]);"

    def _loaded(self, name: str) -> str:
        return f"widened({_pack(name)}.lane[{'i' if self._dense(name) else '0'}])"


def _pack(name: str) -> str:
    """Return what a loaded vector is called: x are the elements that rows are of."""
    return "pack" if name == "x" else name


def at_most(size: Size, limit: int) -> Size:
    """Return 1 where a size is at most a limit, and 0 where it is larger."""
    return size_min(1, size_max(0, limit + 1 - size))


def _function(name: str, argument: str, lines: Sequence[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    arguments = f"const Pointers& p, const Index (&at)[OPERANDS], {argument}"
    return f"template <int N> KN_DEVICE static void {name}({arguments}) {{\n{body}}}\n"


def _chosen(layouts: Sequence[StridedLayout], axes: Sequence[int]) -> tuple[Shape, ...]:
    """Return the sizes of some axes, and the strides of each operand along them."""
    sizes = tuple(layouts[0].sizes[a] for a in axes)
    return (sizes, *(tuple(x.strides[a] for a in axes) for x in layouts))


def _call(
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
        f"{function}({', '.join([*given, *(f'{y}_i' for y in outputs)])});",
        *(f"put({y}.lane[i], {y}_i);" for y in stored),
    ]
