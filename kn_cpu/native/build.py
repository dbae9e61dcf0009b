"""Compiles the C sources beside this file, once for each instruction set.

`setup.py` calls this when the package is built: only the standard library is needed here. Objects
are kept and compiled again only when something they are made from is newer.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path

__all__ = [
    "EXTENSION",
    "SOURCES",
    "BuildError",
    "Isa",
    "build",
    "build_extension",
    "find_compiler",
    "isas",
    "library_name",
]

SOURCES = Path(__file__).resolve().parent

EXTENSION = "kn_call.abi3.so"
"""File name of the module for quick calls."""

FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-pthread",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-semantic-interposition",
    "-Wall",
    "-Wextra",
    "-Wno-pass-failed",  # clang on loops over functions of libm, which only gcc vectorizes
)
"""Of every compilation. Fast-math would break NaN, and the machine of the build does not matter."""

FILE_FLAGS = dict.fromkeys(("scalar_float", "roi", "nms"), ("-ffp-contract=off",))
"""Of single files: scalar programs round each operation, a product and the sum that it goes to."""


class BuildError(Exception):
    """The compiler refused something; the text holds the command and what the compiler said."""


@dataclass(frozen=True)
class Isa:
    """An instruction set that the sources are compiled for.

    Attributes:
        name: in the name of the library, and what `KN_CPU_ISA` says.
        flags: for the compiler.
        own: the files that are compiled for it; all where there is no `like`.
        like: the instruction set whose objects the others are.
    """

    name: str
    flags: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    like: str = ""


_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mpopcnt")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
_X86 = (
    Isa("base", ("-msse4.2", "-mpopcnt")),
    Isa("avx2", _AVX2),
    Isa("avxvnni", (*_AVX2, "-mavxvnni"), ("integer_dot", "integer_depthwise"), "avx2"),
    Isa("avx512", (*_AVX2, *_AVX512, "-mprefer-vector-width=512")),
)


def isas() -> tuple[Isa, ...]:
    """Return the instruction sets of this kind of machine, the plainest first."""
    return _X86 if platform.machine().lower() in ("x86_64", "amd64") else (Isa("base"),)


def library_name(isa: str) -> str:
    """Return the file name of the library of an instruction set."""
    return f"libkn_{isa}.so"


def find_compiler() -> list[str] | None:
    """Return the command of `$CC`, else of cc, gcc or clang; None where there is no compiler."""
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted:
        return wanted if shutil.which(wanted[0]) else None
    return next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def build(
    compiler: Sequence[str],
    target: Path,
    work: Path,
    *,
    sources: Path = SOURCES,
    extra: Sequence[str] = (),
    only: Sequence[Isa] | None = None,
) -> list[Path]:
    """Compile what is out of date and link the libraries.

    Args:
        compiler: the command.
        target: folder of the libraries.
        work: folder of the objects, which later builds use again.
        sources: folder of the C files.
        extra: more flags, such as those of a sanitizer.
        only: the instruction sets; all that the machine may have by default.

    Returns:
        The objects that were compiled.

    Raises:
        BuildError: the compiler failed.
    """
    compile_jobs: dict[Path, _Job] = {}
    link_jobs = []
    known = {isa.name: isa for isa in isas()}
    for isa in known.values() if only is None else only:
        if isa.like and not _knows(compiler, isa.flags):
            continue  # an old compiler
        objects = []
        for file in sorted(sources.glob("*.c")):
            shared = isa.like and file.stem not in isa.own
            job = _compilation(compiler, known[isa.like] if shared else isa, file, work, extra)
            objects.append(compile_jobs.setdefault(job.made, job).made)
        command = (*compiler, *FLAGS, *isa.flags, *extra, "-shared", *map(str, objects), "-lm")
        library = target / library_name(isa.name)
        link_jobs.append(_Job(command, tuple(objects), library, work / isa.name))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        compiled = list(pool.map(_Job.run, compile_jobs.values()))
    for job in link_jobs:
        job.run()
    return [job.made for job, ran in zip(compile_jobs.values(), compiled, strict=True) if ran]


def _compilation(
    compiler: Sequence[str], isa: Isa, file: Path, work: Path, extra: Sequence[str]
) -> _Job:
    """Return what compiles a file for an instruction set."""
    folder = work / isa.name
    made = folder / f"{file.stem}.o"
    listed = made.with_suffix(".d")  # the headers that it includes
    own = FILE_FLAGS.get(file.stem, ())
    flags = (*compiler, *FLAGS, *isa.flags, *extra, *own)
    command = (*flags, "-MMD", "-MF", str(listed), "-c", str(file))
    return _Job(command, (file,), made, folder, listed)


def _knows(compiler: Sequence[str], flags: Sequence[str]) -> bool:
    """Return whether a compiler knows flags."""
    command = [*compiler, *flags, "-x", "c", "-E", "-"]
    return subprocess.run(command, input=b"", capture_output=True, check=False).returncode == 0


def build_extension(compiler: Sequence[str], target: Path, work: Path) -> Path | None:
    """Compile the module for quick calls, or return None where Python's headers are missing.

    Args:
        compiler: the command.
        target: folder of the module.
        work: folder where the command is noted.

    Raises:
        BuildError: the compiler failed.
    """
    headers, source = Path(get_path("include")), SOURCES / "python" / "call.c"
    if not (headers / "Python.h").exists():
        return None
    flags = (*FLAGS, "-shared", "-DPy_LIMITED_API=0x030b0000", f"-I{headers}")
    made = target / EXTENSION
    _Job((*compiler, *flags, str(source)), (source,), made, work).run()
    return made


@dataclass(frozen=True)
class _Job:
    """One call of the compiler.

    Attributes:
        command: all but the name of the result.
        inputs: files that the result is made from.
        made: the result.
        notes: folder where the command is noted once it has succeeded.
        listed: where the compiler lists more inputs, as a rule of make.
    """

    command: tuple[str, ...]
    inputs: tuple[Path, ...]
    made: Path
    notes: Path
    listed: Path | None = None

    def run(self) -> bool:
        """Make the result if it is out of date, and return whether it was."""
        note, text = self.notes / f"{self.made.name}.command", shlex.join(self.command)
        if note.exists() and note.read_text() == text and self._is_fresh():
            return False
        for folder in (self.notes, self.made.parent):
            folder.mkdir(parents=True, exist_ok=True)
        # what a failure or an interruption leaves half done never counts
        part = self.made.with_name(f"{self.made.name}.{os.getpid()}")
        done = subprocess.run(
            [*self.command, "-o", str(part)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            part.unlink(missing_ok=True)
            raise BuildError(f"{text}\n{done.stderr}")
        part.replace(self.made)
        note.write_text(text)
        return True

    def _is_fresh(self) -> bool:
        inputs = list(self.inputs)
        if self.listed is not None and self.listed.exists():
            rule = self.listed.read_text().replace("\\\n", " ")
            inputs = [Path(p) for p in shlex.split(rule.partition(":")[2])]
        if not all(p.exists() for p in (self.made, *inputs)):
            return False
        when = self.made.stat().st_mtime_ns
        return all(p.stat().st_mtime_ns < when for p in inputs)
