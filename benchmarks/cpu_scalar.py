"""Scalar programs on the native interpreter against onnxruntime, in interleaved turns.

    python benchmarks/cpu_scalar.py [REGEX] [--threads N] [--turns N]

Both read and write memory that is allocated before. Columns: median time of ours, billions of
elements a second, and how many times longer onnxruntime takes (io binding, spinning off).
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kn_cpu.native import STEP, library
from kn_cpu.scalar import ScalarKernel, compile_program
from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, Unary
from kn_plan.layout import StridedLayout
from kn_plan.program import ProgramBuilder, ScalarProgram

Array = np.ndarray[Any, Any]
Step = tuple[str, str | float | None]

_UNARY = {"relu": "Relu", "gelu": "Gelu", "silu": "Swish", "hard_swish": "HardSwish",
          "exp": "Exp", "tanh": "Tanh", "erf": "Erf", "sigmoid": "Sigmoid"}  # fmt: skip
_BINARY = {"mul": "Mul", "add": "Add", "max": "Max", "min": "Min", "div": "Div"}

# functions one after another, of x; `s` and `b` are rows, `r` is as large as x
PROGRAMS: dict[str, list[Step]] = {
    "relu(x*s+b)": [("mul", "s"), ("add", "b"), ("relu", None)],
    "relu(x+r)": [("add", "r"), ("relu", None)],
    "gelu(x*s+b)+r": [("mul", "s"), ("add", "b"), ("gelu", None), ("add", "r")],
    "hardswish(x)": [("hard_swish", None)],
    "x*sigmoid(x)": [("sigmoid", None), ("mul", "x")],
    "tanh(x)": [("tanh", None)],
    "20 cheap": [
        step
        for i in range(4)
        for step in (("mul", 0.9 + 0.1 * i), ("add", 0.25), ("max", -4.0), ("min", 4.0),
                     ("add", "x"))
    ],
}  # fmt: skip
SHAPES = ((16, 1024), (256, 1024), (4096, 1024))


def operands(shape: tuple[int, int]) -> dict[str, Array]:
    """Return everything that programs read."""
    rng = np.random.default_rng(0)
    sizes = {"x": shape, "s": shape[1:], "b": shape[1:], "r": shape}
    return {n: rng.normal(size=s).astype(np.float32) for n, s in sizes.items()}


def ours(steps: Sequence[Step], arrays: dict[str, Array], threads: int) -> Callable[[], None]:
    """Prepare one native call; the closure keeps all memory."""
    program, names = program_of(steps)
    kernel = compile_program(program)
    assert isinstance(kernel, ScalarKernel), str(kernel)
    lib = library()
    assert lib is not None
    x = arrays["x"]
    out = np.empty_like(x)
    read = [np.broadcast_to(arrays[n], x.shape) for n in names]
    layouts = [StridedLayout(a.shape, tuple(s // 4 for s in a.strides)) for a in read]
    call = kernel.call([StridedLayout.contiguous(x.shape)], layouts)
    address = lib.kernel("scalar", call.kernel)
    step = np.array([(address, 0, 0, call.units, call.grain, call.scratch)], STEP)
    numbers = np.array(call.numbers, np.int64)
    memory = (out, *read)  # pointers do not keep it
    pointers = np.array([a.__array_interface__["data"][0] for a in memory], np.int64)

    bound = lib.bind(step, numbers, pointers)

    def run() -> None:
        assert memory
        bound(threads)

    return run


def program_of(steps: Sequence[Step]) -> tuple[ScalarProgram, list[str]]:
    """Return the program and the names of its inputs."""
    builder, f32 = ProgramBuilder(), DType.FLOAT32
    names = ["x", *(a for _, a in steps if isinstance(a, str) and a != "x")]
    inputs = {n: builder.input(f32) for n in names}
    at = inputs["x"]
    for name, other in steps:
        if other is None:
            at = builder.apply(Unary(name), [at], f32)
            continue
        second = inputs[other] if isinstance(other, str) else builder.number(other, f32)
        at = builder.apply(Binary(name), [at, second], f32)
    return builder.build([at]), names


def theirs(steps: Sequence[Step], arrays: dict[str, Array], threads: int) -> Callable[[], None]:
    """Prepare a session of onnxruntime."""
    nodes, constants, at = [], [], "x"
    for i, (name, other) in enumerate(steps):
        inputs = [at]
        if isinstance(other, float):
            inputs.append(f"c{i}")
            constants.append(helper.make_tensor(f"c{i}", TensorProto.FLOAT, [], [other]))
        elif other is not None:
            inputs.append(other)
        at = "y" if i == len(steps) - 1 else f"t{i}"
        nodes.append(helper.make_node({**_UNARY, **_BINARY}[name], inputs, [at]))
    used = {n for node in nodes for n in node.input} & set(arrays)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, arrays[n].shape) for n in used]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, arrays["x"].shape)
    graph = helper.make_graph(nodes, "g", infos, [out], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name in used:
        value = onnxruntime.OrtValue.ortvalue_from_numpy(arrays[name])
        binding.bind_ortvalue_input(name, value)
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(arrays["x"]))
    binding.bind_ortvalue_output("y", result)
    return lambda: session.run_with_iobinding(binding)


def medians(actions: Sequence[Callable[[], None]], turns: int) -> list[float]:
    """Return the median seconds of each, in turns."""
    times: list[list[float]] = [[] for _ in actions]
    for turn in range(turns + 3):
        for action, found in zip(actions, times, strict=True):
            start = time.perf_counter()
            action()
            if turn >= 3:
                found.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=200)
    args = parser.parse_args()
    table = Table("program", "elements", "us", "G el/s", "onnxruntime x")
    for shape in SHAPES:
        arrays, count = operands(shape), shape[0] * shape[1]
        turns = max(15, args.turns * 65536 // max(count, 65536))
        for name, steps in PROGRAMS.items():
            if not re.search(args.pattern, name):
                continue
            actions = [f(steps, arrays, args.threads) for f in (ours, theirs)]
            a, b = medians(actions, turns)
            row = (f"{a * 1e6:.1f}", f"{count / a * 1e-9:.2f}", f"{b / a:.2f}")
            table.add_row(name, f"{count >> 10}K", *row)
    Console().print(table)


if __name__ == "__main__":
    main()
