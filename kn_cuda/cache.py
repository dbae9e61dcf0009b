"""Compiled units on disk: atomic, versioned, and safe against what others left there."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

__all__ = ["DiskCache", "cache_folder", "key_of"]

VERSION = 1
MAGIC = b"kn-cache\n"
DIGEST_BYTES = 32


def cache_folder() -> Path:
    """Return where compiled kernels are kept: `KN_CACHE_DIR`, else the user's cache folder."""
    given = os.environ.get("KN_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kn-engine"


def key_of(*parts: str) -> str:
    """Return a name for what is made of some texts: all that the result depends on."""
    text = "\0".join((str(VERSION), *parts))
    return hashlib.sha256(text.encode()).hexdigest()


class DiskCache:
    """Bytes by key. A file that is cut off or changed counts as none; a full disk is no error.

    Attributes:
        folder: where the files are; made when the first one is written.
        suffix: of their names.
        hits: how often something was found.
        misses: how often it was made.
        corrupt: how often a file was there that was not whole.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix
        self.hits = self.misses = self.corrupt = 0
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._lock = Lock()

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        return self.folder / f"{key}{self.suffix}"

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return what has a key; made at most once at a time, and others meanwhile.

        Args:
            key: see `key_of`.
            make: computes it.
        """
        with self._lock:
            lock = self._locks[key]
        with lock:
            found = self._read(key)
            with self._lock:
                self.hits += found is not None
                self.misses += found is None
            if found is not None:
                return found
            made = make()
            self._write(key, made)
            return made

    def _read(self, key: str) -> bytes | None:
        try:
            data = self.path(key).read_bytes()
        except OSError:
            return None
        start = len(MAGIC) + DIGEST_BYTES
        digest, payload = data[len(MAGIC) : start], data[start:]
        if data[: len(MAGIC)] == MAGIC and hashlib.sha256(payload).digest() == digest:
            return payload
        self.corrupt += 1
        return None

    def _write(self, key: str, payload: bytes) -> None:
        name = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                name = file.name
                file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(name, self.path(key))
        except OSError:
            if name:
                Path(name).unlink(missing_ok=True)
