"""The host shim finds what is wrong with kernels: each mistake of `kernels/wrong.cu`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kn_cuda import source
from kn_cuda.source import KernelSource
from kn_graph.errors import CompileError, InternalError
from tests.cuda.planted import launch_of, results, text_of
from tests.cuda.run import host_backend, needs_compiler

pytestmark = needs_compiler

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
    monkeypatch.setattr(source, "kernel_text", text_of)


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
