"""Batch normalisation and the like, as exporters write them, and what is left of real models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kn_graph import DType, Graph, load_graph_from_onnx_bytes
from models.generate import build, inputs
from tests.optimizer.rewriting import (
    EXPORTS,
    MODELS,
    RNG,
    assert_equal,
    channels,
    feeds,
    ops,
    optimized,
    other_scalar_ops,
    random,
    refusals,
    scaled_bias,
    stored,
)

# ---- as exporters write it ------------------------------------------------------------------


def model(
    nodes, weights, x_shape, y_shape, opset: int = 15, dtype: int = TensorProto.FLOAT
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", dtype, x_shape)],
        [helper.make_tensor_value_info("y", dtype, y_shape)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString()
    return data


def norm_weights(n: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    names = ("scale", "bias", "mean", "var")
    return {k: RNG.uniform(0.5, 2, n).astype(dtype) for k in names}


@pytest.mark.parametrize("opset", [7, 9, 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_convolution_with_batch_normalization(opset, dtype):
    """PyTorch's exporter in training mode "preserve", and paddle2onnx, keep the node."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    weights = norm_weights(8, dtype) | {"w": RNG.standard_normal((8, 3, 3, 3)).astype(dtype)}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = ["n", 3, 6, 6]
    g = load_graph_from_onnx_bytes(model(nodes, weights, shape, ["n", 8, 6, 6], opset, code))
    out, report = optimized(g)
    assert report.fired["affine"] == 1
    assert report.fired["affine_cast"] == (dtype is np.float16)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    for n in (0, 2):
        assert_equal(g, out, feeds(g, n=n))


def test_batch_normalization_alone():
    node = helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["y"])
    g = load_graph_from_onnx_bytes(model([node], norm_weights(8), ["n", 8, 6], ["n", 8, 6]))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"mul": 1, "add": 1}
    assert_equal(g, out, feeds(g))


def test_paddle_block():
    """paddle2onnx: a convolution, its bias, a batch norm, and a learnable scale and bias."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=4),
        helper.make_node("Reshape", ["b", "shape"], ["r"]),
        helper.make_node("Add", ["c", "r"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Identity", ["s"], ["i"]),
        helper.make_node("Mul", ["i", "n"], ["m"]),
        helper.make_node("Add", ["m", "t"], ["l"]),
        helper.make_node("Relu", ["l"], ["y"]),
    ]
    weights = norm_weights(8) | {
        "w": RNG.standard_normal((8, 1, 3, 3)).astype(np.float32),
        "b": RNG.standard_normal(8).astype(np.float32),
        "shape": np.array([1, 8, 1, 1]),
        "s": np.array([1.5], np.float32),
        "t": np.array([-0.25], np.float32),
    }
    g = load_graph_from_onnx_bytes(model(nodes, weights, ["n", 4, 6, 6], ["n", 8, 6, 6]))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_wide_arithmetic_behind_narrow_products(narrow):
    g = Graph()
    dtype = DType.parse(narrow)
    x = g.input("x", narrow, ["n", 3, 4, 4])
    y = g.cast(g.conv(x, random(g, 4, 3, 3, 3, dtype=narrow)), DType.FLOAT32)
    g.output("y", g.relu(g.cast(scaled_bias(y, 4), dtype)))
    out, _ = optimized(g, affine_cast=1)
    assert ops(out) == {"Conv": 1, "add": 1, "relu": 1}
    assert_equal(g, out, feeds(g))


def test_near_miss_casts_with_other_readers():
    g = Graph()
    x = g.input("x", "float16", ["n", 3, 4, 4])
    y = g.cast(g.conv(x, random(g, 4, 3, 3, 3, dtype="float16")), DType.FLOAT32)
    z = y * channels(y, 4)
    g.output("y", g.cast(z, DType.FLOAT16))
    g.output("z", g.relu(z))
    optimized(g, affine_cast=0)


@pytest.mark.parametrize("fn", ["mul", "add"])
def test_near_miss_constant_does_not_fit_the_narrow_type(fn):
    g = Graph()
    x = g.input("x", "float16", ["n", 3, 4, 4])
    y = g.cast(g.conv(x, random(g, 4, 3, 3, 3, dtype="float16")), DType.FLOAT32)
    y = g.binary(fn, y, g.scalar(1e6, y.dtype))
    g.output("y", g.cast(y, DType.FLOAT16))
    _, report = optimized(g, affine_cast=0)
    assert refusals(report, "affine_cast")


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_gemm_leaves_no_factors(beta):
    """Gemm with alpha, beta and transB, as sklearn2onnx writes it."""
    weights = RNG.standard_normal((5, 4)).astype(np.float32)
    bias = RNG.standard_normal(5).astype(np.float32)
    gemm = helper.make_node("Gemm", ["x", "w", "c"], ["y"], alpha=0.25, beta=beta, transB=1)
    g = load_graph_from_onnx_bytes(model([gemm], {"w": weights, "c": bias}, (None, 4), (None, 5)))
    out, _ = optimized(g, affine=1)
    assert ops(out) == {"MatMul": 1, "add": 1}
    assert "Permute" not in [n.op.title for n in out.nodes]  # `fold` transposes the weights
    assert_equal(g, out, feeds(g))


# ---- models ---------------------------------------------------------------------------------


def test_generated_residual_cnn():
    g = load_graph_from_onnx_bytes(build("residual_cnn").SerializeToString())
    out, report = optimized(g)
    assert report.fired["affine"] == 6
    assert not other_scalar_ops(out)
    assert_equal(g, out, inputs("residual_cnn"))


@pytest.mark.real_models
@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenetv2", "mobilenetv3s"])
def test_exported_classifiers_have_biases_alone(name, exporter):
    g = stored(EXPORTS, f"{name}.{exporter}.onnx")
    out, _ = optimized(g)
    assert not other_scalar_ops(out)


@pytest.mark.real_models
@pytest.mark.parametrize(
    ("name", "fired", "left"),
    [
        ("e47acedf6632", 35, set()),  # rapidocr: ch_ppocr_mobile_v2.0_cls, paddle2onnx
        ("fb29e60f4b22", 53, set()),  # yahoo open_nsfw, tf2onnx
        ("d2a7720d45a5", 32, {"mul of hard_swish", "add of hard_swish", "add of mul"}),
        ("0857526d9cbc", 7, set()),  # madmom chords
    ],
)
def test_real_models(name, fired, left):
    out, _ = optimized(stored(MODELS, f"{name}.onnx"), affine=fired)
    assert set(other_scalar_ops(out)) <= left
