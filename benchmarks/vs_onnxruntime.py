"""Exported models against onnxruntime, in interleaved turns of one process.

    python -m benchmarks.vs_onnxruntime [--rows REGEX] [--quick] [--runs 5] [--seconds 2]

The rows are those of models.toml. A figure is the median over the runs, each a fresh process, of
the median ratio of interleaved turns; above 1 we are faster. Outputs are compared, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.engines import feeds_of, named_outputs, prepared, scaled_error, session
from benchmarks.results import fresh, save
from benchmarks.rows import Row, exports_folder, rows
from benchmarks.turns import Spread, interleave

MODULE = "benchmarks.vs_onnxruntime"


@dataclass(frozen=True)
class Run:
    """What one process measured.

    Attributes:
        ours: median seconds of ours.
        theirs: median seconds of onnxruntime.
        ratio: median of the ratios.
        error: largest scaled distance of the outputs.
    """

    ours: float
    theirs: float
    ratio: float
    error: float


@dataclass(frozen=True)
class Figure:
    """A row with what came out.

    Attributes:
        row: what was measured.
        ours: median seconds of ours.
        theirs: median seconds of onnxruntime.
        speed: ratios of the runs; None when something failed.
        error: largest scaled distance of the outputs.
        runs: how many.
        failure: why there is no figure.
    """

    row: Row
    ours: float = 0.0
    theirs: float = 0.0
    speed: Spread | None = None
    error: float = 0.0
    runs: int = 0
    failure: str = ""

    @property
    def verdict(self) -> str:
        """Whether the target is reached."""
        if self.speed is None:
            return "failed"
        if not self.error <= self.row.limit:
            return "wrong"
        if self.row.target is None:
            return ""
        return "ok" if self.speed.median >= self.row.target else "below"


def measure(row: Row, folder: Path, seconds: float) -> Run:
    """Measure a row in this process."""
    path = folder / row.file
    theirs, ours = session(path, row.threads), prepared(path, row.threads)
    feeds = feeds_of(theirs, row.dims, row.highest)
    error = scaled_error(named_outputs(theirs, feeds), ours.eval(feeds))
    turns = interleave(partial(ours.eval, feeds), partial(theirs.run, None, feeds), seconds)
    return Run(turns.ours, turns.theirs, turns.ratio, error)


def figure(row: Row, folder: Path, runs: int, seconds: float) -> Figure:
    """Measure a row in fresh processes."""
    arguments = ("--measure", row.name, "--folder", str(folder), "--seconds", str(seconds))
    try:
        found = [Run(**fresh(MODULE, *arguments)) for _ in range(runs)]
    except RuntimeError as error:
        return Figure(row, failure=str(error))
    return Figure(
        row,
        ours=statistics.median(r.ours for r in found),
        theirs=statistics.median(r.theirs for r in found),
        speed=Spread.of([r.ratio for r in found]),
        error=max(r.error for r in found),
        runs=runs,
    )


STYLES = {"ok": "green", "": "dim", "below": "yellow", "wrong": "red", "failed": "red"}


def cells(f: Figure) -> tuple[str, ...]:
    """Return what a table shows of a figure."""
    target = "" if f.row.target is None else f"{f.row.target:.2f}"
    verdict = f"[{STYLES[f.verdict]}]{f.verdict or '-'}[/]"
    if f.speed is None:
        return (f.row.name, "", "", "", target, "", f"{verdict} {f.failure[:60]}")
    times = (f"{f.ours * 1e3:.3f}", f"{f.theirs * 1e3:.3f}")
    return (f.row.name, *times, str(f.speed), target, f"{f.error:.0e}", verdict)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table and write JSON; 1 when a row fails, is wrong or below its target."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", default="", help="regular expression of row names")
    parser.add_argument("--folder", help="of the exported models")
    parser.add_argument("--runs", type=int, default=5, help="fresh processes a row")
    parser.add_argument("--seconds", type=float, default=2.0, help="of turns in each")
    parser.add_argument("--quick", action="store_true", help="one run of 0.7 s")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    folder = exports_folder(args.folder)
    if args.measure:
        row = next(r for r in rows() if r.name == args.measure)
        print(json.dumps(asdict(measure(row, folder, args.seconds))))
        return 0
    runs, seconds = (1, 0.7) if args.quick else (args.runs, args.seconds)
    console, progress = Console(width=130), Console(stderr=True, width=130)
    figures: list[Figure] = []
    table = Table(
        "model", "ours ms", "onnxruntime ms", "speed", "target", "error", "", title=MODULE
    )
    for row in rows(args.rows):
        figures.append(figure(row, folder, runs, seconds))
        table.add_row(*cells(figures[-1]))
        progress.print(*cells(figures[-1]), soft_wrap=True)
    console.print(table)
    console.print(f"written to {save('vs_onnxruntime', figures, args.json)}")
    return int(any(f.verdict in ("below", "wrong", "failed") for f in figures))


if __name__ == "__main__":
    sys.exit(main())
