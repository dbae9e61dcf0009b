"""Every kernel compiles for every architecture, without spills and without a stack."""

from __future__ import annotations

from pathlib import Path

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


def test_a_unit_is_compiled_once_and_found_on_disk(
    tmp_path: Path, kernels: list[KernelSource]
) -> None:
    first = Compiler("sm_90", DiskCache(tmp_path, ".cubin"))
    second = Compiler("sm_90", DiskCache(tmp_path, ".cubin"))
    some = kernels[:3]
    assert first.compile(some) == second.compile(some[::-1])
    assert (first.cache.misses, second.cache.misses, second.cache.hits) == (1, 0, 1)
    assert first.compile(some).cubin.startswith(b"\x7fELF")


def test_a_kernel_that_does_not_compile_shows_the_log(tmp_path: Path) -> None:
    wrong = KernelSource("scalar", "scalar_map", 64, (), (), code="int f() { return nowhere; }")
    with pytest.raises(CompileError, match="nowhere"):
        Compiler("sm_90", DiskCache(tmp_path, ".cubin")).compile([wrong])
