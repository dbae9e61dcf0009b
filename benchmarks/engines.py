"""The two engines that are compared, set up alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.figures import Run
from benchmarks.turns import interleave
from kn_graph import load_graph_from_onnx_path
from kn_runtime import Device, PrepareOptions
from kn_runtime.prepared import PreparedGraph

__all__ = ["compared", "feeds_of", "named_outputs", "prepared", "scaled_error", "session"]

Array = np.ndarray[Any, Any]

SILENT = 4


def session(source: Path | bytes, threads: int, *, optimize: bool = True) -> Any:
    """Return an onnxruntime session whose threads sleep while others run."""
    onnxruntime.set_default_logger_severity(SILENT)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.force_spinning_stop", "1")
    model = source if isinstance(source, bytes) else str(source)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def prepared(path: Path, threads: int) -> PreparedGraph:
    """Return a model on our CPU executor."""
    graph = load_graph_from_onnx_path(path)
    return Device.cpu().prepare(graph, options=PrepareOptions(threads=threads))


def feeds_of(
    made: Any, dims: Mapping[str, int], highest: Mapping[str, int], seed: int = 0
) -> dict[str, Array]:
    """Return seeded inputs of a session: floats N(0, 1), integers 1 or below a number by name."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for i in made.get_inputs():
        shape = [n if isinstance(n, int) else dims[n] for n in i.shape]
        kind = i.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
        if dtype.kind == "f":
            feeds[i.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[i.name] = rng.integers(1, highest.get(i.name, 2), shape).astype(dtype)
    return feeds


def named_outputs(made: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return what onnxruntime computes, by name."""
    return dict(zip((o.name for o in made.get_outputs()), made.run(None, feeds), strict=True))


def scaled_error(want: Mapping[str, Any], got: Mapping[str, Any]) -> float:
    """Return the largest distance over |element| + RMS of the output; infinite if shapes differ.

    A coarse look, whose only aim is that no speed is measured of something wrong.
    """
    worst = 0.0
    for name, expected in want.items():
        if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fiub":
            continue
        a, b = expected.astype(np.float64), np.asarray(got[name], np.float64)
        if a.shape != b.shape:
            return float("inf")
        scale = np.sqrt(np.mean(a * a)) if a.size else 0.0
        distance = np.where(a == b, 0.0, np.abs(a - b) / (np.abs(a) + scale + 1e-4))
        worst = max(worst, float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0)))
    return worst


def compared(
    ours: PreparedGraph,
    theirs: Any,
    feeds: Mapping[str, Array],
    seconds: float,
    *,
    judge: Any = None,
) -> Run:
    """Measure both engines in turns, after a look at what they compute.

    Args:
        ours: our engine.
        theirs: a session.
        feeds: inputs.
        seconds: how long.
        judge: the session whose outputs are right; `theirs` by default.
    """
    want = named_outputs(theirs if judge is None else judge, feeds)
    error = scaled_error(want, ours.eval(feeds))
    turns = interleave(partial(ours.eval, feeds), partial(theirs.run, None, feeds), seconds)
    return Run(turns.ours, turns.theirs, turns.ratio, error)
