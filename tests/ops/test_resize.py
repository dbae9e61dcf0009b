"""Resizing: every coordinate rule with every mode, sizes that are symbols, old opsets."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph.graph import Graph
from kn_graph.interpolation import simplest_fraction, source_positions
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.resize import Resize
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    feeds_of,
    node_model,
    run_here,
    run_onnxruntime,
)

F32 = np.float32
COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
MODES: list[dict[str, Any]] = [
    *({"mode": "nearest", "nearest_mode": n} for n in NEAREST),
    {"mode": "linear"},
    {"mode": "linear", "antialias": 1},
    {"mode": "linear", "antialias": 1, "exclude_outside": 1},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1},
    {"mode": "cubic", "antialias": 1, "exclude_outside": 1},
]
ROI = np.array([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.3], F32)


def random(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def resize_inputs(x: Any, scales: Any = None, sizes: Any = None, roi: Any = None) -> dict[str, Any]:
    return {
        "x": x,
        "roi": roi,
        "scales": None if scales is None else np.array(scales, F32),
        "sizes": None if sizes is None else np.array(sizes, np.int64),
    }


def constants(inputs: dict[str, Any]) -> list[str]:
    return [n for n, a in inputs.items() if n != "x" and a is not None]


def resized(x: Any, **options: Any) -> Any:
    """Resize with constant scales, sizes and region."""
    inputs = resize_inputs(x, *(options.pop(n, None) for n in ("scales", "sizes", "roi")))
    options = {"opset": 19, "constant": constants(inputs), **options}
    (y,) = run_here(node_model("Resize", inputs, **options), inputs)
    return y


# ---- against onnxruntime --------------------------------------------------------------------

# the sizes avoid positions exactly between two elements that float32 quotients miss
TARGETS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 6), {"scales": (1, 1, 2, 2)}),
    ((2, 3, 4, 6), {"scales": (1, 1, 1.5, 0.75)}),
    ((2, 3, 4, 6), {"scales": (1, 1, 0.6, 2.7)}),
    ((2, 3, 4, 6), {"sizes": (2, 3, 13, 16)}),
    ((2, 3, 4, 6), {"sizes": (2, 3, 3, 1)}),
    ((1, 1, 5, 7), {"sizes": (1, 1, 8, 4)}),
    ((1, 2, 1, 9), {"scales": (1, 1, 1, 0.4)}),
]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", MODES, ids=lambda m: "-".join(map(str, m.values())))
def test_every_rule_and_mode_is_like_onnxruntime(mode: dict[str, Any], coordinates: str) -> None:
    options: Any = {"coordinate_transformation_mode": coordinates, "opset": 19, **mode}
    roi = None
    if coordinates == "tf_crop_and_resize":
        roi, options["extrapolation_value"] = ROI, 7.0
    for shape, target in TARGETS:
        inputs = resize_inputs(random(*shape), **target, roi=roi)
        assert_like_onnxruntime(
            "Resize", inputs, constant=constants(inputs), rtol=0, atol=2e-5, **options
        )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_strong_antialiased_shrinking_is_like_onnxruntime(mode: str) -> None:
    inputs = resize_inputs(random(1, 3, 64, 50), sizes=(1, 3, 7, 11))
    options: Any = {"mode": mode, "antialias": 1, "opset": 18, "constant": ["sizes"]}
    assert_like_onnxruntime("Resize", inputs, rtol=0, atol=1e-5, **options)


@pytest.mark.parametrize("opset", [11, 13, 18, 19])
def test_every_opset_with_scales_and_sizes(opset: int) -> None:
    x, empty = random(1, 2, 3, 4), np.array([], F32)
    for mode in ("nearest", "linear", "cubic"):
        scaled = resize_inputs(x, scales=(1, 1, 2, 1.5))
        sized = resize_inputs(x, sizes=(1, 2, 5, 6))
        if opset < 13:  # roi and scales were required, empty where they are not meant
            scaled["roi"], sized["roi"], sized["scales"] = empty, empty, empty
        for inputs in (scaled, sized):
            options: Any = {"opset": opset, "mode": mode, "constant": constants(inputs)}
            assert_like_onnxruntime("Resize", inputs, rtol=0, atol=1e-5, **options)


@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 0.5), (1, 1, 2, 0.5), (1, 1, 1.5, 1)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_opset_10_takes_the_nearest_below_or_above(mode: str, scales: tuple[float, ...]) -> None:
    inputs = {"x": random(1, 2, 4, 6), "scales": np.array(scales, F32)}
    options: Any = {"mode": mode, "opset": 10, "rtol": 0, "atol": 1e-6}
    assert_like_onnxruntime("Resize", inputs, constant=["scales"], **options)
    assert_like_onnxruntime("Resize", inputs, **options)  # scales only known at run time


def test_upsample_of_every_opset() -> None:
    x, scales = random(1, 2, 3, 4), np.array([1, 1, 2, 1.5], F32)
    for mode in ("nearest", "linear"):
        options: Any = {"mode": mode, "rtol": 0, "atol": 1e-6}
        assert_like_onnxruntime("Upsample", {"x": x}, opset=7, scales=scales.tolist(), **options)
        assert_like_onnxruntime("Upsample", {"x": x, "s": scales}, opset=9, **options)
    first: Any = {"height_scale": 2.0, "width_scale": 1.5}
    seventh: Any = {"scales": scales.tolist()}
    for old, new in (("nearest", "nearest"), ("bilinear", "linear")):
        got = run_here(node_model("Upsample", {"x": x}, opset=1, mode=old, **first), {"x": x})
        expected = run_here(
            node_model("Upsample", {"x": x}, opset=7, mode=new, **seventh), {"x": x}
        )
        assert_same(got, expected)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", [(2, 3), (3, 2), (3,), (1, 2)])
def test_axes_and_aspect_ratio(policy: str, axes: tuple[int, ...]) -> None:
    x = random(1, 2, 4, 6)
    for limits in ((7, 9), (3, 2), (8, 5)):
        inputs = resize_inputs(x, sizes=limits[: len(axes)])
        options: Any = {"keep_aspect_ratio_policy": policy, "opset": 18}
        assert_like_onnxruntime("Resize", inputs, constant=["sizes"], axes=list(axes), **options)
        # from the end; onnxruntime leaves such axes out of the policy
        y = resized(x, sizes=limits[: len(axes)], axes=[a - 4 for a in axes], **options)
        assert_same([y], [resized(x, sizes=limits[: len(axes)], axes=list(axes), **options)])


# ---- against the formulas -------------------------------------------------------------------


def position(mode: str, i: int, m: int, n: int, scale: Fraction) -> Fraction:
    """The ONNX text, literally."""
    half = Fraction(1, 2)
    if mode == "align_corners":
        return Fraction(i * (n - 1), m - 1) if m > 1 else Fraction(0)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_half_pixel_for_nn":
        return (i + half) / scale
    if mode == "pytorch_half_pixel" and m == 1:
        return Fraction(0)
    offset = Fraction(n, 2) * (1 - m / (scale * n)) if mode == "half_pixel_symmetric" else 0
    return offset + (i + half) / scale - half


def nearest_element(p: Fraction, rule: str, n: int) -> int:
    half = Fraction(1, 2)
    index = {
        "round_prefer_floor": lambda: ceil(p - half),
        "round_prefer_ceil": lambda: floor(p + half),
        "floor": lambda: floor(p),
        "ceil": lambda: ceil(p),
    }[rule]()
    return min(max(index, 0), n - 1)


SIZE = st.integers(1, 24)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(COORDINATES[:-1]), st.sampled_from(NEAREST), SIZE, SIZE,
    st.sampled_from([None, 0.6, 1.3, 2.5, 0.3]),
)  # fmt: skip
def test_the_nearest_element_is_exact(
    coordinates: str, rule: str, n: int, m: int, scale: float | None
) -> None:
    ratio = Fraction(m, n) if scale is None else simplest_fraction(float(F32(scale)))
    assert scale is None or ratio == Fraction(str(scale))
    g = Graph()
    x = g.input("x", "int64", [n])
    settings: Any = {"coordinates": coordinates, "nearest": rule}
    g.output("y", g.resize(x, [0], [m], None if scale is None else [scale], **settings))
    got = cpu_eval_graph(g, {"x": np.arange(n)})["y"]
    expected = [nearest_element(position(coordinates, i, m, n, ratio), rule, n) for i in range(m)]
    if m == n and ratio == 1:
        expected = list(range(n))  # an axis that keeps its size is copied
    assert got.tolist() == expected


def test_float32_quotients_do_not_decide_what_is_nearest() -> None:
    x = np.arange(14, dtype=F32).reshape(1, 1, 1, 14)
    options: Any = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    y = resized(x, sizes=(1, 1, 1, 16), **options)
    assert y.ravel().tolist() == [i * 14 // 16 for i in range(16)]
    inputs = resize_inputs(x, sizes=(1, 1, 1, 16))
    model = node_model("Resize", inputs, constant=["sizes"], opset=19, **options)
    assert run_onnxruntime(model, inputs)[0].ravel()[8] == 6.0  # and not 8 * 14/16 = 7


def dense(axis: int, x: Any, weights: Any) -> Any:
    return np.moveaxis(np.tensordot(weights, x, (1, axis)), 0, axis)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(5,), (4, 6, 5), (2, 3, 4, 5, 3)])
def test_any_number_of_axes(mode: str, shape: tuple[int, ...]) -> None:
    x = random(*shape, dtype=np.float64)
    sizes = [2 * n - 1 for n in shape]
    expected = x
    for axis, (n, m) in enumerate(zip(shape, sizes, strict=True)):
        weights = np.zeros((m, n))
        for i in range(m):
            p = float(position("half_pixel", i, m, n, Fraction(m, n)))
            for j in range(floor(p) - 1, floor(p) + 3):
                d = abs(j - p)
                weight = max(0.0, 1 - d)
                if mode == "cubic":
                    a = -0.75
                    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
                    weight = near if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
                weights[i, min(max(j, 0), n - 1)] += weight
        expected = dense(axis, expected, weights)
    np.testing.assert_allclose(resized(x, sizes=sizes, mode=mode), expected, atol=1e-12)


def test_align_corners_divides_by_the_size_that_is_made() -> None:
    # ONNX's test data divides by the size before rounding instead, unlike its text and onnxruntime
    x = np.array([[[[1, 2, 3, 4], [5, 6, 7, 8]]]], F32)
    options: Any = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    y = resized(x, scales=(1, 1, 0.6, 0.6), **options)
    assert_same([y], [np.array([[[[1, 4]]]], F32)])


def test_positions_are_affine() -> None:
    at = source_positions("tf_crop_and_resize", 16, 9, Fraction(16, 9), (-0.2, 1.3))
    assert (at.offset, at.step) == (Fraction(-8, 5), Fraction(4, 5))
    assert at.array(3)[2] == 0.0


# ---- which axes change ----------------------------------------------------------------------


def resizes(graph: Graph) -> list[Resize]:
    return [n.op for n in graph.nodes if isinstance(n.op, Resize)]


def test_axes_that_keep_their_size_are_not_touched() -> None:
    inputs = resize_inputs(random(2, 3, 4, 5), scales=(1, 1, 2, 1))
    options: Any = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "linear"}
    model = node_model("Resize", inputs, constant=["scales"], opset=11, **options)
    (op,) = resizes(load_graph_from_onnx_bytes(model))
    assert (op.axes, op.sizes) == ((2,), (8,))
    inputs = resize_inputs(random(2, 3, 4, 5), sizes=(2, 3, 4, 5))
    model = node_model("Resize", inputs, constant=["sizes"], opset=13, **options)
    assert not resizes(load_graph_from_onnx_bytes(model))


def test_an_axis_that_turns_out_to_keep_its_size_is_copied() -> None:
    x = random(1, 1, 3, 4)
    inputs = resize_inputs(x, sizes=(1, 1, 3, 8))
    options: Any = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "linear"}
    dynamic = node_model("Resize", inputs, opset=13, **options)
    fixed = node_model("Resize", inputs, opset=13, constant=["sizes"], **options)
    assert_same(run_here(dynamic, inputs), run_here(fixed, inputs))


def test_a_crop_of_an_axis_that_keeps_its_size() -> None:
    x = np.arange(5, dtype=F32)
    options: Any = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    y = resized(x, sizes=[5], roi=np.array([0.5, 1], F32), **options)
    np.testing.assert_allclose(y, [2, 2.5, 3, 3.5, 4])
    y = resized(x, sizes=[1], roi=np.array([0.5, 1], F32), **options)
    np.testing.assert_allclose(y, [3])


def test_the_region_of_interest_follows_the_axes() -> None:
    inputs = resize_inputs(random(1, 2, 6, 5), sizes=(4, 3), roi=np.array([0.2, 0, 0.8, 1], F32))
    options: Any = {"axes": [3, 2], "mode": "linear", "opset": 18}
    options["coordinate_transformation_mode"] = "tf_crop_and_resize"
    for constant in (["roi", "sizes"], ["sizes"], []):
        assert_like_onnxruntime("Resize", inputs, constant=constant, rtol=0, atol=1e-5, **options)


def test_run_time_scales_only_resize_what_may_change() -> None:
    x, scales = random(1, 2, 3, 4), np.array([2, 1.5], F32)
    inputs = {"x": x, "roi": None, "scales": scales}
    model = node_model("Resize", inputs, axes=[2, 3], opset=18)
    graph = load_graph_from_onnx_bytes(model)
    (op,) = resizes(graph)
    assert (op.axes, op.scales) == ((2, 3), "operand")
    (y,) = cpu_eval_graph(graph, feeds_of(graph, inputs)).values()
    assert_same([y], run_onnxruntime(model, inputs))
