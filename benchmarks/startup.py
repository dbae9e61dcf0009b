"""How long importing and loading take, as ratios to the `onnx` package in the same run.

    python benchmarks/startup.py [--repeats 9] [--nodes 1000]

Three promises: `import kn_graph` takes at most 1.6 times `import onnx, numpy`, loading a model of
1,000 nodes at most 4 times `onnx.load` plus 0.5 s, and optimizing it at most twice that time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kn_graph import load_graph_from_onnx_path, optimize_graph


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(repeats: int, *actions: Callable[[], object]) -> list[float]:
    """Return the median time of each action, measured in turns."""
    rows = [[seconds(a) for a in actions] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def importing(modules: str) -> Callable[[], object]:
    """Return an action that imports modules in a fresh interpreter, from bytecode.

    Installed packages come with bytecode; a checkout must be allowed to write its own.
    """
    command = [sys.executable, "-c", f"import {modules}"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return lambda: subprocess.run(command, check=True, env=environment)


def block_model(nodes: int) -> onnx.ModelProto:
    """Return a residual network of Conv, BatchNormalization, Relu and Add, with that many nodes."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 16, 3, 3)).astype(np.float32),
        **{n: np.ones(16, np.float32) for n in ("scale", "bias", "mean", "var")},
    }
    made: list[onnx.NodeProto] = []
    before = "x"
    while len(made) + 4 <= nodes:
        i = len(made)
        norm = [f"c{i}", "scale", "bias", "mean", "var"]
        made += [
            helper.make_node("Conv", [before, "w"], [f"c{i}"], name=f"conv{i}", pads=[1] * 4),
            helper.make_node("BatchNormalization", norm, [f"n{i}"], name=f"norm{i}"),
            helper.make_node("Relu", [f"n{i}"], [f"r{i}"], name=f"relu{i}"),
            helper.make_node("Add", [f"r{i}", before], [f"a{i}"], name=f"add{i}"),
        ]
        before = f"a{i}"
    shape: list[str | int | None] = ["batch", 16, "height", "width"]
    graph = helper.make_graph(
        made,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--nodes", type=int, default=1000)
    args = parser.parse_args()
    ours, theirs = interleaved(args.repeats, importing("kn_graph"), importing("onnx, numpy"))
    print(f"import kn_graph {ours * 1e3:.0f} ms; onnx, numpy {theirs * 1e3:.0f} ms: ", end="")
    print(f"x{ours / theirs:.2f} (at most 1.6)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "blocks.onnx"
        onnx.save(block_model(args.nodes), path)
        graph = load_graph_from_onnx_path(path)  # imports the converters
        optimize_graph(graph)  # and the rules
        ours, theirs, optimizing = interleaved(
            args.repeats,
            lambda: load_graph_from_onnx_path(path),
            lambda: onnx.load(path),
            lambda: optimize_graph(graph),
        )
    allowed = 4 * theirs + 0.5
    print(f"load {args.nodes} nodes {ours * 1e3:.1f} ms, onnx.load {theirs * 1e3:.1f} ms: ", end="")
    print(f"{ours / allowed:.0%} of what is allowed ({allowed * 1e3:.0f} ms)")
    print(
        f"optimize them {optimizing * 1e3:.1f} ms: x{optimizing / ours:.2f} of loading (at most 2)"
    )


if __name__ == "__main__":
    main()
