"""Attention operators of com.microsoft, against onnxruntime or by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph.errors import KnError
from kn_graph.onnx import load_graph_from_onnx_bytes
from tests.ops.single_node import (
    MICROSOFT,
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

F32, I32 = np.float32, np.int32
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5, "domain": MICROSOFT}
BATCH, HEADS, SIZE, QUERIES = 2, 3, 4, 5
HIDDEN = HEADS * SIZE


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(F32)


def here(operator: str, inputs: dict[str, Any], outputs: Any = ("y",), **options: Any) -> Any:
    model = node_model(operator, inputs, outputs, domain=MICROSOFT, **options)
    return run_here(model, inputs)


# ---- masks that Attention and MultiHeadAttention share ---------------------------------------


def masks(keys: int, queries: int = QUERIES) -> dict[str, Any]:
    rows = np.ones((BATCH, keys), I32)
    rows[0, 3:], rows[1, :2] = 0, 0
    grid = np.tril(np.ones((BATCH, queries, keys), I32), 1)
    return {
        "none": None,
        "lengths": np.array([3, keys], I32),
        "ends and starts": np.array([4, keys, 1, 2], I32),
        "keys": rows,
        "grid": grid,
    }


def attention_inputs(**more: Any) -> dict[str, Any]:
    inputs = {
        "x": random(BATCH, QUERIES, 6),
        "w": random(6, 3 * HIDDEN) / 2,
        "b": random(3 * HIDDEN),
        "mask": None,
        "past": None,
        "bias": None,
    }
    return inputs | more


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("mask", list(masks(5)))
def test_attention(mask: str, past: int, unidirectional: int) -> None:
    inputs = attention_inputs(mask=masks(QUERIES + past)[mask])
    if past:
        inputs["past"] = random(2, BATCH, HEADS, past, SIZE)
    assert_like_onnxruntime(
        "Attention",
        inputs,
        ("y", "present") if past else ("y",),
        num_heads=HEADS,
        unidirectional=unidirectional,
        **CLOSE,
    )


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({}, {"scale": 0.3}),
        ({"mask": masks(5)["keys"]}, {"mask_filter_value": -2.0}),
        ({"bias": random(1, HEADS, QUERIES, QUERIES)}, {}),
        ({"bias": random(BATCH, 1, QUERIES, QUERIES), "mask": masks(5)["keys"]}, {}),
        ({"b": None}, {}),
        ({"w": random(6, 30) / 2, "b": random(30)}, {"qkv_hidden_sizes": [HIDDEN, HIDDEN, 6]}),
    ],
)
def test_attention_options(more: Any, options: Any) -> None:
    assert_like_onnxruntime(
        "Attention", attention_inputs(**more), num_heads=HEADS, **options, **CLOSE
    )


def test_a_mask_for_all_positions_is_cut() -> None:
    mask = np.tril(np.ones((BATCH, 1, 9, 9), I32))
    got = here("Attention", attention_inputs(mask=mask), num_heads=HEADS)
    causal = here("Attention", attention_inputs(), num_heads=HEADS, unidirectional=1)
    assert_same(got, causal, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", ["none", "lengths", "keys"])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("past", [0, 2])
def test_qattention(past: int, columns: bool, mask: str) -> None:
    rng = np.random.default_rng(0)
    shape = (3 * HIDDEN,) if columns else ()
    inputs = {
        "x": rng.integers(0, 255, (BATCH, QUERIES, 6)).astype(np.uint8),
        "w": rng.integers(-30, 30, (6, 3 * HIDDEN)).astype(np.int8),
        "b": random(3 * HIDDEN),
        "xs": F32(0.02),
        "ws": np.abs(random(*shape)) / 50 + F32(0.01),
        "mask": masks(QUERIES + past)[mask],
        "xz": np.uint8(120),
        "wz": np.zeros(shape, np.int8),
        "past": random(2, BATCH, HEADS, past, SIZE) if past else None,
    }
    outputs = ("y", "present") if past else ("y",)
    assert_like_onnxruntime("QAttention", inputs, outputs, num_heads=HEADS, **CLOSE)


def multi_head_inputs(keys: int = QUERIES, **more: Any) -> dict[str, Any]:
    inputs = {
        "q": random(BATCH, QUERIES, HIDDEN),
        "k": random(BATCH, keys, HIDDEN, seed=1),
        "v": random(BATCH, keys, HIDDEN, seed=2),
        "b": None,
        "mask": None,
        "bias": None,
        "past_k": None,
        "past_v": None,
    }
    return inputs | more


@pytest.mark.parametrize("mask", ["none", "lengths", "keys", "grid"])
@pytest.mark.parametrize("keys", [5, 7])
@pytest.mark.parametrize("biased", [False, True])
def test_multi_head_attention(biased: bool, keys: int, mask: str) -> None:
    inputs = multi_head_inputs(keys, mask=masks(keys)[mask])
    if biased:
        inputs |= {"b": random(3 * HIDDEN), "bias": random(1, 1, QUERIES, keys)}
    assert_like_onnxruntime("MultiHeadAttention", inputs, num_heads=HEADS, **CLOSE)


@pytest.mark.parametrize("mask", ["none", "keys"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_cache(unidirectional: int, mask: str) -> None:
    inputs = multi_head_inputs(
        mask=masks(8)[mask],
        past_k=random(BATCH, HEADS, 3, SIZE),
        past_v=random(BATCH, HEADS, 3, SIZE, seed=1),
    )
    assert_like_onnxruntime(
        "MultiHeadAttention",
        inputs,
        ("y", "present_k", "present_v"),
        num_heads=HEADS,
        unidirectional=unidirectional,
        **CLOSE,
    )


def test_multi_head_attention_of_keys_in_heads() -> None:
    inputs = multi_head_inputs(k=random(BATCH, HEADS, 7, SIZE), v=random(BATCH, HEADS, 7, SIZE))
    assert_like_onnxruntime("MultiHeadAttention", inputs, num_heads=HEADS, scale=0.7, **CLOSE)


def test_values_may_have_a_size_of_their_own() -> None:
    inputs = multi_head_inputs(v=random(BATCH, QUERIES, HEADS * 6))
    assert_like_onnxruntime("MultiHeadAttention", inputs, num_heads=HEADS, **CLOSE)


def test_packed_heads() -> None:
    inputs = multi_head_inputs()
    expected = here("MultiHeadAttention", inputs, num_heads=HEADS)
    split = {n: inputs[n].reshape(BATCH, QUERIES, HEADS, SIZE) for n in "qkv"}
    packed = {"q": np.stack([split[n] for n in "qkv"], 3)}
    assert_same(here("MultiHeadAttention", packed, num_heads=HEADS), expected)
    packed = {"q": inputs["q"], "k": np.stack([split[n] for n in "kv"], 3)}
    assert_same(here("MultiHeadAttention", packed, num_heads=HEADS), expected)


# ---- GroupQueryAttention --------------------------------------------------------------------

SHARED = 2
WIDTH = 16  # onnxruntime wants a multiple of it
GROUPED: dict[str, Any] = {"num_heads": 4, "kv_num_heads": SHARED}
ROOM = 16


def grouped_inputs(
    totals: list[int], queries: int, capacity: int | None, **more: Any
) -> dict[str, Any]:
    """Return inputs of rows with `totals` keys after the step; no cache for capacity None."""
    batch, size = len(totals), WIDTH
    cache = (batch, SHARED, capacity or 0, size)
    angles = np.arange(ROOM)[:, None] * np.linspace(0.1, 1, size // 2)
    inputs = {
        "q": random(batch, queries, 4 * size),
        "k": random(batch, queries, SHARED * size, seed=1),
        "v": random(batch, queries, SHARED * size, seed=2),
        "past_k": None if capacity is None else random(*cache, seed=3),
        "past_v": None if capacity is None else random(*cache, seed=4),
        "lengths": np.array(totals, I32) - 1,
        "total": I32(max(totals)),
        "cos": np.cos(angles).astype(F32),
        "sin": np.sin(angles).astype(F32),
    }
    return inputs | more


STEPS: dict[str, tuple[list[int], int, int | None]] = {
    "prompt": ([5, 5], 5, None),
    "padded prompt": ([3, 5], 5, 0),
    "one prompt": ([4], 4, None),
    "next token": ([6], 1, 5),
    "next tokens of rows": ([4, 6], 1, 5),
    "several tokens": ([7], 3, 4),
    "shared buffer": ([6], 1, 12),
    "shared buffer of rows": ([4, 9], 1, 12),
    "prompt into a shared buffer": ([5, 5], 5, 12),
}

OPTIONS: list[dict[str, Any]] = [
    {},
    {"do_rotary": 1},
    {"do_rotary": 1, "rotary_interleaved": 1},
    {"local_window_size": 3},
    {"softcap": 2.0, "scale": 0.5},
    {"smooth_softmax": 1},
]


def assert_grouped(inputs: dict[str, Any], totals: list[int], **options: Any) -> None:
    """Compare what is specified: rows of padded queries and keys beyond the end are not."""
    outputs = ("y", "present_k", "present_v")
    model = node_model("GroupQueryAttention", inputs, outputs, domain=MICROSOFT, **options)
    got, expected = run_here(model, inputs), run_onnxruntime(model, inputs)
    queries = got[0].shape[1]
    for a, b in zip(got, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
    for row, total in enumerate(totals):
        valid = min(queries, total)
        np.testing.assert_allclose(got[0][row, :valid], expected[0][row, :valid], 1e-4, 1e-5)
        for a, b in zip(got[1:], expected[1:], strict=True):
            np.testing.assert_allclose(a[row, :, :total], b[row, :, :total], 1e-4, 1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("step", STEPS)
def test_group_query_attention(step: str, options: dict[str, Any]) -> None:
    totals, queries, capacity = STEPS[step]
    inputs = grouped_inputs(totals, queries, capacity)
    assert_grouped(inputs, totals, **GROUPED, **options)
    # sizes of the cache that are only known from the value of an input
    assert_grouped(inputs, totals, constant=["total"], **GROUPED, **options)


def test_packed_queries_keys_and_values() -> None:
    inputs = grouped_inputs([5, 5], 5, None)
    packed = np.concatenate([inputs[n] for n in "qkv"], axis=2)
    inputs |= {"q": packed, "k": None, "v": None}
    assert_grouped(inputs, [5, 5], do_rotary=1, **GROUPED)


def test_positions_bias_and_sink_of_a_group_query_attention() -> None:
    totals = [6, 6]
    more = {"positions": np.full((2, 1), 2, np.int64), "bias": random(2, 1, 1, 6)}
    inputs = grouped_inputs(totals, 1, 5, **more)
    assert_grouped(inputs, totals, do_rotary=1, **GROUPED)
    inputs = grouped_inputs(totals, 1, 9, **more)
    assert_grouped(inputs, totals, do_rotary=1, **GROUPED)
    inputs |= {"sink": random(4)}
    assert_grouped(inputs, totals, do_rotary=1, **GROUPED)
    inputs |= {"bias": None, "positions": None}
    assert_grouped(inputs, totals, local_window_size=2, **GROUPED)


def test_heads_are_normalised_before_the_rotation() -> None:
    inputs = grouped_inputs([5], 5, None)
    inputs |= dict.fromkeys(("p", "bias", "sink", "ks", "vs"))
    weights = {"qw": random(WIDTH), "kw": random(WIDTH, seed=1)}
    got = here("GroupQueryAttention", inputs | weights, qk_norm_epsilon=1e-3, **GROUPED)

    def normal(x: Any, weight: Any) -> Any:
        heads = x.reshape(1, 5, -1, WIDTH)
        mean = np.square(heads).mean(-1, keepdims=True)
        return (heads / np.sqrt(mean + 1e-3) * weight).reshape(x.shape).astype(F32)

    plain = inputs | {"q": normal(inputs["q"], weights["qw"])}
    plain["k"] = normal(inputs["k"], weights["kw"])
    expected = here("GroupQueryAttention", plain, **GROUPED)
    assert_same(got, expected, rtol=1e-4, atol=1e-5)


def test_a_growing_cache_of_symbolic_size() -> None:
    inputs = grouped_inputs([6], 1, 5)
    symbolic = {
        "q": (1, "seq", 4 * WIDTH), "k": (1, "seq", 2 * WIDTH), "v": (1, "seq", 2 * WIDTH),
        "past_k": (1, 2, "past", WIDTH), "past_v": (1, 2, "past", WIDTH),
    }  # fmt: skip
    outputs = ("y", "present_k", "present_v")
    model = node_model(
        "GroupQueryAttention", inputs, outputs, domain=MICROSOFT, symbolic=symbolic, do_rotary=1,
        **GROUPED,
    )  # fmt: skip
    for past, length in ((5, 1), (0, 4), (3, 2)):
        inputs = grouped_inputs([past + length], length, past)
        expected = run_onnxruntime(model, inputs)
        assert_same(run_here(model, inputs), expected, rtol=1e-4, atol=1e-5)


# ---- RotaryEmbedding ------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("positions", [np.array([2]), np.array([[0, 3, 1], [5, 5, 2]])], ids=str)
def test_rotary_embedding(positions: Any, split: bool, whole: bool, interleaved: int) -> None:
    size = 8
    pairs = size // 2 if whole else size // 4
    angles = np.arange(10)[:, None] * np.linspace(0.1, 1, pairs)
    x = random(2, 4, 3, size) if split else random(2, 3, 4 * size)
    inputs = {"x": x, "p": positions.astype(np.int64)}
    inputs |= {"c": np.cos(angles).astype(F32), "s": np.sin(angles).astype(F32)}
    options: dict[str, Any] = {"interleaved": interleaved}
    if not whole:
        options |= {"rotary_embedding_dim": 2 * pairs, "num_heads": 4}
    assert_like_onnxruntime("RotaryEmbedding", inputs, **options, **CLOSE)


# ---- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "inputs", "options", "text"),
    [
        ("Attention", attention_inputs(), {"num_heads": 5}, "5 heads do not divide 12"),
        ("Attention", attention_inputs(mask=np.ones(8, I32)), {"num_heads": HEADS}, "a mask"),
        ("Attention", attention_inputs(), {"num_heads": HEADS, "do_rotary": 1}, "do_rotary"),
        ("MultiHeadAttention", multi_head_inputs(k=None), {"num_heads": HEADS}, "required"),
        ("GroupQueryAttention", grouped_inputs([5], 5, None), GROUPED | {"causal": 0}, "causal"),
        (
            "GroupQueryAttention",
            grouped_inputs([5], 5, None),
            GROUPED | {"k_quant_type": "PER_TENSOR"},
            "quantized cache",
        ),
    ],
)
def test_bad_nodes_are_refused(operator: str, inputs: Any, options: Any, text: str) -> None:
    with pytest.raises(KnError, match=text):
        load_graph_from_onnx_bytes(node_model(operator, inputs, domain=MICROSOFT, **options))
