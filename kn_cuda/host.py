"""The host in place of a GPU: kernels through our shim, libraries by NumPy. Proves, is not fast.

All kernels of a plan are compiled as one unit of C++ with the text that NVRTC gets, between
`shim/host.h` and calls of it. Threads run in an order that follows from a seed: what needs another
order than the program's text says comes out differently under two of them, and so does what reads
memory that was never written. What is touched beside memory is found; see `host_memory`. What C++
leaves undefined ends a kernel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Any
from weakref import finalize

import numpy as np

from kn_cuda.array import DeviceArray, lies_on_gpu
from kn_cuda.backend import VECTOR_BYTES, DeviceCall, Grid, Memory
from kn_cuda.cache import DiskCache, cache_folder, key_of
from kn_cuda.calls import Gemm, Request
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.host_conv import convolve, places
from kn_cuda.host_memory import FencedMemory
from kn_cuda.source import KernelSource, unit_text
from kn_graph.dtype import DType
from kn_graph.errors import CompileError, DeviceUnavailableError, InternalError
from kn_graph.memory import available_bytes

__all__ = ["HostBackend", "host_compiler"]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]

SHIM = Path(__file__).parent / "shim"
SHIM_FILES = ("host.h", "checkers.h", "intrinsics.h")
COMPILERS = ("g++", "clang++")
FLAGS = (
    "-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w",
    # traps where alignment, an index of an array, a shift, a conversion or a sum is undefined
    "-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error",
)  # fmt: skip
PATTERN, OTHER_PATTERN = 0xFF, 0x7F
"""Fill fresh memory in the natural order of threads, and in others: NaN in every float type and -1;
a large number, NaN in float16, and an index that is far outside."""


@cache
def host_compiler() -> str | None:
    """Return the C++ compiler that kernels are tested with; None where there is none."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    return next((found for n in names if (found := shutil.which(n))), None)


class HostBackend:
    """Runs the kernels of a plan on the host.

    Attributes:
        name: what texts call it.
        arch: the architecture that it stands for.
        seed: of the order of threads; 0 for the natural one.
        compiles: how many units were compiled, and not found on disk.
        allocations: how often memory was asked for, pinned memory included.
        clock: what `seconds` are.
    """

    name = "the host in place of a GPU"
    clock = "time on the host, which stands in for a GPU"

    def __init__(
        self,
        arch: str = "sm_90",
        seed: int = 0,
        folder: Path | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        """Find a compiler.

        Args:
            arch: the architecture that it stands for.
            seed: of the order of threads; 0 for the natural one.
            folder: where compiled kernels are kept; the cache's by default.
            flags: what the compiler is told besides, such as sanitizers.

        Raises:
            DeviceUnavailableError: there is none.
        """
        compiler = host_compiler()
        if compiler is None:
            reason = f"no C++ compiler is found; tried {', '.join(COMPILERS)}"
            raise DeviceUnavailableError(f"kernels cannot run on the host: {reason}", (reason,))
        self.arch, self.seed, self._command = arch, seed, (compiler, *FLAGS, *flags)
        self._cache = DiskCache(folder or cache_folder() / "host", ".so.kn")
        self._functions: dict[str, Any] = {}
        # sanitizers and debuggers look names up in the files as long as these are there
        self._loaded = Path(tempfile.mkdtemp(prefix="kn-host-"))
        finalize(self, shutil.rmtree, self._loaded, ignore_errors=True)
        self._lock = RLock()
        self.allocations = 0
        self._memory = FencedMemory(OTHER_PATTERN if seed else PATTERN, at_end=bool(seed))

    @property
    def compiles(self) -> int:
        """How many units were compiled, and not found on disk."""
        return self._cache.misses

    # ---- kernels ----------------------------------------------------------------------------

    def prepare(self, kernels: Sequence[KernelSource]) -> int:
        """Compile and load; see `Backend.prepare`."""
        with self._lock:
            missing = [k for k in kernels if k.name not in self._functions]
            if not missing:
                return 0
            text = f'#include "host.h"\n{unit_text(missing)}'
            shim = "".join((SHIM / name).read_text() for name in SHIM_FILES)
            key = key_of(*self._command, shim, text)
            library = self._load(key, self._cache.get(key, lambda: self._compiled(text)))
            for k in missing:
                function = getattr(library, k.name)
                function.restype = ctypes.c_char_p
                self._functions[k.name] = function
            return len({k.name for k in missing})

    def _load(self, key: str, payload: bytes) -> ctypes.CDLL:
        """Load a shared library that is bytes."""
        path = self._loaded / f"{key}.so"
        path.write_bytes(payload)
        return ctypes.CDLL(str(path))

    def _compiled(self, text: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "unit.cpp", Path(folder) / "unit.so"
            source.write_text(text)
            command = [*self._command, f"-I{SHIM}", "-o", str(out), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileError(
                    f"kernels do not compile with {self._command[0]}:\n{done.stderr[:4000]}"
                )
            return out.read_bytes()

    def launch(
        self,
        kernel: KernelSource,
        grid: Grid,
        block: Grid,
        shared: int,
        pointers: Ints,
        numbers: Array,
    ) -> None:
        """Run all threads; see `Backend.launch`.

        Raises:
            InternalError: the kernel did what no GPU allows.
        """
        triple = ctypes.c_uint * 3
        with self._lock:
            error = self._functions[kernel.name](
                triple(*grid), triple(*block), ctypes.c_size_t(shared),
                ctypes.c_void_p(pointers.ctypes.data), ctypes.c_void_p(numbers.ctypes.data),
                ctypes.c_uint(self.seed),
            )  # fmt: skip
        if error is not None:
            raise InternalError(f"kernel {kernel.name}: {error.decode()}. Please report this.")

    def library(self, request: Request, pointers: Ints, numbers: Ints) -> int:
        """Compute with NumPy; see `Backend.library`."""
        return _LIBRARIES[type(request)](request, pointers.tolist(), numbers.tolist())

    # ---- memory -----------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        """Return memory between fences: it ends at one, in the natural order it begins at one."""
        self.allocations += 1
        return self._memory.allocate(nbytes)

    def write(self, address: int, data: Array) -> None:
        """Copy to memory."""
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def read(self, address: int, nbytes: int) -> Array:
        """Copy from memory."""
        return _bytes_at(address, nbytes).copy()

    def fetch(self, address: int, into: Array) -> None:
        """Copy from memory; nothing has to be waited for."""
        ctypes.memmove(into.ctypes.data, address, into.nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy memory."""
        ctypes.memmove(to, source, nbytes)

    def pinned(self, nbytes: int) -> Array:
        """Return memory."""
        self.allocations += 1
        return np.zeros(nbytes, np.uint8)

    def synchronize(self) -> None:
        """Return: whatever was called has happened."""

    def wait(self, mark: float) -> None:
        """Return: the host was there when it made the mark."""

    def zero(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""
        ctypes.memset(address, 0, nbytes)

    def capture(self, calls: Sequence[DeviceCall]) -> DeviceCall:
        """Return what makes the same calls again, one after another."""
        kept = tuple(calls)

        def replay() -> None:
            for call in kept:
                call()

        return replay

    def mark(self) -> float:
        """Return the time."""
        return perf_counter()

    def seconds(self, start: float, end: float) -> float:
        """Return the time between two marks."""
        return end - start

    # ---- arrays of others -------------------------------------------------------------------

    def adopt(self, x: Any) -> DeviceArray | None:
        """Take an array that says it is on a GPU: its address is one of the host here."""
        if isinstance(x, DeviceArray) and x.backend is self:
            return x
        if not lies_on_gpu(x):
            return None
        if hasattr(x, "__dlpack__"):
            found = np.from_dlpack(x)
        else:
            found = np.asarray(_ArrayInterface(dict(x.__cuda_array_interface__), x))
        if not found.flags.c_contiguous or found.ctypes.data % VECTOR_BYTES:
            memory = self.allocate(found.nbytes)
            self.write(memory.address, np.ascontiguousarray(found))
        else:
            memory = Memory(found.ctypes.data, found.nbytes, found)
        return DeviceArray(memory, DType.from_numpy(found.dtype), found.shape, self)

    def exported(self, array: DeviceArray, use: Callable[[Any], Any]) -> Any:
        """Hand on a NumPy array on the same memory."""
        place = {"data": (array.memory.address, False), "version": 3}
        place |= {"shape": array.shape, "typestr": array.dtype.numpy.str}
        return use(np.asarray(_ArrayInterface(place, array.memory)))

    def available_bytes(self) -> int:
        """Return the memory of this machine that is free."""
        return available_bytes()

    def check_guards(self) -> None:
        """Look whether something was written beside memory, also such that was given back.

        Raises:
            InternalError: it was.
        """
        self._memory.check()


@dataclass(frozen=True)
class _ArrayInterface:
    """What NumPy makes an array of, on the memory of something that it keeps."""

    __array_interface__: dict[str, Any]
    owner: Any


def _bytes_at(address: int, nbytes: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _strided(address: int, dtype: DType, sizes: Sequence[int], strides: Sequence[int]) -> Array:
    """Return a view of elements at an address; no stride is negative."""
    last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    flat = _bytes_at(address, (last + 1) * dtype.itemsize).view(dtype.numpy)
    steps = [s * dtype.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat, sizes, steps)


def _gemm(request: Gemm, pointers: list[int], numbers: list[int]) -> int:
    """Multiply matrices; returns how many calls a library would need."""
    m, n, k, a_line, b_line, c_line, *batches = numbers
    outer, *outer_steps = batches[:4]
    inner, *inner_steps = batches[4:]
    lines = [
        (m, k, a_line, request.a_turned),
        (k, n, b_line, request.b_turned),
        (m, n, c_line, False),
    ]
    dtypes = (request.dtype, request.dtype, request.out)
    wide = np.float64 if request.dtype is DType.FLOAT64 else np.float32
    views = []
    for i, (rows, columns, line, turned) in enumerate(lines):
        strides = (1, line) if turned else (line, 1)
        sizes = (outer, inner, rows, columns)
        steps = (outer_steps[i], inner_steps[i], *strides)
        if 0 in sizes:
            views.append(np.zeros(sizes, dtypes[i].numpy))
        else:
            views.append(_strided(pointers[i], dtypes[i], sizes, steps))
    a, b, c = views
    with np.errstate(all="ignore"):
        c[...] = np.matmul(a.astype(wide), b.astype(wide))
    return outer


def _conv(request: ConvGraph, pointers: list[int], numbers: list[int]) -> int:
    """Convolve dense tensors; the batch, the channels and no axis of x is empty."""
    views = [
        _strided(address, *place) if address else None
        for address, place in zip(pointers, places(request, numbers), strict=True)
    ]
    convolve(request, numbers, views)
    return 1


_LIBRARIES: Mapping[type[Any], Callable[[Any, list[int], list[int]], int]] = {
    ConvGraph: _conv,
    Gemm: _gemm,
}
