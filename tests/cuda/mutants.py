"""Breaks kernels one place at a time, and looks whether their tests notice.

    python -m tests.cuda.mutants [FAMILY ...] [--most N] [--seconds S]

Each mutant is one change of the text of `kernels/FAMILY.cu`; the tests of the family then run until
one fails, in a process of their own. A crash, a wait that never ends and a kernel that does not
compile count as noticed, the last of them by itself. Slow: minutes for each family.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kn_cuda import source

__all__ = ["OPERATORS", "TESTS", "Mutant", "Verdict", "judged", "main", "mutants_of"]

HERE = Path(__file__).parent

OPERATORS: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
    "barrier dropped": (r"__syncthreads\(\);", lambda m: ""),
    "bound off by one": (r"(?<=[\w\])] )<(?= n\.\w+)", lambda m: "<="),
    "wrong stride": (
        r"\* n\.(\w*(?:row|col|step|stride|strides|chunk|image|space)\w*)\b(?![\[(])",
        lambda m: f"* (n.{m[1]} + 1)",
    ),
    "mask dropped": (r" && [\w.]+ (?:<|>=) [\w.]+(?:\[\w+\])?", lambda m: ""),
    "wrong identity": (r"Acc\(0\)|K::start\(\)", lambda m: f"({m[0]} + 1)"),
    "swapped operands": (r"\b([a-z]\w*) - ([a-z]\w*(?:\.\w+)?)\b", lambda m: f"{m[2]} - {m[1]}"),
    "first taken for next": (
        r"\+= (all_threads<Index>\(\)|gridDim\.x)",
        lambda m: f"+= 2 * {m[1]}",
    ),
}
"""What is looked for in a text, and what it becomes."""

TESTS = {
    "arg": ("test_reduce",),
    "attention": ("test_attention",),
    "conv": ("test_conv",),
    "copy": ("test_copy",),
    "gemm": ("test_matmul",),
    "index": ("test_index",),
    "layout": ("test_layout", "test_front"),
    "nms": ("test_expand",),
    "norm": ("test_norm",),
    "pool": ("test_pool",),
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

SHARED_TESTS = ("test_few_blocks", "test_reads")


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


def mutants_of(family: str) -> Iterator[Mutant]:
    """Yield all mutants of a family, line by line; comments stay."""
    file = f"{family}.cu"
    lines = source.kernel_text(file).splitlines()
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


def judged(mutant: Mutant, seconds: float) -> Verdict:
    """Run the tests of a family with a mutant in place of its text."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _run_tests(mutant)
    status = _waited(child, seconds)
    took = time.monotonic() - start
    if status is None:
        return Verdict(mutant, "does not end", took)
    if os.WIFSIGNALED(status):
        return Verdict(mutant, signal.Signals(os.WTERMSIG(status)).name, took)
    code = os.WEXITSTATUS(status)
    return Verdict(mutant, {0: ""}.get(code, "a test fails"), took)


def _run_tests(mutant: Mutant) -> None:
    """Run tests in a process that is a copy of this one; never returns."""
    honest = source.kernel_text
    source.kernel_text = lambda file: (  # type: ignore[assignment]
        mutant.text if file == f"{mutant.family}.cu" else honest(file)
    )
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KN_CACHE_DIR"] = folder
        names = (*TESTS[mutant.family], *SHARED_TESTS)
        files = [str(HERE / f"{name}.py") for name in names if (HERE / f"{name}.py").exists()]
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files])
    os._exit(int(code))


def _waited(child: int, seconds: float) -> int | None:
    """Return how a process ended; None where it had to be ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge mutants and print survivors; return 1 where fewer than 95 % are noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--most", type=int, default=10_000, help="mutants of a family, drawn")
    parser.add_argument("--seconds", type=float, default=240, help="for the tests of one mutant")
    args = parser.parse_args(arguments)
    noticed = total = 0
    for family in args.families or sorted(TESTS):
        if not (source.FOLDER / f"{family}.cu").exists():
            continue
        made = list(mutants_of(family))
        chosen = random.Random(0).sample(made, min(args.most, len(made)))
        verdicts = [judged(m, args.seconds) for m in chosen]
        found = sum(bool(v.how) for v in verdicts)
        noticed, total = noticed + found, total + len(verdicts)
        _say(f"{family}: {found} of {len(verdicts)} noticed, of {len(made)} mutants")
        for v in verdicts:
            if not v.how:
                m = v.mutant
                _say(f"  {family}.cu:{m.line} {m.kind}: {m.before}  ->  {m.after}")
    _say(f"{noticed} of {total} noticed")
    return int(noticed < 0.95 * total)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
