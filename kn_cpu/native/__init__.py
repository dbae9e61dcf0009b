"""The libraries of native kernels: which one this processor runs, and how it is called.

`library()` gives the best one, or None with the reason in `unavailable_reason()`. The environment
variable KN_CPU_ISA (base, avx2, avxvnni or avx512) forces another one, for tests and measurements;
KN_CPU_NATIVE names another folder of libraries, such as those built with a sanitizer.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kn_cpu.native.build import isas, library_name
from kn_graph.errors import DeviceUnavailableError, InternalError, OutOfMemoryError

__all__ = [
    "FOLDER",
    "STEP",
    "BoundSteps",
    "NativeLibrary",
    "available",
    "library",
    "load",
    "unavailable_reason",
]

FOLDER = Path(os.environ.get("KN_CPU_NATIVE") or Path(__file__).resolve().parent.parent / "_native")

Array = np.ndarray[Any, Any]

STEP = np.dtype(
    [(name, np.int64) for name in ("run", "numbers", "pointers", "units", "grain", "scratch")]
)
"""`kn_step` of abi.h: address of a kernel, places of its first number and pointer, and the rest."""


class _Entry(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("run", ctypes.c_void_p))


@dataclass(frozen=True, eq=False)
class NativeLibrary:
    """The kernels for one instruction set.

    Attributes:
        isa: its name.
        path: of the file.
        handle: for ctypes.
    """

    isa: str
    path: Path
    handle: ctypes.CDLL

    @property
    def run_address(self) -> int:
        """The address of `kn_run`."""
        address = ctypes.cast(self.handle.kn_run, ctypes.c_void_p).value
        assert address is not None
        return address

    @cache  # noqa: B019 - libraries are never unloaded
    def family(self, family: str) -> dict[str, int]:
        """Return the addresses of the kernels of one family, by name."""
        try:
            first = _Entry.in_dll(self.handle, f"kn_{family}_entries")
        except ValueError:
            raise InternalError(f"{self.path.name} has no table of kernels '{family}'") from None
        found: dict[str, int] = {}
        entries = ctypes.cast(ctypes.pointer(first), ctypes.POINTER(_Entry))
        while (name := entries[len(found)].name) is not None:
            found[name.decode()] = int(entries[len(found)].run)
        return found

    def kernel(self, family: str, name: str) -> int:
        """Return the address of a kernel."""
        kernels = self.family(family)
        if name not in kernels:
            raise InternalError(f"{self.path.name}: '{family}' has no kernel '{name}'")
        return kernels[name]

    def bind(self, steps: Array, numbers: Array, pointers: Array) -> BoundSteps:
        """Return a call that runs steps on these arrays, whose contents may change between calls.

        Args:
            steps: of dtype `STEP`.
            numbers: of all steps, int64.
            pointers: of all steps, int64 addresses.
        """
        return BoundSteps(self, steps, numbers, pointers)

    def run(self, steps: Array, numbers: Array, pointers: Array, threads: int = 1) -> None:
        """Run steps once; see `bind`."""
        self.bind(steps, numbers, pointers)(threads)


class BoundSteps:
    """Steps with the memory of their numbers and pointers, which it keeps.

    Asking an array for its address takes longer than a small step.
    """

    def __init__(
        self, library: NativeLibrary, steps: Array, numbers: Array, pointers: Array
    ) -> None:
        self._kept = steps, numbers, pointers
        self._run = library.handle.kn_run
        at = [ctypes.c_void_p(x.ctypes.data) for x in self._kept]
        self._arguments = (at[0], ctypes.c_int64(len(steps)), at[1], at[2])

    def __call__(self, threads: int = 1) -> None:
        """Run the steps one after another; other Python threads go on meanwhile.

        Args:
            threads: how many threads may work, this one included.

        Raises:
            OutOfMemoryError: there is no memory for the scratch of a step.
        """
        if self._run(*self._arguments, threads):
            most = int(self._kept[0]["scratch"].max())
            raise OutOfMemoryError(f"a native step needs {most} bytes of scratch a thread")


def _open(isa: str) -> NativeLibrary:
    path = FOLDER / library_name(isa)
    handle = ctypes.CDLL(str(path))
    address, number = ctypes.c_void_p, ctypes.c_int64
    handle.kn_run.argtypes = (address, number, address, address, ctypes.c_int)
    handle.kn_cpu_runs.argtypes = (ctypes.c_char_p,)
    return NativeLibrary(isa, path, handle)


@cache
def available() -> tuple[str, ...]:
    """Return the instruction sets that are built and that this processor has, the best last."""
    try:
        base = _open("base")
    except OSError:
        return ()
    built = [i.name for i in isas() if (FOLDER / library_name(i.name)).exists()]
    return tuple(name for name in built if base.handle.kn_cpu_runs(name.encode()))


@cache
def load(isa: str) -> NativeLibrary:
    """Return the library of one instruction set.

    Raises:
        DeviceUnavailableError: it is not built, or this processor cannot run it.
    """
    if isa not in available():
        raise DeviceUnavailableError(
            f"there are no native kernels for '{isa}' here;"
            f" available are: {', '.join(available()) or _missing()}"
        )
    return _open(isa)


@cache
def library() -> NativeLibrary | None:
    """Return the best library for this processor, or None; see `unavailable_reason`.

    Raises:
        DeviceUnavailableError: KN_CPU_ISA names one that is not available.
    """
    forced = os.environ.get("KN_CPU_ISA")
    if forced:
        return load(forced)
    return load(available()[-1]) if available() else None


def unavailable_reason() -> str | None:
    """Return why there are no native kernels, or None if there are."""
    return None if available() else f"no native kernels: {_missing()}"


def _missing() -> str:
    path = FOLDER / library_name("base")
    if not path.exists():
        return "the package was installed without a C compiler (CC, cc, gcc or clang)"
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return f"{path.name} does not load ({error})"
    return "this processor lacks SSE4.2"
