"""Graphs on the host in place of a GPU, in two orders of threads; kernels through NVRTC."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_cuda import ARCHITECTURES, CudaExecutor, CudaOptions, HostBackend
from kn_cuda.backend import Memory
from kn_cuda.bound import BoundStage
from kn_cuda.calls import Launch
from kn_cuda.evaluation import Evaluation
from kn_cuda.host import host_compiler
from kn_cuda.nvrtc import Compiler, Usage, unavailable_reason
from kn_cuda.source import KernelSource
from kn_graph import Graph, Value, cpu_eval_graph
from kn_graph.dim import Size, Symbol, evaluate
from kn_plan.plan import Operand
from tests.cpu.steps import agree, at_ties, drawn

__all__ = [
    "CHECKED",
    "SANITIZE",
    "SEEDS",
    "ApartExecutor",
    "assert_clean",
    "check",
    "check_graph",
    "host_backend",
    "launched",
    "needs_compiler",
    "needs_nvrtc",
    "run_launch",
    "sanitizer_flags",
]

Array = np.ndarray[Any, Any]
Build = Callable[[Graph], Value | Sequence[Value]]

SANITIZE = "KN_TEST_CUDA_SANITIZE"
"""Names the sanitizers that kernels on the host are built with."""

SEEDS = (0, 12345)
"""Two orders of threads."""

CHECKED = ("sm_75", "sm_90")
"""Architectures that each graph's kernels are compiled for; `test_nvrtc` takes all."""

MOST_SHARED = 48 << 10
REGISTERS = 65536

CIRCULAR = re.compile(r"\b(sin|cos|tan)f?\(")
CIRCULAR_STACK = 40
"""Bytes that these functions of CUDA take to reduce arguments of any size, on any architecture."""

needs_compiler = pytest.mark.skipif(host_compiler() is None, reason="no C++ compiler is found")
needs_nvrtc = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))


class Apart(Evaluation):
    """Each buffer of a stage has memory of its own, beside no other's, which is not used again."""

    def lay_out(self, bound: BoundStage, block: Memory) -> None:
        """Lay buffers between fences; statuses stay in the block."""
        super().lay_out(bound, block)
        buffers, roots = self.skeleton.lowering.buffers, self.skeleton.roots
        made = {
            root: self.backend.allocate(evaluate(buffers[root].nbytes, self.env))
            for root in (*bound.stage.memory.members, *bound.stage.memory.temporaries)
        }
        for number, root in enumerate(roots):
            if root in made:
                self.addresses[self.skeleton.address_of_buffer(number)] = made[root].address
                self.memory[number] = made[root]


class ApartExecutor(CudaExecutor):
    """Keeps the buffers of a plan apart."""

    evaluation = Apart


def sanitizer_flags() -> tuple[str, ...]:
    """Return what builds kernels with the sanitizers that `test_sanitizers` asks for."""
    asked = os.environ.get(SANITIZE)
    if not asked:
        return ()
    # Python runs with their library; the compiler does not have to.
    os.environ.pop("LD_PRELOAD", None)
    return ("-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", f"-fsanitize={asked}")


@cache
def _folder() -> Path:
    """Return where compiled kernels are kept: for good where `KN_CACHE_DIR` says so."""
    given = os.environ.get("KN_CACHE_DIR")
    return Path(given or tempfile.mkdtemp(prefix="kn-cuda-")) / "host"


def host_backend(seed: int = 0) -> HostBackend:
    """Return the host with an order of threads; it keeps the kernels of all tests."""
    return _host_backend(seed)


@cache
def _host_backend(seed: int) -> HostBackend:
    return HostBackend(seed=seed, folder=_folder(), flags=sanitizer_flags())


def assert_clean(kernels: Sequence[KernelSource], archs: Sequence[str] = CHECKED) -> None:
    """Compile kernels, if there is NVRTC, and check what they use of a GPU.

    Registers suffice, nothing is on a stack, and a block fits on a multiprocessor.
    """
    if unavailable_reason() is not None or not kernels:
        return
    threads = {k.name: k.threads for k in kernels}
    stack = {k.name: CIRCULAR_STACK if CIRCULAR.search(k.code) else 0 for k in kernels}
    for arch in archs:
        assert arch in ARCHITECTURES
        compiled = Compiler(arch).compile(kernels)
        assert compiled.keys() == threads.keys()
        for name, kernel in compiled.items():
            assert _fits(kernel.usage, threads[name], stack[name]), (arch, name, kernel.usage)


def _fits(used: Usage, threads: int, stack: int) -> bool:
    few = used.shared <= MOST_SHARED and used.registers * threads <= REGISTERS
    return used.spills == 0 and used.stack <= stack and few


def check(
    build: Build,
    *sizes: Mapping[str, int],
    high: int = 3,
    options: CudaOptions | None = None,
    ulps: int = 0,
) -> CudaExecutor:
    """Compare a graph without host steps with the reference.

    Args:
        build: makes inputs and outputs; the symbol n is there.
        sizes: numbers of the symbols, one mapping a run.
        high: integers are drawn from 0 to this, exclusive.
        options: how it runs.
        ulps: see `check_graph`.
    """
    g = Graph("steps")
    g.symbol("n", lo=0)
    made = build(g)
    for i, v in enumerate((made,) if isinstance(made, Value) else made):
        g.output(f"out{i}", v)
    rng = np.random.default_rng(0)
    feeds = [drawn(g, dict(numbers), rng, high) for numbers in sizes or ({},)]
    return check_graph(g, feeds, options, ulps)


def check_graph(
    graph: Graph,
    feeds: Sequence[Mapping[str, Any]],
    options: CudaOptions | None = None,
    ulps: int = 0,
) -> CudaExecutor:
    """Compare a graph with the reference, in two orders of threads that give the same bits.

    What is touched beside memory is found; in the second order each buffer lies apart, so that this
    is true of those that share memory as well. Kernels are compiled where NVRTC is installed.

    Args:
        graph: what runs.
        feeds: inputs, one mapping a run.
        options: how it runs.
        ulps: units in the last place by which floats of 16 bits may differ, where what is rounded
            to them is a sum in another order: next to a tie, its last bit decides.

    Returns:
        The executor of the first order, with what it counted.
    """
    kinds = (CudaExecutor, ApartExecutor)
    runs = [kind(graph, host_backend(s), options) for kind, s in zip(kinds, SEEDS, strict=True)]
    assert_clean(runs[0].loaded().skeleton.kernels)
    for given in feeds:
        first, second = (run.eval(given) for run in runs)
        agree(at_ties(cpu_eval_graph(graph, given), first, ulps), first)
        for name, x in first.items():
            if isinstance(x, np.ndarray) and x.dtype != object:
                assert x.tobytes() == second[name].tobytes(), f"{name} depends on the order"
        for run in runs:
            assert isinstance(run.backend, HostBackend)
            run.backend.check_guards()
    return runs[0]


def launched(run: CudaExecutor, entry: str) -> int:
    """Return how often a kernel was launched so far."""
    return run.proof.kernels[entry]


def run_launch(
    launch: Launch,
    arrays: Sequence[Array],
    *,
    seed: int = 0,
    env: Mapping[Symbol, int] | None = None,
    wide: bool = False,
) -> list[Array]:
    """Launch one kernel by itself; return all arrays behind it.

    Args:
        launch: its operands are the arrays, by the number of the buffer.
        arrays: dense memory.
        seed: of the order of threads.
        env: numbers of symbols.
        wide: with indices of 64 bits.
    """
    backend, numbers = host_backend(seed), env or {}

    def number(size: Size) -> int:
        return evaluate(size, numbers)

    kernel = launch.kernel.widened if wide else launch.kernel
    backend.prepare([kernel])
    memory = [_uploaded(backend, x) for x in arrays]
    pointers = []
    for p in launch.pointers:
        assert isinstance(p, Operand)
        itemsize = arrays[p.buffer].itemsize
        pointers.append(memory[p.buffer].address + number(p.layout.offset) * itemsize)
    grid = tuple(number(n) for n in launch.grid)
    if 0 not in grid:
        backend.launch(
            kernel, (grid[0], grid[1], grid[2]), launch.block, number(launch.shared),
            np.array(pointers, np.int64),
            np.array([number(n) for n in launch.numbers], np.int64 if wide else np.int32),
        )  # fmt: skip
    backend.check_guards()
    return [
        backend.read(m.address, x.nbytes).view(x.dtype).reshape(x.shape)
        for m, x in zip(memory, arrays, strict=True)
    ]


def _uploaded(backend: HostBackend, x: Array) -> Memory:
    made = backend.allocate(x.nbytes)
    backend.write(made.address, np.ascontiguousarray(x))
    return made
