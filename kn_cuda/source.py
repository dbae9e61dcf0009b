"""Kernels as text: the constants of a template, and units of many kernels to compile at once.

A family of kernels is one file `kernels/FAMILY.cu` of C++ templates. Each has one parameter, a
struct of constants, types and small functions, which is generated here; see `kernels/prelude.h`.
Sizes and strides are arguments, so that a kernel serves all sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod
from pathlib import Path

from kn_graph.scalar import c_prelude

__all__ = ["GivenField", "KernelSource", "NumberField", "PointerField", "kernel_text", "unit_text"]

FOLDER = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class PointerField:
    """A pointer of a kernel.

    Attributes:
        name: how the kernel calls it.
        type: C++ type of the elements.
        written: whether they are written.
    """

    name: str
    type: str
    written: bool

    def __str__(self) -> str:
        """Return the declaration."""
        return f"{'' if self.written else 'const '}{self.type}* {self.name};"


@dataclass(frozen=True)
class GivenField:
    """A number of a scalar program, in the place of a pointer.

    Attributes:
        name: how the program calls it.
        type: C++ type.
    """

    name: str
    type: str

    def __str__(self) -> str:
        """Return the declaration."""
        return f"Given<{self.type}> {self.name};"


@dataclass(frozen=True)
class NumberField:
    """A number of a kernel, or a table of numbers.

    Attributes:
        name: how the kernel calls it.
        shape: of the table; empty for a number.
    """

    name: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the declaration."""
        return f"Index {self.name}{''.join(f'[{n}]' for n in self.shape)};"


@dataclass(frozen=True)
class KernelSource:
    """A kernel: a template of a family and its constants.

    Attributes:
        family: the file.
        entry: the template.
        threads: the most that a block has.
        pointers: what it reads and writes, and numbers of programs.
        numbers: what else it is given.
        types: C++ types by name.
        constants: whole numbers by name.
        code: functions, as text.
        wide: whether indices have 64 bits.
    """

    family: str
    entry: str
    threads: int
    pointers: tuple[PointerField | GivenField, ...]
    numbers: tuple[NumberField, ...]
    types: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, int], ...] = ()
    code: str = ""
    wide: bool = False

    @cached_property
    def struct(self) -> str:
        """The body of the struct of constants."""
        lines = [f"using Index = {'int64_t' if self.wide else 'int32_t'};"]
        lines += [f"using {name} = {text};" for name, text in self.types]
        lines += [f"static constexpr int {name} = {n};" for name, n in self.constants]
        lines.append(f"struct Pointers {{ {' '.join(map(str, self.pointers))} }};")
        lines.append(f"struct Numbers {{ {' '.join(map(str, self.numbers))} }};")
        code = self.code.rstrip().splitlines()
        return "\n".join(f"    {line}".rstrip() for line in [*lines, *code])

    @cached_property
    def name(self) -> str:
        """A name that no other kernel has; the same on every machine."""
        text = f"{self.family} {self.entry} {self.threads}\n{self.struct}"
        return f"{self.entry}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @cached_property
    def widened(self) -> KernelSource:
        """The same kernel with indices of 64 bits."""
        return replace(self, wide=True)

    @cached_property
    def round(self) -> int | None:
        """The place among its numbers of which round it is; None where it is not told."""
        place = 0
        for field in self.numbers:
            if field.name == "round":
                return place
            place += prod(field.shape)
        return None

    @property
    def text(self) -> str:
        """What is added to the family's text."""
        name = self.name
        return (
            f"struct {name}_k {{\n{self.struct}\n}};\n"
            f"KN_KERNEL({name}, {self.threads}, {self.entry}, {name}_k)\n"
        )


@cache
def kernel_text(file: str) -> str:
    """Return the text of a file of the folder `kernels`."""
    return (FOLDER / file).read_text()


def unit_text(kernels: Sequence[KernelSource]) -> str:
    """Return one C++ text with all kernels; equal ones once, in the order of their names.

    Args:
        kernels: any number of them.
    """
    chosen = {k.name: k for k in kernels}
    parts = ["prelude.h", *(f"{f}.cu" for f in _families(chosen.values()))]
    own = "\n".join(chosen[name].text for name in sorted(chosen))
    texts = [f'#line 1 "{part}"\n{kernel_text(part)}' for part in parts]
    return "\n".join([texts[0], c_prelude(own), *texts[1:], '#line 1 "unit.cu"', own])


def _families(kernels: Iterable[KernelSource]) -> list[str]:
    return sorted({k.family for k in kernels})
