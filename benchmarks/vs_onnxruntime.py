"""Exported models against onnxruntime, in interleaved turns of one process.

    python -m benchmarks.vs_onnxruntime [--rows REGEX] [--quick] [--runs 5] [--seconds 2]

The rows are those of models.toml. A figure is the median over the runs, each a fresh process, of
the median ratio of interleaved turns; above 1 we are faster. Outputs are compared, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.engines import compared, feeds_of, prepared, session
from benchmarks.figures import Benchmark, Case, Run
from benchmarks.rows import Row, exports_folder, rows


def measure(row: Row, folder: Path, seconds: float) -> Run:
    """Measure a row in this process.

    The outputs of quantized models are those of onnxruntime without its optimizations, which move
    roundings: on one of the rows its own results with and without them are half as large apart as
    the results are.
    """
    path = folder / row.file
    theirs, ours = session(path, row.threads), prepared(path, row.threads)
    judge = session(path, row.threads, optimize=False) if row.dtype == "int8" else theirs
    feeds = feeds_of(theirs, row.dims, row.highest)
    return compared(ours, theirs, feeds, seconds, judge=judge)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the rows."""
    folder = exports_folder(args.folder)
    for row in rows():
        facts = {"file": row.file, "dims": row.dims, "dtype": row.dtype, "threads": row.threads}
        yield Case(row.name, partial(measure, row, folder), row.target, row.limit, facts)


BENCHMARK = Benchmark(
    "vs_onnxruntime",
    __doc__ or "",
    cases,
    arguments=lambda parser: parser.add_argument("--folder", help="of the exported models"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
