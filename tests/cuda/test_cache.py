"""Compiled kernels on disk."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kn_cuda.cache import DiskCache, cache_folder, key_of


def test_what_is_made_is_found_again(tmp_path: Path) -> None:
    first, second = DiskCache(tmp_path / "new", ".bin"), DiskCache(tmp_path / "new", ".bin")
    assert first.get("a", lambda: b"made") == b"made"
    assert second.get("a", lambda: b"other") == b"made"
    assert (first.misses, second.hits, second.misses) == (1, 1, 0)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.bin"]


@pytest.mark.parametrize("length", [0, 3, 20, 44, 45])
def test_a_file_that_is_cut_off_is_made_again(tmp_path: Path, length: int) -> None:
    cache = DiskCache(tmp_path, ".bin")
    cache.get("a", lambda: b"whole")
    path = cache.path("a")
    path.write_bytes(path.read_bytes()[:length])
    assert cache.get("a", lambda: b"again") == b"again"
    assert cache.corrupt == 1
    assert DiskCache(tmp_path, ".bin").get("a", lambda: b"") == b"again"


def test_a_byte_that_is_changed_is_found(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ".bin")
    cache.get("a", lambda: b"whole")
    data = bytearray(cache.path("a").read_bytes())
    data[-1] ^= 1
    cache.path("a").write_bytes(data)
    assert cache.get("a", lambda: b"again") == b"again"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "below", ".bin")
    assert cache.get("a", lambda: b"made") == b"made"


def test_one_key_is_made_once_while_others_go_on(tmp_path: Path) -> None:
    cache, go, inside = DiskCache(tmp_path, ".bin"), threading.Event(), threading.Event()
    made: list[str] = []

    def slow() -> bytes:
        made.append("slow")
        inside.set()
        assert go.wait(10)
        return b"slow"

    threads = [threading.Thread(target=cache.get, args=("slow", slow)) for _ in range(3)]
    for t in threads:
        t.start()
    assert inside.wait(10)
    assert cache.get("other", lambda: b"quick") == b"quick"  # while the slow one is made
    go.set()
    for t in threads:
        t.join()
    assert made == ["slow"]


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ".bin")

    def fails() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("a", fails)
    assert cache.get("a", lambda: b"made") == b"made"


def test_keys_depend_on_every_part_and_where_it_ends() -> None:
    assert len({key_of("a", "b"), key_of("ab"), key_of("a", "c"), key_of("b", "a")}) == 4


def test_the_folder_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KN_CACHE_DIR", "somewhere")
    assert cache_folder() == Path("somewhere")
    monkeypatch.delenv("KN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_folder() == Path("cache") / "kn-engine"
