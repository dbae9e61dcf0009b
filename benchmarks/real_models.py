"""Real models against onnxruntime, in interleaved turns of one process.

    python -m benchmarks.real_models [--rows REGEX] [--quick] [--runs 5] [--seconds 1]

`KN_MODELS_REAL` and `KN_MODELS_DIR` say where they are: see benchmarks/models.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.engines import compared, prepared, session
from benchmarks.figures import Benchmark, Case, Run
from benchmarks.models import RealModel, real_models
from benchmarks.rows import LIMITS

THREADS = 2

LIMIT = 1e-2
"""Detectors turn noise into maps that are 0 nearly everywhere, which no two engines do alike."""


def measure(model: RealModel, seconds: float) -> Run:
    """Measure a model in this process."""
    ours, theirs = prepared(model.path, THREADS), session(model.path, THREADS)
    return compared(ours, theirs, model.feeds(), seconds)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the models."""
    for model in real_models():
        limit = LIMITS["int8"] if model.quantized else LIMIT
        facts = {"file": model.path.name}
        yield Case(model.name, partial(measure, model), 0.7, limit, facts)


BENCHMARK = Benchmark("real_models", __doc__ or "", cases, geomean=1.25)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
