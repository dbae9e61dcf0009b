"""Where the CUDA libraries of this machine are: nothing is loaded, and no driver is asked.

They are looked for in the order in which they are used: wheels of this environment, then the
folders that CUDA_PATH, CUDA_HOME and CUDNN_PATH name, then wherever the loader looks.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIBRARIES", "FoundLibrary", "find_cuda_libraries"]

LIBRARIES: Mapping[str, str] = {
    "cuda": "the driver",
    "cudart": "the runtime",
    "nvrtc": "compiles kernels",
    "cublas": "products",
    "cublasLt": "products with epilogues",
    "cudnn": "convolutions and attention",
}
"""Stems of the libraries, and what each is for."""

VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CUDNN_PATH")

FOLDERS = ("lib64", "lib", "lib/x86_64-linux-gnu", "targets/x86_64-linux/lib")


@dataclass(frozen=True)
class FoundLibrary:
    """A library, or that there is none.

    Attributes:
        name: its stem, such as `cublas`.
        purpose: what it is for.
        source: who brought it: a wheel, a variable, or the loader; None where it was not found.
        path: the file, or the name that the loader knows.
    """

    name: str
    purpose: str
    source: str | None
    path: str | None


def find_cuda_libraries(
    places: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> list[FoundLibrary]:
    """Return where each library is.

    Args:
        places: folders that packages are imported from; `sys.path` by default.
        environ: variables; those of this process by default.
    """
    folders = [
        *_wheels(sys.path if places is None else places),
        *_named(os.environ if environ is None else environ),
    ]
    return [_find(name, purpose, folders) for name, purpose in LIBRARIES.items()]


def _wheels(places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield folders of libraries in wheels, which all install into a package called nvidia."""
    for place in places:
        yield from (("wheel", f) for f in sorted(Path(place or ".", "nvidia").glob("*/lib")))


def _named(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for variable in VARIABLES:
        if environ.get(variable):
            yield from ((variable, Path(environ[variable], f)) for f in FOLDERS)


def _find(name: str, purpose: str, folders: Sequence[tuple[str, Path]]) -> FoundLibrary:
    for source, folder in folders:
        files = sorted(folder.glob(f"lib{name}.so*"), key=lambda f: len(f.name))
        if files:
            return FoundLibrary(name, purpose, source, str(files[0]))
    known = ctypes.util.find_library(name)
    return FoundLibrary(name, purpose, "loader" if known else None, known)
