"""How fast this machine computes and moves at best, measured with kernels of our own."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import NativeLibrary
from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_plan.device_spec import DeviceSpec

__all__ = ["MachinePeak", "measure_peak"]

PRODUCT = 384
"""Rows, columns and depth of the product that is timed; its operands fit into a shared cache."""

STREAMS = (1 << 16, 1 << 19, 1 << 22, 1 << 26)
"""Bytes moved, one size for each level of memory."""

REPEATS = 40

LEAST_CALL = 5e-7
"""Seconds that a step takes however small it is."""


@dataclass(frozen=True)
class MachinePeak:
    """What was measured.

    Attributes:
        name: instruction set and threads.
        flops: of a large product of float32, in operations a second.
        streams: bytes moved, and the rate in bytes a second; larger ones are slower.
    """

    name: str
    flops: float
    streams: tuple[tuple[int, float], ...]

    def bandwidth(self, nbytes: int) -> float:
        """Return the rate at which an amount of memory can be moved again and again."""
        return next((rate for size, rate in self.streams if size >= nbytes), self.streams[-1][1])

    def spec(self, nbytes: int) -> DeviceSpec:
        """Return the device as it is for a step that moves so many bytes."""
        products = {DType.FLOAT64: self.flops / 2}
        return DeviceSpec(
            self.name, "measured", self.flops, self.bandwidth(nbytes), LEAST_CALL, products
        )


def measure_peak(library: NativeLibrary, threads: int) -> MachinePeak:
    """Time a product and streams of some sizes; takes a fraction of a second."""
    shape = [PRODUCT, PRODUCT]
    g = Graph("product")
    g.output("y", g.matmul(g.input("a", "float32", shape), g.input("b", "float32", shape)))
    flops = 2 * PRODUCT**3 / _least_time(g, library, threads)
    streams = []
    for nbytes in STREAMS:
        g = Graph("stream")
        g.output("y", g.unary("neg", g.input("x", "float32", [nbytes // 8])))
        streams.append((nbytes, nbytes / _least_time(g, library, threads)))
    plural = "s" if threads > 1 else ""
    return MachinePeak(f"cpu ({library.isa}, {threads} thread{plural})", flops, tuple(streams))


def _least_time(graph: Graph, library: NativeLibrary, threads: int) -> float:
    rng = np.random.default_rng(0)
    feeds = {
        v.name: rng.standard_normal([int(n) for n in v.shape if isinstance(n, int)], np.float32)
        for v in graph.inputs
    }
    call = CpuExecutor(graph.seal(), library, threads).bind(feeds)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call.run()
        times.append(time.perf_counter() - start)
    return min(times)
