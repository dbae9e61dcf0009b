"""Convolutions of plans: which kernels compute them, what follows them in the same kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from kn_cpu.bound import bind_stage
from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_cpu.program import NativeRun
from kn_cpu.winograd import ERROR_FACTOR
from kn_graph import Graph, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.binding import bind_symbols

KERNELS = library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

CHANNELS, SIDE = 64, 24


def graph_of(body: str, kernel: int = 3, groups: int = 1) -> Graph:
    """Return y = body(c), c = conv(x, w, b), where all channels lie side by side."""
    rng = np.random.default_rng(0)
    pads = ", ".join([str(kernel // 2)] * 4)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[N, H, W, {CHANNELS}] xs, float[N, H, W, {CHANNELS}] rs,
           float[N, {CHANNELS}, 1, 1] s) => (float[N, H, W, {CHANNELS}] ys)
        <float six = {{6.0}}, float low = {{-0.5}}>
        {{
            x = Transpose <perm = [0, 3, 1, 2]> (xs)
            r = Transpose <perm = [0, 3, 1, 2]> (rs)
            c = Conv <pads = [{pads}], group = {groups}> (x, w, b)
            {body}
            ys = Transpose <perm = [0, 2, 3, 1]> (y)
        }}"""
    )
    shape = (CHANNELS, CHANNELS // groups, kernel, kernel)
    w = rng.standard_normal(shape, np.float32) / np.float32(shape[1] ** 0.5 * kernel)
    for name, x in (("w", w), ("b", rng.standard_normal(CHANNELS, np.float32))):
        model.graph.initializer.append(numpy_helper.from_array(x, name))
    return optimize_graph(load_graph_from_onnx_bytes(model.SerializeToString()))


def feeds(images: int, side: int = SIDE) -> dict[str, Any]:
    rng = np.random.default_rng(images)
    x, r = (rng.standard_normal((images, side, side, CHANNELS), np.float32) for _ in range(2))
    return {"xs": x, "rs": r, "s": rng.standard_normal((images, CHANNELS, 1, 1), np.float32)}


def executor(graph: Graph, **options: Any) -> CpuExecutor:
    assert KERNELS is not None
    return CpuExecutor(graph, KERNELS, 2, **options)


def kernels(run: CpuExecutor) -> list[str]:
    """Return the names of the kernels of all calls but copies."""
    assert not run.skeleton().host_steps
    segments = [s for stage in run.skeleton().stages for s in stage.segments]
    calls = [c for s in segments if isinstance(s, NativeRun) for c in s.calls]
    return [c.call.kernel for c in calls if c.family != "copy"]


def error(graph: Graph, run: CpuExecutor, given: dict[str, Any]) -> float:
    (got,), (want,) = run.eval(given).values(), cpu_eval_graph(graph, given).values()
    return float(abs(got - want).max() / abs(want).max())


def test_sizes_choose_between_kernels_when_they_are_bound() -> None:
    graph = graph_of("y = Relu(c)")
    run = executor(graph)
    names = kernels(run)
    assert names == ["conv_f32", "winograd_tiles_f32", "winograd_f32", "winograd_f32"]
    for images, side, chosen in ((1, 3, [0]), (2, 24, [1, 2]), (1, 2, [0]), (4, 64, [3])):
        given = feeds(images, side)
        assert error(graph, run, given) < 1e-6 * ERROR_FACTOR
        env = bind_symbols(graph.inputs, list(given.values()))
        (stage,) = run.skeleton().stages
        units = bind_stage(run.skeleton(), stage, env).runs[0].steps["units"]
        assert [i for i, n in enumerate(units[: len(names)].tolist()) if n] == chosen


@pytest.mark.parametrize(("images", "side"), [(1, 3), (2, 24), (4, 64)])
def test_every_choice_gives_the_same_bits_with_any_number_of_threads(
    images: int, side: int
) -> None:
    assert KERNELS is not None
    graph, given = graph_of("d = Sigmoid(c) y = Mul(c, d)"), feeds(images, side)
    one, *others = (CpuExecutor(graph, KERNELS, n).eval(given)["ys"] for n in (1, 2, 5))
    for other in others:
        np.testing.assert_array_equal(other, one)


def test_strict_leaves_the_less_exact_kernel_out() -> None:
    graph = graph_of("y = Relu(c)")
    run = executor(graph, strict=True)
    assert kernels(run) == ["conv_f32"]
    assert error(graph, run, feeds(2)) < 1e-6


BEHIND = {
    "relu6": "d = Relu(c) y = Min(d, six)",
    "two bounds": "d = Max(c, low) y = Min(d, six)",
    "residual": "d = Add(c, r) y = Relu(d)",
    "residual behind": "d = Relu(c) y = Add(d, r)",
    "silu": "d = Sigmoid(c) y = Mul(c, d)",
    "silu, residual": "d = Sigmoid(c) e = Mul(c, d) y = Add(e, r)",
    "hard swish": "y = HardSwish(c)",
    "leaky relu": "y = LeakyRelu <alpha = 0.1> (c)",
    "clamp, silu": "d = Relu(c) e = Sigmoid(d) y = Mul(d, e)",
    "two operands": "d = Add(r, r) e = Exp(d) f = Add(c, e) y = Relu(f)",
}


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 1), (3, CHANNELS)])
@pytest.mark.parametrize("name", BEHIND)
def test_what_follows_is_computed_in_the_same_kernel(name: str, kernel: int, groups: int) -> None:
    graph = graph_of(BEHIND[name], kernel, groups)
    run = executor(graph, strict=True)
    assert kernels(run) == ["depthwise_f32" if groups > 1 else "conv_f32"]
    for images in (1, 3):
        assert error(graph, run, feeds(images)) < 2e-6


@pytest.mark.parametrize("groups", [1, CHANNELS])
def test_what_repeats_along_pixels_follows_in_a_kernel_of_its_own(groups: int) -> None:
    graph = graph_of("d = Sigmoid(s) e = Relu(c) y = Mul(e, d)", 3, groups)
    run = executor(graph, strict=True)
    for images in (1, 3):
        assert error(graph, run, feeds(images)) < 2e-6


def channels_first(groups: int, behind: str = "y = Relu(c)") -> Graph:
    """Return y = body(conv(x, w)) over tensors whose pixels lie side by side."""
    rng = np.random.default_rng(1)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[N, {CHANNELS}, H, W] x) => (float[N, {CHANNELS}, H, W] y)
        {{ c = Conv <pads = [1, 1, 1, 1], group = {groups}> (x, w) {behind} }}"""
    )
    w = rng.standard_normal((CHANNELS, CHANNELS // groups, 3, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return optimize_graph(load_graph_from_onnx_bytes(model.SerializeToString()))


@pytest.mark.parametrize(("groups", "kernel"), [(1, "conv_f32"), (CHANNELS, "depthwise_f32")])
@pytest.mark.parametrize("behind", ["y = Relu(c)", "s = Sigmoid(c) y = Mul(c, s)"])
def test_pixels_side_by_side_are_turned_for_the_kernels(
    groups: int, kernel: str, behind: str
) -> None:
    graph = channels_first(groups, behind)
    run = executor(graph, strict=True)
    assert kernel in kernels(run)
    rng = np.random.default_rng(0)
    for shape in ((1, CHANNELS, 5, 7), (2, CHANNELS, 9, 4)):
        given = {"x": rng.standard_normal(shape, np.float32)}
        assert error(graph, run, given) < 2e-6


@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (0, 1, 2, 3)], ids=["channels last", "first"])
@pytest.mark.parametrize("back", [(0, 2, 3, 1), (0, 1, 2, 3)], ids=["channels last", "first"])
@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_pools_write_another_layout_than_they_read(
    pool: str, perm: tuple[int, ...], back: tuple[int, ...]
) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[A, B, C, D] xs) => (float[I, J, K, L] y)
        {{
            x = Transpose <perm = {list(perm)}> (xs)
            p = {pool} <kernel_shape = [2, 3], strides = [2, 1]> (x)
            y = Transpose <perm = {list(back)}> (p)
        }}"""
    )
    graph = load_graph_from_onnx_bytes(model.SerializeToString())
    run = executor(optimize_graph(graph))
    rng = np.random.default_rng(0)
    for sizes in ((2, 5, 6, 20), (1, 4, 7, 3)):
        given = {"xs": rng.standard_normal(sizes, np.float32)}
        assert error(graph, run, given) < 1e-6


UNKNOWN = {
    "a symbol": "c = Conv <group = {groups}> (x, w)",
    "what a reshape leaves": "s = Constant <value_ints = [0, -1, 8, 8]> () r = Reshape(x, s) "
    "c = Conv <group = {groups}> (r, w)",
    "bytes": "z = Constant <value = uint8 {{3}}> () f = Constant <value = float {{0.1}}> () "
    "q = QuantizeLinear(x, f, z) d = ConvInteger <group = {groups}> (q, v, z) "
    "c = Cast <to = 1> (d)",
}


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("name", UNKNOWN)
def test_weights_tell_how_many_channels_there_are(name: str, groups: int) -> None:
    # where exporters were told that all axes may vary
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[N, C, H, W] x) => (float[N, 6, P, Q] ys)
        {{ {UNKNOWN[name].format(groups=groups)} ys = Relu(c) }}"""
    )
    w = rng.standard_normal((6, 6 // groups, 3, 3), np.float32)
    for title, array in (("w", w), ("v", (w * 20).astype(np.int8))):
        model.graph.initializer.append(numpy_helper.from_array(array, title))
    graph = optimize_graph(load_graph_from_onnx_bytes(model.SerializeToString()))
    given = {"x": rng.standard_normal((2, 6, 8, 8), np.float32)}
    run = executor(graph, strict=True)
    assert kernels(run)
    assert error(graph, run, given) < 1e-6
