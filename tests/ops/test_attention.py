"""Scaled dot product attention, and the ONNX operator around it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, MalformedModelError, ShapeError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.attention import Attention
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

RNG = np.random.default_rng(13)
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
TOKENS = {"B": 2, "H": 4, "S": 3, "T": 5, "D": 8, "Dv": 6}


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def qkv(heads: int = 4, kv_heads: int = 4, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    shapes = {"q": (2, heads, 3, 8), "k": (2, kv_heads, 5, 8), "v": (2, kv_heads, 5, 6)}
    return {n: normal(*s, dtype=dtype) for n, s in shapes.items()}


def attend(arrays: dict[str, np.ndarray], **options: Any) -> np.ndarray:
    """Run the operation; `bias` and `lengths` may be among the arrays."""
    g = Graph()
    values: dict[str, Any] = {
        n: g.input(n, DType.from_numpy(a.dtype), a.shape) for n, a in arrays.items()
    }
    g.output("out", g.attention(**values, **options))
    return cpu_eval_graph(g, arrays)["out"]


def naive(
    arrays: dict[str, np.ndarray],
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    offset: int = 0,
    softcap: float | None = None,
) -> np.ndarray:
    """One query at a time, in float64."""
    q, k, v = (arrays[n].astype(np.float64) for n in "qkv")
    scale = 1 / np.sqrt(q.shape[3]) if scale is None else scale
    shared = q.shape[1] // k.shape[1]
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        count = k.shape[2]
        start = offset
        if "lengths" in arrays:
            count = int(arrays["lengths"][b])
            start = count - q.shape[2]
        scores = k[b, h // shared, :count] @ q[b, h, i] * scale
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        seen = np.ones(count, bool)
        j = np.arange(count)
        if left is not None:
            seen &= j >= i + start - left
        if right is not None:
            seen &= j <= i + start + right
        if "bias" in arrays:
            bias = np.broadcast_to(arrays["bias"], (*q.shape[:3], k.shape[2]))[b, h, i, :count]
            seen &= bias if bias.dtype == bool else np.isfinite(bias)
            scores = scores if bias.dtype == bool else scores + bias
        if seen.any():
            weights = np.exp(scores[seen] - scores[seen].max())
            out[b, h, i] = weights @ v[b, h // shared, :count][seen] / weights.sum()
    return out


OPTIONS: list[dict[str, Any]] = [
    {},
    {"scale": 0.25},
    {"right": 0},
    {"right": 0, "offset": 2},
    {"right": 0, "offset": -2},
    {"left": 1, "right": 1},
    {"left": 1, "offset": 2},
    {"right": 1},
    {"softcap": 2.0},
    {"softcap": 2.0, "right": 0, "scale": -1.0},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("extra", ["", "bool", "float", "lengths", "both"])
def test_attention_follows_the_formula(options: dict, kv_heads: int, extra: str) -> None:
    arrays = qkv(4, kv_heads)
    if extra in ("bool", "both"):
        arrays["bias"] = RNG.random((2, 4, 3, 5)) < 0.6
    if extra == "float":
        bias = normal(4, 1, 5)
        arrays["bias"] = np.where(RNG.random(bias.shape) < 0.3, np.float32(-np.inf), bias)
    if extra in ("lengths", "both"):
        arrays["lengths"] = np.array([2, 5])
        if "offset" in options:
            return
    got = attend(arrays, **options)
    assert_same([got], [naive(arrays, **options).astype(np.float32)], **CLOSE)


def test_causal_is_a_right_bound_of_0() -> None:
    arrays = qkv()
    assert_same([attend(arrays, causal=True)], [attend(arrays, right=0)])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_once(dtype: Any) -> None:
    arrays = qkv(dtype=dtype)
    wide = {n: a.astype(np.float32) for n, a in arrays.items()}
    assert_same([attend(arrays)], [attend(wide).astype(dtype)])
    big = {n: np.full_like(a, 200) for n, a in arrays.items()}  # 8 * 200^2 overflows a half
    assert np.all(attend(big).astype(np.float32) == 200)


def test_a_query_that_sees_nothing_gives_zeros_and_nan_stays_in_its_row() -> None:
    arrays = qkv()
    arrays["bias"] = np.ones((3, 5), bool)
    arrays["bias"][1] = False
    arrays["q"][0, 0, 0, 0] = np.nan
    arrays["q"][0, 0, 1, 0] = np.nan
    got = attend(arrays)
    assert not got[:, :, 1].any()
    assert np.isnan(got[0, 0, 0]).all()
    assert np.isnan(got).sum() == 6


@pytest.mark.parametrize("empty", ["B", "S", "T", "D", "Dv"])
def test_empty_axes(empty: str) -> None:
    n = {**TOKENS, empty: 0}
    shapes = {"q": "BHSD", "k": "BHTD", "v": ["B", "H", "T", "Dv"]}
    arrays = {k: np.ones([n[a] for a in axes], np.float32) for k, axes in shapes.items()}
    got = attend(arrays)
    assert got.shape == (n["B"], 4, n["S"], n["Dv"])
    assert np.all(got == (0 if empty == "T" else 1))


def test_symbolic_sizes() -> None:
    g = Graph()
    past = g.symbol("past", lo=0)
    q = g.input("q", "float32", ["b", 4, "s", 8])
    k = g.input("k", "float32", ["b", 2, past + g.symbol("s"), 8])
    out = g.attention(q, k, k, causal=True, offset=past)
    g.output("out", out)
    assert str(out.type) == "float32[b, 4, s, 8]"
    for length in (0, 3):
        arrays = {"q": normal(1, 4, 2, 8), "k": normal(1, 2, 2 + length, 8)}
        got = cpu_eval_graph(g, arrays)["out"]
        expected = naive({**arrays, "v": arrays["k"]}, right=0, offset=length)
        assert_same([got], [expected.astype(np.float32)], **CLOSE)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"k": (2, 4, 5, 7)}, ShapeError),
        ({"k": (1, 4, 5, 8)}, ShapeError),
        ({"k": (2, 3, 5, 8), "v": (2, 3, 5, 6)}, ShapeError),
        ({"v": (2, 4, 4, 6)}, ShapeError),
        ({"v": (2, 2, 5, 6)}, ShapeError),
        ({"q": (2, 3, 8)}, ShapeError),
    ],
)
def test_attention_refuses_what_does_not_fit(changes: dict, error: Any) -> None:
    arrays = {**qkv(), **{n: normal(*s) for n, s in changes.items()}}
    with pytest.raises(error):
        attend(arrays)


def test_attention_refuses_wrong_masks() -> None:
    arrays = qkv()
    for bias, error in (
        (np.ones((3, 4), bool), ShapeError),
        (np.ones((2, 4, 3, 5), np.int32), DTypeError),
        (np.ones((2, 4, 3, 5), np.float64), DTypeError),
    ):
        with pytest.raises(error):
            attend({**arrays, "bias": bias})
    for lengths, error in ((np.array([1, 2, 3]), ShapeError), (np.ones(2, np.int32), DTypeError)):
        with pytest.raises(error):
            attend({**arrays, "lengths": lengths})


# ---- ONNX -----------------------------------------------------------------------------------


def nodes_of(model: bytes) -> list[str]:
    return [n.op.title for n in load_graph_from_onnx_bytes(model).nodes if n.operands]


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"is_causal": 1}, {"scale": 0.5, "softcap": 3.0}, {"is_causal": 1, "softcap": 1.0}],
)
@pytest.mark.parametrize("mask", ["", "bool", "float"])
def test_attention_like_onnxruntime(opset: int, kv_heads: int, attributes: dict, mask: str) -> None:
    inputs: dict[str, Any] = {
        "q": normal(2, 4, 5, 8), "k": normal(2, kv_heads, 5, 8), "v": normal(2, kv_heads, 5, 6)
    }  # fmt: skip
    if mask:
        allowed = np.tril(np.ones((5, 5), bool), 2)
        inputs["m"] = allowed if mask == "bool" else normal(2, 1, 5, 5)
    model = node_model("Attention", inputs, opset=opset, **attributes)
    assert_same(run_here(model, inputs), run_onnxruntime(model, inputs), **CLOSE)
    if not mask:
        assert nodes_of(model) == ["Attention"]


def test_inputs_of_rank_3_are_split_into_heads() -> None:
    inputs = {"q": normal(2, 3, 32), "k": normal(2, 5, 16), "v": normal(2, 5, 12)}
    attributes: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
    assert_like_onnxruntime("Attention", inputs, opset=23, **CLOSE, **attributes)
    symbolic = {"q": ["b", "s", 32], "k": ["b", "t", 16], "v": ["b", "t", 12]}
    assert_like_onnxruntime("Attention", inputs, opset=23, symbolic=symbolic, **CLOSE, **attributes)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [0, 2])
def test_past_keys_come_first_and_shift_the_queries(causal: int, past: int) -> None:
    inputs: dict[str, Any] = {
        "q": normal(2, 4, 3, 8), "k": normal(2, 2, 3, 8), "v": normal(2, 2, 3, 6), "m": None,
        "pk": normal(2, 2, past, 8), "pv": normal(2, 2, past, 6),
    }  # fmt: skip
    names = ["y", "present_key", "present_value"]
    symbolic = {"pk": ["b", 2, "past", 8], "pv": ["b", 2, "past", 6]}
    model = node_model("Attention", inputs, names, opset=23, is_causal=causal, symbolic=symbolic)
    got = run_here(model, inputs)
    full = {n: np.concatenate([inputs["p" + n], inputs[n]], 2) for n in "kv"}
    expected = naive({"q": inputs["q"], **full}, right=0 if causal else None, offset=past)
    assert_same(got, [expected.astype(np.float32), full["k"], full["v"]], **CLOSE)


@pytest.mark.parametrize(
    ("left", "right", "causal"), [(1, -1, 0), (-1, 1, 0), (1, 2, 0), (1, 3, 1)]
)
def test_windows_of_opset_25(left: int, right: int, causal: int) -> None:
    inputs = qkv()
    model = node_model(
        "Attention",
        inputs,
        opset=25,
        left_window_size=left,
        right_window_size=right,
        is_causal=causal,
    )
    bounds = {"left": None if left < 0 else left, "right": 0 if causal else right}
    bounds["right"] = None if bounds["right"] == -1 else bounds["right"]
    expected = naive(inputs, **bounds).astype(np.float32)  # type: ignore[arg-type]
    assert_same(run_here(model, inputs), [expected], **CLOSE)


@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"left_window_size": 1}])
def test_lengths_hide_the_padding_of_each_batch(attributes: dict) -> None:
    inputs: dict[str, Any] = {**qkv(), "m": None, "pk": None, "pv": None, "n": np.array([2, 5])}
    got = run_here(node_model("Attention", inputs, opset=25, **attributes), inputs)
    arrays = {n: inputs[n] for n in "qkv"} | {"lengths": inputs["n"]}
    bounds: dict[str, Any] = {
        "right": 0 if "is_causal" in attributes else None,
        "left": attributes.get("left_window_size"),
    }
    assert_same(got, [naive(arrays, **bounds).astype(np.float32)], **CLOSE)


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_a_short_mask_hides_the_keys_behind_it(dtype: Any) -> None:
    inputs: dict[str, Any] = {**qkv(), "m": np.ones((3, 3), dtype)}
    got = run_here(node_model("Attention", inputs, opset=23), inputs)
    inputs["k"], inputs["v"] = inputs["k"][:, :, :3], inputs["v"][:, :, :3]
    expected = naive({n: inputs[n] for n in "qkv"}).astype(np.float32)
    assert_same(got, [expected], **CLOSE)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores_at_each_stage(mode: int) -> None:
    inputs: dict[str, Any] = {**qkv(), "m": normal(2, 4, 3, 5)}
    inputs["m"][0, 0, 0] = -np.inf
    model = node_model(
        "Attention",
        inputs,
        ["y", "", "", "s"],
        opset=24,
        softcap=1.5,
        qk_matmul_output_mode=mode,
    )
    raw = np.matmul(inputs["q"], inputs["k"].swapaxes(2, 3)) / np.sqrt(8)
    capped = 1.5 * np.tanh(raw / 1.5)
    biased = capped + inputs["m"]
    with np.errstate(invalid="ignore"):
        weights = np.exp(biased - biased.max(-1, keepdims=True))
        weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
    y, s = run_here(model, inputs)
    expected = [raw, capped, biased, weights][mode]
    outputs = [np.matmul(weights, inputs["v"]), expected]
    assert_same([y, s], [x.astype(np.float32) for x in outputs], **CLOSE)


def test_types_that_differ_and_a_wider_softmax() -> None:
    inputs: dict[str, Any] = qkv(dtype=np.float16)
    inputs["v"] = inputs["v"].astype(np.float32)
    got = run_here(node_model("Attention", inputs, opset=23), inputs)
    wide = {n: a.astype(np.float32) for n, a in inputs.items()}
    assert_same(got, [naive(wide).astype(np.float16)], rtol=2e-3, atol=1e-3)
    model = node_model("Attention", wide, opset=23, softmax_precision=11)
    assert_same(run_here(model, wide), [naive(wide).astype(np.float32)], **CLOSE)
    (op,) = (n.op for n in load_graph_from_onnx_bytes(model).nodes if isinstance(n.op, Attention))
    assert op.softmax_dtype is DType.FLOAT64


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ({"q": normal(2, 3, 32), "k": normal(2, 5, 16), "v": normal(2, 5, 12)}, {}),
        (
            {"q": normal(2, 3, 30), "k": normal(2, 5, 16), "v": normal(2, 5, 12)},
            {"q_num_heads": 4, "kv_num_heads": 2},
        ),
        ({**qkv(), "m": None, "pk": normal(2, 4, 1, 8)}, {}),
        (qkv(), {"qk_matmul_output_mode": 4}),
        (qkv(), {"is_causal": 2}),
        ({n: a[0, 0] for n, a in qkv().items()}, {}),
    ],
)
def test_wrong_nodes_are_refused(inputs: dict, attributes: dict) -> None:
    with pytest.raises(MalformedModelError, match="node node"):
        run_here(node_model("Attention", inputs, opset=24, **attributes), inputs)
