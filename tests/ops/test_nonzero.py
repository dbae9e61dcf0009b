"""Operations whose result has as many elements as the data says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, KnError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import assert_like_onnxruntime, assert_same, node_model, run_here

F32 = np.float32


# ---- NonZero --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 0), (2, 2, 2)])
@pytest.mark.parametrize("dtype", [F32, np.int64, np.bool_])
def test_nonzero_agrees_with_onnxruntime(shape: Any, dtype: Any) -> None:
    x = np.asarray(np.random.default_rng(0).integers(0, 2, shape)).astype(dtype)
    if shape:
        assert_like_onnxruntime("NonZero", {"x": x}, opset=13)
    (got,) = run_here(node_model("NonZero", {"x": x}), {"x": x})
    assert (got.shape, got.dtype) == ((len(shape), np.count_nonzero(x)), np.int64)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (np.array([0.0, -0.0, np.nan, 1], F32), [2, 3]),
        (np.array([0, np.nan], ml_dtypes.bfloat16), [1]),
        (np.array(["", "a"], object), [1]),
        (np.array([0, 2], np.uint8), [1]),
    ],
)
def test_what_counts_as_zero(values: Any, want: list[int]) -> None:
    g = Graph()
    x = g.input("x", DType.from_numpy(values.dtype), values.shape)
    g.output("y", g.nonzero(x))
    assert cpu_eval_graph(g, {"x": values})["y"].tolist() == [want]


def test_the_count_is_a_size_that_other_nodes_use() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n"])
    found = g.nonzero(x)
    g.output("y", g.gather(x, g.view(found, found.shape[1:]), 0))
    assert cpu_eval_graph(g, {"x": np.array([0, 3, 0, 4], F32)})["y"].tolist() == [3, 4]
    fixed = g.specialize({"n": 4})
    assert cpu_eval_graph(fixed, {"x": np.array([0, 3, 0, 4], F32)})["y"].tolist() == [3, 4]


def test_places_of_a_constant_are_constant() -> None:
    g = Graph()
    found = g.nonzero(g.constant(np.array([[0, 1], [2, 0]])))
    assert found.constant is not None
    assert found.constant.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("fill", [0, 1])
def test_a_broadcast_number_keeps_the_count_symbolic(fill: int) -> None:
    g = Graph()
    n, m = g.symbol("n", lo=0), g.symbol("m", lo=0)
    found = g.nonzero(g.broadcast(g.constant(np.array(fill, F32)), (n, m)))
    assert found.shape == (2, n * m if fill else 0)
    g.output("y", found)
    out = cpu_eval_graph(g, {}, dims={"n": 2, "m": 3})["y"]
    np.testing.assert_array_equal(out, np.nonzero(np.full((2, 3), fill)))


# ---- Compress -------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("condition", [[False, True], [True, False, True], [False], [True, True]])
@pytest.mark.parametrize("constant", [[], ["c"]])
def test_compress_agrees_with_onnxruntime(axis: Any, condition: Any, constant: Any) -> None:
    inputs = {"x": np.arange(9, dtype=F32).reshape(3, 3), "c": np.array(condition)}
    options = {} if axis is None else {"axis": axis}
    assert_like_onnxruntime("Compress", inputs, opset=11, constant=constant, **options)


def test_a_condition_longer_than_the_axis_must_not_hold_there() -> None:
    inputs = {"x": np.arange(2, dtype=F32), "c": np.array([True, False, True])}
    with pytest.raises(ExecutionError, match="index 2 is out of range for axis 0 of size 2"):
        run_here(node_model("Compress", inputs, axis=0), inputs)
    inputs["c"] = np.array([[True]])
    with pytest.raises(ShapeError):
        load_graph_from_onnx_bytes(node_model("Compress", inputs, axis=0))


# ---- Unique ---------------------------------------------------------------------------------

OUT = ("y", "first", "inverse", "counts")


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [F32, np.int64, np.int8])
def test_unique_agrees_with_onnxruntime(ordered: int, axis: Any, dtype: Any) -> None:
    x = np.array([[2, 1, 2], [1, 1, 1], [2, 1, 2], [0, 3, 0]], dtype)
    options = {} if axis is None else {"axis": axis}
    assert_like_onnxruntime("Unique", {"x": x}, OUT, opset=11, sorted=ordered, **options)


def test_unique_outputs_rebuild_the_tensor() -> None:
    x = np.random.default_rng(0).integers(0, 3, (4, 3, 2)).astype(F32)
    for axis in range(3):
        y, first, inverse, counts = run_here(
            node_model("Unique", {"x": x}, OUT, axis=axis), {"x": x}
        )
        np.testing.assert_array_equal(np.take(y, inverse, axis), x)
        np.testing.assert_array_equal(np.take(x, first, axis), y)
        np.testing.assert_array_equal(np.bincount(inverse), counts)


@pytest.mark.parametrize("dtype", [F32, np.float16, ml_dtypes.bfloat16])
def test_nans_are_one_value_after_all_numbers(dtype: Any) -> None:
    x = np.array([np.nan, 1, np.nan, -np.inf, 1], dtype)
    y, first, inverse, counts = run_here(node_model("Unique", {"x": x}, OUT, opset=28), {"x": x})
    np.testing.assert_array_equal(y.astype(F32), [-np.inf, 1, np.nan])
    assert (first.tolist(), inverse.tolist()) == ([3, 1, 0], [2, 1, 2, 0, 1])
    assert counts.tolist() == [1, 2, 2]


def test_unique_strings_along_an_axis_and_in_order_of_occurrence() -> None:
    x = np.array([["b", "a"], ["", "a"], ["b", "a"]], object)
    got = run_here(node_model("Unique", {"x": x}, OUT, axis=0, sorted=0), {"x": x})
    assert got[0].tolist() == [["b", "a"], ["", "a"]]
    assert [a.tolist() for a in got[1:]] == [[0, 1], [0, 1, 0], [2, 1]]


@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((0,), None, 0), ((3, 0), 0, 1), ((0, 2), 0, 0)]
)
def test_unique_of_nothing(shape: Any, axis: Any, count: int) -> None:
    x = np.zeros(shape, F32)
    options = {} if axis is None else {"axis": axis}
    y, first, inverse, counts = run_here(node_model("Unique", {"x": x}, OUT, **options), {"x": x})
    assert len(first) == len(counts) == y.shape[0] == count
    assert inverse.shape == (shape[0],)


def test_unique_of_a_scalar_and_sharing_of_one_size() -> None:
    x = np.array(5, np.int64)
    assert [a.tolist() for a in run_here(node_model("Unique", {"x": x}, OUT), {"x": x})] == [
        [5], [0], [0], [1],
    ]  # fmt: skip
    graph = load_graph_from_onnx_bytes(
        node_model("Unique", {"x": np.zeros(3, F32)}, OUT, symbolic={"x": ("n",)})
    )
    y, first, inverse, counts = graph.outputs.values()
    assert y.shape == first.shape == counts.shape
    assert str(inverse.type) == "int64[n]"
    with pytest.raises(ShapeError, match="axis 1"):
        load_graph_from_onnx_bytes(node_model("Unique", {"x": np.zeros(3, F32)}, OUT, axis=1))


def test_unwanted_outputs_are_not_needed() -> None:
    x = np.array([2, 1, 2], F32)
    for names in [("y",), ("y", "", "inverse")]:
        got = run_here(node_model("Unique", {"x": x}, names), {"x": x})
        assert_same(got[:1], [np.array([1, 2], F32)])


# ---- NonMaxSuppression ----------------------------------------------------------------------

BOXES = np.array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]], F32
)[None]
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5]]], F32)


def suppressed(boxes: Any, scores: Any, *options: Any, **attributes: Any) -> list[list[int]]:
    names = ("max", "iou", "score")
    inputs = {"boxes": boxes, "scores": scores, **dict(zip(names, options, strict=False))}
    model = node_model("NonMaxSuppression", inputs, **attributes)
    out: list[list[int]] = run_here(model, inputs)[0].tolist()
    return out


@pytest.mark.parametrize("count", [0, 1, 2, 10])
@pytest.mark.parametrize("iou", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("score", [None, 0.0, 0.7])
@pytest.mark.parametrize("center", [0, 1])
def test_nms_agrees_with_onnxruntime(count: int, iou: float, score: Any, center: int) -> None:
    rng = np.random.default_rng(0)
    boxes = rng.uniform(0, 2, (2, 12, 4)).astype(F32)
    scores = rng.uniform(size=(2, 3, 12)).astype(F32)
    inputs = {"b": boxes, "s": scores, "m": np.array([count]), "i": np.array([iou], F32)}
    if score is not None:
        inputs["t"] = np.array([score], F32)
    assert_like_onnxruntime("NonMaxSuppression", inputs, opset=11, center_point_box=center)


def test_nms_without_a_number_of_boxes_chooses_none() -> None:
    assert suppressed(BOXES, SCORES) == []


def test_nms_takes_equal_scores_by_index_and_nan_last() -> None:
    far = np.array([[[0, i, 1, i + 1] for i in range(0, 8, 2)]], F32)
    scores = np.array([[[0.5, np.nan, 0.7, 0.5]]], F32)
    want = [[0, 0, 2], [0, 0, 0], [0, 0, 3], [0, 0, 1]]
    assert suppressed(far, scores, np.array(9)) == want
    # a score below the threshold is left out: one equal to it stays, a NaN is never above it
    assert suppressed(far, scores, np.array(9), np.array(0, F32), np.array(0.5, F32)) == want[:3]


def test_nms_keeps_the_order_of_many_equal_scores() -> None:
    far = np.array([[[0, i, 1, i + 0.5] for i in range(200)]], F32)
    scores = np.resize(np.array([0.5, 0.25], F32), (1, 1, 200))
    got = suppressed(far, scores, np.array(200))
    assert [box for _, _, box in got] == [*range(0, 200, 2), *range(1, 200, 2)]


def test_nms_corners_come_in_any_order_and_empty_boxes_overlap_nothing() -> None:
    flipped = BOXES[..., [2, 3, 0, 1]]
    options = (np.array(3), np.array(0.5, F32), np.array(0, F32))
    assert suppressed(flipped, SCORES, *options) == suppressed(BOXES, SCORES, *options)
    empty = np.zeros((1, 2, 4), F32)
    assert len(suppressed(empty, np.ones((1, 1, 2), F32), np.array(5))) == 2


def test_nms_of_nothing() -> None:
    for boxes, scores in [((1, 0, 4), (1, 2, 0)), ((0, 3, 4), (0, 1, 3)), ((1, 3, 4), (1, 0, 3))]:
        assert suppressed(np.zeros(boxes, F32), np.zeros(scores, F32), np.array(3)) == []


@pytest.mark.parametrize(
    ("boxes", "scores"), [((1, 3, 5), (1, 1, 3)), ((1, 3, 4), (1, 1, 4)), ((1, 3, 4), (2, 1, 3))]
)
def test_nms_refuses_wrong_shapes(boxes: Any, scores: Any) -> None:
    with pytest.raises(ShapeError):
        suppressed(np.zeros(boxes, F32), np.zeros(scores, F32), np.array(3))


def test_nms_refuses_wrong_types_and_ranks() -> None:
    g = Graph()
    b, s = g.input("b", "float32", [1, 2, 4]), g.input("s", "float32", [1, 1, 2])
    k, t = g.scalar(1, DType.INT64), g.scalar(0, DType.FLOAT32)
    with pytest.raises(DTypeError, match="integer"):
        g.non_max_suppression(b, s, t, t)
    with pytest.raises(DTypeError, match="floats"):
        g.non_max_suppression(b, s, k, k)
    with pytest.raises(ShapeError, match="rank 0"):
        g.non_max_suppression(b, s, g.view(k, (1,)), t)
    with pytest.raises(KnError, match="center_point_box"):
        suppressed(BOXES, SCORES, center_point_box=2)
