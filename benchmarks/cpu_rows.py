"""Native kernels over rows and windows against onnxruntime, in interleaved turns of one process.

    python benchmarks/cpu_rows.py [REGEX] [--threads N] [--turns N]

Each row is one operation at sizes of real models. Columns: our median time, GFLOP/s or GB/s,
and how many times longer onnxruntime takes (with an io binding, spinning off), NumPy beside.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(HERE.parent))

from kn_cpu.attention import attention_call  # noqa: E402
from kn_cpu.axes import KernelCall  # noqa: E402
from kn_cpu.copy import copy_call  # noqa: E402
from kn_cpu.gather import gather_call  # noqa: E402
from kn_cpu.native import STEP, library  # noqa: E402
from kn_cpu.norm import norm_call  # noqa: E402
from kn_cpu.pool import pool_call  # noqa: E402
from kn_cpu.reduce import arg_reduce_call, reduce_call  # noqa: E402
from kn_cpu.resize import SPATIAL, resize_call, resize_tables, resize_taps  # noqa: E402
from kn_cpu.softmax import softmax_call  # noqa: E402
from kn_graph.dtype import DType  # noqa: E402
from kn_graph.ops.attention import Attention  # noqa: E402
from kn_graph.ops.gather import Gather  # noqa: E402
from kn_graph.ops.norm import Norm, Softmax  # noqa: E402
from kn_graph.ops.pool import Pool, PoolFunction  # noqa: E402
from kn_graph.ops.reduce import ArgReduce, ReduceFn  # noqa: E402
from kn_graph.ops.resize import Resize, ResizeMode  # noqa: E402
from kn_plan.layout import StridedLayout  # noqa: E402

Array = np.ndarray[Any, Any]
Action = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One operation.

    Attributes:
        name: what it is.
        ours: the native kernel.
        others: what it is compared with.
        flops: floating point operations, or 0.
        nbytes: bytes that are read and written, or 0.
    """

    name: str
    ours: Action
    others: Mapping[str, Action]
    flops: float = 0
    nbytes: float = 0


@dataclass(frozen=True)
class Bench:
    """How everything runs.

    Attributes:
        threads: of both.
        rng: for operands.
    """

    threads: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def normal(self, *shape: int) -> Array:
        """Return random float32 numbers."""
        return self.rng.standard_normal(shape, np.float32)

    def native(self, family: str, call: KernelCall, *operands: Array | None) -> Action:
        """Return a native step."""
        found = library()
        assert found is not None
        run = found.kernel(family, call.kernel)
        step = (run, 0, 0, int(call.units), call.grain, int(call.scratch))
        steps = np.array([step], STEP)
        numbers = np.array([int(n) for n in call.numbers], np.int64)
        pointers = np.array([0 if x is None else _address(x) for x in operands], np.int64)
        keep = operands

        def act() -> object:
            found.run(steps, numbers, pointers, self.threads)
            return keep

        return act

    def ort(
        self, nodes: Sequence[Any], inputs: Mapping[str, Array], dtype: Any = np.float32
    ) -> Action:
        """Return a run of a small model with an io binding."""
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in inputs.items()
        ]
        result = helper.make_tensor_value_info(
            "out", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None
        )
        graph = helper.make_graph(list(nodes), "g", given, [result])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        for name, x in inputs.items():
            binding.bind_cpu_input(name, x)
        binding.bind_output("out", "cpu")
        return lambda: session.run_with_iobinding(binding)


def _address(x: Array) -> int:
    return int(x.__array_interface__["data"][0])


def _layout(x: Array) -> StridedLayout:
    return StridedLayout(x.shape, tuple(s // x.itemsize for s in x.strides))


def node(kind: str, inputs: str, out: str = "out", domain: str = "", **attributes: Any) -> Any:
    """Return an ONNX node; inputs as words."""
    return helper.make_node(kind, inputs.split(), [out], domain=domain, **attributes)


# ---- cases ----------------------------------------------------------------------------------


def attentions(b: Bench) -> Iterator[Case]:
    """Yield attention of an encoder, a long one, with a mask, causal, and decoding."""
    for name, batch, heads, s, t, d, kind in (
        ("bert_mini", 1, 4, 128, 128, 64, "full"),
        ("bert", 1, 12, 128, 128, 64, "full"),
        ("bert", 8, 12, 128, 128, 64, "full"),
        ("bert mask", 8, 12, 128, 128, 64, "mask"),
        ("vit", 1, 12, 197, 197, 64, "full"),
        ("vit_tiny", 1, 3, 197, 197, 64, "full"),
        ("long", 1, 12, 1024, 1024, 64, "full"),
        ("gpt2", 1, 12, 512, 512, 64, "causal"),
        ("whisper", 1, 6, 1500, 1500, 64, "full"),
        ("sd_unet", 1, 8, 1024, 1024, 40, "full"),
        ("sd cross", 1, 8, 1024, 77, 40, "full"),
        ("wide heads", 1, 16, 256, 256, 128, "full"),
        ("decode", 1, 12, 1, 512, 64, "full"),
        ("decode", 1, 32, 1, 2048, 128, "full"),
        ("decode 4", 1, 12, 4, 512, 64, "full"),
    ):
        q, k, v = (b.normal(batch, n, heads, d) for n in (s, t, t))
        out = np.empty_like(q)
        turned = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
        if name.startswith("decode"):  # a cache has its heads outside
            turned[1:] = map(np.ascontiguousarray, turned[1:])
        view = out.transpose(0, 2, 1, 3)
        op = Attention(right=0 if kind == "causal" else None)
        bias = np.zeros((batch, 1, 1, t), np.float32) if kind == "mask" else None
        wide = None if bias is None else np.broadcast_to(bias, (batch, heads, s, t))
        call = attention_call(
            op, _layout(view), _layout(turned[0]), _layout(turned[1]), _layout(turned[2]),
            None if wide is None else _layout(wide),
            None if wide is None else DType.FLOAT32,
        )  # fmt: skip
        ours = b.native("attention", call, view, *turned, wide, None)
        flat = {n: x.reshape(batch, -1, heads * d) for n, x in zip("qkv", (q, k, v), strict=True)}
        fused: dict[str, Any] = {"num_heads": heads, "domain": "com.microsoft"}
        names = "q k v"
        if kind == "causal":
            fused["unidirectional"] = 1
        if bias is not None:
            flat["bias"] = np.ascontiguousarray(np.broadcast_to(bias, (batch, 1, s, t)))
        inputs = ["q", "k", "v", "", "", "bias"] if bias is not None else names.split()
        mha = helper.make_node("MultiHeadAttention", inputs, ["out"], **fused)
        # keys are turned and the scale is in the queries already: less than a model would do
        plain = {"q": np.ascontiguousarray(turned[0]), "v": np.ascontiguousarray(turned[2]),
                 "k": np.ascontiguousarray(turned[1].swapaxes(2, 3))}  # fmt: skip
        nodes = [node("MatMul", "q k", "s"), node("Softmax", "s", "w"), node("MatMul", "w v")]
        if kind != "full":
            plain["m"] = np.zeros((1, 1, s, t), np.float32)
            nodes[1:2] = [node("Add", "s m", "a"), node("Softmax", "a", "w")]
        yield Case(
            f"{name} {batch}x{heads}x{s}x{t}x{d}", ours,
            {"ort": b.ort([mha], flat), "ort nodes": b.ort(nodes, plain)},
            flops=4.0 * batch * heads * s * t * d * (0.5 if kind == "causal" else 1),
        )  # fmt: skip


def copies(b: Bench) -> Iterator[Case]:
    """Yield changes of layout."""
    for name, shape, axes in (
        ("contiguous", (64, 56, 56), (0, 1, 2)),
        ("to channels last", (1, 64, 56, 56), (0, 2, 3, 1)),
        ("to channels last", (1, 512, 7, 7), (0, 2, 3, 1)),
        ("image to channels last", (1, 3, 224, 224), (0, 2, 3, 1)),
        ("to channels first", (1, 56, 56, 64), (0, 3, 1, 2)),
        ("heads outside", (1, 384, 12, 64), (0, 2, 1, 3)),
        ("turned keys", (1, 384, 12, 64), (0, 2, 3, 1)),
        ("matrix", (1024, 1024), (1, 0)),
        ("windows", (1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
        ("pixel shuffle", (1, 16, 2, 2, 64, 64), (0, 1, 4, 2, 5, 3)),
    ):
        x = b.normal(*shape)
        view = x.transpose(axes)
        out = np.empty(view.shape, np.float32)
        ours = b.native("copy", copy_call(_layout(out), _layout(view), 4), out, view)
        ort = b.ort([node("Transpose", "x", perm=axes)], {"x": x})
        numpy: dict[str, Action] = {"numpy": partial(np.copyto, out, view)}
        yield Case(
            f"{name} {'x'.join(map(str, shape))}", ours, {"ort": ort, **numpy}, 0, 2 * x.nbytes
        )


def norms(b: Bench) -> Iterator[Case]:
    """Yield normalisations with scale and bias."""
    for shape in ((1, 128, 256), (1, 197, 192), (8, 128, 768), (1, 1500, 384), (1, 49, 768)):
        x, scale, bias = b.normal(*shape), b.normal(shape[-1]), b.normal(shape[-1])
        out, wide = np.empty_like(x), [np.broadcast_to(a, x.shape) for a in (scale, bias)]
        call = norm_call(Norm((2,), 1e-5), *map(_layout, (out, x, *wide)))
        ours = b.native("norm", call, out, x, *wide, None)
        inputs = {"x": x, "s": scale, "b": bias}
        ort = b.ort([node("LayerNormalization", "x s b", axis=-1, epsilon=1e-5)], inputs)
        yield Case(f"layer {shape}", ours, {"ort": ort}, 0, 2 * x.nbytes)
    for planes in ((1, 64, 56, 56), (1, 320, 64, 64)):
        scale, bias = b.normal(planes[1], 1, 1), b.normal(planes[1], 1, 1)
        for where in ("first", "last"):
            x = b.normal(*planes)
            ort = b.ort(
                [node("InstanceNormalization", "x s b")],
                {"x": x, "s": scale.reshape(-1), "b": bias.reshape(-1)},
            )
            if where == "last":
                x = _channels_last(x)
            out, wide = np.empty_like(x), [np.broadcast_to(a, x.shape) for a in (scale, bias)]
            call = norm_call(Norm((2, 3), 1e-5), *map(_layout, (out, x, *wide)))
            ours = b.native("norm", call, out, x, *wide, None)
            yield Case(f"instance {planes} channels {where}", ours, {"ort": ort}, 0, 2 * x.nbytes)
    for order in ((0, 1, 2, 3), (0, 2, 3, 1)):
        x = np.ascontiguousarray(b.normal(1, 320, 64, 64).transpose(order))
        x = x.transpose([order.index(a) for a in range(4)])
        out = np.empty_like(x)
        split = (1, 32, 10, 64, 64)
        layouts = [_layout(a).view(split).layout for a in (out, x)]
        assert layouts[0] is not None
        assert layouts[1] is not None
        call = norm_call(Norm((2, 3, 4), 1e-5), layouts[0], layouts[1])
        ours = b.native("norm", call, out, x, None, None, None)
        inputs = {"x": np.ascontiguousarray(x).reshape(1, 32, -1),
                  "s": np.ones(32, np.float32), "b": np.zeros(32, np.float32)}  # fmt: skip
        ort = b.ort([node("InstanceNormalization", "x s b")], inputs)
        yield Case(f"group 32 of 320x64x64 {order}", ours, {"ort": ort}, 0, 2 * x.nbytes)


def softmaxes(b: Bench) -> Iterator[Case]:
    """Yield softmax over rows and over channels."""
    for shape, axis in (
        ((1, 1000), 1), ((64, 1000), 1), ((12, 128, 128), 2), ((12, 197, 197), 2),
        ((8, 512, 512), 2), ((1, 128, 30522), 2), ((1, 21, 128, 128), 1), ((8400, 4, 16), 2),
    ):  # fmt: skip
        x = b.normal(*shape)
        out = np.empty_like(x)
        for kind in ("Softmax", "LogSoftmax"):
            op = Softmax(axis, kind == "LogSoftmax")
            ours = b.native("softmax", softmax_call(op, _layout(out), _layout(x)), out, x)
            ort = b.ort([node(kind, "x", axis=axis)], {"x": x})
            yield Case(f"{kind} {shape} axis {axis}", ours, {"ort": ort}, 0, 2 * x.nbytes)


def reductions(b: Bench) -> Iterator[Case]:
    """Yield reductions over rows, columns and planes."""
    names: dict[ReduceFn, str] = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}
    for fn, shape, axes in (
        ("mean", (1, 2048, 7, 7), (2, 3)), ("mean", (8, 7, 7, 2048), (1, 2)),
        ("mean", (1, 96, 112, 112), (2, 3)), ("mean", (8, 128, 768), (1,)),
        ("sum", (1024, 1024), (1,)), ("sum", (1024, 1024), (0,)), ("max", (1024, 1024), (1,)),
        ("max", (1024, 1024), (0,)), ("sum", (1024, 1024), (0, 1)), ("mean", (8, 512, 4), (2,)),
    ):  # fmt: skip
        x = b.normal(*shape)
        out = np.empty([n for a, n in enumerate(shape) if a not in axes], np.float32)
        call = reduce_call(fn, DType.FLOAT32, _layout(out), _layout(x), axes)  # type: ignore[arg-type]
        ours = b.native("reduce", call, out, x)
        inputs = {"x": x}
        if fn == "sum":
            inputs["a"] = np.array(axes, np.int64)
            made = node("ReduceSum", "x a", keepdims=0)
        else:
            made = node(names[fn], "x", axes=axes, keepdims=0)  # type: ignore[index]
        yield Case(f"{fn} {shape} over {axes}", ours, {"ort": b.ort([made], inputs)}, 0, x.nbytes)
    for shape, axis in (((64, 1000), 1), ((1, 21, 256, 256), 1), ((128, 30522), 1)):
        x = b.normal(*shape)
        out = np.empty([n for a, n in enumerate(shape) if a != axis], np.int64)
        call = arg_reduce_call(ArgReduce(axis, True), DType.FLOAT32, _layout(out), _layout(x))
        ort = b.ort([node("ArgMax", "x", axis=axis, keepdims=0)], {"x": x}, np.int64)
        yield Case(
            f"argmax {shape} axis {axis}",
            b.native("reduce", call, out, x),
            {"ort": ort},
            0,
            x.nbytes,
        )


def pools(b: Bench) -> Iterator[Case]:
    """Yield pooling in both orders of axes; onnxruntime has channels first."""
    kinds: dict[PoolFunction, str] = {"max": "MaxPool", "mean": "AveragePool"}
    for fn, shape, kernel, stride, pad in (
        ("max", (1, 64, 112, 112), 3, 2, 1), ("max", (8, 64, 112, 112), 3, 2, 1),
        ("max", (1, 64, 80, 80), 2, 2, 0), ("max", (1, 256, 20, 20), 5, 1, 2),
        ("mean", (1, 128, 56, 56), 2, 2, 0), ("mean", (1, 192, 35, 35), 3, 1, 1),
    ):  # fmt: skip
        op = Pool(fn, (kernel,) * 2, (stride,) * 2, (1, 1), ((pad, pad),) * 2)  # type: ignore[arg-type]
        first = b.normal(*shape)
        options: dict[str, Any] = {
            "kernel_shape": (kernel,) * 2,
            "strides": (stride,) * 2,
            "pads": (pad,) * 4,
        }
        ort = b.ort([node(kinds[fn], "x", **options)], {"x": first})  # type: ignore[index]
        size = (shape[2] + 2 * pad - kernel) // stride + 1
        for order in ("first", "last"):
            x, out = first, np.empty((*shape[:2], size, size), np.float32)
            if order == "last":
                x, out = map(_channels_last, (x, out))
            ours = b.native("pool", pool_call(op, _layout(out), _layout(x)), out, x)
            title = f"{fn} {kernel}/{stride} {shape} channels {order}"
            yield Case(title, ours, {"ort": ort}, 0, x.nbytes + out.nbytes)


def gathers(b: Bench) -> Iterator[Case]:
    """Yield embeddings and columns."""
    for shape, count, axis in (
        ((30522, 256), (1, 128), 0),
        ((30522, 768), (8, 128), 0),
        ((512, 512), (64,), 1),
    ):
        x, indices = b.normal(*shape), b.rng.integers(0, shape[axis], count)
        out = np.take(x, indices, axis)
        status = np.zeros(3, np.int64)
        call = gather_call(
            Gather(axis), *map(_layout, (out, x, indices)),
            dtype=DType.FLOAT32, index_dtype=DType.INT64,
        )  # fmt: skip
        ours = b.native("gather", call, out, x, indices, status)
        others: dict[str, Action] = {
            "ort": b.ort([node("Gather", "x i", axis=axis)], {"x": x, "i": indices}),
            "numpy": partial(np.take, x, indices, axis, out),
        }
        yield Case(f"{shape} at {count} axis {axis}", ours, others, 0, 2 * out.nbytes)


def resizes(b: Bench) -> Iterator[Case]:
    """Yield upsampling in both orders of axes; onnxruntime has channels first."""
    modes: tuple[ResizeMode, ...] = ("nearest", "linear")
    for mode in modes:
        for shape in ((1, 256, 20, 20), (1, 64, 80, 80)):
            first = b.normal(*shape)
            sizes = (shape[2] * 2, shape[3] * 2)
            coordinates: Any = "asymmetric" if mode == "nearest" else "half_pixel"
            op = Resize((2, 3), sizes, mode=mode, coordinates=coordinates, nearest="floor")
            axes = (resize_tables(op, axis, shape[2:], sizes) for axis in range(SPATIAL))
            tables = [table for axis in axes for table in axis]
            taps = resize_taps(op, shape[2:], sizes)
            scales = np.array([1, 1, 2, 2], np.float32)
            rule = {"nearest_mode": "floor"} if mode == "nearest" else {}
            made = helper.make_node(
                "Resize", ["x", "", "s"], ["out"], mode=mode,
                coordinate_transformation_mode=coordinates, **rule,
            )  # fmt: skip
            ort = b.ort([made], {"x": first, "s": scales})
            for order in ("first", "last"):
                x, out = first, np.empty((*shape[:2], *sizes), np.float32)
                if order == "last":
                    x, out = map(_channels_last, (x, out))
                call = resize_call(op, _layout(out), _layout(x), taps)
                ours = b.native("resize", call, out, x, *tables)
                title = f"{mode} {shape} channels {order}"
                yield Case(title, ours, {"ort": ort}, 0, x.nbytes + out.nbytes)


def _channels_last(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


GROUPS: dict[str, Callable[[Bench], Iterator[Case]]] = {
    "copy": copies,
    "norm": norms,
    "softmax": softmaxes,
    "reduce": reductions,
    "attention": attentions,
    "pool": pools,
    "gather": gathers,
    "resize": resizes,
}


def measure(case: Case, turns: int) -> dict[str, float]:
    """Return the median seconds of everything in a case, by name."""
    actions = {"ours": case.ours, **case.others}
    repeats: dict[str, int] = {}
    for name, action in actions.items():
        action()
        start = time.perf_counter()
        action()
        once = max(time.perf_counter() - start, 1e-7)
        repeats[name] = max(1, min(200, round(2e-3 / once)))
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(turns):
        for name, action in actions.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                action()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("regex", nargs="?", default="", help="only these cases")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    args = parser.parse_args(argv)
    bench, console = Bench(args.threads), Console(width=120)
    table = Table("case", "us", "GFLOP/s", "GB/s", "ort", "ort nodes", "numpy")
    for group, cases in GROUPS.items():
        for case in cases(bench):
            title = f"{group}: {case.name}"
            if not re.search(args.regex, title):
                continue
            found = measure(case, args.turns)
            ours = found["ours"]
            rates = (f"{n / ours / 1e9:.1f}" if n else "" for n in (case.flops, case.nbytes))
            others = (
                f"{found[n] / ours:.2f}x" if n in found else ""
                for n in ("ort", "ort nodes", "numpy")
            )
            table.add_row(title, f"{ours * 1e6:.1f}", *rates, *others)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
