"""Makes a process one that has a GPU, which is the stand-in: a plugin of pytest.

`KN_STANDIN` names the folder that `build` made, `KN_STANDIN_ORDER` is late or early: when work of a
stream is done, as `machine.h` says. Kernels are compiled by NVRTC as for a GPU, and what the
stand-in's driver launches are the same kernels from `HostBackend`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kn_cuda import HostBackend, cudnn_backend
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.cudnn_graph import CudnnConv
from kn_cuda.cupy_backend import CupyBackend
from kn_cuda.device import cuda_device
from kn_cuda.host_conv import convolve, places
from kn_cuda.nvrtc import Compiled, Compiler
from kn_cuda.source import KernelSource
from tests.cuda.standin.build import BLAS, DRIVER, LIGHT, RUNTIME

__all__ = ["StandIn", "cupy", "gpu", "pytest_configure", "standin"]

MODULE = "cupy_backends.cuda.api.runtime"
ARCH, MEMORY = 90, 256 << 20
SEED = 12345
WORKSPACE = 5000
"""Bytes that convolutions ask for."""

_opened: list[StandIn] = []


class StandIn:
    """What tests ask of the stand-in.

    Attributes:
        is_eager: whether work of streams is done at once, and not as late as it may be.
    """

    def __init__(self, folder: Path, is_eager: bool) -> None:
        """Load it, before anything looks for a driver."""
        libraries = [
            ctypes.CDLL(str(folder / n), ctypes.RTLD_GLOBAL) for n in (DRIVER, LIGHT, BLAS)
        ]
        self._driver, self._kept = libraries[0], libraries
        self._driver.kn_standin_trouble.restype = ctypes.c_char_p
        self.is_eager = is_eager
        self.memory = MEMORY
        sys.meta_path.insert(0, _Runtime(folder / RUNTIME))
        # of cuBLAS, only what we call is there
        sys.setdlopenflags(os.RTLD_LAZY)
        self._host = HostBackend()
        self._works: list[Any] = []

    @property
    def memory(self) -> int:
        """Bytes that can be allocated; set to what is left."""
        return self._memory

    @memory.setter
    def memory(self, nbytes: int) -> None:
        self._memory = nbytes
        self._driver.kn_standin_set(SEED, int(self.is_eager), ARCH, ctypes.c_size_t(nbytes))

    @property
    def launches(self) -> int:
        """How many kernels have run."""
        return int(self._driver.kn_standin_launches())

    @property
    def graph_launches(self) -> int:
        """How often a graph was launched."""
        return int(self._driver.kn_standin_graph_launches())

    @property
    def trouble(self) -> str:
        """What went wrong last."""
        return str(self._driver.kn_standin_trouble().decode())

    def holds(self, address: int, nbytes: int) -> bool:
        """Return whether that is memory of the device."""
        return bool(
            self._driver.kn_standin_holds(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
        )

    def add(self, stream: int, work: Callable[[], None]) -> None:
        """Have a stream do something, and again in each graph that it is captured in."""
        called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: work())
        self._works.append(called)
        error = self._driver.kn_standin_add(
            ctypes.c_void_p(stream), called, None, ctypes.c_size_t(0)
        )
        assert error == 0, self.trouble

    def know(self, kernels: Sequence[KernelSource], compiled: Mapping[str, Compiled]) -> None:
        """Compile kernels for the host too, which are those that launches run."""
        self._host.prepare(kernels)
        for k in kernels:
            count = sum(prod(field.shape) for field in k.numbers)
            used = compiled[k.name].usage
            self._driver.kn_standin_kernel(
                k.name.encode(),
                ctypes.cast(self._host._functions[k.name], ctypes.c_void_p),
                ctypes.c_size_t(8 * len(k.pointers)),
                ctypes.c_size_t((8 if k.wide else 4) * count),
                ctypes.c_size_t(used.shared),
                used.registers,
            )


class _Runtime(MetaPathFinder):
    """Finds CuPy's module of the runtime that is built against ours."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        loader = ExtensionFileLoader(fullname, self._path)
        return spec_from_file_location(fullname, self._path, loader=loader)


class _Frontend(ModuleType):
    """In place of cuDNN's frontend: a handle is the stream that it was given."""

    cudnnGraphNotSupportedError = RuntimeError  # noqa: N815

    def __init__(self) -> None:
        super().__init__("cudnn")
        self.streams: dict[int, int] = {}

    def create_handle(self) -> int:
        self.streams[len(self.streams) + 1] = 0
        return len(self.streams)

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream


class _Graph:
    """In place of a graph that cuDNN has built: the host convolves when the stream comes there."""

    def __init__(self, standin: StandIn, request: ConvGraph, numbers: Sequence[int]) -> None:
        self._standin, self._request, self._numbers = standin, request, list(numbers)

    def execute(self, given: dict[int, int], workspace: int, handle: int) -> None:
        assert type(workspace) is int, "the frontend takes an int for an address, and nothing else"
        assert self._standin.holds(workspace, WORKSPACE)
        described = places(self._request, self._numbers)
        stream = sys.modules["cudnn"].streams[handle]
        # what is not there has a pointer, too
        there = (True, True, True, self._request.bias, self._request.residual)
        places_of = [
            (given[i], place) if i in given and there[i] else None
            for i, place in enumerate(described)
        ]

        def work() -> None:
            views = [None if p is None else _view(*p) for p in places_of]
            convolve(self._request, self._numbers, views)

        self._standin.add(stream, work)


def _view(address: int, place: Any) -> Any:
    from kn_cuda.host import _strided

    return _strided(address, *place)


def pytest_configure() -> None:
    """Load the stand-in, and have kernels compiled twice."""
    standin = StandIn(
        Path(os.environ["KN_STANDIN"]), os.environ.get("KN_STANDIN_ORDER", "late") == "early"
    )
    _opened.append(standin)
    compile_ = Compiler.compile

    def compiled(self: Compiler, kernels: Sequence[KernelSource]) -> dict[str, Compiled]:
        made = compile_(self, kernels)
        standin.know(kernels, made)
        return made

    def convolution(module: Any, request: ConvGraph, numbers: Sequence[int], **_: Any) -> CudnnConv:
        tensors = (0, 1, 2, 3 if request.bias else None, 4 if request.residual else None)
        return CudnnConv(_Graph(standin, request, numbers), tensors, WORKSPACE, 1)

    Compiler.compile = compiled  # type: ignore[method-assign]
    sys.modules["cudnn"] = _Frontend()
    vars(cudnn_backend)["cudnn_conv"] = convolution


@pytest.fixture(scope="session")
def gpu() -> CupyBackend:
    """Return the GPU."""
    return cuda_device()


@pytest.fixture
def cupy(gpu: CupyBackend) -> Any:
    """Return CuPy."""
    return gpu._cupy


@pytest.fixture
def standin() -> StandIn:
    """Return the stand-in."""
    return _opened[0]
