"""Puts the parts of a kernel together, with what each is at a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kn_cuda.calls import Given, Launch
from kn_cuda.expression import computed, given_numbers, program_function
from kn_cuda.source import GivenField, KernelSource, NumberField, PointerField
from kn_cuda.types import compute_type
from kn_graph.dim import Size
from kn_graph.types import Shape
from kn_plan.calls import Pointer, UnsupportedError
from kn_plan.program import ScalarProgram

__all__ = ["KernelBuilder"]

PARAMETER_BYTES = 4096
"""Room for the parameters of a kernel on every architecture."""


@dataclass
class KernelBuilder:
    """A kernel while it is put together.

    Attributes:
        family: the file.
        entry: the template.
        threads: of a block.
    """

    family: str
    entry: str
    threads: int = 256
    _types: dict[str, str] = field(default_factory=dict)
    _constants: dict[str, int] = field(default_factory=dict)
    _pointers: list[tuple[PointerField | GivenField, Pointer | Given]] = field(default_factory=list)
    _numbers: list[tuple[NumberField, tuple[Size, ...]]] = field(default_factory=list)
    _code: list[str] = field(default_factory=list)

    def type(self, name: str, text: str) -> None:
        """Name a C++ type."""
        self._types[name] = text

    def constant(self, name: str, number: int) -> None:
        """Name a number that is part of the kernel."""
        self._constants[name] = int(number)

    def code(self, text: str) -> None:
        """Add functions."""
        self._code.append(text)

    def program(self, program: ScalarProgram, name: str = "program") -> None:
        """Add the function of a scalar program; see `program_function`.

        Args:
            program: what it computes.
            name: of the function.
        """
        given = {r: f"{name}_{r}" for r in given_numbers(program)}
        for register, called in given.items():
            step = program.instructions[register - len(program.inputs)]
            number = Given(computed(step.number, step.dtype))
            self._pointers.append((GivenField(called, compute_type(step.dtype)), number))
        self.code(program_function(program, name, given))

    def reads(self, name: str, what: Pointer, type_: str) -> None:
        """Add a pointer to what is read."""
        self._pointers.append((PointerField(name, type_, False), what))

    def writes(self, name: str, what: Pointer, type_: str) -> None:
        """Add a pointer to what is written."""
        self._pointers.append((PointerField(name, type_, True), what))

    def number(self, name: str, size: Size) -> None:
        """Add a number that is an argument."""
        self._numbers.append((NumberField(name), (size,)))

    def numbers(self, name: str, sizes: Shape) -> None:
        """Add several, a table of one row."""
        self._numbers.append((NumberField(name, (len(sizes),)), tuple(sizes)))

    def rows(self, name: str, rows: Sequence[Shape]) -> None:
        """Add a table of rows of one length."""
        shape = (len(rows), len(rows[0]))
        self._numbers.append((NumberField(name, shape), tuple(n for row in rows for n in row)))

    def launch(self, blocks: Size | tuple[Size, Size, Size], **others: Any) -> Launch:
        """Return a launch.

        Args:
            blocks: along the first axis of the grid, or all axes.
            others: further attributes of `Launch`.

        Raises:
            UnsupportedError: there are more parameters than any kernel may have.
        """
        kernel = KernelSource(
            self.family, self.entry, self.threads,
            tuple(f for f, _ in self._pointers), tuple(f for f, _ in self._numbers),
            tuple(self._types.items()), tuple(self._constants.items()), "\n".join(self._code),
        )  # fmt: skip
        numbers = tuple(n for _, sizes in self._numbers for n in sizes)
        if 8 * (len(numbers) + len(self._pointers)) > PARAMETER_BYTES:
            raise UnsupportedError("there are more sizes and strides than a kernel has room for")
        grid = blocks if isinstance(blocks, tuple) else (blocks, 1, 1)
        pointers = tuple(p for _, p in self._pointers)
        return Launch(kernel, pointers, numbers, grid, (self.threads, 1, 1), **others)
