"""Whether models are fine for a GPU that is described: `kn check` of each, in a process of its own.

    python -m benchmarks.check_all [REGEX] [--arch sm_90 ...] [--jobs N] [--markdown] [--models DIR]

The command is `kn check MODEL --arch ARCH --no-host`: every step on the device, the plan verified,
every kernel compiled without spills where NVRTC is installed, and an arena near its lower bound.
Sizes that nobody gave are assumed. Models are those of `benchmarks.op_counts`, or files in other
folders. Strings, sequences and tree ensembles are not asked of a GPU: a model with such operators
is `excepted` where it fails.

Results are written to build/benchmarks/check_all.json behind each model, and a command that is
given again goes on where it was interrupted; --again forgets what was found, as another commit
does. KN_CACHE_DIR says where compiled kernels are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks.op_counts import model_files
from benchmarks.results import RESULTS, ROOT, Machine, save
from benchmarks.tables import markdown, verdict_table
from kn_cuda import ARCHITECTURES
from kn_graph import KnError
from kn_runtime.model_info import model_info

__all__ = ["Row", "Total", "check", "main"]

EXCEPTED = re.compile(r"Sequence|String|Regex|TreeEnsemble")
"""Operators that are not asked of a GPU."""

STYLES = {"fine": "green", "excepted": "yellow"}


@dataclass(frozen=True)
class Row:
    """A model on an architecture.

    Attributes:
        name: of the model.
        arch: of the GPU.
        excepted: operators that are not asked of a GPU.
        sizes: numbers of its symbols, assumed ones marked, as text.
        device: steps of the device.
        control: steps that run other plans.
        host: steps without a kernel.
        launches: of one run, libraries' included.
        library_calls: those of libraries.
        read_backs: sizes that are read back.
        arena: bytes of intermediate results, over the least that any order of places needs.
        kernels: ours, for any sizes.
        registers: of the kernel that has most.
        spills: bytes, of all kernels.
        stack: bytes, of the kernel that has most.
        seconds: of the process.
        failure: the check that failed, and why; empty where all went well.
        skipped: why kernels were not compiled; empty where they were.
    """

    name: str
    arch: str
    excepted: str = ""
    sizes: str = ""
    device: int = 0
    control: int = 0
    host: int = 0
    launches: int = 0
    library_calls: int = 0
    read_backs: int = 0
    arena: float = 0.0
    kernels: int = 0
    registers: int = 0
    spills: int = 0
    stack: int = 0
    seconds: float = 0.0
    failure: str = ""
    skipped: str = ""

    @property
    def verdict(self) -> str:
        """One word, and the failure where there is one that counts."""
        if not self.failure:
            return "fine"
        return "excepted" if self.excepted else self.failure

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        return (
            self.name, self.arch, self.sizes, f"{self.device}/{self.control}/{self.host}",
            f"{self.launches} ({self.library_calls})", str(self.read_backs), f"{self.arena:.2f}",
            "-" if self.skipped else str(self.kernels), str(self.registers),
            f"{self.spills}/{self.stack}", f"{self.seconds:.1f}", self.verdict,
        )  # fmt: skip


HEAD = (
    "model", "arch", "sizes", "device/control/host", "launches (libraries)", "read back", "arena",
    "kernels", "registers", "spills/stack", "seconds", "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Total:
    """What all rows say together.

    Attributes:
        rows: how many there are.
        fine: those where all went well.
        excepted: those of which nothing else is asked.
        not_compiled: those whose kernels were not compiled.
        kernels: compiled, one that several models have counted for each.
        registers: of the kernel that has most.
        spills: bytes, of all kernels.
        stack: bytes, of the kernel that has most.
        read_backs: sizes that are read back.
        arena: the largest ratio.
    """

    rows: int
    fine: int
    excepted: int
    not_compiled: int
    kernels: int
    registers: int
    spills: int
    stack: int
    read_backs: int
    arena: float

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Total:
        """Return it for some rows."""
        return cls(
            len(rows),
            sum(row.verdict == "fine" for row in rows),
            sum(row.verdict == "excepted" for row in rows),
            sum(bool(row.skipped) for row in rows),
            sum(row.kernels for row in rows),
            max((row.registers for row in rows), default=0),
            sum(row.spills for row in rows),
            max((row.stack for row in rows), default=0),
            sum(row.read_backs for row in rows),
            max((row.arena for row in rows), default=1.0),
        )

    def __str__(self) -> str:
        """Return it in two lines."""
        left = f", {self.not_compiled} without compiling kernels" * bool(self.not_compiled)
        return (
            f"{self.fine} of {self.rows} are fine{left}, {self.excepted} excepted\n"
            f"{self.kernels:,} kernels, at most {self.registers} registers, {self.spills} bytes of "
            f"spills, a stack of {self.stack} bytes at most; {self.read_backs} sizes read back; "
            f"arenas at most {self.arena:.2f} times what lives at once"
        )


# ---- one model ------------------------------------------------------------------------------


def check(name: str, path: Path, arch: str, limit: float = 1800.0) -> Row:
    """Return what `kn check` says of a model.

    Args:
        name: of the model.
        path: of its file.
        arch: of the GPU.
        limit: seconds that it may take.
    """
    command = [sys.executable, "-m", "kn_runtime", "check", str(path.absolute())]
    command += ["--arch", arch, "--no-host", "--json"]
    start = perf_counter()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return Row(name, arch, failure=f"longer than {limit:.0f} s")
    seconds, excepted = perf_counter() - start, _excepted(path)
    if not done.stdout:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Row(name, arch, excepted, seconds=seconds, failure=said[-1])
    return _row(name, arch, excepted, seconds, json.loads(done.stdout))


def _excepted(path: Path) -> str:
    try:
        operators = model_info(path).operators
    except KnError:
        return ""
    return " ".join(op for op in operators if EXCEPTED.search(op))


def _row(name: str, arch: str, excepted: str, seconds: float, facts: Mapping[str, Any]) -> Row:
    sizes = (f"{n}={k}{'?' * (n in facts['assumed'])}" for n, k in sorted(facts["sizes"].items()))
    gpu = facts["gpu"] or {}
    kernels = gpu.get("kernels") or {}
    failed = [f"{c['check']}: {c['text']}" for c in facts["checks"] if not c["ok"]]
    return Row(
        name, arch, excepted, " ".join(sizes), **facts["steps"],
        **{field: gpu[field] for field in ("launches", "library_calls", "read_backs") if gpu},
        arena=gpu["arena"] / gpu["lower_bound"] if gpu.get("lower_bound") else 1.0,
        **{field: kernels[field] for field in ("kernels", "registers", "spills", "stack", "skipped")
           if kernels},
        seconds=seconds, failure=failed[0] if failed else "",
    )  # fmt: skip


# ---- command --------------------------------------------------------------------------------


def _kept(path: Path) -> list[Row]:
    """Return the rows of an earlier run at this commit."""
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    same = content["machine"]["commit"] == Machine.here().commit
    return [Row(**row) for row in content["rows"]] if same else []


def _checked(
    asked: Sequence[tuple[str, Path, str]], kept: Sequence[Row], jobs: int, limit: float
) -> Iterator[Row]:
    """Yield rows, those kept first, the others as they end."""
    found = {(row.name, row.arch): row for row in kept}
    pending = []
    for name, path, arch in asked:
        if (name, arch) in found:
            yield found[name, arch]
        else:
            pending.append((name, path, arch))
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(check, *what, limit) for what in pending]):
            yield done.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the models, print a table, write JSON; return 1 where one is not fine."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="which models")
    parser.add_argument("--arch", nargs="+", default=["sm_90"], choices=ARCHITECTURES)
    parser.add_argument("--models", type=Path, nargs="+", metavar="DIR", help="folders of models")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that a model may take")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument("--markdown", action="store_true", help="print a table for a document")
    parser.add_argument("--json", type=Path, default=RESULTS / "check_all.json", help="file")
    args = parser.parse_args(arguments)
    files = [(n, p) for n, p in model_files(args.models) if re.search(args.pattern, n)]
    asked = [(name, path, arch) for (name, path), arch in product(files, args.arch)]
    kept = [] if args.again else _kept(args.json)
    others = [r for r in kept if (r.name, r.arch) not in {(n, a) for n, _, a in asked}]
    progress, rows = Console(stderr=True, width=160), []
    for row in _checked(asked, kept, args.jobs, args.limit):
        rows.append(row)
        progress.print(*row.cells, soft_wrap=True, markup=False, highlight=False)
        save("check_all", [*others, *rows], Total.of([*others, *rows]), args.json)
    order = {(name, arch): at for at, (name, _, arch) in enumerate(asked)}
    rows.sort(key=lambda row: order[row.name, row.arch])
    if args.markdown:
        print(markdown(HEAD, (r.cells for r in rows), (0, 1, 2, 3, -1)))
        print(f"\n{Total.of(rows)}")
    else:
        table = verdict_table("benchmarks.check_all", HEAD, (r.cells for r in rows), STYLES)
        Console(width=200).print(table, str(Total.of(rows)), sep="\n")
    return int(any(row.verdict not in STYLES for row in rows))


if __name__ == "__main__":
    sys.exit(main())
