"""Native products and convolutions against onnxruntime, in interleaved turns of one process.

    python benchmarks/cpu_products.py [REGEX] [--threads N] [--turns N]

Convolutions with as many outputs as inputs run as a chain of four, with a bias and relu each, so
that what onnxruntime does to its input and output counts a quarter. Constant right operands are
packed on both sides. Columns: our median time, GFLOP/s, how many times longer onnxruntime takes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cpu_rows import Case, measure
from kn_cpu.axes import KernelCall
from kn_cpu.conv import ConvProblem, conv_call, packed_weights, weight_layout, window_order
from kn_cpu.conv_choice import winograd_wins
from kn_cpu.depthwise import depthwise_call, is_depthwise
from kn_cpu.gemm import gemm_call, pack_call, packed_layout
from kn_cpu.native import STEP, NativeLibrary, library
from kn_cpu.product import REGISTERS, Registers, packed_size
from kn_cpu.winograd import winograd_call, winograd_weights_call, winograd_weights_size
from kn_graph.dim import evaluate
from kn_plan.layout import StridedLayout

Array = np.ndarray[Any, Any]
Action = Callable[[], object]
Call = tuple[str, KernelCall, Sequence[Array | None]]

GEMMS = """256x256x256 384x384x384 512x512x512 768x768x768 1024x1024x1024 2048x2048x2048 128x256x256
128x1024x256 128x256x1024 128x768x768 128x3072x768 128x768x3072 1x1024x1024 2x1024x1024 4x1024x1024
1x4096x4096 64x3136x576 128x784x1152 256x196x2304 512x49x4608"""

# name, images, channels, outputs, side, kernel, stride
CONVS = (
    ("3x3", 1, 64, 64, 56, 3, 1),
    ("3x3", 1, 128, 128, 28, 3, 1),
    ("3x3", 1, 256, 256, 14, 3, 1),
    ("3x3", 1, 512, 512, 7, 3, 1),
    ("3x3", 8, 64, 64, 56, 3, 1),
    ("3x3", 8, 256, 256, 14, 3, 1),
    ("3x3 stride 2", 1, 64, 128, 56, 3, 2),
    ("1x1", 1, 256, 256, 14, 1, 1),
    ("1x1", 1, 96, 96, 56, 1, 1),
    ("1x1", 1, 576, 576, 14, 1, 1),
    ("1x1", 1, 24, 144, 56, 1, 1),
    ("1x1", 1, 144, 24, 56, 1, 1),
    ("1x1", 1, 40, 240, 28, 1, 1),
    ("first 7x7", 1, 3, 64, 224, 7, 2),
    ("first 3x3", 1, 3, 32, 224, 3, 2),
)

# channels, side, kernel, stride
DEPTHWISE = (
    (96, 56, 3, 1),
    (384, 14, 3, 1),
    (960, 7, 3, 1),
    (32, 112, 3, 1),
    (96, 28, 5, 1),
    (96, 56, 7, 1),
    (144, 56, 3, 2),
    (240, 28, 5, 2),
)


def aligned(shape: Sequence[int]) -> Array:
    """Return zeros that begin at a cache line, as in an arena."""
    raw = np.zeros(4 * int(np.prod(shape)) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : raw.size - 64 + start].view(np.float32).reshape(shape)


def last(shape: Sequence[int]) -> Array:
    """Return zeros [N, C, *spatial] whose channels lie side by side."""
    return np.moveaxis(aligned((shape[0], *shape[2:], shape[1])), -1, 1)


def layout_of(x: Array) -> StridedLayout:
    """Return where elements lie."""
    return StridedLayout(x.shape, tuple(s // x.itemsize for s in x.strides))


@dataclass(frozen=True)
class Bench:
    """How everything runs."""

    threads: int
    library: NativeLibrary
    rng: np.random.Generator

    @property
    def registers(self) -> Registers:
        """Of the library."""
        return REGISTERS[self.library.isa]

    def normal(self, *shape: int) -> Array:
        """Return random numbers."""
        x = aligned(shape)
        x[...] = self.rng.standard_normal(shape, np.float32)
        return x

    def native(self, calls: Sequence[Call], threads: int = 0) -> Action:
        """Return a run of several steps."""
        steps, numbers, pointers = np.zeros(len(calls), STEP), list[int](), list[int]()
        for place, (family, call, operands) in enumerate(calls):
            sizes = (evaluate(call.units, {}), call.grain, evaluate(call.scratch, {}))
            address = self.library.kernel(family, call.kernel)
            steps[place] = (address, len(numbers), len(pointers), *sizes)
            numbers += [evaluate(n, {}) for n in call.numbers]
            pointers += [0 if x is None else x.__array_interface__["data"][0] for x in operands]
        flat, places = np.array(numbers, np.int64), np.array(pointers, np.int64)
        keep = [x for _, _, operands in calls for x in operands]

        def act() -> object:
            self.library.run(steps, flat, places, threads or self.threads)
            return keep

        return act

    def packed(self, family: str, call: KernelCall, source: Array, floats: Any) -> Array:
        """Return what a packing kernel makes of a constant."""
        target = aligned((evaluate(floats, {}),))
        self.native([(family, call, (source, target))], 1)()
        return target

    def ort(self, nodes: Sequence[Any], x: Array, constants: Mapping[str, Array]) -> Action:
        """Return a run of a small model from `x` to `out`, with an io binding."""
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            list(nodes), "g", [value("x", TensorProto.FLOAT, x.shape)],
            [value("out", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, n) for n, v in constants.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("out", "cpu")
        keep = x  # a binding does not
        return lambda: (session.run_with_iobinding(binding), keep)


def gemms(b: Bench) -> Iterator[Case]:
    """Yield products with a constant right operand, which is packed."""
    for text in GEMMS.split():
        rows, cols, depth = map(int, text.split("x"))
        a, w, out = b.normal(rows, depth), b.normal(depth, cols), aligned((rows, cols))
        call = pack_call(layout_of(w), b.registers)
        packed = b.packed("gemm", call, w, packed_size(depth, cols, b.registers))
        layout = packed_layout(w.shape, b.registers)
        made = gemm_call(b.registers, layout_of(out), layout_of(a), layout)
        ours = b.native([("gemm", made, (a, packed, out, None, None))])
        other = b.ort([helper.make_node("MatMul", ["x", "w"], ["out"])], a, {"w": w})
        yield Case(text, ours, {"ort": other}, 2.0 * rows * cols * depth)


def chain(b: Bench, x: Array, w: Array, stride: int, groups: int) -> tuple[Case, str]:
    """Return convolutions behind one another, and the kernel that computes them."""
    k, bias = w.shape[2], b.normal(w.shape[0])
    side = (x.shape[2] - 1) // stride + 1
    shape = (x.shape[0], w.shape[0], side, side)
    length = 4 if shape == x.shape else 1
    pads = ((k // 2, k // 2),) * 2
    current = last(x.shape) if x.shape[1] > 4 else aligned(x.shape)
    current[...] = x
    outs = [last(shape), last(shape)]
    problem = ConvProblem(
        layout_of(current), layout_of(outs[0]), (k, k), (stride,) * 2, (1, 1), pads, groups
    )
    regs = b.registers
    if is_depthwise(problem):
        kind = "depthwise"
        call, weights = depthwise_call(regs, problem, low=0), aligned((k * k, w.shape[0]))
        weights[...] = w.reshape(w.shape[0], -1).T
    elif winograd_wins(problem, regs):
        kind = "winograd"
        call, floats = winograd_call(regs, problem, low=0), winograd_weights_size(problem, regs)
        weights = b.packed("winograd", winograd_weights_call(problem, regs), w, floats)
    else:
        kind, order = "direct", window_order(problem.x, problem.kernel, groups)
        call, floats = conv_call(regs, problem, order, low=0), packed_weights(regs, problem)
        pack = pack_call(weight_layout(layout_of(w), groups, order), regs)
        weights = b.packed("gemm", pack, w, floats)
    family = "conv" if kind == "direct" else kind
    calls: list[Call] = []
    nodes, name = [], "x"
    for i in range(length):
        calls.append((family, call, (current, weights, outs[i % 2], bias, None)))
        current, after = outs[i % 2], "out" if i == length - 1 else f"y{i}"
        conv: dict[str, Any] = {"pads": [k // 2] * 4, "strides": [stride] * 2, "group": groups}
        nodes.append(helper.make_node("Conv", [name, "w", "b"], [f"c{i}"], **conv))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [after]))
        name = after
    flops = 2.0 * length * np.prod(shape) * w[0].size
    case = Case("", b.native(calls), {"ort": b.ort(nodes, x, {"w": w, "b": bias})}, float(flops))
    return case, kind


def convs(b: Bench) -> Iterator[Case]:
    """Yield convolutions of well-known models."""
    for name, images, channels, outputs, side, k, stride in CONVS:
        x, w = b.normal(images, channels, side, side), b.normal(outputs, channels, k, k)
        case, kind = chain(b, x, w / np.float32(k * channels**0.5), stride, 1)
        title = f"{name} {images}x{channels}->{outputs}x{side} {kind}"
        yield Case(title, case.ours, case.others, case.flops)


def depthwise(b: Bench) -> Iterator[Case]:
    """Yield depthwise convolutions."""
    for channels, side, k, stride in DEPTHWISE:
        x, w = b.normal(1, channels, side, side), b.normal(channels, 1, k, k)
        case, _ = chain(b, x, w / np.float32(k), stride, channels)
        title = f"{k}x{k} stride {stride} {channels}x{side}"
        yield Case(title, case.ours, case.others, case.flops)


GROUPS: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "gemm": gemms,
    "conv": convs,
    "depthwise": depthwise,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("regex", nargs="?", default="", help="only these cases")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    args = parser.parse_args(argv)
    found = library()
    if found is None:
        parser.error("there are no native kernels")
    bench = Bench(args.threads, found, np.random.default_rng(0))
    table = Table("case", "us", "GFLOP/s", "ort")
    for group, cases in GROUPS.items():
        for case in cases(bench):
            title = f"{group}: {case.name}"
            if not re.search(args.regex, title):
                continue
            times = measure(case, args.turns)
            ours = times["ours"]
            ratio = times["ort"] / ours
            table.add_row(
                title, f"{ours * 1e6:.1f}", f"{case.flops / ours / 1e9:.0f}", f"{ratio:.2f}x"
            )
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
