"""Optimize a small graph and compare it with what it was: shared by the tests of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.optimizer import OptimizerReport, OptimizerSettings, optimize_graph_report
from tests.small_models import model

__all__ = ["build_graph", "check", "check_model", "drawn", "model_graph", "ops_of", "untouched"]

Build = Callable[..., Value | Sequence[Value]]
Inputs = Mapping[str, tuple[str, Sequence[Any]]]

SIZES: tuple[dict[str, int], ...] = ({"n": 3, "m": 2}, {"n": 1, "m": 1}, {"n": 0, "m": 2})
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -3e-45, 1.0, -1.0)


def build_graph(build: Build, inputs: Inputs) -> Graph:
    """Return a graph around what is built of its inputs; symbols may be 0."""
    g = Graph("test")
    for name in sorted({s for _, shape in inputs.values() for s in shape if isinstance(s, str)}):
        g.symbol(name, lo=0)
    values = [g.input(n, dtype, shape) for n, (dtype, shape) in inputs.items()]
    out = build(g, *values)
    for i, v in enumerate([out] if isinstance(out, Value) else out):
        g.output(f"y{i}", v)
    return g


def drawn(dtype: DType, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Return random numbers, of floats every third one special."""
    if dtype.is_float:
        x = rng.standard_normal(shape) * 3
        odd = rng.integers(0, 3, shape) == 0
        with np.errstate(all="ignore"):
            return np.where(odd, rng.choice(SPECIAL, shape), x).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if dtype.numpy.kind == "u" else -5
    return rng.integers(low, 6, shape).astype(dtype.numpy)


def _fed(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        v.name: drawn(v.dtype, [s if isinstance(s, int) else sizes[str(s)] for s in v.shape], rng)
        for v in graph.inputs
    }


def check(
    build: Build,
    inputs: Inputs,
    fires: Mapping[str, int],
    *,
    sizes: Sequence[Mapping[str, int]] = SIZES,
    rtol: float = 0.0,
    settings: OptimizerSettings | None = None,
    feeds: Sequence[Mapping[str, np.ndarray]] | None = None,
) -> Graph:
    """Optimize a graph; compare counts of rules, results, and what a second time does.

    Args:
        build: makes the outputs of the inputs.
        inputs: {name: (element type, shape)}, symbols by name.
        fires: how often rules fire; 0 forbids one.
        sizes: numbers of the symbols, one mapping a run.
        rtol: 0 asks for equal results, NaNs included; signs of zeros may differ.
        settings: of the optimizer.
        feeds: arrays to run with instead of random ones.

    Returns:
        The optimized graph.
    """
    graph = build_graph(build, inputs)
    return check_model(graph, fires, sizes=sizes, rtol=rtol, settings=settings, feeds=feeds)


def check_model(
    graph: Graph,
    fires: Mapping[str, int],
    *,
    sizes: Sequence[Mapping[str, int]] = SIZES,
    rtol: float = 0.0,
    settings: OptimizerSettings | None = None,
    feeds: Sequence[Mapping[str, np.ndarray]] | None = None,
) -> Graph:
    """As `check`, with a graph that exists."""
    optimized, report = optimize_graph_report(graph, settings)
    optimized.verify()
    for rule, count in fires.items():
        assert report.fired[rule] == count, f"{rule}: {report}\n{graph}\n{optimized}"
    runs = feeds if feeds is not None else [_fed(graph, s, i) for i, s in enumerate(sizes)]
    for given in runs:
        want, got = cpu_eval_graph(graph, given), cpu_eval_graph(optimized, given)
        for name, x in want.items():
            assert got[name].dtype == x.dtype
            assert got[name].shape == x.shape
            _compare(got[name], x, rtol, f"{report}\n{optimized}")
    again, second = optimize_graph_report(optimized, settings)
    assert not second.fired, f"{second}\n{optimized}"
    assert len(again.nodes) == len(optimized.nodes)
    return optimized


def _compare(got: np.ndarray, want: np.ndarray, rtol: float, text: str) -> None:
    if got.dtype.kind == "V":
        got, want = got.astype(np.float32), want.astype(np.float32)
    if rtol:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-30, err_msg=text)
    else:
        np.testing.assert_array_equal(got, want, err_msg=text)


def untouched(build: Build, inputs: Inputs, *rules: str) -> OptimizerReport:
    """Check that rules leave a graph alone, and return the report."""
    graph = build_graph(build, inputs)
    _, report = optimize_graph_report(graph)
    for rule in rules:
        assert not report.fired[rule], str(report)
    return report


def ops_of(graph: Graph) -> list[str]:
    """Return what the nodes of a graph do, inputs and constants left out, sorted."""
    return sorted(n.op.title for n in graph.nodes if n.op.title not in ("Input", "Constant"))


def model_graph(*args: Any, **kwargs: Any) -> Graph:
    """Load a small model; see `tests.small_models.model`."""
    return load_graph_from_onnx_bytes(model(*args, **kwargs).SerializeToString())
