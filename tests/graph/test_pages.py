"""Memory of mapped files that is given back."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from kn_graph import pages
from kn_graph.pages import OwnPages, forget_pages, lose_pages, trim_heap

STATUS = Path("/proc/self/status")
MEBIBYTE = 1 << 20


def mapped(path: Path, count: int, shift: int) -> np.ndarray:
    """Return float32 numbers in a mapped file that begin at a byte."""
    path.write_bytes(b"\0" * shift + np.arange(count, dtype=np.float32).tobytes())
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(content, np.uint8, 4 * count, shift).view(np.float32)


def resident() -> int:
    """Return the bytes of files in memory of this process."""
    return 1024 * int(STATUS.read_text().split("RssFile:")[1].split()[0])


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say what is resident")
@pytest.mark.parametrize("shift", [0, 1, 4096, 5000])
def test_pages_of_a_mapped_weight_are_given_back_and_read_again(tmp_path, shift):
    x = mapped(tmp_path / "weights", 8 * MEBIBYTE, shift)
    assert x.sum() > 0
    before = resident()
    forget_pages(x.reshape(-1, 1024))
    assert before - resident() > 30 * MEBIBYTE
    assert x[0] == 0
    assert x[-1] == 8 * MEBIBYTE - 1


def test_a_part_of_a_file_leaves_its_neighbours_alone(tmp_path):
    x = mapped(tmp_path / "weights", 8 * MEBIBYTE, 0)
    assert x.sum() > 0
    before = resident()
    forget_pages(x[: 2 * MEBIBYTE])
    assert 7 * MEBIBYTE < before - resident() < 9 * MEBIBYTE


def test_arrays_of_other_memory_are_left_alone():
    x = np.arange(1 << 20)
    forget_pages(x)
    forget_pages(x[::2])
    forget_pages(np.frombuffer(bytes(x), np.int64))
    assert (x == np.arange(1 << 20)).all()


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="the system has no such mappings")
@pytest.mark.parametrize("kind", ["copy on write", "anonymous"])
def test_what_a_caller_wrote_to_pages_of_his_own_stays(tmp_path: Path, kind: str) -> None:
    if kind == "anonymous":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        x = np.frombuffer(mmap.mmap(-1, MEBIBYTE, flags=flags), np.uint8)
    else:
        (tmp_path / "weights").write_bytes(bytes(MEBIBYTE))
        x = np.memmap(tmp_path / "weights", np.uint8, "c")
    x[...] = 7
    forget_pages(x)
    lose_pages(x)
    assert (x == 7).all()


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system has no such advice")
def test_memory_of_this_library_is_lost_up_to_its_neighbours() -> None:
    x = np.frombuffer(OwnPages(-1, MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    x[...] = 7
    forget_pages(x)
    assert (x == 7).all()
    lose_pages(x[1 : MEBIBYTE // 2])
    assert x[0] == 7
    assert not x[mmap.PAGESIZE : MEBIBYTE // 2 - mmap.PAGESIZE].any()
    assert (x[MEBIBYTE // 2 :] == 7).all()


def test_what_was_freed_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(pages, "_malloc_trim", lambda: kept.append)
    trim_heap(pages.LEAST_FREED - 1)
    assert not kept
    trim_heap(pages.LEAST_FREED)
    assert kept == [0]
    monkeypatch.setattr(pages, "_malloc_trim", lambda: None)  # a libc without it
    trim_heap(pages.LEAST_FREED)
    assert kept == [0]
