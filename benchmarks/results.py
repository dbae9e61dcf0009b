"""What benchmarks write: JSON with the machine, versions and command beside the figures."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "ROOT", "Machine", "fresh", "load", "save"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "benchmarks"
PACKAGES = ("numpy", "onnx", "onnxruntime")


@dataclass(frozen=True)
class Machine:
    """Where and with what something was measured.

    Attributes:
        processor: as the system calls it.
        cores: that this process may use.
        isa: the instruction set of our kernels.
        system: operating system.
        python: version.
        packages: versions of what takes part.
        commit: of this repository.
        date: day of the measurement.
    """

    processor: str
    cores: int
    isa: str
    system: str
    python: str
    packages: dict[str, str]
    commit: str
    date: str

    @classmethod
    def here(cls) -> Machine:
        """Return this machine."""
        from kn_cpu.native import library

        kernels = library()
        return cls(
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)),
            isa=kernels.isa if kernels else "none",
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            packages={name: _version(name) for name in PACKAGES},
            commit=_commit(),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    facts: dict[str, str] = {}
    for line in info.read_text().splitlines() if info.exists() else []:
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    if "model name" not in facts:
        return platform.processor()
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def fresh(module: str, *arguments: str, timeout: float = 900) -> Any:
    """Return the JSON that a module prints last in a process of its own.

    Raises:
        RuntimeError: it failed; the text is the end of what it wrote.
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"longer than {timeout:.0f} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(lines[-1])


def save(name: str, rows: Sequence[Any], total: Any, path: Path | None = None) -> Path:
    """Write data classes and return where."""
    path = path or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "benchmark": name,
        "command": " ".join(["python -m", f"benchmarks.{name}", *sys.argv[1:]]),
        "machine": asdict(Machine.here()),
        "total": asdict(total),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def load(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """Return what a benchmark wrote; None if it has not run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
