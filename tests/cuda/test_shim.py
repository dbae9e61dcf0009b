"""The host shim finds what is wrong with kernels: each mistake of `kernels/wrong.cu`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kn_cuda import source
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.source import KernelSource
from kn_graph.errors import CompileError, InternalError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from tests.cuda.run import SEEDS, host_backend, needs_compiler, run_launch

pytestmark = needs_compiler

COUNT = 64
MISTAKES = (
    "read_too_early",
    "write_too_early",
    "barrier_in_branch",
    "returns_early",
    "partial_mask",
    "never_written",
    "beside_shared",
    "beside_dynamic",
    "beside_result",
    "order_decides",
    "missing_result",
    "beside_own",
    "too_large",
    "not_aligned",
    "reads_behind",
    "reads_in_front",
)


@pytest.fixture(autouse=True)
def wrong_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parent / "kernels" / "wrong.cu").read_text()
    known = source.kernel_text
    monkeypatch.setattr(source, "kernel_text", lambda f: text if f == "wrong.cu" else known(f))


def launch_of(entry: str, *, wrong: bool) -> Launch:
    dense = StridedLayout.contiguous((COUNT,))
    b = KernelBuilder("wrong", entry, COUNT)
    b.constant("WRONG", wrong)
    b.reads("x", Operand(0, dense), "float")
    b.writes("y", Operand(1, dense), "float")
    b.number("count", 40)
    return b.launch(1, shared=4 * COUNT)


def results(launch: Launch) -> list[bytes]:
    """Return what two orders of threads give.

    Raises:
        InternalError: the shim saw what is wrong.
    """
    x, y = np.arange(COUNT, dtype=np.float32), np.full(COUNT, np.nan, np.float32)
    return [run_launch(launch, [x, y], seed=seed)[1].tobytes() for seed in SEEDS]


def is_caught(entry: str) -> bool:
    """Return whether a mistake is reported, gives NaN, or depends on the order."""
    try:
        first, second = results(launch_of(entry, wrong=True))
    except InternalError:
        return True
    return first != second or bool(np.isnan(np.frombuffer(first, np.float32)).any())


@pytest.mark.parametrize("entry", MISTAKES)
def test_mistakes_are_found_and_right_kernels_are_not_blamed(entry: str) -> None:
    first, second = results(launch_of(entry, wrong=False))
    assert first == second
    assert not np.isnan(np.frombuffer(first, np.float32)).any()
    assert is_caught(entry)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": (2048, 1, 1)}, "no GPU launches such a grid"),
        ({"block": (1, 1, 65)}, "no GPU launches such a grid"),
        ({"grid": (1, 70000, 1)}, "no GPU launches such a grid"),
        ({"block": (128, 1, 1)}, "more threads than the kernel is compiled for"),
        ({"shared": 1 << 20}, "no GPU has as much shared memory"),
    ],
)
def test_launches_that_no_gpu_allows_are_refused(change: dict, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        results(replace(launch_of("beside_result", wrong=False), **change))


def test_a_warp_that_is_not_whole_cannot_exchange() -> None:
    launch = launch_of("partial_mask", wrong=False)
    with pytest.raises(InternalError, match="an exchange in a warp of 8 lanes"):
        results(replace(launch, block=(40, 1, 1)))


def test_a_text_that_does_not_compile_shows_the_error() -> None:
    wrong = KernelSource("wrong", "order_decides", 64, (), (), code="int f() { return nowhere; }")
    with pytest.raises(CompileError, match="nowhere"):
        host_backend().prepare([wrong])
