"""Cases measured in fresh processes, shown as a table and written as JSON."""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.results import fresh, save
from benchmarks.turns import Spread

__all__ = ["Benchmark", "Case", "Figure", "Run", "Total"]

BAD = ("below", "wrong", "failed")
STYLES = {"ok": "green", "": "dim", "below": "yellow", "wrong": "red", "failed": "red"}


@dataclass(frozen=True)
class Run:
    """What one process measured.

    Attributes:
        ours: of ours, in the unit of the benchmark.
        theirs: of onnxruntime.
        ratio: how many times more onnxruntime takes.
        error: largest scaled distance of the outputs.
    """

    ours: float
    theirs: float
    ratio: float
    error: float = 0.0


@dataclass(frozen=True)
class Case:
    """What can be measured.

    Attributes:
        name: of the case.
        measure: measures once, given the seconds it should take.
        target: how many times more onnxruntime must take; None where nothing is asked.
        limit: how far outputs may lie from onnxruntime's.
        facts: what else the reader should know.
    """

    name: str
    measure: Callable[[float], Run]
    target: float | None = None
    limit: float = 1e-3
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """What came out of a case.

    Attributes:
        name: of the case.
        target: of the case.
        facts: of the case.
        verdict: whether the target is reached: ok, below, wrong, failed or nothing.
        ours: median of the runs.
        theirs: median of the runs.
        speed: ratios of the runs; None when something failed.
        error: largest scaled distance of the outputs.
        runs: how many.
        failure: why there is no figure.
    """

    name: str
    target: float | None
    facts: Mapping[str, Any]
    verdict: str
    ours: float = 0.0
    theirs: float = 0.0
    speed: Spread | None = None
    error: float = 0.0
    runs: int = 0
    failure: str = ""

    @classmethod
    def of(cls, case: Case, runs: Sequence[Run]) -> Figure:
        """Return the medians of several runs."""
        speed = Spread.of([r.ratio for r in runs])
        error = max(r.error for r in runs)
        reached = "" if case.target is None else "ok" if speed.median >= case.target else "below"
        return cls(
            case.name,
            case.target,
            case.facts,
            reached if error <= case.limit else "wrong",
            statistics.median(r.ours for r in runs),
            statistics.median(r.theirs for r in runs),
            speed,
            error,
            len(runs),
        )


@dataclass(frozen=True)
class Total:
    """What all figures of a benchmark say.

    Attributes:
        geomean: geometric mean of the ratios.
        low: the smallest of them.
        slowest: where that is.
        measured: how many there are.
        failed: how many have no figure or a wrong one.
        target: what the mean should reach.
    """

    geomean: float
    low: float
    slowest: str
    measured: int
    failed: int
    target: float | None

    @classmethod
    def of(cls, figures: Sequence[Figure], target: float | None) -> Total:
        """Return what figures say."""
        speeds = {f.name: f.speed.median for f in figures if f.speed is not None}
        slowest = min(speeds, key=speeds.__getitem__, default="")
        failed = sum(f.verdict in ("failed", "wrong") for f in figures)
        mean = statistics.geometric_mean(speeds.values()) if speeds else 0.0
        return cls(mean, speeds.get(slowest, 0.0), slowest, len(speeds), failed, target)

    @property
    def below(self) -> bool:
        """Whether the mean misses its target."""
        return self.target is not None and self.geomean < self.target

    def __str__(self) -> str:
        """Return it in a line."""
        target = "" if self.target is None else f" (target {self.target:.2f})"
        return (
            f"geometric mean {self.geomean:.2f}{target}, smallest {self.low:.2f} ({self.slowest}), "
            f"{self.measured} measured, {self.failed} failed or wrong"
        )


@dataclass(frozen=True)
class Benchmark:
    """A command that measures cases.

    Attributes:
        name: of the module in this package.
        text: what `--help` says.
        cases: all of them, from the arguments.
        unit: what `ours` and `theirs` are printed in.
        scale: how many of the unit one number is.
        arguments: adds arguments of its own.
        geomean: what the geometric mean of all ratios should reach.
    """

    name: str
    text: str
    cases: Callable[[argparse.Namespace], Iterable[Case]]
    unit: str = "ms"
    scale: float = 1e3
    arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None
    geomean: float | None = None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Measure, print a table, write JSON; 1 when a case fails, is wrong or below its target."""
        argv = list(sys.argv[1:] if argv is None else argv)
        args = self._parser().parse_args(argv)
        found = [c for c in self.cases(args) if re.search(args.rows, c.name)]
        runs, seconds = (1, min(0.7, args.seconds)) if args.quick else (args.runs, args.seconds)
        if args.measure:
            case = next(c for c in found if c.name == args.measure)
            print(json.dumps(asdict(case.measure(seconds))))
            return 0
        figures = list(self._figures(found, runs, argv))
        console = Console(width=140)
        total = Total.of(figures, self.geomean)
        console.print(self._table(figures))
        console.print(str(total))
        if args.json or not args.rows:  # a part does not take the place of the whole
            console.print(f"written to {save(self.name, figures, total, args.json)}")
        return int(total.below or any(f.verdict in BAD for f in figures))

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}",
            description=self.text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--rows", default="", help="regular expression of names of rows")
        parser.add_argument("--runs", type=int, default=5, help="fresh processes a row")
        parser.add_argument("--seconds", type=float, default=2.0, help="of turns in each")
        parser.add_argument("--quick", action="store_true", help="one short run")
        parser.add_argument("--json", type=Path, help="file to write")
        parser.add_argument("--measure", help=argparse.SUPPRESS)
        self.arguments(parser)
        return parser

    def _figures(self, cases: Sequence[Case], runs: int, argv: Sequence[str]) -> Iterator[Figure]:
        progress = Console(stderr=True, width=140)
        for case in cases:
            command = (f"benchmarks.{self.name}", *argv, "--measure", case.name)
            try:
                figure = Figure.of(case, [Run(**fresh(*command)) for _ in range(runs)])
            except RuntimeError as error:
                figure = Figure(case.name, case.target, case.facts, "failed", failure=str(error))
            progress.print(*self._cells(figure), soft_wrap=True)
            yield figure

    def _table(self, figures: Sequence[Figure]) -> Table:
        units = (f"ours {self.unit}", f"onnxruntime {self.unit}")
        table = Table("", *units, "speed", "target", "error", "", title=f"benchmarks.{self.name}")
        for f in figures:
            table.add_row(*self._cells(f))
        return table

    def _cells(self, f: Figure) -> tuple[str, ...]:
        target = "" if f.target is None else f"{f.target:.2f}"
        verdict = f"[{STYLES[f.verdict]}]{f.verdict or '-'}[/] {f.failure[:60]}"
        if f.speed is None:
            return (f.name, "", "", "", target, "", verdict)
        numbers = (f"{n * self.scale:.4g}" for n in (f.ours, f.theirs))
        return (f.name, *numbers, str(f.speed), target, f"{f.error:.0e}", verdict)
