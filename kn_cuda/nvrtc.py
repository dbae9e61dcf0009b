"""Kernels compiled by NVRTC for a named architecture: needs CuPy and NVRTC, but no driver."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kn_cuda.cache import DiskCache, cache_folder, key_of
from kn_cuda.source import KernelSource, unit_text
from kn_graph.errors import CompileError, DeviceUnavailableError

__all__ = ["Compiled", "Compiler", "Usage", "nvrtc_version", "parse_log", "unavailable_reason"]

# fmad: results are those that the host shim computes; kernels say fmaf where they want it
OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--ptxas-options=-v",
    "--device-as-default-execution-space",
)

MOST_THREADS = 16
"""Each keeps the state of a compiler in memory."""

MISSING = "NVRTC is not installed: pip install 'kn-engine[cuda12]' or 'kn-engine[cuda13]'"


@dataclass(frozen=True)
class Usage:
    """What a kernel needs of a multiprocessor.

    Attributes:
        registers: of a thread.
        spills: bytes that are stored and loaded since registers do not suffice.
        stack: bytes of local memory.
        shared: bytes of static shared memory.
    """

    registers: int
    spills: int
    stack: int
    shared: int


@dataclass(frozen=True)
class Compiled:
    """A kernel for one architecture.

    Attributes:
        cubin: what a driver loads.
        usage: what it needs.
    """

    cubin: bytes
    usage: Usage


def unavailable_reason() -> str | None:
    """Return why nothing can be compiled; None where it can."""
    try:
        nvrtc_version()
    except (ImportError, OSError, RuntimeError) as error:
        return f"{MISSING} ({error})"
    return None


def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC.

    Raises:
        ImportError: there is no CuPy.
        RuntimeError: CuPy does not find NVRTC.
    """
    from cupy.cuda import nvrtc

    major, minor = nvrtc.getVersion()
    return int(major), int(minor)


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spills": re.compile(r"(\d+) bytes spill stores"),
    "shared": re.compile(r"(\d+) bytes smem"),
}


def parse_log(log: str) -> dict[str, Usage]:
    """Return what each kernel uses, from the text of `--ptxas-options=-v`."""
    found: dict[str, dict[str, int]] = {}
    numbers: dict[str, int] = {}
    for line in log.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            numbers = found.setdefault(entry[1], dict.fromkeys(_NUMBERS, 0))
        for name, pattern in _NUMBERS.items():
            match = pattern.search(line)
            if match:
                numbers[name] = int(match[1])
    return {name: Usage(**fields) for name, fields in found.items()}


class Compiler:
    """Compiles kernels for one architecture, and keeps them on disk.

    Each is a unit of its own: NVRTC compiles one on each thread, and plans share what they have in
    common. A unit of a whole plan takes a twentieth to a third less work, but one thread.

    Attributes:
        arch: such as `sm_90`.
        cache: what is on disk, and how often it was found there.
    """

    def __init__(self, arch: str, cache: DiskCache | None = None) -> None:
        """Look for NVRTC.

        Raises:
            DeviceUnavailableError: it is not installed.
        """
        reason = unavailable_reason()
        if reason is not None:
            raise DeviceUnavailableError(f"no kernels for {arch}: {reason}", (reason,))
        self.arch = arch
        self.cache = cache or DiskCache(cache_folder() / "nvrtc", ".cubin")
        self._version = ".".join(map(str, nvrtc_version()))

    def compile(self, kernels: Sequence[KernelSource]) -> dict[str, Compiled]:
        """Return kernels by name, compiled by several threads.

        Raises:
            CompileError: one does not compile; the text holds NVRTC's log.
        """
        chosen = {k.name: k for k in kernels}
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            return dict(zip(chosen, pool.map(self._kernel, chosen.values()), strict=True))

    def _kernel(self, kernel: KernelSource) -> Compiled:
        text = unit_text([kernel])
        key = key_of(self.arch, self._version, " ".join(OPTIONS), text)
        data = self.cache.get(key, lambda: self._compiled(text))
        log, _, cubin = data.partition(b"\0")
        return Compiled(cubin, parse_log(log.decode())[kernel.name])

    def _compiled(self, text: str) -> bytes:
        """Return the log, a zero, and the cubin."""
        from cupy.cuda import nvrtc

        program = nvrtc.createProgram(text, "unit.cu", [], [])
        try:
            options = (*OPTIONS, f"--gpu-architecture={self.arch}")
            try:
                nvrtc.compileProgram(program, options)
            except nvrtc.NVRTCError as error:
                log = nvrtc.getProgramLog(program)
                raise CompileError(
                    f"a kernel does not compile for {self.arch}: {error}\n{log[:4000]}"
                ) from None
            log = nvrtc.getProgramLog(program)
            # CuPy hands out the zero behind the log, and cuts off the one behind the cubin
            shown = str(log).rstrip("\0").encode()
            return shown + b"\0" + bytes(nvrtc.getCUBIN(program)) + b"\0"
        finally:
            nvrtc.destroyProgram(program)
