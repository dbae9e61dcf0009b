"""`python -m tests.fuzz --seeds 0:500 --check optimize`: find programs for which a check fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.fuzz.checks import CHECKS, Failure, run_check
from tests.fuzz.generate import crash_of, generate
from tests.fuzz.program import Program
from tests.fuzz.shrink import shrink


def parse_seeds(text: str) -> range:
    """Return the seeds of `A:B` (B is not one of them), or of a single number."""
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def failure_of(check: str, seed: int) -> tuple[Program, Failure] | None:
    """Return the program of a seed and how it fails a check, if it does."""
    program = (crash_of(seed) if check == "reference" else None) or generate(seed)
    failure = run_check(check, program)
    return None if failure is None else (program, failure)


def show(text: str) -> None:
    """Write a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run checks over seeds; print a minimal program for each kind of failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=parse_seeds, default=range(200), metavar="A:B")
    parser.add_argument("--check", action="append", choices=CHECKS, help="may be repeated")
    parser.add_argument("--all", action="store_true", help="shrink every failure, not one a kind")
    parser.add_argument("--show", action="store_true", help="print the programs and stop")
    args = parser.parse_args()
    if args.show:
        for seed in args.seeds:
            show(f"# seed {seed}\n{generate(seed)}\n")
        return 0
    kinds: Counter[tuple[str, str]] = Counter()
    start = time.perf_counter()
    for check in args.check or ["optimize"]:
        for seed in args.seeds:
            found = failure_of(check, seed)
            if found is None:
                continue
            program, failure = found
            kinds[check, failure.kind] += 1
            head = f"seed {seed} fails the check {check!r}: {failure.kind}"
            if kinds[check, failure.kind] > 1 and not args.all:
                show(head)
                continue
            program, failure = shrink(program, failure)
            show(f"\n{'=' * 80}\n{head}\n\n{program}\n\n{failure.text}")
    seconds = time.perf_counter() - start
    show(f"\n{len(args.seeds)} seeds in {seconds:.1f} s, {sum(kinds.values())} failures")
    for (check, kind), count in kinds.most_common():
        show(f"{count:5}  {check}: {kind}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
