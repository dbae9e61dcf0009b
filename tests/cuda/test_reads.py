"""Kernels touch nothing beside their operands, which lie at pages that nobody may touch."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_cuda import conv_library
from kn_cuda.host_memory import FencedMemory
from kn_graph import Graph
from kn_graph.errors import InternalError
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.pool import Pool
from kn_graph.ops.sort import TopK
from kn_graph.random_bits import RandomStreams
from tests.cuda.run import ApartExecutor, check, host_backend, needs_compiler

pytestmark = needs_compiler

ROOT = Path(__file__).parents[2]

ONES, EDGES = (1, 1), ((1, 1), (1, 1))


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
def test_nothing_beside_an_operand_is_touched(
    build: Callable[[Graph], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv_library, "refusal", lambda graph, arch: "a test")
    check(build)


TOUCH = """
import ctypes, sys
from kn_cuda.host_memory import FencedMemory
at_end, place, count = (int(x) for x in sys.argv[1:])
memory = FencedMemory(0x7F, at_end=bool(at_end)).allocate(64)
ctypes.string_at(memory.address + place, count)
"""


@pytest.mark.parametrize(("at_end", "beside"), [(1, 64), (0, -1)])
def test_a_fence_ends_who_touches_it(at_end: int, beside: int) -> None:
    def ended(place: int, count: int) -> int:
        numbers = map(str, (at_end, place, count))
        return subprocess.run([sys.executable, "-c", TOUCH, *numbers], cwd=ROOT).returncode

    assert ended(0, 64) == 0
    assert ended(beside, 1) == -signal.SIGSEGV


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("nbytes", [0, 1, 60, 4096])
def test_what_is_written_beside_memory_is_told_once(nbytes: int, at_end: bool) -> None:
    fenced = FencedMemory(0x7F, at_end=at_end)
    memory = fenced.allocate(nbytes)
    ctypes.memset(memory.address, 1, nbytes)
    fenced.check()
    start = memory.address - memory.owner.ctypes.data
    around = [i for i in (start - 1, start + nbytes) if 0 <= i < memory.owner.size]
    for i in around:
        memory.owner[i] = 1
        with pytest.raises(InternalError, match=f"written beside {nbytes} bytes"):
            fenced.check()
        fenced.check()
    assert around or nbytes == 4096


def test_memory_that_was_given_back_is_looked_at() -> None:
    fenced = FencedMemory(0x7F, at_end=False)
    memory = fenced.allocate(60)
    memory.owner[60] = 1
    del memory
    with pytest.raises(InternalError, match="written beside 60 bytes"):
        fenced.check()


def test_temporaries_lie_apart() -> None:
    g = Graph("temporary")
    x = g.input("x", "float32", (40, 5001))
    g.output("y", g.relu(g.softmax(g.reduce("sum", x, (1,)), 0)))
    run = ApartExecutor(g, host_backend())
    ready = run.ready(g, {})
    evaluation = run.evaluation(run, ready, RandomStreams(0))
    evaluation.take([np.ones((40, 5001), np.float32)])
    evaluation.lay_out(ready.first, host_backend().allocate(ready.first.memory.nbytes))
    found = [evaluation.addresses[place] for place in ready.first.stage.in_block]
    assert len(found) == len(set(found)) > 0
