"""Memory of kernels: where it begins, what it costs, and that it is given back."""

from pathlib import Path

import numpy as np
import pytest

from kn_cpu.memory import CACHE_LINE, HUGE_PAGE, ConstantMemory, aligned
from kn_graph.pages import lose_pages

ROLLUP = Path("/proc/self/smaps_rollup")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MEBIBYTE = 1 << 20

only_huge = pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(), reason="no huge pages"
)


def counted(name: str) -> int:
    """Return the bytes of this process that the system counts under a name."""
    return 1024 * int(ROLLUP.read_text().split(f"\n{name}:")[1].split()[0])


@pytest.mark.parametrize("nbytes", [1, 1000, HUGE_PAGE - 1, HUGE_PAGE, 9 * MEBIBYTE + 5])
def test_memory_is_zero_and_begins_at_a_cache_line(nbytes):
    x = aligned(nbytes)
    assert x.nbytes == nbytes
    assert x.ctypes.data % CACHE_LINE == 0
    assert not x.any()
    x[:] = 1


@only_huge
def test_large_memory_lies_in_huge_pages():
    x = aligned(16 * MEBIBYTE)
    before = counted("AnonHugePages")
    x[:] = 1
    assert x.ctypes.data % HUGE_PAGE == 0
    assert counted("AnonHugePages") - before == 16 * MEBIBYTE


@only_huge
def test_the_end_of_large_memory_takes_no_whole_huge_page():
    x = aligned(2 * HUGE_PAGE + 4096)
    before = counted("Rss")
    x[:] = 1
    assert counted("Rss") - before < 2 * HUGE_PAGE + MEBIBYTE


def test_too_much_memory_is_a_memory_error():
    with pytest.raises(MemoryError):
        aligned(1 << 60)


def test_constants_lie_at_cache_lines_and_apart():
    memory, rng = ConstantMemory(), np.random.default_rng(0)
    sizes = [1, 63, 64, 65, 3 * MEBIBYTE, 40 * MEBIBYTE]
    sizes += rng.integers(1, 4 * MEBIBYTE, 40).tolist()
    taken = [memory.take(n) for n in sizes]
    for number, x in enumerate(taken):
        assert x.nbytes == sizes[number]
        assert x.ctypes.data % CACHE_LINE == 0
        assert not x.any()
        x[:] = number
    assert all((x == number).all() for number, x in enumerate(taken))


@only_huge
def test_small_constants_share_huge_pages():
    memory = ConstantMemory()
    before = counted("AnonHugePages")
    for _ in range(64):
        memory.take(256 << 10)[:] = 1
    assert counted("AnonHugePages") - before >= 14 * MEBIBYTE


@pytest.mark.skipif(not ROLLUP.exists(), reason="the system does not say what is resident")
def test_few_constants_take_no_huge_page():
    memory = ConstantMemory()
    before = counted("Rss")
    memory.take(1000)[:] = 1
    assert counted("Rss") - before < MEBIBYTE


@pytest.mark.skipif(not ROLLUP.exists(), reason="the system does not say what is resident")
def test_constants_that_nobody_reads_give_their_memory_back():
    memory = ConstantMemory()
    first, second = memory.take(3 * MEBIBYTE), memory.take(8 * MEBIBYTE)
    first[:], second[:] = 1, 2
    before = counted("Rss")
    lose_pages(second)
    assert before - counted("Rss") > 5 * MEBIBYTE
    assert (first == 1).all()
