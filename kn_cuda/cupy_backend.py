"""A GPU through CuPy, which is imported when one is opened: nothing else talks to a driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any
from weakref import finalize

import numpy as np

from kn_cuda.array import DeviceArray, lies_on_gpu
from kn_cuda.backend import VECTOR_BYTES, DeviceCall, Grid, Memory
from kn_cuda.calls import Gemm, Request
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.cublas_backend import Cublas
from kn_cuda.cudnn_backend import Cudnn
from kn_cuda.nvrtc import Compiler
from kn_cuda.source import KernelSource
from kn_graph.dtype import DType
from kn_graph.errors import OutOfMemoryError, UsageError

__all__ = ["CupyBackend"]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, np.dtype[np.int64]]

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
"""`cudaMemcpyKind`."""

MOST_STATIC_SHARED = 48 << 10
"""Bytes of shared memory that need no leave."""

DYNAMIC_SHARED = 8
"""`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`."""


class CupyBackend:
    """A GPU; all calls go to one stream, in the order in which they are made.

    Attributes:
        index: which GPU.
        arch: its architecture.
        name: what texts call it.
        clock: what `seconds` are.
    """

    clock = "events of the GPU"

    def __init__(self, index: int = 0) -> None:
        """Open it; see `kn_cuda.device`."""
        import cupy

        self.index, self._cupy = index, cupy
        self._device = cupy.cuda.Device(index)
        self.arch = f"sm_{self._device.compute_capability}"
        self.name = f"GPU {index} ({self.arch})"
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._compiler = Compiler(self.arch)
        self._cublas = Cublas(self._stream.ptr, self.arch, self.allocate)
        self._cudnn = Cudnn(self._stream.ptr, self.allocate)
        self._functions: dict[str, Any] = {}
        self._shared: dict[str, int] = {}
        self._modules: list[Any] = []
        self._given_up: deque[Any] = deque()  # arrays of others, which calls may still read
        self._in_use: deque[tuple[Any, list[Any]]] = deque()
        self._lock = RLock()

    def prepare(self, kernels: Sequence[KernelSource]) -> int:
        """Compile and load; see `Backend.prepare`."""
        with self._lock, self._device:
            missing = [k for k in kernels if k.name not in self._functions]
            if not missing:
                return 0
            compiled = self._compiler.compile(missing)
            for name, kernel in compiled.items():
                module = self._cupy.cuda.function.Module()
                module.load(kernel.cubin)
                self._modules.append(module)
                self._functions[name] = module.get_function(name)
            return len(compiled)

    # ---- memory -----------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        """Return memory of CuPy's pool, which gives it back behind all calls so far."""
        with self._device, self._stream:
            try:
                pointer = self._cupy.cuda.alloc(max(nbytes, 1))
            except self._cupy.cuda.memory.OutOfMemoryError as error:
                raise OutOfMemoryError(f"{self.name}: {error}") from None
        return Memory(int(pointer.ptr), nbytes, pointer)

    def write(self, address: int, data: Array) -> None:
        """Copy to the device; pageable memory is staged before this returns."""
        self._move(address, data.ctypes.data, data.nbytes, TO_DEVICE)

    def read(self, address: int, nbytes: int) -> Array:
        """Copy from the device."""
        found = np.empty(nbytes, np.uint8)
        self.fetch(address, found)
        self.synchronize()
        return found

    def fetch(self, address: int, into: Array) -> None:
        """Begin to copy from the device; see `Backend.fetch`."""
        self._move(into.ctypes.data, address, into.nbytes, TO_HOST)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy on the device."""
        self._move(to, source, nbytes, ON_DEVICE)

    def _move(self, to: int, source: int, nbytes: int, kind: int) -> None:
        with self._lock, self._device:
            self._cupy.cuda.runtime.memcpyAsync(to, source, nbytes, kind, self._stream.ptr)

    def zero(self, address: int, nbytes: int) -> None:
        """Set bytes to 0."""
        with self._lock, self._device:
            self._cupy.cuda.runtime.memsetAsync(address, 0, nbytes, self._stream.ptr)

    def pinned(self, nbytes: int) -> Array:
        """Return memory of CuPy's pool of pinned memory."""
        pointer = self._cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
        return np.frombuffer(pointer, np.uint8, nbytes)

    def synchronize(self) -> None:
        """Wait for an event: the stream itself must not be waited for while it is captured."""
        self._sweep()
        self.wait(self.mark())

    def wait(self, mark: Any) -> None:
        """Wait for an event."""
        mark.synchronize()

    def available_bytes(self) -> int:
        """Return what the driver and CuPy's pool have."""
        with self._device:
            free, _ = self._cupy.cuda.runtime.memGetInfo()
            return int(free) + int(self._cupy.get_default_memory_pool().free_bytes())

    # ---- calls ------------------------------------------------------------------------------

    def launch(
        self,
        kernel: KernelSource,
        grid: Grid,
        block: Grid,
        shared: int,
        pointers: Ints,
        numbers: Array,
    ) -> None:
        """Launch a kernel; see `Backend.launch`."""
        pointer = self._cupy.cuda.function.CPointer
        arguments = pointer(pointers.ctypes.data), pointer(numbers.ctypes.data)
        function = self._functions[kernel.name]
        with self._lock, self._device:
            if shared > self._shared.get(kernel.name, MOST_STATIC_SHARED):
                self._allow(function, shared)
                self._shared[kernel.name] = shared
            function(grid, block, arguments, shared, self._stream)

    def _allow(self, function: Any, shared: int) -> None:
        """Ask leave for dynamic shared memory."""
        # unlike a launch, this does not see to it that the thread has a context
        self._cupy.cuda.runtime.memGetInfo()
        self._cupy.cuda.driver.funcSetAttribute(function.ptr, DYNAMIC_SHARED, shared)

    def library(self, request: Request, pointers: Ints, numbers: Ints) -> int:
        """Call a library; see `Backend.library`."""
        with self._lock, self._device:
            return _LIBRARIES[type(request)](self, request, pointers.tolist(), numbers.tolist())

    def capture(self, calls: Sequence[DeviceCall]) -> DeviceCall:
        """Make a CUDA graph of calls; other threads wait, since they use the same stream."""
        stream = self._stream
        with self._lock, self._device:
            stream.begin_capture(self._cupy.cuda.runtime.streamCaptureModeRelaxed)
            try:
                for call in calls:
                    call()
            finally:
                graph = stream.end_capture()
            kept = self._cudnn.workspace  # its address is in the graph

        def replay(kept: Memory | None = kept) -> None:
            with self._lock, self._device:
                graph.launch(stream)

        return replay

    def mark(self) -> Any:
        """Record an event."""
        with self._lock, self._device:
            return self._stream.record()

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two events."""
        return float(self._cupy.cuda.get_elapsed_time(start, end)) * 1e-3

    # ---- arrays of others -------------------------------------------------------------------

    def adopt(self, x: Any) -> DeviceArray | None:
        """Take an array of another library; our stream waits for what is done to it there."""
        if isinstance(x, DeviceArray) and x.backend is self:
            return x
        if not lies_on_gpu(x):
            return None
        with self._lock, self._device:
            if isinstance(x, self._cupy.ndarray):
                # it takes the current stream for the one that writes it, and that is ours below
                self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        with self._lock, self._device, self._stream:
            x = x.detach() if getattr(x, "requires_grad", False) else x
            found = self._cupy.from_dlpack(x) if hasattr(x, "__dlpack__") else self._cupy.asarray(x)
            if found.device.id != self.index:
                raise UsageError(f"an array lies on GPU {found.device.id}, and this is {self.name}")
            if not found.flags.c_contiguous:
                found = found.copy(order="C")
        self._sweep()
        memory = Memory(int(found.data.ptr), found.nbytes, None)
        finalize(memory, self._given_up.append, found).atexit = False
        if memory.address % VECTOR_BYTES:
            given, memory = memory, self.allocate(found.nbytes)
            self.copy(memory.address, given.address, given.nbytes)
        return DeviceArray(memory, DType.from_numpy(found.dtype), found.shape, self)

    def _sweep(self) -> None:
        """Let arrays go that were given up, as soon as the calls so far do not read them any more.

        Whoever owns them writes them in an order of its own, which knows nothing of our stream.
        """
        with self._lock:
            if self._given_up:
                arrays = [self._given_up.popleft() for _ in range(len(self._given_up))]
                self._in_use.append((self.mark(), arrays))
            while self._in_use and self._in_use[0][0].done:
                self._in_use.popleft()

    def exported(self, array: DeviceArray, use: Callable[[Any], Any]) -> Any:
        """Hand on a CuPy array on the same memory, whose stream is ours."""
        cuda, memory = self._cupy.cuda, array.memory
        with self._device, self._stream:
            whole = cuda.UnownedMemory(memory.address, memory.nbytes, memory, self.index)
            place = cuda.MemoryPointer(whole, 0)
            return use(self._cupy.ndarray(array.shape, array.dtype.numpy, place))

    def conv(self, request: ConvGraph, pointers: list[int], numbers: list[int]) -> int:
        """Convolve with cuDNN."""
        return self._cudnn.conv(request, pointers, numbers)

    def gemm(self, request: Gemm, pointers: list[int], numbers: list[int]) -> int:
        """Multiply matrices with cuBLAS."""
        return self._cublas.gemm(request, pointers, numbers)


_LIBRARIES: Mapping[type[Any], Callable[[CupyBackend, Any, list[int], list[int]], int]] = {
    ConvGraph: CupyBackend.conv,
    Gemm: CupyBackend.gemm,
}
