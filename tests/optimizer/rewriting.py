"""What tests of rewrite rules have in common: graphs before and after, and what is left."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph, load_graph_from_onnx_path
from kn_graph.liveness import live_nodes
from kn_graph.optimizer import OptimizerReport, OptimizerSettings, optimize_graph_report
from kn_graph.optimizer.compact import compact_constant
from kn_graph.optimizer.editor import Editor

UNCOUNTED = {"Input", "Constant", "View", "Broadcast", "Permute", "Slice", "Flip"}

EXPORTS = Path(os.environ.get("KN_EXPORTS_DIR", Path.home() / ".cache" / "kn-exports"))
MODELS = Path(os.environ.get("KN_MODELS_DIR", Path.home() / ".cache" / "kn-models"))

ULPS = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}
"""How far results may be apart, as a part of the largest one."""


def ops(graph: Graph) -> Counter[str]:
    """Return how many operations compute, by kind."""
    nodes = live_nodes(graph, graph.outputs.values())
    return Counter(n.op.title for n in nodes if n.op.title not in UNCOUNTED)


def constant(g: Graph, array: Any, dtype: str = "float32") -> Value:
    """Add a constant of an element type."""
    return g.constant(np.asarray(array).astype(DType.parse(dtype).numpy))


def feeds(graph: Graph, seed: int = 0, **sizes: int) -> dict[str, np.ndarray]:
    """Return normal inputs; symbols that are not given are 3."""
    rng = np.random.default_rng(seed)
    out = {}
    for v in graph.inputs:
        shape = [s if isinstance(s, int) else sizes.get(str(s), 3) for s in v.shape]
        numbers = rng.standard_normal(shape) * (1 if v.dtype.is_float else 50)
        out[v.name] = numbers.astype(v.dtype.numpy)
    return out


def optimized(
    graph: Graph, settings: OptimizerSettings | None = None, **fired: int
) -> tuple[Graph, OptimizerReport]:
    """Optimize a graph, check how often rules fired, and that nothing is left to do."""
    out, report = optimize_graph_report(graph, settings)
    for rule, count in fired.items():
        assert report.fired[rule] == count, str(report)
    again, second = optimize_graph_report(out, settings)
    assert not second.fired, str(second)
    assert len(again.nodes) == len(out.nodes)
    return out, report


def assert_equal(
    graph: Graph, other: Graph, inputs: dict[str, np.ndarray], *, tolerance: float | None = None
) -> None:
    """Check that two graphs have results that are equal but for rounding."""
    want, got = cpu_eval_graph(graph, inputs), cpu_eval_graph(other, inputs)
    assert want.keys() == got.keys()
    for name, a in want.items():
        b = got[name]
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        if not np.issubdtype(a.dtype, np.inexact) and a.dtype.name != "bfloat16":
            np.testing.assert_array_equal(a, b, err_msg=name)
            continue
        if tolerance is None:
            tolerance = ULPS[a.dtype.name]
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(a)
        largest = np.abs(a[finite]).max(initial=0.0)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * largest, err_msg=name)


def refusals(report: OptimizerReport, rule: str) -> list[str]:
    """Return why a rule did not fire."""
    return [why for (name, why) in report.refused if name == rule]


def stored(folder: Path, name: str) -> Graph:
    """Load a model that is not part of the repository, or skip the test."""
    path = folder / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return load_graph_from_onnx_path(path)


RNG = np.random.default_rng(7)


def random(g: Graph, *shape: int, dtype: str = "float32", low: float = 0.5) -> Value:
    """Add a constant of magnitude `low` to 2, of both signs."""
    a = RNG.uniform(low, 2, shape) * RNG.choice([-1, 1], shape)
    return constant(g, a, dtype)


def channels(x: Value, n: int, dtype: str = "float32") -> Value:
    """Add a constant for each channel of x."""
    return random(x.graph, n, *(1,) * (x.rank - 2), dtype=dtype)


def scaled_bias(x: Value, n: int, dtype: str = "float32") -> Value:
    """Return ((x - a) / b * c + d) along axis 1: a batch normalisation."""
    a, b, c, d = (channels(x, n, dtype) for _ in range(4))
    return (x - a) / b * c + d


def conv(x: Value, outputs: int, *, bias: bool = True, pad: int = 0, kernel: int = 1) -> Value:
    """Convolve with random weights."""
    g, n = x.graph, x.shape[1]
    assert isinstance(n, int)
    w = random(g, outputs, n, *(kernel,) * (x.rank - 2))
    pads = [(pad, pad)] * (x.rank - 2)
    return g.conv(x, w, random(g, outputs) if bias else None, pads=pads)


def other_scalar_ops(graph: Graph) -> list[str]:
    """Return arithmetic with a constant that is no sum directly behind a product."""
    edit = Editor(graph)
    found = []
    for node in edit.graph.nodes:
        if node.op.title not in ("add", "sub", "mul", "div"):
            continue
        rest = [v for v in node.operands if compact_constant(edit, v) is None]
        if len(rest) != 1:
            continue
        (x,) = rest
        while x.node.op.title in ("View", "Permute"):
            (x,) = x.node.operands
        if node.op.title != "add" or x.node.op.title not in ("Conv", "ConvTranspose", "MatMul"):
            found.append(f"{node.op.title} of {x.node.op.title}")
    return found
