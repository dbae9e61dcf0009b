"""Operators of com.microsoft that fuse others, against onnxruntime or by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph.errors import KnError, UnsupportedModelError
from kn_graph.onnx import load_graph_from_onnx_bytes
from tests.ops.single_node import (
    MICROSOFT,
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

F32 = np.float32
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6, "domain": MICROSOFT}


def random(*shape: int, seed: int = 0, dtype: Any = F32) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def here(operator: str, inputs: dict[str, Any], outputs: Any = ("y",), **options: Any) -> Any:
    model = node_model(operator, inputs, outputs, domain=MICROSOFT, **options)
    return run_here(model, inputs)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return run_here(node_model("Gelu", {"x": x}, opset=20), {"x": x})[0]


# ---- activations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "inputs", "options"),
    [
        ("Gelu", {"x": random(3, 7)}, {}),
        ("FastGelu", {"x": random(3, 7)}, {}),
        ("FastGelu", {"x": random(3, 7), "b": random(7)}, {}),
        ("BiasGelu", {"x": random(3, 7), "b": random(7)}, {}),
        ("QuickGelu", {"x": random(3, 7)}, {}),
        ("QuickGelu", {"x": random(3, 7)}, {"alpha": 0.5}),
    ],
)
def test_activations(operator: str, inputs: Any, options: Any) -> None:
    assert_like_onnxruntime(operator, inputs, **options, **CLOSE)


def test_bias_split_gelu_and_bias_add() -> None:
    x, b = random(2, 3, 8), random(8)
    left, right = np.split(x + b, 2, axis=-1)
    assert_same(here("BiasSplitGelu", {"x": x, "b": b}), [left * gelu(right)], rtol=1e-6)
    assert_same(here("BiasAdd", {"x": x, "b": b, "r": 2 * x}), [x + b + 2 * x], rtol=1e-6)


def test_bias_dropout_keeps_everything() -> None:
    inputs = {"x": random(2, 4), "b": random(4), "r": random(2, 4, seed=1)}
    y, mask = here("BiasDropout", inputs, ("y", "mask"))
    assert_same([y], [inputs["x"] + inputs["b"] + inputs["r"]], rtol=1e-6)
    assert mask.all()
    inputs |= {"ratio": F32(0.5), "training": np.bool_(True)}
    with pytest.raises(UnsupportedModelError, match="at random"):
        here("BiasDropout", inputs, constant=["ratio", "training"])


@pytest.mark.parametrize(("inner", "shape"), [(1, (2, 1, 1, 5)), (1, (2, 5)), (0, (3, 5))])
def test_bias_softmax(inner: int, shape: tuple[int, ...]) -> None:
    x, b = random(2, 4, 3, 5), random(*shape)
    full = b.reshape(2, 1, 1, 5) if inner else b
    powers = np.exp(x + full)
    expected = powers / powers.sum(-1, keepdims=True)
    got = here("BiasSoftmax", {"x": x, "b": b}, axis=3, is_inner_broadcast=inner)
    assert_same(got, [expected], rtol=1e-5)


# ---- normalisation --------------------------------------------------------------------------

NORMALS: list[tuple[str, dict[str, Any]]] = [
    ("SkipLayerNormalization", {"beta": random(6, seed=3)}),
    ("SkipLayerNormalization", {"beta": None}),
    ("SkipLayerNormalization", {"beta": None, "bias": random(6, seed=4)}),
    ("SkipLayerNormalization", {"beta": random(6, seed=3), "bias": random(6, seed=4)}),
    ("SkipSimplifiedLayerNormalization", {}),
    ("SkipSimplifiedLayerNormalization", {"bias": random(6, seed=4)}),
]


@pytest.mark.parametrize("skip", [(2, 3, 6), (1, 3, 6), (3, 6)])
@pytest.mark.parametrize(("operator", "more"), NORMALS)
def test_skip_layer_norms(operator: str, more: dict[str, Any], skip: tuple[int, ...]) -> None:
    inputs = {"x": random(2, 3, 6), "skip": random(*skip, seed=1), "gamma": random(6, seed=2)}
    outputs = ("y", "", "", "sum")
    assert_like_onnxruntime(operator, inputs | more, outputs, epsilon=1e-5, **CLOSE)


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_statistics_of_a_skip_layer_norm(operator: str) -> None:
    inputs = {"x": random(2, 3, 6), "skip": random(2, 3, 6, seed=1), "gamma": np.ones(6, F32)}
    y, mean, inverse = here(operator, inputs, ("y", "m", "i"), epsilon=1e-5)
    total = inputs["x"] + inputs["skip"]
    shift = mean if operator.startswith("SkipL") else 0
    assert_same([mean], [total.mean(-1, keepdims=True)], rtol=1e-5, atol=1e-6)
    assert_same([(total - shift) * inverse], [y], rtol=1e-5, atol=1e-6)


def test_simplified_layer_norm_is_in_the_domain_of_onnx() -> None:
    inputs = {"x": random(2, 3, 6), "scale": random(6)}
    assert_like_onnxruntime(
        "SimplifiedLayerNormalization", inputs, axis=-1, epsilon=1e-3, rtol=1e-5, atol=1e-6
    )  # fmt: skip
    y, inverse = run_here(node_model("SimplifiedLayerNormalization", inputs, ("y", "i")), inputs)
    assert_same([inputs["x"] * inverse * inputs["scale"]], [y], rtol=1e-5)


def test_simplified_layer_norm_over_several_axes() -> None:
    inputs = {"x": random(2, 3, 6), "scale": random(3, 6)}
    y, inverse = run_here(
        node_model("SimplifiedLayerNormalization", inputs, ("y", "i"), axis=1), inputs
    )
    assert inverse.shape == (2, 1, 1)
    assert_same([inputs["x"] * inverse * inputs["scale"]], [y], rtol=1e-5)


@pytest.mark.parametrize("opset", [1, 11, 16])
def test_layer_norm_of_opsets_before_onnx_had_it(opset: int) -> None:
    inputs = {"x": random(2, 3, 6), "scale": random(6), "b": random(6, seed=1)}
    options: dict[str, Any] = {"opset": opset, "epsilon": 1e-3, "axis": -1}
    new = node_model("LayerNormalization", inputs, **options | {"opset": 17})
    old = node_model("LayerNormalization", inputs, **options)
    assert_same(run_here(old, inputs), run_here(new, inputs))


def embed_inputs(**more: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {
        "ids": np.array([[1, 4, 0], [2, 2, 3]], np.int32),
        "segments": np.array([[0, 0, 1], [0, 1, 1]], np.int32),
        "words": random(5, 8),
        "positions": random(4, 8),
        "kinds": random(2, 8),
        "gamma": random(8),
        "beta": random(8, seed=1),
        "mask": None,
        "where": None,
    }
    return inputs | more


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"segments": None, "kinds": None},
        {"mask": np.array([[1, 1, 0], [1, 0, 0]], np.int32)},
        {"where": np.array([[3, 0, 1], [1, 1, 2]], np.int32)},
    ],
    ids=["plain", "no segments", "mask", "positions"],
)
def test_embed_layer_norm(more: Any) -> None:
    outputs = ("y", "mask_index", "sum")
    assert_like_onnxruntime("EmbedLayerNormalization", embed_inputs(**more), outputs, **CLOSE)


@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last: int) -> None:
    x, gamma, beta = random(2, 3, 5, 6), random(6), random(6, seed=1)
    parts = x.reshape(2, 15, 2, 3)
    centered = parts - parts.mean((1, 3), keepdims=True)
    normal = centered / np.sqrt(np.square(centered).mean((1, 3), keepdims=True) + 1e-5)
    expected = normal.reshape(x.shape) * gamma + beta
    expected = expected * sigmoid(expected)

    def laid_out(v: Any) -> Any:
        return v if last else v.transpose(0, 3, 1, 2)

    inputs = {"x": laid_out(x), "gamma": gamma, "beta": beta}
    options = {"groups": 2, "activation": 1, "channels_last": last}
    got = here("GroupNorm", inputs, **options)
    assert_same(got, [laid_out(expected)], rtol=1e-4, atol=1e-5)


def test_skip_group_norm() -> None:
    x, skip, bias = random(2, 3, 5, 6), random(2, 6), random(6, seed=2)
    ones, zeros = np.ones(6, F32), np.zeros(6, F32)
    inputs = {"x": x, "gamma": ones, "beta": zeros, "skip": skip, "bias": bias}
    y, total = here("SkipGroupNorm", inputs, ("y", "s"), groups=3, activation=0)
    assert_same([total], [x + skip[:, None, None] + bias], rtol=1e-6)
    plain = {"x": total, "gamma": ones, "beta": zeros}
    assert_same([y], here("GroupNorm", plain, groups=3, activation=0), rtol=1e-6)


# ---- products -------------------------------------------------------------------------------

MATMULS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4), (2, 4, 5), {}),
    ((2, 3, 4), (4, 5), {"alpha": 0.5}),
    ((2, 4, 3), (2, 4, 5), {"transA": 1}),
    ((2, 3, 4), (2, 5, 4), {"transB": 1}),
    ((4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
    ((4, 2, 6, 3), (2, 6, 4, 5), {"transBatchA": 1, "transA": 1}),
    ((2, 6, 3, 4), (5, 2, 6, 4), {"transBatchB": 1, "transB": 1}),
]


@pytest.mark.parametrize(("a", "b", "options"), MATMULS, ids=str)
def test_fused_matmul(a: Any, b: Any, options: Any) -> None:
    assert_like_onnxruntime("FusedMatMul", {"a": random(*a), "b": random(*b)}, **options, **CLOSE)


def test_transpose_matmul() -> None:
    inputs = {"a": random(4, 3), "b": random(4, 5)}
    assert_like_onnxruntime("TransposeMatMul", inputs, transA=1, alpha=2.0, **CLOSE)


GEMMS: list[dict[str, Any]] = [
    {"activation": "Relu", "alpha": 0.5, "beta": 2.0},
    {"activation": "LeakyRelu", "activation_alpha": 0.2, "transA": 1},
    {"activation": "HardSigmoid", "activation_alpha": 0.1, "activation_beta": 0.4, "transB": 1},
    {"activation": "Sigmoid"},
    {"activation": "Tanh"},
]


@pytest.mark.parametrize("options", GEMMS, ids=str)
def test_fused_gemm(options: dict[str, Any]) -> None:
    a = random(4, 3) if options.get("transA") else random(3, 4)
    b = random(5, 4) if options.get("transB") else random(4, 5)
    inputs = {"a": a, "b": b, "c": random(5)}
    assert_like_onnxruntime("FusedGemm", inputs, **options, **CLOSE)


# ---- convolutions ---------------------------------------------------------------------------

CONVS: list[dict[str, Any]] = [
    {"activation": "Relu"},
    {"activation": "LeakyRelu", "activation_params": [0.3], "pads": [1, 1, 1, 1]},
    {"activation": "Clip", "activation_params": [-0.5, 0.5], "strides": [2, 2]},
    {"activation": "HardSigmoid", "activation_params": [0.2, 0.5], "group": 2},
    {"activation": "Sigmoid", "auto_pad": "SAME_LOWER"},
    {"activation": "Tanh", "dilations": [2, 2]},
]


def conv_inputs(options: dict[str, Any], residual: bool) -> dict[str, Any]:
    inputs = {"x": random(2, 4, 7, 7), "w": random(6, 4 // options.get("group", 1), 3, 3)}
    inputs["b"] = random(6)
    plain = {k: v for k, v in options.items() if not k.startswith("activation")}
    (y,) = run_here(node_model("Conv", inputs, **plain), inputs)
    return inputs | {"z": random(*y.shape, seed=1) if residual else None}


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("options", CONVS, ids=str)
def test_fused_conv(options: dict[str, Any], residual: bool) -> None:
    inputs = conv_inputs(options, residual)
    assert_like_onnxruntime("FusedConv", inputs, **options, **CLOSE | {"atol": 1e-5})


@pytest.mark.parametrize("options", CONVS, ids=str)
def test_nhwc_fused_conv_is_a_permutation(options: dict[str, Any]) -> None:
    inputs = conv_inputs(options, residual=True)
    (expected,) = here("FusedConv", inputs, **options)
    inputs |= {n: inputs[n].transpose(0, 2, 3, 1) for n in "xz"}
    assert_same(here("NhwcFusedConv", inputs, **options), [expected.transpose(0, 2, 3, 1)])


def test_nhwc_conv_is_a_conv() -> None:
    inputs = {"x": random(2, 4, 7, 7), "w": random(6, 4, 3, 3)}
    (expected,) = run_here(node_model("Conv", inputs), inputs)
    inputs["x"] = inputs["x"].transpose(0, 2, 3, 1)
    assert_same(here("NhwcConv", inputs), [expected.transpose(0, 2, 3, 1)])


# ---- the rest -------------------------------------------------------------------------------


def test_expand_dims() -> None:
    inputs = {"x": random(2, 3), "axis": np.array(1, np.int32)}
    assert_like_onnxruntime("ExpandDims", inputs, constant=["axis"], domain=MICROSOFT)


def test_symbolic_sizes() -> None:
    inputs = embed_inputs(mask=np.ones((2, 3), np.int32))
    symbolic = dict.fromkeys(("ids", "segments", "mask"), ("batch", "seq"))
    model = node_model(
        "EmbedLayerNormalization", inputs, ("y", "m"), domain=MICROSOFT, symbolic=symbolic
    )
    graph = load_graph_from_onnx_bytes(model)
    assert [str(v.type) for v in graph.outputs.values()] == [
        "float32[batch, seq, 8]",
        "int32[batch]",
    ]
    inputs |= {n: inputs[n][:1, :2] for n in symbolic}
    expected = run_onnxruntime(model, inputs)
    assert_same(run_here(model, inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "inputs", "options", "text"),
    [
        ("FusedConv", conv_inputs({}, False), {"activation": "Mystery"}, "'Mystery'"),
        ("FusedMatMul", {"a": random(2, 3), "b": random(4, 5)}, {}, "inner size"),
        ("GroupNorm", {"x": random(2, 3, 3, 4), "g": random(4), "b": random(4)},
         {"groups": 3, "activation": 0}, "view"),
        ("FastGelu", {"x": random(2, 3), "b": random(3)}, {"alpha": 1.0}, "alpha"),
    ],
)  # fmt: skip
def test_bad_nodes_are_refused(operator: str, inputs: Any, options: Any, text: str) -> None:
    with pytest.raises(KnError, match=text):
        here(operator, inputs, **options)
