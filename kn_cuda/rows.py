"""Rows of elements that threads compute together: one by itself, a warp, or a block.

See `kernels/prelude.h`: what is here says where the elements of a row lie in every operand of a
step, how many threads share it and what they hold, how elements are read and results are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kn_cuda.axes import blocks_for, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.expression import program_function
from kn_cuda.lowering import Lowering
from kn_cuda.scalar import Typed, vector_width
from kn_cuda.types import compute_type, storage_type, wide
from kn_graph.dim import Size, size_max, size_min, size_prod
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout
from kn_plan.plan import Step

__all__ = ["Split", "StepRows", "at_most"]

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


class StepRows:
    """The rows of a step: one operand is read, results have its shape.

    Attributes:
        low: whose step it is.
        step: see above.
        rows: how many there are.
        length: elements of each.
        along: whether the elements of a row lie side by side.
    """

    def __init__(self, low: Lowering, step: Step, axes: Sequence[int]) -> None:
        """Find where rows lie.

        Args:
            low: whose step it is.
            step: reads one operand.
            axes: along which its rows go.
        """
        self.low, self.step = low, step
        self.x = low.typed(step.reads[0])
        self.writes: list[Typed] = [low.typed(o) for o in step.writes]
        self.extras: list[Typed] = [low.typed(o) for o in step.extras]
        self.layouts = [o.layout for o, _ in (self.x, *self.writes, *self.extras)]
        x = self.layouts[0]
        order = in_order(x.strides)
        kept = [a for a in order if a not in axes]
        gone = [a for a in order if a in axes]
        self.kept, self.gone = (joined(*_chosen(self.layouts, a)) for a in (kept, gone))
        self.rows, self.length = (size_prod(sizes) for sizes, _ in (self.kept, self.gone))
        self.along = self.gone[1][0][-1] == 1 or self.length == 1

    @property
    def itemsize(self) -> int:
        """Bytes of an element in registers."""
        return wide(self.low.dtype(self.x[0])).itemsize

    def splits(self) -> list[Split]:
        """Return how threads may share rows: two ways where lengths are symbols, short ones first."""
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
        widths = [self.low.itemsize(o) for o, _ in (self.x, *self.writes, *self.extras)]
        sizes = (*self.kept[0], *self.gone[0])
        return vector_width(sizes, strides, [x.offset for x in self.layouts], max(widths))

    def blocks(self, split: Split) -> Size:
        """Return how many blocks compute all rows."""
        per_block = self.low.threads // split.group
        return blocks_for(self.rows, per_block) * size_min(1, self.length)

    def add(self, b: KernelBuilder, split: Split) -> None:
        """Give a kernel its operands, the numbers of its rows, `begin` and `end`."""
        assert self.step.node is not None
        result = self.step.node.results[0].dtype
        acc = compute_type(result)
        b.type("Acc", acc)
        for name, number in (
            ("THREADS", self.low.threads), ("GROUP", split.group), ("VECTOR", split.vector),
            ("KEEP", split.keep), ("OPERANDS", len(self.layouts)),
        ):  # fmt: skip
            b.constant(name, number)
        b.reads("x", *self.x)
        for i, typed in enumerate(self.writes):
            b.writes(f"y{i}", *typed)
        for i, typed in enumerate(self.extras):
            b.reads(f"e{i}", *typed)
        b.number("rows", self.rows)
        b.number("length", self.length)
        for name, (sizes, strides) in (("kept", self.kept), ("gone", self.gone)):
            b.numbers(name, sizes)
            b.rows(f"{name}_strides", strides)
        b.code(self._begin())
        b.code(self._end(b, storage_type(result), wide(result) is not result))

    def _begin(self) -> str:
        lines = [
            f"const auto pack = {self._load('x', 0)};",
            "KN_UNROLL",
            "for (int i = 0; i < N; i++) x[i] = widened(pack.lane[i]);",
        ]
        return _function("begin", "Acc (&x)[N]", lines)

    def _end(self, b: KernelBuilder, narrow: str, rounds: bool) -> str:
        """Return the function that applies the program and stores."""
        program, count = self.step.program, len(self.writes)
        rounded = f"Rounded<{narrow}>::of(x[i])" if rounds else "x[i]"
        places = [self._dense(1 + count + i) for i in range(len(self.extras))]
        lines = [
            f"const auto e{i} = {self._load(f'e{i}', 1 + count + i)};"
            for i in range(len(self.extras))
        ]
        lines += [f"Pack<Element<decltype(Pointers::y{i})>, N> y{i};" for i in range(count)]
        lines += ["KN_UNROLL", "for (int i = 0; i < N; i++) {"]
        if program is None:
            lines.append("    put(y0.lane[i], x[i]);")
        else:
            b.code(program_function(program))
            for i, register in enumerate(program.outputs):
                lines.append(f"    {compute_type(program.dtype(register))} y{i}_i;")
            given = [
                f"widened(e{i}.lane[{'i' if dense else '0'}])" for i, dense in enumerate(places)
            ]
            made = [f"y{i}_i" for i in range(count)]
            lines.append(f"    program({', '.join([rounded, *given, *made])});")
            lines += [f"    put(y{i}.lane[i], y{i}_i);" for i in range(count)]
        lines.append("}")
        lines += [self._store(i) for i in range(count)]
        return _function("end", "const Acc (&x)[N]", lines)

    def _dense(self, place: int) -> bool:
        return bool(self.gone[1][place][-1] == 1)

    def _load(self, name: str, place: int) -> str:
        return f"load<{'N' if self._dense(place) else '1'}>(p.{name} + at[{place}])"

    def _store(self, i: int) -> str:
        return f"store<N>(p.y{i} + at[{1 + i}], y{i});"


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
