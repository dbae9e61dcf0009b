"""The native code under sanitizers: `make test-native`.

The step runner is hammered by a C program, under those of threads and of addresses. Then the tests
of the kernels run with libraries that are built with those of addresses and undefined behaviour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kn_cpu.native import available
from kn_cpu.native.build import SOURCES, Isa, build, find_compiler, isas

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "sanitized"
STRICT = ["-g", "-O1", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0",
    "TSAN_OPTIONS": "halt_on_error=1:allocator_may_return_null=1:die_after_fork=0",
}


def run(command: list[str], **environment: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, cwd=ROOT, env={**os.environ, **OPTIONS, **environment}, check=True)


def hammer(compiler: list[str], sanitizer: str) -> None:
    """Build and run the C program."""
    program = WORK / f"test_run_{sanitizer.split(',')[0]}"
    files = [str(ROOT / "tests" / "native" / "test_run.c"), str(SOURCES / "run.c")]
    flags = [*STRICT, f"-fsanitize={sanitizer}", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    run([*compiler, *flags, "-pthread", f"-I{SOURCES}", *files, "-o", str(program)])
    run([str(program)])


def some() -> list[Isa]:
    """Return the plainest instruction set and the best one here; others differ in width only."""
    names = {"base", *available()[-1:]}
    return [isa for isa in isas() if isa.name in names]


def main() -> None:
    """Do it all; the first failure ends it."""
    compiler = find_compiler()
    if compiler is None:
        sys.exit("there is no C compiler")
    WORK.mkdir(parents=True, exist_ok=True)
    for sanitizer in ("thread", "address,undefined"):
        hammer(compiler, sanitizer)
    build(
        compiler, WORK / "lib", WORK, extra=[*STRICT, "-fsanitize=address,undefined"], only=some()
    )
    asked = [*compiler, "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "--capture=sys"]
    tests += sys.argv[1:] or ["tests/cpu"]
    run(tests, LD_PRELOAD=library, KN_CPU_NATIVE=str(WORK / "lib"))


if __name__ == "__main__":
    main()
