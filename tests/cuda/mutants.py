"""Breaks kernels one place at a time, and looks whether their tests notice.

    python -m tests.cuda.mutants [FAMILY ...] [--most N] [--seconds S] [--jobs J]

Each mutant is one change of the text of a file of `kernels`. Those tests of the family that launch
the changed kernel then run until one fails, in a process of their own, the fastest first. A crash
and a wait that never ends are noticed too. What does not compile is no mutant, and not counted.
Mutants that are known to change nothing, see `equivalents.py`, are not run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kn_cuda import source
from kn_cuda.host import HostBackend
from kn_graph.errors import CompileError
from tests.cuda.equivalents import EQUIVALENTS, Equivalent

__all__ = [
    "FAMILIES",
    "OPERATORS",
    "TESTS",
    "Case",
    "Mutant",
    "Tally",
    "Verdict",
    "cases_of",
    "chosen_for",
    "entry_of",
    "equivalent_of",
    "file_of",
    "judged",
    "main",
    "mutants_of",
    "stale",
]

HERE = Path(__file__).parent

STRIDES = "row|col|step|stride|strides|chunk|image|space|channel|vector"
BOUNDS = "end|rows|lines|depth|keys|length|size|high|bound|blocks|units"
BOUND = r"[\w.:]+ (?:<|>=) [\w.:]+(?:\[\w+\])?"

OPERATORS: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
    "barrier dropped": (r"__syncthreads\(\);", lambda m: ""),
    "bound off by one": (
        rf"(?<=[\w\])] )<(?= (?:n\.\w+|K::COUNT|{BOUNDS})\b)",
        lambda m: "<=",
    ),
    "wrong stride": (
        rf"\* n\.(\w*(?:{STRIDES})\w*|\w+\[\w+\])(?![\w\[(])",
        lambda m: f"* (n.{m[1]} + 1)",
    ),
    "mask dropped": (rf" && {BOUND}(?=[ ;)])", lambda m: ""),
    "first mask dropped": (rf"(?:(?<=\()|(?<== )|(?<=return )){BOUND} && ", lambda m: ""),
    "wrong identity": (
        r"(?:typename K::)?Acc\(0\)|K::start\(\)|(?<=Acc mean = )0|(?<=Acc total = )0"
        r"|(?<=Acc squares = )0|(?<=Acc x = )0|(?<=Index count = )0",
        lambda m: f"({m[0]} + 1)",
    ),
    "swapped operands": (
        r"(?<![\w.] - )(?<![\w.])((?:n\.)?[a-z]\w*) - ((?:n\.)?[a-z]\w*)\b(?![\[(.])",
        lambda m: f"{m[2]} - {m[1]}",
    ),
    "first taken for next": (
        r"\+= (all_threads<Index>\(\)|all_rows<K>\(\)|gridDim\.x|Index\(\w+Dim\.x\)|step\b)(?! \*)",
        lambda m: f"+= 2 * {m[1]}",
    ),
}
"""What is looked for in a text, and what it becomes."""

TESTS = {
    "arg": ("test_reduce",),
    "attention": ("test_attention",),
    "conv": ("test_conv",),
    "copy": ("test_copy",),
    "fill": ("test_source", "test_reduce"),
    "gemm": ("test_matmul",),
    "gemm_bytes": ("test_matmul",),
    "index": ("test_index",),
    "layout": ("test_layout", "test_front"),
    "nms": ("test_expand",),
    "norm": ("test_norm",),
    "pool": ("test_pool",),
    "prelude": ("test_norm", "test_reduce", "test_copy", "test_scalar"),
    "random": ("test_random",),
    "recurrent": ("test_recurrent",),
    "reduce": ("test_reduce",),
    "resize": ("test_resize",),
    "roi": ("test_roi",),
    "sample": ("test_resize",),
    "scalar": ("test_scalar",),
    "scan": ("test_sort",),
    "softmax": ("test_norm",),
    "sort": ("test_sort",),
}
"""The tests of each family; `SHARED_TESTS` run behind them."""

FAMILIES = tuple(sorted(TESTS))

SHARED_TESTS = ("test_few_blocks", "test_reads")

NOTICED, DOES_NOT_COMPILE = 95, 77
"""Per cent of mutants that have to be noticed; how a process ends whose mutant is no C++."""


@dataclass(frozen=True)
class Mutant:
    """One change of a kernel.

    Attributes:
        family: whose text.
        line: where.
        kind: which of `OPERATORS`.
        before: the line.
        after: the line, changed.
        text: the whole text, changed.
    """

    family: str
    line: int
    kind: str
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        """Return it in one line."""
        place = f"{file_of(self.family)}:{self.line} {self.kind}"
        return f"{place}: {self.before}  ->  {self.after or 'nothing'}"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: which one.
        how: what noticed it; empty where nothing did.
        seconds: that it took.
    """

    mutant: Mutant
    how: str
    seconds: float


@dataclass(frozen=True)
class Case:
    """A test that passes without a mutant.

    Attributes:
        name: what pytest calls it.
        seconds: that it takes.
        kernels: what it launches, as file and function.
    """

    name: str
    seconds: float
    kernels: frozenset[tuple[str, str]]


@dataclass
class _Trial:
    """A process that runs tests with a mutant in place of a text."""

    mutant: Mutant
    child: int
    start: float

    def verdict(self) -> Verdict | None:
        """Return what became of it; None while it runs."""
        done, status = os.waitpid(self.child, os.WNOHANG)
        if not done:
            return None
        took = time.monotonic() - self.start
        if os.WIFSIGNALED(status):
            return Verdict(self.mutant, signal.Signals(os.WTERMSIG(status)).name, took)
        how = {0: "", DOES_NOT_COMPILE: "does not compile"}
        return Verdict(self.mutant, how.get(os.WEXITSTATUS(status), "a test fails"), took)


def file_of(family: str) -> str:
    """Return the name of a file of `kernels`."""
    return f"{family}.h" if family == "prelude" else f"{family}.cu"


def mutants_of(family: str) -> Iterator[Mutant]:
    """Yield all mutants of a family, line by line; comments stay."""
    lines = source.kernel_text(file_of(family)).splitlines()
    for number, line in enumerate(lines):
        code, comment, rest = line.partition("//")
        for kind, (pattern, change) in OPERATORS.items():
            for match in re.finditer(pattern, code):
                after = code[: match.start()] + change(match) + code[match.end() :]
                if after == code:  # `x - x`
                    continue
                changed = [*lines[:number], after + comment + rest, *lines[number + 1 :]]
                text = "\n".join(changed) + "\n"
                yield Mutant(family, number + 1, kind, line.strip(), after.strip(), text)


def equivalent_of(mutant: Mutant) -> Equivalent | None:
    """Return the row of the table of what changes nothing; None where there is none."""
    key = (mutant.family, mutant.before, mutant.after)
    return next((e for e in EQUIVALENTS if (e.family, e.before, e.after) == key), None)


def stale() -> list[Equivalent]:
    """Return the rows of that table that are no mutants of today's texts."""
    today = {(m.family, m.before, m.after) for f in FAMILIES for m in mutants_of(f)}
    return [e for e in EQUIVALENTS if (e.family, e.before, e.after) not in today]


def cases_of(family: str) -> list[Case]:
    """Run the tests of a family without a mutant; return those that launch its kernels.

    Raises:
        SystemExit: they do not pass.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _watch_tests(family, writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        rows = json.loads(told.read() or "[]")
    os.waitpid(child, 0)
    cases = [Case(name, took, frozenset(map(tuple, kernels))) for name, took, kernels in rows]
    if not cases:
        sys.exit(f"{family}: its tests do not pass without a mutant")
    return cases


def entry_of(mutant: Mutant) -> str:
    """Return the function that a mutant changes."""
    lines = mutant.text.splitlines()[: mutant.line]
    found = (re.match(r"KN_(?:DEVICE|FN) .*?(\w+)\(", line) for line in reversed(lines))
    return next((m[1] for m in found if m), "")


def chosen_for(mutant: Mutant, cases: Sequence[Case]) -> list[str]:
    """Return the tests that launch what a mutant changes, the fastest first.

    A function that no test launches is part of others: then it is all tests of the family.
    """
    here = [c for c in cases if (mutant.family, entry_of(mutant)) in c.kernels]
    return [c.name for c in sorted(here or cases, key=lambda c: c.seconds)]


def judged(
    mutants: Sequence[Mutant], cases: Sequence[Case], seconds: int, jobs: int = 1
) -> Iterator[Verdict]:
    """Yield what becomes of mutants, in the order in which that is known.

    Args:
        mutants: of a family.
        cases: its tests.
        seconds: that a process may compute for; tests that want more are taken not to end.
        jobs: how many processes run at once.
    """
    waiting, running = list(reversed(mutants)), list[_Trial]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running.append(_started(mutant, chosen_for(mutant, cases), seconds))
        for trial in list(running):
            verdict = trial.verdict()
            if verdict is not None:
                running.remove(trial)
                yield verdict
        time.sleep(0.02)


def _started(mutant: Mutant, tests: Sequence[str], seconds: int) -> _Trial:
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        _run_mutant(mutant, tests)
    return _Trial(mutant, child, time.monotonic())


class _Watch:
    """Notes how long tests take, and what they launch."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.kernels: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._test = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def note(self, kernel: source.KernelSource) -> None:
        self.kernels[self._test].add((kernel.family, kernel.entry))

    def rows(self, family: str) -> list[tuple[str, float, list[tuple[str, str]]]]:
        """Return the tests that launch kernels of a family; `prelude` is part of all."""
        return [
            (name, self.seconds[name], sorted(kernels))
            for name, kernels in self.kernels.items()
            if family == "prelude" or any(f == family for f, _ in kernels)
        ]


def _watch_tests(family: str, told: int) -> NoReturn:
    """Run tests in a process that is a copy of this one, and tell what they launch."""
    watch, launch = _Watch(), HostBackend.launch

    def watched(self: HostBackend, kernel: source.KernelSource, *rest: Any) -> None:
        watch.note(kernel)
        launch(self, kernel, *rest)

    HostBackend.launch = watched  # type: ignore[assignment,method-assign]
    files = [str(HERE / f"{name}.py") for name in (*TESTS[family], *SHARED_TESTS)]
    code = _pytest(files, watch)
    with os.fdopen(told, "w") as pipe:
        json.dump([] if code else watch.rows(family), pipe)
    os._exit(code)


def _pytest(arguments: Sequence[str], *plugins: object) -> int:
    """Run tests without a word."""
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *arguments], plugins=plugins))


def _run_mutant(mutant: Mutant, tests: Sequence[str]) -> NoReturn:
    """Run tests in a process that is a copy of this one."""
    honest, compiled = source.kernel_text, HostBackend._compiled
    source.kernel_text = lambda file: (  # type: ignore[assignment]
        mutant.text if file == file_of(mutant.family) else honest(file)
    )

    def checked(self: HostBackend, text: str) -> bytes:
        try:
            return compiled(self, text)
        except CompileError:
            os._exit(DOES_NOT_COMPILE)

    HostBackend._compiled = checked  # type: ignore[method-assign]
    os._exit(_pytest(tests))


@dataclass
class Tally:
    """What became of mutants so far.

    Attributes:
        noticed: how many were noticed.
        valid: of how many that were run, and are C++.
        known: how many more were drawn, and are known to change nothing.
    """

    noticed: int = 0
    valid: int = 0
    known: int = 0

    def __str__(self) -> str:
        """Return it in two lines."""
        drawn = self.valid + self.known
        return (
            f"{self.noticed} of {self.valid} noticed, {_share(self.noticed, self.valid)}\n"
            f"of all {drawn} drawn, {self.known} of which are known to change nothing, "
            f"{_share(self.noticed, drawn)}"
        )

    @property
    def suffices(self) -> bool:
        """Whether enough of them were noticed."""
        return 100 * self.noticed >= NOTICED * self.valid


def _judge_family(family: str, args: argparse.Namespace, tally: Tally) -> None:
    """Judge the mutants of a family."""
    cases = cases_of(family)
    made = list(mutants_of(family))
    chosen = random.Random(args.draw).sample(made, min(args.most, len(made)))
    same = [m for m in chosen if equivalent_of(m)]
    run = same if args.known else [m for m in chosen if not equivalent_of(m)]
    verdicts = list(judged(run, cases, args.seconds, args.jobs))
    valid = [v for v in verdicts if v.how != "does not compile"]
    found = sum(bool(v.how) for v in valid)
    _say(
        f"{family}: {found} of {len(valid)} noticed, {len(same)} known to change nothing, "
        f"drawn from {len(made)}; {sum(v.seconds for v in verdicts):.0f} s"
    )
    for v in verdicts:
        if not v.how or v not in valid:
            _say(f"  {v.how or 'survives'}: {v.mutant}")
    tally.noticed, tally.valid = tally.noticed + found, tally.valid + len(valid)
    tally.known += len(same)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge mutants and print survivors.

    Returns:
        1 where fewer than `NOTICED` per cent of those that are not known to change nothing are
        noticed; 2 where a row of the table of these is stale.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--most", type=int, default=10_000, help="mutants of a family, drawn")
    parser.add_argument("--seconds", type=int, default=60, help="that one may compute")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are judged at once")
    parser.add_argument("--draw", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--known", action="store_true", help="run what is said to change nothing")
    args = parser.parse_args(arguments)
    for e in stale():
        _say(f"no mutant any more: {e.family}: {e.before}  ->  {e.after}")
    if stale():
        return 2
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("KN_CACHE_DIR", folder)
        for family in args.families or FAMILIES:
            _judge_family(family, args, tally)
    _say(str(tally))
    return int(not args.known and not tally.suffices)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
