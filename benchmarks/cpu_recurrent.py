"""Recurrent layers against onnxruntime, in interleaved turns of one process.

    python benchmarks/cpu_recurrent.py [REGEX] [--threads N] [--seconds S]

Each row is a model of one layer: our median time of a call, how many multiplications a second that
is, and how many times longer onnxruntime takes (spinning off).
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(HERE.parent))

from benchmarks.turns import Turns, interleave  # noqa: E402
from kn_cpu.executor import CpuExecutor  # noqa: E402
from kn_cpu.native import library  # noqa: E402
from kn_graph import load_graph_from_onnx_bytes, optimize_graph  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        op: of ONNX.
        steps: of the sequences.
        batch: how many there are.
        features: of a step.
        hidden: units.
        directions: 1, or 2 for both.
    """

    op: str
    steps: int
    batch: int
    features: int
    hidden: int
    directions: int = 1

    def __str__(self) -> str:
        """Return its sizes."""
        ways = " both ways" if self.directions == 2 else ""
        return f"{self.op} {self.steps}x{self.batch}x{self.features} -> {self.hidden}{ways}"

    @property
    def products(self) -> int:
        """How many multiplications there are."""
        rows = self.directions * GATES[self.op] * self.hidden
        return self.steps * self.batch * rows * (self.features + self.hidden)

    def model(self) -> bytes:
        """Return a model of the layer."""
        rng, rows = np.random.default_rng(0), GATES[self.op] * self.hidden
        shapes = {"w": (rows, self.features), "r": (rows, self.hidden), "b": (2 * rows,)}
        weights = {
            n: rng.normal(0, 0.1, (self.directions, *s)).astype(np.float32)
            for n, s in shapes.items()
        }
        late: dict[str, Any] = {"linear_before_reset": 1} if self.op == "GRU" else {}
        direction = "bidirectional" if self.directions == 2 else "forward"
        node = helper.make_node(
            self.op, ["x", *weights], ["y"], hidden_size=self.hidden, direction=direction, **late
        )
        shape = (self.steps, self.batch, self.features)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        stored = [numpy_helper.from_array(a, n) for n, a in weights.items()]
        graph = helper.make_graph([node], "layer", [x], [y], stored)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(model.SerializeToString())


LAYERS = [
    *(Layer(op, 1, 1, 128, 128) for op in GATES),
    *(Layer(op, 100, 1, 25, 25) for op in GATES),
    *(Layer(op, 100, 1, 128, 128) for op in GATES),
    Layer("LSTM", 32, 1, 192, 96, 2),
    Layer("LSTM", 32, 1, 512, 512, 2),
    Layer("GRU", 100, 4, 256, 128, 2),
    Layer("LSTM", 20, 8, 128, 128),
    Layer("LSTM", 20, 32, 128, 128),
    Layer("LSTM", 20, 64, 512, 512),
]


def measure(layer: Layer, threads: int, seconds: float) -> Turns:
    """Measure one layer."""
    model, kernels = layer.model(), library()
    assert kernels is not None
    run = CpuExecutor(optimize_graph(load_graph_from_onnx_bytes(model)), kernels, threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    shape = (layer.steps, layer.batch, layer.features)
    feeds = {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}
    return interleave(lambda: run.eval(feeds), lambda: session.run(None, feeds), seconds)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("regex", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1)
    arguments = parser.parse_args()
    table = Table("layer", "µs", "GMAC/s", "onnxruntime x")
    for layer in LAYERS:
        if re.search(arguments.regex, str(layer)):
            turns = measure(layer, arguments.threads, arguments.seconds)
            rate = layer.products / turns.ours / 1e9
            table.add_row(
                str(layer), f"{turns.ours * 1e6:.1f}", f"{rate:.1f}", f"{turns.ratio:.2f}"
            )
    Console().print(table)


if __name__ == "__main__":
    main()
