"""A plan carried out over tokens, on memory that knows who wrote what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dim import evaluate
from kn_plan.arena import Allocation
from kn_plan.fault import Fault
from kn_plan.memory import Arena
from kn_plan.plan import Home, Operand, Plan, Step
from kn_plan.tokens import (
    GraphTokens,
    Tokens,
    constant_base,
    constant_token,
    digest,
    fresh,
    run_program,
)

__all__ = ["TokenRun"]

NOBODY = -1
"""Owner of what was never written."""

PART = np.uint64(0xD1B54A32D192ED03)
"""Added to the token of an element for each further cell that it takes."""

Ints = np.ndarray[Any, np.dtype[np.int64]]


class BrokenError(Exception):
    """A step cannot be carried out any further."""


@dataclass(frozen=True)
class _Region:
    """The cells of an operand, as a strided array; the last axis is the cells of one element."""

    block: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    @property
    def span(self) -> tuple[int, int]:
        """The first cell, and the one behind the last."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.start + sum(r for r in reach if r < 0)
        return low, self.start + sum(r for r in reach if r > 0) + 1

    def of(self, table: np.ndarray[Any, Any], shift: int = 0) -> np.ndarray[Any, Any]:
        """Return these cells of a table."""
        size = table.itemsize
        strides = [s * size for s in self.strides]
        start = (self.start - shift) * size
        return np.ndarray(self.shape, table.dtype, table.data, start, strides)

    def meets(self, other: _Region) -> bool:
        """Return whether the cells may overlap: their spans do."""
        (a, b), (c, d) = self.span, other.span
        return self.block == other.block and not self.empty and a < d and c < b

    @property
    def apart(self) -> bool:
        """Whether it is plain that no two elements share a cell."""
        reach = 1
        for step, n in sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True)):
            if n == 1:
                continue
            if step < reach:
                return False
            reach = step * (n - 1) + reach
        return True


@dataclass
class _Memory:
    """Blocks of cells; a cell is as large as the smallest element."""

    tokens: Tokens
    owners: np.ndarray[Any, np.dtype[np.int32]]

    @classmethod
    def of(cls, cells: int) -> _Memory:
        return cls(np.zeros(cells, np.uint64), np.full(cells, NOBODY, np.int32))


class TokenRun:
    """See `kn_plan.check`."""

    def __init__(
        self,
        plan: Plan,
        wanted: GraphTokens,
        memory: Sequence[Arena],
        places: Sequence[Allocation],
    ) -> None:
        self.plan, self.wanted = plan, wanted
        sizes = [b.dtype.numpy.itemsize for b in plan.buffers if b.dtype is not None]
        self.cell = min(sizes, default=1)
        self.sizes = [evaluate(b.nbytes, wanted.env) for b in plan.buffers]
        self.objects: dict[int, Tokens] = {}
        self.blocks: list[_Memory] = []
        self.where: dict[int, tuple[int, int, int]] = {}  # block, first cell, cells
        self.done = {o.buffer for step in plan.done for o in step.writes}
        for number, v in zip(plan.inputs, wanted.graph.inputs, strict=True):
            self._give(number, wanted.source(number=wanted.graph.inputs.index(v), v=v))
        for arena, allocation in zip(memory, places, strict=True):
            self.blocks.append(_Memory.of(-(-allocation.total // self.cell)))
            rows = zip(arena.members, allocation.offsets, allocation.sizes, strict=True)
            for member, start, size in rows:
                self.where[member] = (
                    len(self.blocks) - 1,
                    int(start) // self.cell,
                    int(size) // self.cell,
                )

    def _give(self, number: int, tokens: Tokens) -> None:
        """Put an input of the graph into memory of its own."""
        if self.plan.buffers[number].dtype is None:
            self.objects[number] = tokens
            return
        self._own_block(number)
        block, _, _ = self.where[number]
        parts = self._parts(number)
        cells = tokens.reshape(-1, 1) + PART * np.arange(parts, dtype=np.uint64)
        self.blocks[block].tokens[:] = cells.reshape(-1)
        self.blocks[block].owners[:] = number

    def _own_block(self, number: int) -> None:
        cells = self.sizes[number] // self.cell
        self.blocks.append(_Memory.of(cells))
        self.where[number] = (len(self.blocks) - 1, 0, cells)

    def _parts(self, number: int) -> int:
        dtype = self.plan.buffers[number].dtype
        assert dtype is not None
        return dtype.numpy.itemsize // self.cell

    # ---- running ----------------------------------------------------------------------------

    def faults(self) -> Iterator[Fault]:
        """Carry out all steps; return what is wrong."""
        steps = [*((None, s) for s in self.plan.done), *enumerate(self.plan.steps)]
        for index, step in steps:
            try:
                self._step(step)
            except BrokenError as error:
                rule, text = error.args
                yield Fault(rule, index, step.label, text)
                return  # what follows would only repeat it
        for name, operand in self.plan.outputs.items():
            try:
                got = self._read(operand)
                v = self.plan.graph.outputs[name]
                self._like(operand, v, got)
            except BrokenError as error:
                rule, text = error.args
                yield Fault(rule, None, "", f"output {name!r}: {text}")
                continue
            if digest(got) != self.wanted.outputs[name]:
                yield Fault("meaning", None, "", f"output {name!r} is not what the graph gives")

    def _step(self, step: Step) -> None:
        reads = [self._read(o) for o in step.reads]
        extras = [self._read(o) for o in step.extras]
        results = extras
        if step.node is not None:
            for operand, v, got in zip(step.reads, step.node.operands, reads, strict=True):
                self._like(operand, v, got)
            if tuple(map(digest, reads)) != self.wanted.reads.get(step.node):
                raise BrokenError("meaning", "it reads other elements than its node does")
            results = [*self.wanted.results(step.node), *extras]
        if step.program is not None:
            results = run_program(step.program, results)
        regions = [self._written(o) for o in step.writes]
        self._check_in_place(step, regions)
        for operand, region, result in zip(step.writes, regions, results, strict=True):
            self._write(operand, region, result)

    def _like(self, operand: Operand, v: Any, got: Tokens) -> None:
        """Check that elements are of the type and shape of a value of the graph."""
        dtype = self.plan.buffers[operand.buffer].dtype
        if self.wanted.is_object(v):
            same = dtype is None
        else:
            same = dtype is v.dtype and got.shape == self.wanted.sizes(v.shape)
        if not same:
            raise BrokenError("meaning", f"{operand} has not the type of {v.name}: {v.type}")

    # ---- memory -----------------------------------------------------------------------------

    def _region(self, operand: Operand) -> _Region:
        """Return the cells of an operand, which lie in its buffer."""
        number = operand.buffer
        layout: Any = operand.layout.at(self.wanted.env)
        parts = self._parts(number)
        place = self.where.get(self.plan.root(number))
        if place is None:
            raise BrokenError("memory", f"b{number} was never written")
        block, start, cells = place
        if 0 not in layout.sizes:
            low, high = layout.span
            if low < 0 or (high + 1) * parts > min(self.sizes[number] // self.cell, cells):
                raise BrokenError("views", f"{operand} leaves its buffer")
        return _Region(
            block,
            start + layout.offset * parts,
            (*layout.sizes, parts),
            (*(s * parts for s in layout.strides), 1),
        )

    def _read(self, operand: Operand) -> Tokens:
        number = operand.buffer
        b = self.plan.buffers[number]
        if b.home is Home.CONSTANT and number not in self.done:
            return self._constant(operand)
        if b.dtype is None:
            if number not in self.objects:
                raise BrokenError("memory", f"it reads b{number}, which was never written")
            return self.objects[number]
        region = self._region(operand)
        if region.empty:
            return np.empty(region.shape[:-1], np.uint64)
        memory = self.blocks[region.block]
        owners = region.of(memory.owners)
        wrong = owners[owners != number]
        if wrong.size:
            other = int(wrong.flat[0])
            state = "was never written" if other == NOBODY else f"holds b{other}"
            raise BrokenError("memory", f"it reads {operand}, but that memory {state}")
        cells = region.of(memory.tokens)
        first = np.array(cells[..., 0])
        for part in range(1, cells.shape[-1]):
            if not np.array_equal(cells[..., part], first + PART * np.uint64(part)):
                raise BrokenError("memory", f"it reads {operand}, of which a part is overwritten")
        return first

    def _constant(self, operand: Operand) -> Tokens:
        """Return the tokens of a constant, which take no memory."""
        array = self.plan.constants[operand.buffer]
        dtype = self.plan.buffers[operand.buffer].dtype
        base = constant_base(array)
        if dtype is None:
            return np.asarray(base)
        layout: Any = operand.layout.at(self.wanted.env)
        if 0 not in layout.sizes:
            low, high = layout.span
            if low < 0 or high >= array.size:
                raise BrokenError("views", f"{operand} leaves its buffer")
        if array.size == 1:
            return np.full(layout.sizes, constant_token(array, dtype))
        places: Any = np.full((1,) * len(layout.sizes), layout.offset)
        for axis, (n, step) in enumerate(zip(layout.sizes, layout.strides, strict=True)):
            along = np.arange(n) * step
            places = places + along.reshape([-1 if a == axis else 1 for a in range(places.ndim)])
        return fresh(base, places)

    def _written(self, operand: Operand) -> _Region | None:
        """Return where a result goes; None for objects."""
        b = self.plan.buffers[operand.buffer]
        if b.dtype is None:
            return None
        alone = b.home in (Home.LATE, Home.OUTPUT) or b.number in self.done
        if alone and b.number not in self.where:
            self._own_block(b.number)
        return self._region(operand)

    def _write(self, operand: Operand, region: _Region | None, result: Tokens) -> None:
        if region is None:
            self.objects[operand.buffer] = result
            return
        shape = region.shape[:-1]
        try:
            tokens = np.broadcast_to(result, shape)
        except ValueError:
            text = f"it gives {list(result.shape)} for {operand}"
            raise BrokenError("meaning", text) from None
        if region.empty:
            return
        memory = self.blocks[region.block]
        region.of(memory.owners)[...] = operand.buffer
        cells = region.of(memory.tokens)
        for part in range(cells.shape[-1]):
            cells[..., part] = tokens + PART * np.uint64(part)

    # ---- results over operands --------------------------------------------------------------

    def _check_in_place(self, step: Step, regions: Sequence[_Region | None]) -> None:
        """Check that no result destroys what the step has still to read, in any order of elements.

        A kernel of a node reads an element again after others were written, so its results lie
        nowhere in its operands. A program reads an element of each operand and writes one of each
        result: those may lie at the same place.
        """
        written = [r for r in regions if r is not None and not r.empty]
        for place, region in enumerate(written):
            if not region.apart:
                self._once(step, region)
            if any(region.meets(other) for other in written[:place]):
                raise BrokenError("in-place", "two of its results may overlap")
        inputs = [o for o in step.inputs if self._is_memory(o)]
        for operand in inputs:
            source = self._region(operand)
            for region in written:
                if region.meets(source):
                    self._same_places(step, operand, source, region)

    def _is_memory(self, operand: Operand) -> bool:
        b = self.plan.buffers[operand.buffer]
        return b.dtype is not None and b.home is not Home.CONSTANT

    def _once(self, step: Step, region: _Region) -> None:
        marks, order = _marked(region)
        if not np.array_equal(region.of(marks, region.span[0]), order):
            raise BrokenError("in-place", "it writes one place several times")

    def _same_places(self, step: Step, operand: Operand, source: _Region, region: _Region) -> None:
        low = min(source.span[0], region.span[0])
        high = max(source.span[1], region.span[1])
        marks, _ = _marked(region, low, high)
        found = source.of(marks, low)
        own = np.arange(1, found.size + 1).reshape(found.shape)
        legal = found == 0
        if step.node is None and source.shape == region.shape:
            legal |= found == own
        if not legal.all():
            text = f"a result lies over {operand}, which is read afterwards"
            raise BrokenError("in-place", text)


def _marked(region: _Region, low: int | None = None, high: int | None = None) -> tuple[Ints, Ints]:
    """Return a table of cells that holds the number of the element written there, from 1 on."""
    first, last = region.span
    low, high = first if low is None else low, last if high is None else high
    marks = np.zeros(high - low, np.int64)
    order = np.arange(1, int(np.prod(region.shape)) + 1).reshape(region.shape)
    region.of(marks, low)[...] = order
    return marks, order
