"""Sampling of images, regions of interest, blocks of pixels."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, KnError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
)

F32 = np.float32
ATOL: Any = {"rtol": 0, "atol": 2e-5}


def random(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def build(method: str, arrays: dict[str, Any], *args: Any, **options: Any) -> Any:
    """Run one building method on inputs."""
    g = Graph()
    given = [g.input(n, DType.from_numpy(a.dtype), a.shape) for n, a in arrays.items()]
    g.output("y", getattr(g, method)(*given, *args, **options))
    return cpu_eval_graph(g, arrays)["y"]


# ---- GridSample -----------------------------------------------------------------------------

IMAGES = [((2, 3, 5, 7), (4, 6)), ((1, 2, 2, 4), (3, 3)), ((2, 1, 3, 4, 5), (2, 3, 4))]
PADDINGS = ["zeros", "border", "reflection"]


def grids(batch: int, out: tuple[int, ...], rank: int) -> list[Any]:
    """Inside, partly outside, far outside, and exactly on elements and edges."""
    rng = np.random.default_rng(1)
    wide = [rng.uniform(-s, s, (batch, *out, rank)).astype(F32) for s in (0.9, 2.5, 9.0)]
    return [*wide, np.round(wide[1] * 4) / 4]


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample_is_like_onnxruntime(mode: str, padding: str, align_corners: int) -> None:
    options: Any = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    for shape, out in IMAGES:
        if mode == "cubic" and len(out) == 3:
            continue  # onnxruntime has none
        for grid in grids(shape[0], out, len(out)):
            inputs = {"x": random(*shape), "grid": grid}
            assert_like_onnxruntime("GridSample", inputs, opset=20, **ATOL, **options)


@pytest.mark.parametrize(
    ("opset", "modes"),
    [(16, ("bilinear", "nearest", "bicubic")), (22, ("linear", "nearest", "cubic"))],
)
def test_grid_sample_of_every_opset(opset: int, modes: tuple[str, ...]) -> None:
    inputs = {"x": random(1, 2, 4, 5), "grid": grids(1, (3, 4), 2)[1]}
    for mode in modes:
        assert_like_onnxruntime("GridSample", inputs, opset=opset, mode=mode, **ATOL)
    assert_like_onnxruntime("GridSample", inputs, opset=opset, **ATOL)


def test_cubic_samples_of_a_volume_are_separable() -> None:
    x, rank = random(1, 1, 4, 5, 6, dtype=np.float64), 3
    steps = [np.linspace(-0.8, 0.7, k) for k in (3, 4, 2)]
    grid = np.stack(np.meshgrid(*steps, indexing="ij")[::-1], axis=-1)[None]
    got = build("grid_sample", {"x": x, "grid": grid}, mode="cubic", padding="border")
    expected = x[0, 0]
    for axis in range(rank):
        line = np.moveaxis(expected, axis, 0)
        image = line.reshape(1, 1, len(line), -1)
        # one axis at a time: the other one is met exactly at its elements
        columns = (2 * np.arange(image.shape[3]) + 1) / image.shape[3] - 1
        points = np.stack(np.meshgrid(columns, steps[axis]), -1)[None]
        sampled = build(
            "grid_sample", {"x": image, "grid": points}, mode="cubic", padding="border"
        )[0, 0]
        expected = np.moveaxis(sampled.reshape(len(steps[axis]), *line.shape[1:]), 0, axis)
    np.testing.assert_allclose(got[0, 0], expected, atol=1e-9)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_a_single_element_and_numbers_that_are_none(
    mode: Any, padding: Any, align_corners: bool
) -> None:
    x = np.full((1, 1, 1, 3), 5, F32)
    grid = np.array([[[[0, 0], [np.nan, 0], [np.inf, 0], [-np.inf, np.nan], [1e30, 1e30]]]], F32)
    options: Any = {"mode": mode, "padding": padding, "align_corners": align_corners}
    y = build("grid_sample", {"x": x, "grid": grid}, **options)[0, 0, 0]
    outside = 0 if padding == "zeros" else 5
    np.testing.assert_allclose(y, [5, *[outside] * 4], atol=1e-5)


def test_positions_counted_in_elements() -> None:
    x = np.arange(12, dtype=F32).reshape(1, 1, 3, 4)
    at = np.array([[[[0, 0], [3, 2], [0.5, 1], [1, -0.5], [-1, 0], [np.nan, 0]]]], F32)
    y = build("grid_sample", {"x": x, "grid": at}, in_elements=True)
    np.testing.assert_array_equal(y.ravel(), [0, 11, 4.5, 0.5, 0, 0])
    with pytest.raises(ShapeError, match="no corners"):
        build("grid_sample", {"x": x, "grid": at}, in_elements=True, align_corners=True)


def test_grid_samples_of_other_types() -> None:
    grid = grids(1, (3, 4), 2)[0]
    x = np.arange(20).reshape(1, 1, 4, 5)
    wide = build("grid_sample", {"x": x.astype(F32), "grid": grid})
    for dtype in (np.uint8, np.int32, np.int64):
        got = build("grid_sample", {"x": x.astype(dtype), "grid": grid})
        assert_same([got], [wide.astype(dtype)])  # truncated
    for narrow in (np.float16, ml_dtypes.bfloat16):
        got = build("grid_sample", {"x": x.astype(narrow), "grid": grid})
        assert_same([got], [wide.astype(narrow)])
    letters = np.array(list("abcdefghijklmnopqrst"), object).reshape(x.shape)
    far = np.full((1, 1, 1, 2), 3, F32)
    assert build("grid_sample", {"x": letters, "grid": far}, mode="nearest").ravel()[0] == ""
    with pytest.raises(DTypeError, match="strings"):
        build("grid_sample", {"x": letters, "grid": far})


def test_a_nan_outside_of_the_window_does_not_spread() -> None:
    x = random(1, 1, 4, 4)
    x[0, 0, 0, 0] = np.nan
    grid = np.array([[[[0.5, 0.5], [-0.7, -0.7]]]], F32)
    y = build("grid_sample", {"x": x, "grid": grid})
    assert np.isnan(y).ravel().tolist() == [False, True]


def test_grid_sample_of_symbolic_and_empty_sizes() -> None:
    for n, h in ((1, 3), (2, 5), (0, 3), (2, 0)):
        inputs = {"x": random(n, 2, h, 4), "grid": random(n, 3, 3, 2)}
        symbolic = {"x": ("n", 2, "h", 4), "grid": ("n", 3, 3, 2)}
        model = node_model("GridSample", inputs, opset=20, symbolic=symbolic)
        (y,) = run_here(model, inputs)
        assert y.shape == (n, 2, 3, 3)
        assert h or not y.any()


# ---- AffineGrid -----------------------------------------------------------------------------


def affine_points(theta: Any, sizes: tuple[int, ...], align_corners: bool) -> Any:
    """Map each element's centre."""
    axes = [
        (np.linspace(-1, 1, n) if n > 1 else np.zeros(1))
        if align_corners
        else (2 * np.arange(n) + 1) / n - 1
        for n in sizes
    ]
    points = np.meshgrid(*axes, indexing="ij")[::-1]
    homogeneous = np.stack([*points, np.ones(sizes)], -1)
    return np.einsum("nij,...j->n...i", theta.astype(np.float64), homogeneous)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("sizes", [(3, 4), (1, 5), (2, 3, 4), (1, 1, 2)])
def test_affine_grid(sizes: tuple[int, ...], align_corners: int) -> None:
    theta = random(2, len(sizes), len(sizes) + 1)
    inputs = {"theta": theta, "size": np.array([2, 7, *sizes])}
    expected = affine_points(theta, sizes, bool(align_corners))
    for constant in (["size"], []):
        options: Any = {"opset": 20, "align_corners": align_corners, "constant": constant}
        (y,) = run_here(node_model("AffineGrid", inputs, **options), inputs)
        assert y.dtype == F32
        np.testing.assert_allclose(y, expected, atol=1e-6)


def test_affine_grid_refuses_what_does_not_fit() -> None:
    for size, theta, text in (
        ([2, 1, 3], (2, 2, 3), "3 sizes"),
        ([3, 1, 3, 4], (2, 2, 3), "batch size"),
        ([2, 1, 3, 4], (2, 3, 4), "axis 1"),
    ):
        inputs = {"theta": random(*theta), "size": np.array(size)}
        with pytest.raises(KnError, match=text):
            load_graph_from_onnx_bytes(
                node_model("AffineGrid", inputs, opset=20, constant=["size"])
            )


# ---- regions of interest --------------------------------------------------------------------

ROIS = np.array(
    [[1, 1, 6, 5], [0, 0, 9, 7], [3.3, 2.2, 3.9, 2.9], [-3, -4, 20, 15], [7, 6, 2, 1], [5] * 4], F32
)
ROI_IMAGES = np.array([0, 1, 1, 0, 1, 0])


@pytest.mark.parametrize("shift", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [0, 2, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_is_like_onnxruntime(mode: str, samples: int, shift: str) -> None:
    inputs = {"x": random(2, 3, 8, 10), "rois": ROIS, "images": ROI_IMAGES}
    options: Any = {
        "mode": mode,
        "sampling_ratio": samples,
        "coordinate_transformation_mode": shift,
    }
    for scale, (h, w) in itertools.product((1.0, 0.5, 0.3), ((1, 1), (3, 2), (7, 7))):
        size: Any = {"output_height": h, "output_width": w, "spatial_scale": scale}
        assert_like_onnxruntime("RoiAlign", inputs, opset=16, **ATOL, **options, **size)


def test_roi_align_of_every_opset() -> None:
    inputs = {"x": random(2, 3, 8, 10), "rois": ROIS, "images": ROI_IMAGES}
    options: Any = {"output_height": 2, "output_width": 3}
    for opset in (10, 16):
        assert_like_onnxruntime("RoiAlign", inputs, opset=opset, **ATOL, **options)
    newest, older = (node_model("RoiAlign", inputs, opset=o, **options) for o in (22, 16))
    assert_same(run_here(newest, inputs), run_here(older, inputs))


def test_roi_align_averages_interpolated_samples() -> None:
    ramp = np.arange(8, dtype=F32)[:, None] * 10 + np.arange(10, dtype=F32)
    inputs = {"x": ramp[None, None], "rois": np.array([[2, 1, 6, 5]], F32), "images": np.array([0])}
    y = build("roi_align", inputs, (2, 2), half_pixel=False)
    # the mean of a ramp over a bin is its value in the middle of the bin
    np.testing.assert_allclose(y[0, 0], [[23, 25], [43, 45]], rtol=1e-6)


@pytest.mark.parametrize("opset", [8, 16, 21])
def test_max_roi_pool_is_like_onnxruntime(opset: int) -> None:
    rois = np.concatenate([ROI_IMAGES[:, None].astype(F32), ROIS], 1)
    inputs = {"x": random(2, 3, 8, 10), "rois": rois}
    for scale, size in itertools.product((1.0, 0.5, 0.3), ((1, 1), (3, 2), (7, 7))):
        options: Any = {"pooled_shape": size, "spatial_scale": scale, "opset": opset}
        assert_like_onnxruntime("MaxRoiPool", inputs, **options)


def test_regions_of_images_that_do_not_exist() -> None:
    x = random(2, 1, 4, 4)
    for index in (2, -1):
        with pytest.raises(ExecutionError, match=f"region 0 is of image {index}"):
            build("roi_align", {"x": x, "r": ROIS[:1], "i": np.array([index])}, (1, 1))
        rois = np.array([[index, 0, 0, 1, 1]], F32)
        with pytest.raises(ExecutionError, match=f"region 0 is of image {index}"):
            build("max_roi_pool", {"x": x, "r": rois}, (1, 1))
    with pytest.raises(ExecutionError, match="region 0 is"):
        build("max_roi_pool", {"x": x, "r": np.full((1, 5), np.nan, F32)}, (1, 1))


def test_no_regions_and_narrow_floats() -> None:
    x = random(2, 3, 8, 10)
    none = {"x": x, "r": ROIS[:0], "i": ROI_IMAGES[:0]}
    assert build("roi_align", none, (2, 3)).shape == (0, 3, 2, 3)
    assert build("max_roi_pool", {"x": x, "r": np.zeros((0, 5), F32)}, (2, 3)).shape == (0, 3, 2, 3)
    half = {"x": x.astype(np.float16), "r": ROIS.astype(np.float16), "i": ROI_IMAGES}
    wide = half | {"x": half["x"].astype(F32), "r": half["r"].astype(F32)}
    expected = build("roi_align", wide, (2, 3)).astype(np.float16)
    assert_same([build("roi_align", half, (2, 3))], [expected])


def test_a_nan_stays_in_its_bins() -> None:
    x = random(1, 1, 6, 6)
    x[0, 0, 0, 0] = np.nan
    arrays = {"x": x, "r": np.array([[0, 0, 6, 6]], F32), "i": np.array([0])}
    y = build("roi_align", arrays, (2, 2), samples=2)
    assert np.isnan(y).ravel().tolist() == [True, False, False, False]
    y = build("max_roi_pool", {"x": x, "r": np.array([[0, 0, 0, 5, 5]], F32)}, (2, 2))
    assert np.isnan(y).ravel().tolist() == [True, False, False, False]


# ---- blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_there_and_back(mode: str) -> None:
    x = random(2, 12, 3, 5)
    assert_like_onnxruntime("DepthToSpace", {"x": x}, opset=13, blocksize=2, mode=mode)
    spread = build("depth_to_space", {"x": x}, 2, depth_first=mode == "CRD")
    assert_same([build("space_to_depth", {"x": spread}, 2, depth_first=mode == "CRD")], [x])


@pytest.mark.parametrize("opset", [1, 11, 13])
def test_blocks_of_every_opset(opset: int) -> None:
    x = random(1, 8, 4, 6)
    expected = {
        "DepthToSpace": x.reshape(1, 2, 2, 2, 4, 6)
        .transpose(0, 3, 4, 1, 5, 2)
        .reshape(1, 2, 8, 12),
        "SpaceToDepth": x.reshape(1, 8, 2, 2, 3, 2)
        .transpose(0, 3, 5, 1, 2, 4)
        .reshape(1, 32, 2, 3),
    }
    for operator, y in expected.items():
        model = node_model(operator, {"x": x}, opset=opset, blocksize=2)
        assert_same(run_here(model, {"x": x}), [y])


def test_space_to_depth_by_depth_first() -> None:
    x = random(1, 2, 4, 6)
    model = node_model("SpaceToDepth", {"x": x}, opset=28, blocksize=2, mode="CRD")
    expected = x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 3)
    assert_same(run_here(model, {"x": x}), [expected])


def test_blocks_of_symbolic_sizes_are_views() -> None:
    x = random(1, 8, 4, 6)
    for operator in ("DepthToSpace", "SpaceToDepth"):
        symbolic = {"x": (1, 8, "h", "w")}
        model = node_model(operator, {"x": x}, opset=13, blocksize=2, symbolic=symbolic)
        fixed = node_model(operator, {"x": x}, opset=13, blocksize=2)
        assert_same(run_here(model, {"x": x}), run_here(fixed, {"x": x}))
        kinds = {type(n.op).__name__ for n in load_graph_from_onnx_bytes(model).nodes}
        assert kinds == {"Input", "View", "Permute"}


def test_blocks_that_do_not_fit() -> None:
    for operator, shape in (("DepthToSpace", (1, 6, 2, 2)), ("SpaceToDepth", (1, 1, 3, 4))):
        model = node_model(operator, {"x": random(*shape)}, opset=13, blocksize=2)
        with pytest.raises(ShapeError, match="blocks"):
            load_graph_from_onnx_bytes(model)


# ---- Col2Im ---------------------------------------------------------------------------------

COLUMNS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((5, 5), (1, 5), {}),
    ((6, 7), (2, 3), {}),
    ((6, 7), (2, 3), {"strides": [2, 3]}),
    ((6, 7), (2, 3), {"dilations": [2, 2]}),
    ((5, 5), (3, 3), {"pads": [1, 0, 2, 1]}),
    ((4, 5, 6), (2, 3, 2), {"strides": [1, 2, 3], "pads": [1, 1, 0, 0, 1, 1]}),
]


@pytest.mark.parametrize(("image", "kernel", "options"), COLUMNS)
def test_col2im_is_like_onnxruntime(image: Any, kernel: Any, options: Any) -> None:
    rank = len(image)
    ones = [1] * rank
    strides, dilations = options.get("strides", ones), options.get("dilations", ones)
    pads = options.get("pads", [0] * (2 * rank))
    counts = [
        (n + pads[i] + pads[i + rank] - dilations[i] * (k - 1) - 1) // strides[i] + 1
        for i, (n, k) in enumerate(zip(image, kernel, strict=True))
    ]
    x = random(2, 3 * int(np.prod(kernel)), int(np.prod(counts)))
    inputs = {"x": x, "image": np.array(image), "kernel": np.array(kernel)}
    fixed = {"constant": ["image", "kernel"], "opset": 18, **options}
    assert_like_onnxruntime("Col2Im", inputs, **ATOL, **fixed)
    dynamic = node_model("Col2Im", inputs, opset=18, **options)
    assert_same(run_here(dynamic, inputs), run_here(node_model("Col2Im", inputs, **fixed), inputs))


def test_col2im_wraps_and_rounds_once() -> None:
    x = np.full((1, 4, 4), 100, np.int8)
    y = build("col2im", {"x": x}, (3, 3), (2, 2))
    assert y[0, 0].tolist() == [[100, -56, 100], [-56, -112, -56], [100, -56, 100]]
    half = random(1, 4, 4, dtype=np.float16)
    expected = build("col2im", {"x": half.astype(F32)}, (3, 3), (2, 2)).astype(np.float16)
    assert_same([build("col2im", {"x": half}, (3, 3), (2, 2))], [expected])


@pytest.mark.parametrize(
    ("shape", "text"), [((1, 5, 4), "channels"), ((1, 4, 5), "number of windows"), ((4, 4), "axes")]
)
def test_col2im_refuses_what_does_not_add_up(shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        build("col2im", {"x": random(*shape)}, (3, 3), (2, 2))


# ---- CenterCropPad --------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(3, 4), (6, 8), (7, 9), (10, 3), (5, 8), (0, 1)])
def test_center_crop_pad(sizes: tuple[int, int]) -> None:
    x = random(6, 8)
    expected = x
    for axis, size in enumerate(sizes):
        n = x.shape[axis]
        cut, fill = max(0, n - size), max(0, size - n)
        expected = np.take(expected, np.arange(cut // 2, cut // 2 + min(n, size)), axis)
        pads = [(0, 0), (0, 0)]
        pads[axis] = (fill // 2, fill - fill // 2)
        expected = np.pad(expected, pads)
    inputs = {"x": x, "size": np.array(sizes)}
    for options in ({"constant": ["size"]}, {}, {"symbolic": {"x": ("a", "b")}}):
        model = node_model("CenterCropPad", inputs, opset=18, **options)
        assert_same(run_here(model, inputs), [expected])
    model = node_model("CenterCropPad", inputs, opset=18, axes=[1, 0])
    assert run_here(model, inputs)[0].shape == sizes[::-1]
