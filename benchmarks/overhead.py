"""What a call costs beside the work: tiny networks against onnxruntime, by batch and by depth.

    python -m benchmarks.overhead [--rows REGEX] [--quick] [--runs 5] [--seconds 2]

`mlp call` is `prepared.eval` of a 64-64-16 perceptron against `session.run`, `mlp bound` a bound
call against onnxruntime's with an io binding. The others are that perceptron with more rows, and
chains of 64x64 layers with one row.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.engines import compared, prepared, session
from benchmarks.figures import Benchmark, Case, Run
from benchmarks.turns import interleave

THREADS = 2
MLP = (64, 64, 16)
BATCHES = (8, 64, 512, 4096)
DEPTHS = (1, 8, 64, 512)


def perceptron(widths: Sequence[int]) -> onnx.ModelProto:
    """Return fully connected layers with relus between, for any number of rows."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value, last = "x", len(widths) - 2
    for i, (before, after) in enumerate(pairwise(widths)):
        w = rng.standard_normal((before, after), np.float32) / np.float32(before**0.5)
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        weights.append(numpy_helper.from_array(np.zeros(after, np.float32), f"b{i}"))
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], [f"y{i}"]))
        value = f"y{i}"
        if i < last:
            nodes.append(helper.make_node("Relu", [value], [f"r{i}"]))
            value = f"r{i}"
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", widths[0]), (value, widths[-1]))
    ]
    graph = helper.make_graph(nodes, "perceptron", described[:1], described[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def engines(widths: Sequence[int], batch: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return ours, onnxruntime's and inputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perceptron.onnx"
        onnx.save(perceptron(widths), path)
        pair = prepared(path, THREADS), session(path, THREADS)
    rng = np.random.default_rng(1)
    return *pair, {"x": rng.standard_normal((batch, widths[0]), np.float32)}


def call(widths: Sequence[int], batch: int, seconds: float) -> Run:
    """Measure calls with inputs by name."""
    ours, theirs, feeds = engines(widths, batch)
    return compared(ours, theirs, feeds, seconds)


def bound(widths: Sequence[int], batch: int, seconds: float) -> Run:
    """Measure calls whose inputs and outputs are bound."""
    ours, theirs, feeds = engines(widths, batch)
    binding = theirs.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output(theirs.get_outputs()[0].name, "cpu")
    turns = interleave(ours.bind(feeds).run, partial(theirs.run_with_iobinding, binding), seconds)
    return Run(turns.ours, turns.theirs, turns.ratio)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """Yield all of them."""
    yield Case("mlp call", partial(call, MLP, 1), target=1.0)
    yield Case("mlp bound", partial(bound, MLP, 1), target=2.0)
    for batch in BATCHES:
        facts = {"batch": batch}
        yield Case(f"mlp batch {batch}", partial(call, MLP, batch), facts=facts)
    for depth in DEPTHS:
        widths = (64,) * (depth + 1)
        yield Case(f"{depth} layers", partial(call, widths, 1), facts={"depth": depth})


BENCHMARK = Benchmark("overhead", __doc__ or "", cases, unit="us", scale=1e6)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
