"""From a file to the first outputs, against onnxruntime, with everything imported before.

    python -m benchmarks.cold_start [--rows REGEX] [--quick] [--runs 5]

Ours is load, optimize, prepare and the first eval; onnxruntime's the creation of a session and the
first run. Both have run a tiny model before; a figure is the median of some turns of new graphs and
sessions. `python -m benchmarks.processes` has imports and memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.engines import named_outputs, prepared, scaled_error, session
from benchmarks.figures import Benchmark, Case, Run
from benchmarks.models import RealModel, real_models
from benchmarks.overhead import MLP, engines
from benchmarks.real_models import LIMIT
from benchmarks.rows import LIMITS
from benchmarks.turns import few

THREADS = 2
TURNS = 5


def measure(model: RealModel, seconds: float) -> Run:
    """Measure a model in this process."""
    feeds = model.feeds()
    ours, theirs, tiny = engines(MLP, 1)
    ours.eval(tiny), theirs.run(None, tiny)

    def start_ours() -> dict[str, Any]:
        return prepared(model.path, THREADS).eval(feeds)

    def start_theirs() -> dict[str, Any]:
        return named_outputs(session(model.path, THREADS), feeds)

    turns = few(start_ours, start_theirs, TURNS if seconds > 1 else 3)
    error = scaled_error(start_theirs(), start_ours())
    return Run(turns.ours, turns.theirs, turns.ratio, error)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the models."""
    for model in real_models():
        limit = LIMITS["int8"] if model.quantized else LIMIT
        yield Case(model.name, partial(measure, model), limit=limit)


BENCHMARK = Benchmark("cold_start", __doc__ or "", cases, geomean=0.4)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
