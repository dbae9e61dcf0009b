"""CuPy, the backend of a GPU, graphs and events on a stand-in for NVIDIA's driver and runtime.

`make test-cuda` builds it; `tests/cuda/standin/cases*.py` has the cases. Each order of the streams'
work is a process of its own, since nothing else may meet that driver.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.run import needs_compiler, needs_nvrtc

ROOT = Path(__file__).resolve().parents[2]
CASES = ("tests/cuda/standin/cases.py", "tests/cuda/standin/cases_arrays.py")

pytestmark = [
    needs_compiler,
    needs_nvrtc,
    pytest.mark.skipif(
        "KN_STANDIN" not in os.environ, reason="the stand-in is not built: make test-cuda does it"
    ),
]


@pytest.mark.parametrize("order", ["late", "early"])
def test_the_whole_stack_runs_on_a_stand_in_driver(order: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.cuda.standin.process", *CASES]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "KN_STANDIN_ORDER": order},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
