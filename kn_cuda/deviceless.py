"""What cuDNN accepts on devices that are only described: no GPU is there, and none is asked.

cuDNN builds graphs for the properties of a device. That needs cuDNN's libraries, a frontend and a C
compiler for `shim/driver.c`, a driver that is none, in a process of its own: nobody else may meet
that driver. It shows that there is an engine and what workspace it asks for; not that a driver
loads it, nor how fast it is. Nothing that is built here is ever run or kept.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import multiprocessing
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kn_cuda.conv_graph import ConvGraph
from kn_cuda.cudnn_graph import cudnn_conv
from kn_cuda.host import host_compiler
from kn_graph.errors import DeviceUnavailableError

__all__ = ["DEVICES", "Answer", "Asked", "ask", "missing"]

STUB = Path(__file__).parent / "shim" / "driver.c"


@dataclass(frozen=True)
class Answer:
    """What cuDNN says to a graph.

    Attributes:
        refusal: why there is no engine; empty where there is one.
        plans: how many engines were proposed.
        workspace: bytes that the chosen one needs.
    """

    refusal: str = ""
    plans: int = 0
    workspace: int = 0


Asked = tuple[ConvGraph, tuple[int, ...]]
"""A graph, and its numbers."""


ALIKE: Mapping[str, Any] = {
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "maxRegistersPerSM": 65536,
    "warpSize": 32,
    "maxThreadsPerBlock": 1024,
    "maxSharedMemoryPerBlock": 49152,
    "reservedSharedMemoryPerBlock": 1024,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "cudaDeviceId": 0,
    "driverVer": 13000,
}
"""What all of them have."""


def _board(
    name: str,
    version: int,
    units: int,
    shared: int,
    memory: int,
    clock: int,
    l2: int,
    *bus: int,
    threads: int = 2048,
    blocks: int = 32,
) -> Mapping[str, Any]:
    """Return a device as cuDNN wants it described, from its data sheet and not from a device.

    Args:
        name: of the board.
        version: compute capability times 10.
        units: multiprocessors.
        shared: bytes of shared memory that a block may have.
        memory: bytes of its memory.
        clock: of multiprocessors, in kHz.
        l2: bytes of the second cache.
        bus: clock of the memory in kHz, its width in bits, and the board's PCI number.
        threads: the most on a multiprocessor.
        blocks: likewise.
    """
    return {
        "deviceName": name,
        "deviceVer": version,
        "multiProcessorCount": units,
        "maxSharedMemoryPerBlockOptin": shared,
        "totalGlobalMem": memory,
        "smClockRateKHz": clock,
        "l2CacheSize": l2,
        **dict(zip(("memClockRateKHz", "memoryBusWidth", "pciDeviceId"), bus, strict=True)),
        "maxThreadsPerSM": threads,
        "maxCtasPerSM": blocks,
        **ALIKE,
    }  # fmt: skip


DEVICES: Mapping[str, Mapping[str, Any]] = {
    "sm_75": _board(
        "Tesla T4", 750, 40, 65536, 16 << 30, 1_590_000, 4 << 20, 5_001_000, 256, 0x1EB8,
        threads=1024, blocks=16,
    ),
    "sm_80": _board(
        "NVIDIA A100-SXM4-80GB", 800, 108, 166912, 80 << 30, 1_410_000, 40 << 20,
        1_593_000, 5120, 0x20B2,
    ),
    "sm_89": _board(
        "NVIDIA L4", 890, 58, 101376, 24 << 30, 2_040_000, 48 << 20, 6_251_000, 192, 0x27B8,
        threads=1536, blocks=24,
    ),
    "sm_90": _board(
        "NVIDIA H100 80GB HBM3", 900, 132, 232448, 80 << 30, 1_980_000, 50 << 20,
        2_619_000, 5120, 0x2330,
    ),
}  # fmt: skip
"""One board of each architecture."""


def missing() -> str | None:
    """Return what is not there to ask cuDNN; None where all is."""
    for module in ("cudnn", "nvidia.cudnn", "cuda.pathfinder"):
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"{module} is not installed"
    return None if host_compiler() else "no C compiler is found"


def ask(asked: Sequence[Asked], arch: str) -> list[Answer]:
    """Return what cuDNN says to graphs on a device.

    Args:
        asked: the graphs.
        arch: one of `DEVICES`.

    Raises:
        DeviceUnavailableError: something is missing, or the process that asks ends early.
    """
    reason = missing()
    if reason is not None:
        raise DeviceUnavailableError(f"cuDNN cannot be asked: {reason}", (reason,))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_answer, args=(there, list(asked), arch))
    process.start()
    there.close()
    try:
        answers: list[Answer] = here.recv()
    except EOFError:
        process.join()
        reason = f"the process that asks ended with {process.exitcode}"
        raise DeviceUnavailableError(f"cuDNN cannot be asked: {reason}", (reason,)) from None
    process.join()
    return answers


def _answer(pipe: Connection, asked: Sequence[Asked], arch: str) -> None:
    """Build graphs, in a process of its own."""
    _load_driver()
    importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
    cudnn = importlib.import_module("cudnn")
    properties = DEVICES[arch]
    device = {
        "device_property": cudnn.create_device_properties(json.dumps(properties)),
        "sm_version": properties["deviceVer"] // 10,
    }
    pipe.send([_asked(cudnn, request, numbers, device) for request, numbers in asked])
    pipe.close()


def _asked(
    cudnn: Any, request: ConvGraph, numbers: Sequence[int], device: Mapping[str, Any]
) -> Answer:
    try:
        built = cudnn_conv(cudnn, request, numbers, **device)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
        return Answer(" ".join(str(error).split())[:400] or type(error).__name__)
    return Answer("", built.plans, built.workspace)


def _load_driver() -> None:
    """Load the machine's driver, or else ours, before cuDNN looks for one."""
    try:
        ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        compiler = host_compiler()
        assert compiler is not None
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "libcuda.so.1"
            command = [compiler, "-x", "c", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
            subprocess.run([*command, "-o", str(made), str(STUB)], check=True)
            ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)
