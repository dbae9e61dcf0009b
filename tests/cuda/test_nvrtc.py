"""Every kernel compiles for every architecture, without spills and without a stack."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier

import pytest

from kn_cuda import ARCHITECTURES
from kn_cuda.cache import DiskCache
from kn_cuda.nvrtc import Compiler
from kn_cuda.source import KernelSource
from kn_graph.errors import CompileError
from tests.cuda.corpus import corpus
from tests.cuda.run import assert_clean, needs_nvrtc

pytestmark = needs_nvrtc


@pytest.fixture(scope="module")
def kernels() -> list[KernelSource]:
    return corpus()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_kernels_are_clean(arch: str, kernels: list[KernelSource]) -> None:
    assert_clean(kernels, [arch])
    assert_clean([k.widened for k in kernels], [arch])


def test_a_kernel_is_compiled_once_and_found_on_disk_by_other_plans(
    tmp_path: Path, kernels: list[KernelSource]
) -> None:
    first = Compiler("sm_90", DiskCache(tmp_path, ".cubin"))
    second = Compiler("sm_90", DiskCache(tmp_path, ".cubin"))
    some = first.compile([*kernels[:3], kernels[0]])
    assert list(some) == [k.name for k in kernels[:3]]
    assert (first.cache.misses, first.cache.hits) == (3, 0)
    others = second.compile(kernels[2:4])
    assert others[kernels[2].name] == some[kernels[2].name]
    assert (second.cache.misses, second.cache.hits) == (1, 1)
    assert all(c.cubin.startswith(b"\x7fELF") for c in some.values())


def test_several_threads_compile(
    tmp_path: Path, kernels: list[KernelSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, both = Compiler("sm_90", DiskCache(tmp_path, ".cubin")), Barrier(2, timeout=60)
    alone = compiler._compiled

    def beside(text: str) -> bytes:
        both.wait()
        return alone(text)

    monkeypatch.setattr(compiler, "_compiled", beside)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert compiler.compile(kernels[:2]).keys() == {k.name for k in kernels[:2]}
    assert compiler.compile([]) == {}


def test_a_kernel_that_does_not_compile_shows_the_log(tmp_path: Path) -> None:
    wrong = KernelSource("scalar", "scalar_map", 64, (), (), code="int f() { return nowhere; }")
    with pytest.raises(CompileError, match="nowhere"):
        Compiler("sm_90", DiskCache(tmp_path, ".cubin")).compile([wrong])
