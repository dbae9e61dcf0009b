"""Native integer products and convolutions against onnxruntime, in interleaved turns.

    python benchmarks/cpu_integers.py [REGEX] [--threads N] [--seconds S]

Models of one operation, with constant weights. Convolutions with as many outputs as inputs run as a
chain of three: what happens to the input and the output of the model counts less. Columns: our
median time, products a second, how many times longer onnxruntime takes.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.turns import Turns, interleave
from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import load_graph_from_onnx_bytes, optimize_graph

Array = np.ndarray[Any, Any]

TYPES = {"u8": np.uint8, "s8": np.int8}
CODES = {"u8": TensorProto.UINT8, "s8": TensorProto.INT8}


@dataclass(frozen=True)
class Case:
    """One operation, some times in a row.

    Attributes:
        name: what the table says.
        nodes: of the model; they read `x` and write `y`.
        constants: their weights and numbers.
        shape: of x.
        left: its type.
        products: of one run.
    """

    name: str
    nodes: tuple[NodeProto, ...]
    constants: dict[str, Any]
    shape: tuple[int, ...]
    left: str
    products: int

    def model(self) -> bytes:
        """Return the model as a file."""
        x = helper.make_tensor_value_info("x", CODES[self.left], self.shape)
        kind = TensorProto.INT32 if self.nodes[-1].op_type == "MatMulInteger" else CODES[self.left]
        y = helper.make_tensor_value_info("y", kind, None)
        stored = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph(list(self.nodes), "integers", [x], [y], stored)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(model.SerializeToString())


def integers(kind: str, *shape: int) -> Array:
    """Return random integers."""
    info = np.iinfo(TYPES[kind])
    return np.random.default_rng(0).integers(info.min, info.max + 1, shape).astype(info.dtype)


def product(rows: int, depth: int, cols: int, left: str = "u8", right: str = "s8") -> Case:
    """Multiply with constant weights."""
    constants = {"w": integers(right, depth, cols), "zero": np.array(9, TYPES[left])}
    node = helper.make_node("MatMulInteger", ["x", "w", "zero"], ["y"])
    name = f"gemm {left}{right} {rows}x{depth}x{cols}"
    return Case(name, (node,), constants, (rows, depth), left, rows * depth * cols)


def conv(
    channels: int, outputs: int, side: int, kernel: int, stride: int = 1, groups: int = 1
) -> Case:
    """Convolve uint8 images with int8 weights."""
    times = 3 if channels == outputs and stride == 1 else 1
    constants: dict[str, Any] = {
        "w": integers("s8", outputs, channels // groups, kernel, kernel),
        "x_scale": np.float32(0.02), "y_scale": np.float32(0.9), "zero": np.uint8(3),
        "w_scale": np.full(outputs, 0.01, np.float32), "w_zero": np.zeros(outputs, np.int8),
        "bias": np.arange(outputs, dtype=np.int32),
    }  # fmt: skip
    names = ["x", *(f"t{i}" for i in range(times - 1)), "y"]
    rest = ["x_scale", "zero", "w", "w_scale", "w_zero", "y_scale", "zero", "bias"]
    pads = [kernel // 2] * 4
    nodes = tuple(
        helper.make_node(
            "QLinearConv", [a, *rest], [b], strides=[stride] * 2, pads=pads, group=groups
        )
        for a, b in pairwise(names)
    )
    pixels = ((side + stride - 1) // stride) ** 2
    products = times * pixels * outputs * (channels // groups) * kernel * kernel
    kind = "depthwise" if groups > 1 else "conv"
    name = f"{kind} {channels}>{outputs} {side}x{side} k{kernel} s{stride}"
    return Case(name, nodes, constants, (1, channels, side, side), "u8", products)


CASES = [
    *(product(64, k, n) for k, n in ((256, 256), (256, 1024), (1024, 256))),
    *(product(1, k, n) for k, n in ((256, 1024), (4096, 4096))),
    *(product(512, 512, 512, a, b) for a in TYPES for b in TYPES),
    conv(64, 64, 56, 3),
    conv(128, 128, 28, 3),
    conv(512, 512, 7, 3),
    conv(3, 64, 224, 7, 2),
    conv(96, 96, 56, 1),
    conv(24, 144, 56, 1),
    conv(144, 24, 56, 1),
    conv(96, 96, 56, 3, 1, 96),
    conv(384, 384, 14, 3, 1, 384),
    conv(96, 96, 28, 5, 1, 96),
]


def measure(case: Case, threads: int, seconds: float) -> Turns:
    """Measure one case."""
    model, kernels = case.model(), library()
    assert kernels is not None
    run = CpuExecutor(optimize_graph(load_graph_from_onnx_bytes(model)), kernels, threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {"x": integers(case.left, *case.shape)}
    return interleave(lambda: run.eval(feeds), lambda: session.run(None, feeds), seconds)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("regex", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1)
    arguments = parser.parse_args()
    table = Table("case", "µs", "GMAC/s", "onnxruntime x")
    for case in CASES:
        if re.search(arguments.regex, case.name):
            turns = measure(case, arguments.threads, arguments.seconds)
            rate = case.products / turns.ours / 1e9
            table.add_row(case.name, f"{turns.ours * 1e6:.1f}", f"{rate:.1f}", f"{turns.ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
