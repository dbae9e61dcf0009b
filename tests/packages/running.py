"""Runs a program on onnxruntime and on ours, and compares what it answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.packages.rows import Package

__all__ = ["PYTHON", "Answers", "differences", "run"]

PYTHON = "KN_PACKAGES_PYTHON"
"""Environment variable: the interpreter of the environment in which the packages are."""

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Answers:
    """What a program said: {"served_by", "version", "seconds", "answer"} on each runtime."""

    theirs: dict[str, Any]
    ours: dict[str, Any]


def run(package: Package) -> Answers:
    """Run a program on both runtimes.

    Raises:
        AssertionError: it fails on one of them; the text has what it printed.
    """
    return Answers(_run(package), _run(package, "-m", "kn_runtime.ort"))


def _run(package: Package, *before: str) -> dict[str, Any]:
    program = HERE / "programs" / f"{package.program}_program.py"
    done = subprocess.run(
        [os.environ[PYTHON], *before, str(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, f"{' '.join(before)} {program.name}:\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def differences(theirs: Any, ours: Any, tolerance: float, where: str = "") -> Iterator[str]:
    """Yield where two answers differ; numbers by more than a tolerance, all else at all."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        for key in theirs:
            yield from differences(theirs[key], ours[key], tolerance, f"{where}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for place, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(a, b, tolerance, f"{where}[{place}]")
    elif isinstance(theirs, float) and isinstance(ours, float):
        if not abs(theirs - ours) <= tolerance * max(1.0, abs(theirs)):
            yield f"{where}: {theirs} there, {ours} here"
    elif theirs != ours:
        yield f"{where}: {theirs!r} there, {ours!r} here"
