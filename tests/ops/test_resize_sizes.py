"""Resizing: sizes that are symbols, element types, and what is refused."""

from __future__ import annotations

import itertools
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, KnError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_same,
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


# ---- symbolic sizes -------------------------------------------------------------------------


def symbolic_model(inputs: dict[str, Any], **options: Any) -> bytes:
    constant = [n for n in constants(inputs) if n not in options.pop("dynamic", ())]
    shape = (1, 2, "h", "w")
    return node_model("Resize", inputs, symbolic={"x": shape}, constant=constant, **options)


@pytest.mark.parametrize(
    ("scales", "shape"),
    [
        ((1, 1, 2, 2), lambda h, w: (2 * h, 2 * w)),
        ((1, 1, 0.5, 1), lambda h, w: (h // 2, w)),
        ((1, 1, 0.6, 1.5), lambda h, w: (3 * h // 5, 3 * w // 2)),
    ],
)
def test_rational_scales_give_formulas(scales: tuple[float, ...], shape: Any) -> None:
    for h, w in ((4, 6), (5, 7), (11, 3)):
        inputs = resize_inputs(random(1, 2, h, w), scales=scales)
        model = symbolic_model(inputs, mode="linear")
        graph = load_graph_from_onnx_bytes(model)
        sizes = shape(graph.symbols["h"], graph.symbols["w"])
        assert graph.outputs["y"].shape == (1, 2, *sizes)
        fixed = node_model("Resize", inputs, mode="linear", constant=["scales"])
        assert_same(run_here(model, inputs), run_here(fixed, inputs))
        assert_same(run_here(model, inputs), run_onnxruntime(model, inputs), rtol=0, atol=1e-5)


def test_a_scale_that_float32_rounds_down_is_multiplied_at_run_time() -> None:
    # 90 * 1.3f is 116.99999 in float32, and rounds down to 116 in every runtime
    inputs = resize_inputs(random(1, 2, 90, 4), scales=(1, 1, 1.3, 1))
    model = symbolic_model(inputs)
    assert run_here(model, inputs)[0].shape == (1, 2, 116, 4)
    assert run_onnxruntime(model, inputs)[0].shape == (1, 2, 116, 4)
    fixed = node_model("Resize", inputs, constant=["scales"])
    assert_same(run_here(model, inputs), run_here(fixed, inputs))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("name", ["scales", "sizes"])
def test_scales_and_sizes_only_known_at_run_time(name: str, mode: str) -> None:
    for numbers in ((1, 2, 3, 5), (1, 2, 8, 2)):
        x = random(1, 2, 4, 3)
        target: Any = {"sizes": numbers} if name == "sizes" else {"scales": (1, 1, 1.5, 0.7)}
        inputs = resize_inputs(x, **target)
        model = symbolic_model(inputs, mode=mode, dynamic=[name])
        assert_same(run_here(model, inputs), run_onnxruntime(model, inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_aspect_ratio_of_symbolic_sizes(policy: str) -> None:
    for h, w in ((4, 6), (9, 7), (3, 8)):
        inputs = resize_inputs(random(1, 2, h, w), sizes=(5, 6))
        options: Any = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
        fixed = node_model("Resize", inputs, constant=["sizes"], **options)
        for dynamic in ([], ["sizes"]):
            model = symbolic_model(inputs, dynamic=dynamic, **options)
            assert_same(run_here(model, inputs), run_here(fixed, inputs), rtol=0, atol=1e-6)


QUOTIENTS = """
<ir_version: 8, opset_import: ["" : 10]>
old (float[1, 2, h, w] x) => (float[a, b, c, d] y) {
    one = Constant<value_floats = [1.0, 1.0]>()
    two = Constant<value_ints = [3]>()
    start = Constant<value_ints = [2]>()
    end = Constant<value_ints = [4]>()
    shape = Shape(x)
    size = Slice(shape, start, end)
    wanted = Mul(size, two)
    float_wanted = Cast<to = 1>(wanted)
    float_size = Cast<to = 1>(size)
    quotient = Div(float_wanted, float_size)
    scales = Concat<axis = 0>(one, quotient)
    y = Resize<mode = "linear">(x, scales)
}
"""


def test_quotients_of_sizes_are_seen_through() -> None:
    """Exporters of opset 10 compute scales as new size over old size, both cast to floats."""
    model = onnx.parser.parse_model(QUOTIENTS).SerializeToString()
    graph = load_graph_from_onnx_bytes(model)
    h, w = graph.symbols["h"], graph.symbols["w"]
    assert graph.outputs["y"].shape == (1, 2, 3 * h, 3 * w)
    x = random(1, 2, 3, 5)
    inputs = {"x": x, "scales": np.array([1, 1, 3, 3], F32)}
    expected = run_here(node_model("Resize", inputs, opset=10, mode="linear"), inputs)
    assert_same(run_here(model, {"x": x}), expected)


# ---- element types --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_integers_are_rounded_and_saturate(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, limits.max, 3, 4], dtype)
    options: Any = {"coordinates": "align_corners", "mode": "linear"}
    y = run_builder(x, 9, **options)
    assert y.dtype == dtype
    assert y[2::2].tolist() == [limits.max, limits.max, 3, 4]
    assert y[7] == 4  # 3.5, to even
    y = run_builder(x, 9, **(options | {"mode": "cubic"}))
    assert y[3] == limits.max


def run_builder(x: Any, size: int, **options: Any) -> Any:
    g = Graph()
    given = g.input("x", DType.from_numpy(x.dtype), x.shape)
    g.output("y", g.resize(given, [0], [size], **options))
    return cpu_eval_graph(g, {"x": x})["y"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_narrow_floats_round_once(dtype: Any, mode: Any) -> None:
    x = random(20).astype(dtype)
    got = run_builder(x, 31, mode=mode)
    assert_same([got], [run_builder(x.astype(F32), 31, mode=mode).astype(dtype)])


def test_other_types_take_the_nearest() -> None:
    for x in (np.array(["a", "b"], object), np.array([True, False])):
        assert run_builder(x, 4).tolist() == np.repeat(x, 2).tolist()
        with pytest.raises(DTypeError, match="only nearest"):
            run_builder(x, 4, mode="linear")
    z = random(3) + 1j * random(3, seed=1)
    both = [run_builder(p.astype(F32), 5, mode="cubic") for p in (z.real, z.imag)]
    got = run_builder(z.astype(np.complex64), 5, mode="cubic")
    np.testing.assert_allclose(got, both[0] + 1j * both[1], rtol=1e-6)


def test_nan_spreads_to_what_has_it_as_a_neighbour() -> None:
    x = np.array([0, 1, np.nan, 3, 4, 5, 6], F32)
    y = run_builder(x, 13, mode="linear", coordinates="align_corners")
    assert np.isnan(y).tolist() == [False] * 2 + [True] * 4 + [False] * 7
    y = run_builder(x, 13, coordinates="align_corners")
    assert np.isnan(y).sum() == 2


def test_strides_and_empty_axes() -> None:
    x = random(2, 6, 5)[:, ::-2].transpose(2, 0, 1)
    assert_same([resized(x, sizes=(7, 2, 4), mode="linear")],
                [resized(np.ascontiguousarray(x), sizes=(7, 2, 4), mode="linear")])  # fmt: skip
    assert resized(random(0, 3), sizes=(0, 6)).shape == (0, 6)
    assert resized(random(2, 3), sizes=(2, 0)).shape == (2, 0)
    assert resized(random(2, 0), sizes=(4, 0)).shape == (4, 0)


def test_an_image_is_resized_within_a_second() -> None:
    x = random(1, 3, 640, 640)
    for mode in ("nearest", "linear", "cubic"):
        start = perf_counter()
        y = resized(x, scales=(1, 1, 1.5, 0.5), mode=mode, antialias=int(mode != "nearest"))
        assert y.shape == (1, 3, 960, 320)
        assert perf_counter() - start < 1.0


# ---- what is refused ------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"scales": (1, 1, 2, 2), "sizes": (1, 2, 8, 8)}, {}, "either scales or sizes"),
    ({}, {}, "either scales or sizes"),
    ({"scales": (1, 2, 2)}, {}, "3 scales for 4 axes"),
    ({"sizes": (8, 8)}, {}, "2 sizes for 4 axes"),
    ({"sizes": (8, 8)}, {"axes": [2, 4]}, "axis 4 does not exist"),
    ({"sizes": (8, 8)}, {"axes": [2, -2]}, "twice"),
    ({"scales": (1, 1, -2, 2)}, {}, "must be positive"),
    ({"scales": (1, 1, 2, 2)}, {"mode": "area"}, "'mode' must be one of"),
    ({"scales": (1, 1, 2, 2)}, {"nearest_mode": "simple"}, "'nearest_mode' must be one of"),
    (
        {"scales": (1, 1, 2, 2)},
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "needs a roi",
    ),
    (
        {"scales": (1, 1, 2, 2), "roi": np.array([0, 1], F32)},
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "roi of 4 axes",
    ),
    ({"sizes": (1, 2, 8, 8)}, {"antialias": 2}, "must be 0 or 1"),
    ({"sizes": (1, 2, 8, 8)}, {"antialias": 1, "opset": 13}, "'antialias' is not known"),
    ({"sizes": (1, 2, 8, 8)}, {"axes": [0], "opset": 11}, "'axes' is not known"),
]


@pytest.mark.parametrize(("target", "options", "text"), BAD, ids=lambda v: str(v)[:50])
def test_bad_nodes_are_refused_by_name(target: Any, options: Any, text: str) -> None:
    inputs = resize_inputs(random(1, 2, 4, 5), **target)
    options = {"opset": 19, **options}
    with pytest.raises(KnError, match=text):
        load_graph_from_onnx_bytes(
            node_model("Resize", inputs, constant=constants(inputs), **options)
        )


def test_nothing_can_be_made_of_an_empty_axis() -> None:
    with pytest.raises(ShapeError, match="nothing to resize"):
        resized(random(1, 0), sizes=(1, 3))
    inputs = resize_inputs(random(1, 0), sizes=(1, 3))
    with pytest.raises(ExecutionError, match="resize of empty axis 1"):
        run_here(node_model("Resize", inputs), inputs)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_numbers_at_run_time_are_checked(scale: float) -> None:
    inputs = resize_inputs(random(3, 3), scales=(scale, 1))
    with pytest.raises((ExecutionError, ShapeError)):
        run_here(node_model("Resize", inputs), inputs)
    roi = np.array([0, 0, 1, np.nan], F32)
    options: Any = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    with pytest.raises(ExecutionError, match="region of interest"):
        resized(random(3, 3), sizes=(2, 2), roi=roi, **options)


def test_the_operation_checks_what_it_is_given() -> None:
    g = Graph()
    x = g.input("x", "float32", [3, 4])
    roi = g.input("roi", "float32", [2])
    with pytest.raises(ShapeError, match="needs sizes or scales"):
        g.resize(x, [0])
    with pytest.raises(ShapeError, match="axes"):
        g.resize(x, [0, 1], [2])
    with pytest.raises(ShapeError, match="operands"):
        g.resize(x, [0], [2], roi=roi)
    with pytest.raises(ShapeError, match=r"roi must be float\[4\]"):
        g.resize(x, [0, 1], [2, 2], roi=roi, coordinates="tf_crop_and_resize")


def test_builder_and_converter_agree() -> None:
    x = random(2, 3, 4, 5)
    for mode, coordinates in itertools.product(("linear", "cubic"), COORDINATES[:-1]):
        g = Graph()
        settings: Any = {"mode": mode, "coordinates": coordinates}
        g.output("y", g.resize(g.input("x", "float32", [2, 3, 4, 5]), [3, -2], [9, 2], **settings))
        graph_text = str(g)
        assert "Resize" in graph_text
        options: Any = {"mode": mode, "coordinate_transformation_mode": coordinates}
        expected = resized(x, sizes=(2, 3, 2, 9), **options)
        assert_same([cpu_eval_graph(g, {"x": x})["y"]], [expected], rtol=0, atol=1e-6)
