"""Kernels read nothing behind their inputs: each ends at a page that nobody may touch."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, HostBackend, conv_library
from kn_cuda.backend import VECTOR_BYTES, Memory
from kn_graph import Graph
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.pool import Pool
from kn_graph.ops.sort import TopK
from tests.cpu.steps import drawn
from tests.cuda.run import needs_compiler

pytestmark = [needs_compiler, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")]

LARGE = 0x7F
"""Fills fresh memory: an index that nobody wrote is far outside."""

ONES, EDGES = (1, 1), ((1, 1), (1, 1))


class Fenced(HostBackend):
    """Memory whose end is the end of what may be read."""

    def allocate(self, nbytes: int) -> Memory:
        """Return memory in front of a page that ends the process."""
        inside = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        raw = mmap.mmap(-1, inside + mmap.PAGESIZE)
        end = ctypes.addressof(ctypes.c_char.from_buffer(raw)) + inside
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) == 0
        ctypes.memset(end - inside, LARGE, inside)
        return Memory(end - -(-nbytes // VECTOR_BYTES) * VECTOR_BYTES, nbytes, raw)


def turned(g: Graph) -> Any:
    x, y = g.input("x", "float32", (3, 36, 44)), g.input("y", "float32", (3, 44, 36))
    return g.permute(x, (0, 2, 1)), g.permute(y, (0, 2, 1))


def rows(g: Graph) -> Any:
    x, y = g.input("x", "float32", (4, 1101)), g.input("y", "float32", (52, 33))
    tall = g.push_all(TopK(1, 5), g.input("t", "float32", (1, 5001)))
    made = [*tall, g.softmax(x, 1), g.push(Cumulative("sum", 1), x), *g.push_all(TopK(1, 5), x)]
    return [*made, g.reduce("sum", x, (1,)), g.reduce("sum", y, (0,))]


def images(g: Graph) -> Any:
    x, w = g.input("x", "float32", (2, 18, 7, 9)), g.input("w", "float32", (3, 3, 18, 36))
    w = g.permute(w, (3, 2, 0, 1))  # as the kernel wants them
    made = [
        g.push(Conv(ONES, ONES, EDGES), x, w),
        g.push(Pool("max", (3, 3), ONES, ONES, EDGES), x),
    ]
    return [*made, g.push(Conv(ONES, ONES, EDGES, 18), x, g.input("d", "float32", (36, 1, 3, 3)))]


def products(g: Graph) -> Any:
    q, k, v = (g.input(n, "float32", (1, 2, s, 18)) for n, s in (("q", 70), ("k", 66), ("v", 66)))
    few, x = g.input("f", "float32", (1, 2, 2, 18)), g.input("x", "float32", (34, 66))
    made = [g.push(Attention(right=0), a, k, v) for a in (q, few)]
    return [*made, x @ g.input("y", "float32", (66, 38))]


@pytest.mark.parametrize("build", [turned, rows, images, products])
def test_nothing_behind_an_input_is_read(
    build: Callable[[Graph], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(conv_library, "refusal", lambda graph, arch: "a test")
    g = Graph("fenced")
    for i, v in enumerate(build(g)):
        g.output(f"out{i}", v)
    feeds = drawn(g, {}, np.random.default_rng(0), 3)
    run = CudaExecutor(g, Fenced(folder=tmp_path))
    assert ended(lambda: run.eval(feeds)) == 0


def test_a_fence_ends_who_reads_behind_it() -> None:
    memory = Fenced().allocate(64)
    assert ended(lambda: ctypes.string_at(memory.address, 64)) == 0
    assert ended(lambda: ctypes.string_at(memory.address, 65)) == -signal.SIGSEGV


def ended(call: Callable[[], Any]) -> int | None:
    """Return how a process that makes a call ended."""

    def target() -> None:
        faulthandler.disable()
        call()

    child = get_context("fork").Process(target=target)
    child.start()
    child.join(60)
    return child.exitcode
