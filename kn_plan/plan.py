"""A plan: which steps run, in what order, on which memory. Data only, the same for every device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from kn_graph.dim import Size, Symbol
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.op import Op
from kn_graph.types import Shape
from kn_graph.value import Node
from kn_plan.layout import StridedLayout
from kn_plan.program import ScalarProgram
from kn_plan.repeat import Repeat
from kn_plan.required import Required

__all__ = ["Buffer", "Home", "Operand", "Plan", "Step"]


class Home(Enum):
    """Where a buffer lies."""

    ARENA = "arena"
    CONSTANT = "constant"
    INPUT = "input"
    OUTPUT = "output"
    LATE = "late"
    """As large as the step finds that writes it: it is allocated when that has run."""
    OBJECT = "object"
    """No tensor of numbers: strings, sequences and the like, which only the host handles."""


@dataclass(frozen=True)
class Buffer:
    """A piece of memory.

    Attributes:
        number: its place in the plan's list.
        name: of the value that is stored there first.
        dtype: of the elements; None for objects.
        numel: how many elements there are.
        home: where it lies.
        over: the buffer whose memory it takes over when that is read for the last time.
    """

    number: int
    name: str
    dtype: DType | None
    numel: Size
    home: Home
    over: int | None = None

    @property
    def nbytes(self) -> Size:
        """Bytes of all elements."""
        return self.numel * (0 if self.dtype is None else self.dtype.numpy.itemsize)


@dataclass(frozen=True)
class Operand:
    """Elements of a buffer."""

    buffer: int
    layout: StridedLayout

    def __str__(self) -> str:
        """Return text such as `b3[2, 4]:[4, 1]+0`."""
        return f"b{self.buffer}{self.layout}"


@dataclass(frozen=True)
class Step:
    """One kernel.

    Attributes:
        label: the ONNX node it stands for.
        node: the anchor; None for a scalar program alone.
        program: applied to each element of the anchor's result, its first input.
        reads: what the anchor reads.
        extras: the other inputs of the program.
        writes: the program's outputs, or the anchor's results.
        shape: the shape that is computed.
        binds: data symbols that are known when it has run.
    """

    label: str
    node: Node | None
    program: ScalarProgram | None
    reads: tuple[Operand, ...]
    extras: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    shape: Shape
    binds: tuple[Symbol, ...] = ()

    @property
    def op(self) -> Op | None:
        """The anchor's operation."""
        return None if self.node is None else self.node.op

    @property
    def kind(self) -> str:
        """What texts call it."""
        if self.op is not None:
            return self.op.title
        return "copy" if self.program is not None and self.program.is_copy else "scalar"

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Everything that is read."""
        return self.reads + self.extras

    def __str__(self) -> str:
        """Return a line of text."""
        count = len(self.program.instructions) if self.program else 0
        epilogue = f" +{count}" if self.op is not None and count else ""
        writes, inputs = (", ".join(map(str, t)) for t in (self.writes, self.inputs))
        return f"{writes} <- {self.kind}{epilogue}({inputs})"


@dataclass(frozen=True)
class Plan:
    """What a graph becomes; over symbolic sizes.

    Attributes:
        graph: what was planned.
        buffers: all memory, by number.
        steps: in the order in which they run.
        inputs: the buffer of each input of the graph.
        outputs: what the caller gets, by name.
        births: the step at which each buffer is written first; -1 before all.
        deaths: the step at which it is read last; the number of steps after all.
        constants: the array of each constant buffer.
        done: steps that were carried out when the plan was made; what they wrote is constant.
        repeats: what has to hold for sizes, since steps repeat without looking.
    """

    graph: Graph
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: Mapping[str, Operand]
    births: tuple[int, ...]
    deaths: tuple[int, ...]
    constants: Mapping[int, np.ndarray[Any, Any]]
    done: tuple[Step, ...] = ()
    repeats: tuple[Repeat, ...] = ()

    @cached_property
    def stages(self) -> tuple[range, ...]:
        """Steps between which sizes become known."""
        found, start = [], 0
        for i, step in enumerate(self.steps):
            if step.binds:
                found.append(range(start, i + 1))
                start = i + 1
        return (*found, range(start, len(self.steps)))

    @cached_property
    def required(self) -> Required:
        """What has to hold for sizes."""
        return Required(list(self.graph.constraints), self.repeats)

    def root(self, buffer: int) -> int:
        """Return the buffer whose memory one has in the end."""
        over = self.buffers[buffer].over
        while over is not None:
            buffer, over = over, self.buffers[over].over
        return buffer

    def with_steps(self, steps: tuple[Step, ...]) -> Plan:
        """Return the plan with other steps."""
        return replace(self, steps=steps)

    def __str__(self) -> str:
        """Return the plan, one line a buffer and a step."""
        lines = [f"plan of {self.graph.name!r}: {len(self.steps)} steps"]
        for b in self.buffers:
            if b.home is not Home.CONSTANT:
                over = "" if b.over is None else f" over b{b.over}"
                lives = f"{self.births[b.number]}..{self.deaths[b.number]}"
                lines.append(f"  b{b.number} {b.home.value} {b.dtype}[{b.numel}] {lives}{over}")
        lines += [f"  {i}: {step}   # {step.label}" for i, step in enumerate(self.steps)]
        lines += [f"  output {name} = {operand}" for name, operand in self.outputs.items()]
        return "\n".join(lines)
