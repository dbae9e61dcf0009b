"""Softmax, normalisation, and the ONNX operators made of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, MalformedModelError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.norm import Norm
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import assert_like_onnxruntime, assert_same, node_model, run_here

RNG = np.random.default_rng(3)
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
HALF: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-3}
INF, NAN = np.inf, np.nan


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def apply(x: np.ndarray, build: Any) -> np.ndarray:
    g = Graph()
    g.output("out", build(g, g.input("x", DType.from_numpy(x.dtype), x.shape)))
    return cpu_eval_graph(g, {"x": x})["out"]


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


# ---- softmax --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float32, CLOSE), (np.float64, {"rtol": 1e-13, "atol": 1e-15}), (np.float16, HALF),
     (ml_dtypes.bfloat16, {"rtol": 1e-2, "atol": 1e-3})],
)  # fmt: skip
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_its_logarithm(dtype: Any, tolerance: dict, axis: int) -> None:
    x = (normal(3, 4, 5) * 10).astype(dtype)
    expected = softmax(x.astype(np.float64), axis)
    assert_same([apply(x, lambda g, v: g.softmax(v, axis))], [expected.astype(dtype)], **tolerance)
    got = apply(x, lambda g, v: g.log_softmax(v, axis))
    assert_same([got], [np.log(expected).astype(dtype)], **tolerance)


def test_softmax_of_special_values() -> None:
    rows: list[tuple[Any, Any]] = [
        ([1e30, -1e30, 0], [1, 0, 0]),
        ([-INF, 0, 0], [0, 0.5, 0.5]),
        ([-INF, -INF, -INF], [NAN] * 3),
        ([INF, 0, 0], [NAN] * 3),
        ([NAN, 0, 0], [NAN] * 3),
        ([88, 89, -100], softmax(np.array([88, 89, -100]), 0)),
    ]
    for row, expected in rows:
        got = apply(np.array(row, np.float32), lambda g, v: g.softmax(v))
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-40)


def test_the_logarithm_does_not_underflow() -> None:
    got = apply(np.array([0, -200], np.float32), lambda g, v: g.log_softmax(v))
    assert got.tolist() == [0, -200]


def test_a_half_softmax_sums_in_float32() -> None:
    got = apply(np.zeros(70000, np.float16), lambda g, v: g.softmax(v))
    assert got[0] == np.float16(1 / 70000)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_tensors(shape: tuple) -> None:
    x = np.zeros(shape, np.float32)
    assert_same([apply(x, lambda g, v: g.softmax(v))], [x])
    assert_same([apply(x, lambda g, v: g.norm(v, [-1], 1e-5))], [x])


def test_softmax_refuses_integers_and_wrong_axes() -> None:
    g = Graph()
    with pytest.raises(DTypeError):
        g.softmax(g.input("x", "int32", [2]))
    with pytest.raises(ShapeError):
        g.softmax(g.input("y", "float32", [2]), 1)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(
    ("opset", "axis"),
    [
        *((opset, axis) for opset in (1, 9) for axis in (None, 0, 1, 2)),
        *((opset, axis) for opset in (11, 12, 13, 21) for axis in (None, 0, 1, 2, -1, -2)),
    ],
)
def test_softmax_operators_like_onnxruntime(operator: str, opset: int, axis: Any) -> None:
    attributes = {} if axis is None else {"axis": axis}
    inputs = {"x": normal(2, 3, 4)}
    if opset == 1:  # onnxruntime starts at 7
        new, old = (node_model(operator, inputs, opset=o, **attributes) for o in (9, 1))
        assert_same(run_here(old, inputs), run_here(new, inputs))
        return
    assert_like_onnxruntime(operator, inputs, opset=opset, **CLOSE, **attributes)


def test_old_softmax_flattens() -> None:
    x = normal(2, 3, 4)
    got = run_here(node_model("Softmax", {"x": x}, opset=11), {"x": x})[0]
    np.testing.assert_allclose(got.sum((1, 2)), 1, rtol=1e-6)
    np.testing.assert_allclose(got.reshape(2, 12), softmax(x.reshape(2, 12), 1), rtol=1e-5)


def test_hardmax_takes_the_first_of_equals_and_the_nan() -> None:
    x = np.array([[1, 3, 3], [NAN, 5, NAN], [-INF, -INF, -INF]], np.float32)
    expected = np.array([[0, 1, 0], [1, 0, 0], [1, 0, 0]], np.float32)
    for symbolic in (None, {"x": [3, "n"]}):
        got = run_here(node_model("Hardmax", {"x": x}, symbolic=symbolic), {"x": x})
        assert_same(got, [expected])


# ---- norm -----------------------------------------------------------------------------------


def naive_norm(x: np.ndarray, axes: tuple, epsilon: float, center: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    if center:
        wide = wide - wide.mean(axes, keepdims=True)
    return wide / np.sqrt((wide**2).mean(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("axes", [(2,), (1, 2), (0, 2), (0, 1, 2), (1,)])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, CLOSE), (np.float64, {"rtol": 1e-12}), (np.float16, HALF)]
)
def test_norm_follows_the_formula(axes: tuple, center: bool, dtype: Any, tolerance: dict) -> None:
    x = (normal(3, 4, 5) * 3 + 1).astype(dtype)
    got = apply(x, lambda g, v: g.norm(v, axes, 1e-5, center=center))
    assert_same([got], [naive_norm(x, axes, 1e-5, center).astype(dtype)], **tolerance)


def test_norm_of_large_halves_and_of_a_large_mean() -> None:
    x = np.array([60000, -60000, 60000, -60000], np.float16)  # the squares overflow a half
    assert apply(x, lambda g, v: g.norm(v, [0], 0.0)).tolist() == [1, -1, 1, -1]
    y = np.array([1e4, 1e4 + 1, 1e4 + 2], np.float32)
    got = apply(y, lambda g, v: g.norm(v, [0], 0.0))
    np.testing.assert_allclose(got, [-1.2247449, 0, 1.2247449], rtol=1e-6)


def test_nan_stays_in_its_group() -> None:
    x = np.array([[1, NAN, 2], [1, 2, 3]], np.float32)
    got = apply(x, lambda g, v: g.norm(v, [1], 1e-5))
    assert np.isnan(got).tolist() == [[True] * 3, [False] * 3]


def test_norm_refuses_integers_and_wrong_axes() -> None:
    g = Graph()
    with pytest.raises(DTypeError):
        g.norm(g.input("x", "int32", [2]), [0], 1e-5)
    x = g.input("y", "float32", [2, 3])
    for axes in ([2], [1, -1]):
        with pytest.raises(ShapeError):
            g.norm(x, axes, 1e-5)
    with pytest.raises(ShapeError, match="ascending"):
        g.push(Norm((1, 0), 1e-5), x)


# ---- layer, RMS, group, instance --------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [["y"], ["y", "m"], ["y", "m", "d"], ["y", "", "d"]])
def test_layer_normalization_like_onnxruntime(axis: Any, bias: bool, outputs: list) -> None:
    x = normal(2, 3, 4)
    shape = x.shape[2 if axis is None else axis :]
    inputs = {"x": x, "s": normal(*shape), "b": normal(*shape) if bias else None}
    attributes = {} if axis is None else {"axis": axis}
    assert_like_onnxruntime(
        "LayerNormalization", inputs, outputs, opset=17, epsilon=1e-3, **CLOSE, **attributes
    )


def test_layer_normalization_broadcasts_its_scale() -> None:
    x, s = normal(2, 3, 4), normal(3, 1)
    got = run_here(node_model("LayerNormalization", {"x": x, "s": s}, opset=17), {"x": x, "s": s})
    assert_same(got, [(naive_norm(x, (2,), 1e-5, True) * s).astype(np.float32)], **CLOSE)


def norms_in(model: bytes) -> list[str]:
    """Return the element types that a model normalises in."""
    nodes = load_graph_from_onnx_bytes(model).nodes
    return [str(n.results[0].dtype) for n in nodes if isinstance(n.op, Norm)]


@pytest.mark.parametrize(
    ("dtype", "stash", "computed"),
    [
        (np.float32, 1, "float32"),
        (np.float16, 1, "float16"),  # which Norm computes in float32 by itself
        (np.float64, 1, "float32"),
        (np.float64, 11, "float64"),
        (np.float32, 11, "float64"),
        (np.float16, 10, "float16"),
        (np.float16, 16, "float16"),
    ],
)
def test_stash_type_is_the_type_of_the_statistics(dtype: Any, stash: int, computed: str) -> None:
    inputs = {"x": normal(2, 4, dtype=dtype), "s": normal(4, dtype=dtype)}
    for operator, opset in (("LayerNormalization", 17), ("RMSNormalization", 23)):
        model = node_model(operator, inputs, opset=opset, stash_type=stash)
        assert norms_in(model) == [computed]
        assert run_here(model, inputs)[0].dtype == dtype
    outputs = node_model("LayerNormalization", inputs, ["y", "m", "d"], opset=17, stash_type=stash)
    types = [DType.from_numpy(x.dtype).onnx_code for x in run_here(outputs, inputs)[1:]]
    assert types == [stash, stash]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rms_normalization(axis: int, dtype: Any) -> None:
    x = normal(2, 3, 4, dtype=dtype)
    scale = normal(*x.shape[axis:])
    model = node_model("RMSNormalization", {"x": x, "s": scale}, opset=23, axis=axis)
    axes = tuple(range(axis % 3, 3))
    expected = naive_norm(x, axes, 1e-5, False).astype(dtype).astype(np.float32) * scale
    got = run_here(model, {"x": x, "s": scale})
    assert_same(got, [expected.astype(np.float32)], **(CLOSE if dtype == np.float32 else HALF))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 3)])
@pytest.mark.parametrize("opset", [6, 22])
def test_instance_normalization_like_onnxruntime(shape: tuple, opset: int) -> None:
    inputs = {"x": normal(*shape), "s": normal(3), "b": normal(3)}
    if opset == 22:
        model = node_model("InstanceNormalization", inputs, opset=22)
        assert_same(
            run_here(model, inputs),
            run_here(node_model("InstanceNormalization", inputs, opset=6), inputs),
        )
        return
    assert_like_onnxruntime("InstanceNormalization", inputs, opset=opset, **CLOSE)


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("symbolic", [None, {"x": ["n", 4, "h", 3]}])
def test_group_normalization(opset: int, groups: int, symbolic: Any) -> None:
    x = normal(2, 4, 3, 3)
    count = groups if opset == 18 else 4
    inputs = {"x": x, "s": normal(count), "b": normal(count)}
    model = node_model(
        "GroupNormalization", inputs, opset=opset, num_groups=groups, symbolic=symbolic
    )
    scale, bias = (np.repeat(inputs[n], 4 // count)[:, None, None] for n in "sb")
    plain = naive_norm(x.reshape(2, groups, -1), (2,), 1e-5, True).reshape(x.shape)
    assert_same(run_here(model, inputs), [(plain * scale + bias).astype(np.float32)], **CLOSE)


def test_group_normalization_refuses_groups_that_do_not_divide() -> None:
    inputs = {"x": normal(2, 4, 3), "s": normal(4), "b": normal(4)}
    for groups in (3, 0):
        with pytest.raises(MalformedModelError, match="groups do not divide 4 channels"):
            run_here(node_model("GroupNormalization", inputs, num_groups=groups), inputs)


@pytest.mark.parametrize("axes", [None, [1], [0, 1, 2, 3], [-1]])
def test_mean_variance_normalization_like_onnxruntime(axes: Any) -> None:
    attributes = {} if axes is None else {"axes": axes}
    inputs = {"x": normal(2, 3, 4, 5)}
    assert_like_onnxruntime("MeanVarianceNormalization", inputs, opset=13, **CLOSE, **attributes)


def test_mean_variance_normalization_of_equal_elements_is_0() -> None:
    x = np.full((1, 2, 3, 4), 7, np.float32)
    assert not run_here(node_model("MeanVarianceNormalization", {"x": x}, opset=9), {"x": x})[
        0
    ].any()


# ---- batch ----------------------------------------------------------------------------------


def batch_inputs(*shape: int, statistic: tuple | None = None) -> dict[str, Any]:
    vector = statistic or (shape[1],)
    inputs = {n: normal(*vector) for n in ("s", "b", "m")}
    return {"x": normal(*shape), **inputs, "v": RNG.random(vector).astype(np.float32) + 0.5}


def batch_norm(x: Any, s: Any, b: Any, m: Any, v: Any, epsilon: float = 1e-5) -> Any:
    """Normalise by statistics along axis 1."""
    s, b, m, v = (a.reshape(-1, *(1,) * (x.ndim - 2)) for a in (s, b, m, v))
    return (x - m) / np.sqrt(v + epsilon) * s + b


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 2)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization_like_onnxruntime(shape: tuple, opset: int) -> None:
    inputs = batch_inputs(*shape)
    assert_like_onnxruntime("BatchNormalization", inputs, opset=opset, epsilon=1e-3, **CLOSE)


def test_batch_normalization_of_one_axis_has_one_channel() -> None:
    inputs = {**batch_inputs(2, 1), "x": normal(5)}
    got = run_here(node_model("BatchNormalization", inputs, opset=15), inputs)
    x, s, b, m, v = inputs.values()
    assert_same(got, [(x - m) / np.sqrt(v + 1e-5) * s + b], **CLOSE)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    "attributes", [{"is_test": 1}, {"is_test": 0}, {"spatial": 1, "is_test": 1}]
)
def test_batch_normalization_of_old_opsets(opset: int, attributes: dict) -> None:
    inputs = batch_inputs(2, 3, 4, 5)
    more: dict[str, Any] = {"consumed_inputs": [0, 0, 0, 1, 1]} if opset == 1 else {}
    got = run_here(
        node_model("BatchNormalization", inputs, opset=opset, **attributes, **more), inputs
    )
    assert_same(got, [batch_norm(**inputs)], **CLOSE)


@pytest.mark.parametrize("opset", [6, 8])
def test_batch_normalization_with_statistics_for_each_element(opset: int) -> None:
    inputs = batch_inputs(2, 3, 4, statistic=(3, 4))
    x, s, b, m, v = inputs.values()
    got = run_here(node_model("BatchNormalization", inputs, opset=opset, spatial=0), inputs)
    assert_same(got, [(x - m) / np.sqrt(v + 1e-5) * s + b], **CLOSE)
    outputs = ["y", "m2", "v2", "sm", "sv"]
    got = run_here(
        node_model("BatchNormalization", inputs, outputs, opset=opset, spatial=0), inputs
    )
    mean, variance = x.mean(0), x.var(0)
    expected = [
        (x - mean) / np.sqrt(variance + 1e-5) * s + b,
        0.9 * m + 0.1 * mean,
        0.9 * v + 0.1 * variance,
        mean,
        variance,
    ]
    assert_same(got, [e.astype(np.float32) for e in expected], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("opset", "outputs"), [(9, 5), (7, 3), (14, 3), (15, 3)])
def test_batch_normalization_in_training(opset: int, outputs: int) -> None:
    inputs = batch_inputs(2, 3, 4, 5)
    names = ["y", "m2", "v2", "sm", "sv"][:outputs]
    attributes: dict[str, Any] = {"training_mode": 1} if opset >= 14 else {}
    model = node_model(
        "BatchNormalization", inputs, names, opset=opset, momentum=0.75, **attributes
    )
    x = inputs["x"]
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    expected = [
        batch_norm(x, inputs["s"], inputs["b"], mean, variance),
        0.75 * inputs["m"] + 0.25 * mean,
        0.75 * inputs["v"] + 0.25 * variance,
        mean,
        variance,
    ]
    assert_same(run_here(model, inputs), expected[:outputs], rtol=1e-5, atol=1e-5)


def test_is_test_gives_the_running_statistics_back() -> None:
    inputs = batch_inputs(2, 3, 4)
    names = ["y", "m2", "v2"]
    got = run_here(node_model("BatchNormalization", inputs, names, opset=6, is_test=1), inputs)
    assert_same(got, [batch_norm(**inputs), inputs["m"], inputs["v"]], **CLOSE)


def test_running_statistics_without_training_are_refused() -> None:
    inputs = batch_inputs(2, 3, 4)
    with pytest.raises(MalformedModelError, match="training_mode"):
        run_here(node_model("BatchNormalization", inputs, ["y", "m2", "v2"], opset=15), inputs)


def test_batch_normalization_of_mixed_types_computes_in_float32() -> None:
    wide = batch_inputs(2, 3, 4)
    inputs = {**wide, "x": wide["x"].astype(np.float16), "s": wide["s"].astype(np.float16),
              "b": wide["b"].astype(np.float16)}  # fmt: skip
    got = run_here(node_model("BatchNormalization", inputs, opset=15), inputs)
    arrays: dict[str, Any] = {n: a.astype(np.float32) for n, a in inputs.items()}
    assert_same(got, [batch_norm(**arrays).astype(np.float16)])


# ---- LRN and LpNormalization ----------------------------------------------------------------


def naive_lrn(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    out = np.empty_like(x)
    for c in range(x.shape[1]):
        low = max(0, c - (size - 1) // 2)
        high = min(x.shape[1] - 1, c + -(-(size - 1) // 2))
        total = (x[:, low : high + 1] ** 2).sum(1)
        out[:, c] = x[:, c] / (bias + alpha / size * total) ** beta
    return out


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 6, 2, 3), (3, 4)])
def test_lrn_of_any_size_and_rank(size: int, shape: tuple) -> None:
    x = normal(*shape)
    options: dict[str, Any] = {"alpha": 0.5, "beta": 0.75, "bias": 2.0}
    for opset in (1, 13):
        got = run_here(node_model("LRN", {"x": x}, opset=opset, size=size, **options), {"x": x})
        assert_same(got, [naive_lrn(x, size, **options)], **CLOSE)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_like_onnxruntime(size: int) -> None:
    inputs = {"x": normal(2, 5, 3, 4)}
    assert_like_onnxruntime("LRN", inputs, opset=13, size=size, alpha=0.1, **CLOSE)


@pytest.mark.parametrize(("p", "axis"), [(p, axis) for p in (1, 2) for axis in (0, 1, -1)])
def test_lp_normalization_like_onnxruntime(p: int, axis: int) -> None:
    inputs = {"x": normal(3, 4, 5)}
    inputs["x"][0] = 0
    inputs["x"][:, 1] = 0
    inputs["x"][..., 2] = 0
    assert_like_onnxruntime("LpNormalization", inputs, opset=11, p=p, axis=axis, **CLOSE)


def test_lp_normalization_of_nothing_but_zeros_and_of_narrow_floats() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert_same(run_here(node_model("LpNormalization", {"x": zeros}), {"x": zeros}), [zeros])
    x = np.array([30000, 40000], np.float16)
    got = run_here(node_model("LpNormalization", {"x": x}, opset=22), {"x": x})
    assert_same(got, [np.array([0.6, 0.8], np.float16)])
    with pytest.raises(MalformedModelError, match="p must be 1 or 2"):
        run_here(node_model("LpNormalization", {"x": zeros}, p=3), {"x": zeros})
