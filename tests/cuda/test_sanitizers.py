"""Kernels on the host under the sanitizers of addresses and of threads, each in its own process.

For that of threads, barriers are all that orders the threads of a block: it finds a race whatever
the order of threads makes of it. That of addresses finds reads and writes beside shared arrays.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kn_cuda.host import host_compiler
from tests.cuda.run import SANITIZE, needs_compiler

pytestmark = needs_compiler

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent.relative_to(ROOT)

LIBRARIES = {"address": "libasan.so", "thread": "libtsan.so"}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:exitcode=66",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:ignore_noninstrumented_modules=1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
FOUND = 66
"""How a process ends in which a sanitizer found something."""

SUBSET = ("test_few_blocks.py", "test_recurrent.py::test_steps_and_batches")
"""Tests that launch kernels of nearly all families, where blocks go on to further rows."""

PLANTED = [
    ("address", "beside_shared", "use-after-poison"),
    ("address", "beside_dynamic", "use-after-poison"),
    ("thread", "read_too_early", "data race"),
    ("thread", "write_too_early", "data race"),
    ("thread", "order_decides", "data race"),
    ("thread", "blocks_share", "data race"),
]


@cache
def library(sanitizer: str) -> str | None:
    """Return the library that has to be there first; None where the compiler has none."""
    asked = [str(host_compiler()), f"-print-file-name={LIBRARIES[sanitizer]}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) else None


def sanitized(sanitizer: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where kernels are built with a sanitizer."""
    first = library(sanitizer)
    if first is None:
        pytest.skip(f"{host_compiler()} has no {LIBRARIES[sanitizer]}")
    environment = {**os.environ, **OPTIONS, SANITIZE: sanitizer, "LD_PRELOAD": first}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("sanitizer", LIBRARIES)
def test_kernels_of_all_families_are_clean(sanitizer: str) -> None:
    tests = [str(HERE / name) for name in SUBSET]
    options = ["-x", "-q", "-p", "no:cacheprovider", "--capture=sys"]
    done = sanitized(sanitizer, "-m", "pytest", *options, *tests)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(("sanitizer", "entry", "message"), PLANTED)
def test_what_is_planted_is_found(sanitizer: str, entry: str, message: str) -> None:
    right = sanitized(sanitizer, "-m", "tests.cuda.planted", entry)
    assert right.returncode == 0, right.stderr[-3000:]
    wrong = sanitized(sanitizer, "-m", "tests.cuda.planted", entry, "--wrong")
    assert wrong.returncode == FOUND
    assert message in wrong.stderr
    assert "wrong.cu:" in wrong.stderr
