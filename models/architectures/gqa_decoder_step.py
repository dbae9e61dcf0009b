"""A two-layer Llama-like decoder step: grouped-query attention over a cache of any length.

The mask and the cache that comes out have `past + seq` columns; the file says so in `dim_param`, as
exporters do.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from models.architectures.layers import linear, silu, size_of, slice_last, unsqueeze
from models.architectures.sketch import Architecture, Array, Sketch, normal

__all__ = ["GQA_DECODER_STEP"]

LAYERS, VOCABULARY = 2, 96
HIDDEN, HEADS, KV_HEADS, HEAD, INNER = 32, 4, 2, 8, 64
TOTAL = "past + seq"


def _float(s: Sketch, value: float) -> str:
    return s.constant(value, np.float32)


def _rms_norm(s: Sketch, x: str, name: str) -> str:
    with s.scope(name):
        mean = s.node("ReduceMean", s.node("Pow", x, _float(s, 2.0)), s.ints(-1), keepdims=1)
        root = s.node("Sqrt", s.node("Add", mean, _float(s, 1e-6)))
        y = s.node("Mul", x, s.node("Div", _float(s, 1.0), root))
        scale = np.float32(0.5) + s.rng.random(HIDDEN).astype(np.float32)
        return s.node("Mul", s.weight("weight", scale), y)


def _rotary_table(s: Sketch, positions: str) -> tuple[str, str]:
    """Add cosines and sines `[batch, 1, seq, HEAD]` of every position and frequency."""
    frequencies = (10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
    batch = unsqueeze(s, size_of(s, positions, 0), 0)
    shape = s.node("Concat", batch, s.ints(HEAD // 2), s.ints(1), axis=0)
    inverse = s.node("Expand", s.weight("inv_freq", frequencies[None, :, None]), shape)
    row = s.node("Cast", unsqueeze(s, positions, 1), to=TensorProto.FLOAT)
    angles = s.node("Transpose", s.node("MatMul", inverse, row), perm=[0, 2, 1])
    angles = s.node("Concat", angles, angles, axis=-1)
    return unsqueeze(s, s.node("Cos", angles), 1), unsqueeze(s, s.node("Sin", angles), 1)


def _rotate(s: Sketch, x: str, table: tuple[str, str]) -> str:
    half = unsqueeze(s, s.node("Div", size_of(s, x, 3), s.constant(2, np.int64)), 0)
    low, high = slice_last(s, x, s.ints(0), half), slice_last(s, x, half)
    turned = s.node("Concat", s.node("Neg", high), low, axis=-1)
    return s.node("Add", s.node("Mul", x, table[0]), s.node("Mul", turned, table[1]))


def _causal_bias(s: Sketch, ids: str, mask: str) -> str:
    """Add a `[batch, 1, seq, total]` bias: 0 where a query may look, the lowest float elsewhere."""
    zero, one = s.constant(0, np.int64), s.constant(1, np.int64)
    total, seq = size_of(s, mask, 1), size_of(s, ids, 1)
    queries = s.node("Range", s.node("Sub", total, seq), total, one)
    keys = unsqueeze(s, s.node("Range", zero, total, one), 0)
    causal = s.node("LessOrEqual", keys, unsqueeze(s, queries, 1))
    kept = unsqueeze(s, s.node("Cast", mask, to=TensorProto.BOOL), 1, 2)
    allowed = s.node("And", causal, kept)
    lowest = float(np.finfo(np.float32).min)
    return s.node("Where", allowed, _float(s, 0.0), _float(s, lowest))


def _heads(s: Sketch, x: str, name: str, heads: int) -> str:
    with s.scope(name):
        y = linear(s, x, (HIDDEN, heads * HEAD), bias=False)
        sizes = [unsqueeze(s, size_of(s, y, axis), 0) for axis in (0, 1)]
        shape = s.node("Concat", *sizes, s.ints(heads), s.ints(HEAD), axis=0)
        return s.node("Transpose", s.node("Reshape", y, shape), perm=[0, 2, 1, 3])


def _repeat_heads(s: Sketch, x: str) -> str:
    """Add the copies of each key or value head that its group of queries looks at."""
    groups = HEADS // KV_HEADS
    batch, total = (unsqueeze(s, size_of(s, x, axis), 0) for axis in (0, 2))
    wide = s.node("Concat", batch, s.ints(KV_HEADS, groups), total, s.ints(HEAD), axis=0)
    flat = s.node("Concat", batch, s.ints(HEADS), total, s.ints(HEAD), axis=0)
    return s.node("Reshape", s.node("Expand", unsqueeze(s, x, 2), wide), flat)


def _cached(s: Sketch, x: str, layer: int, kind: str) -> str:
    """Append `x` to the cache that comes in and declare the cache that goes out."""
    past = s.float_input(f"past_key_values.{layer}.{kind}", "batch", KV_HEADS, "past", HEAD)
    return s.node("Concat", past, x, axis=2)


def _attention(s: Sketch, x: str, layer: int, table: tuple[str, str], bias: str) -> list[str]:
    """Add the attention of one layer; the result, and the keys and values with their past."""
    query = _rotate(s, _heads(s, x, "q_proj", HEADS), table)
    key = _cached(s, _rotate(s, _heads(s, x, "k_proj", KV_HEADS), table), layer, "key")
    value = _cached(s, _heads(s, x, "v_proj", KV_HEADS), layer, "value")
    columns = s.node("Transpose", _repeat_heads(s, key), perm=[0, 1, 3, 2])
    scores = s.node("Mul", s.node("MatMul", query, columns), _float(s, HEAD**-0.5))
    weights = s.node("Softmax", s.node("Add", scores, bias), axis=-1)
    context = s.node("MatMul", weights, _repeat_heads(s, value))
    context = s.node("Transpose", context, perm=[0, 2, 1, 3])
    context = s.node("Reshape", context, s.ints(0, 0, HIDDEN))
    with s.scope("o_proj"):
        return [linear(s, context, (HIDDEN, HIDDEN), bias=False), key, value]


def _mlp(s: Sketch, x: str) -> str:
    with s.scope("gate_proj"):
        gate = silu(s, linear(s, x, (HIDDEN, INNER), bias=False))
    with s.scope("up_proj"):
        up = linear(s, x, (HIDDEN, INNER), bias=False)
    with s.scope("down_proj"):
        return linear(s, s.node("Mul", gate, up), (INNER, HIDDEN), bias=False)


def _layer(s: Sketch, x: str, layer: int, table: tuple[str, str], bias: str) -> list[str]:
    y = _rms_norm(s, x, "input_layernorm")
    with s.scope("self_attn"):
        y, key, value = _attention(s, y, layer, table, bias)
    x = s.node("Add", x, y)
    y = _rms_norm(s, x, "post_attention_layernorm")
    with s.scope("mlp"):
        return [s.node("Add", x, _mlp(s, y)), key, value]


def _build() -> onnx.ModelProto:
    s = Sketch("gqa_decoder_step", "Grouped-query decoder step with a cache", opset=20, seed=104)
    ids = s.input("input_ids", TensorProto.INT64, ["batch", "seq"])
    mask = s.input("attention_mask", TensorProto.INT64, ["batch", TOTAL])
    positions = s.input("position_ids", TensorProto.INT64, ["batch", "seq"])
    table, bias = _rotary_table(s, positions), _causal_bias(s, ids, mask)
    x = s.node("Gather", s.random("embed_tokens.weight", VOCABULARY, HIDDEN, fan_in=1), ids)
    caches = []
    for layer in range(LAYERS):
        with s.scope(f"layers.{layer}"):
            x, key, value = _layer(s, x, layer, table, bias)
        caches += [(f"present.{layer}.key", key), (f"present.{layer}.value", value)]
    with s.scope("lm_head"):
        logits = linear(s, _rms_norm(s, x, "norm"), (HIDDEN, VOCABULARY), bias=False)
    s.float_output(logits, "logits", "batch", "seq", VOCABULARY)
    for name, cache in caches:
        s.float_output(cache, name, "batch", KV_HEADS, TOTAL, HEAD)
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    batch, seq, past = dims["batch"], dims["seq"], dims["past"]
    columns = np.arange(past + seq)
    padding = rng.integers(0, past // 2, size=(batch, 1), endpoint=True)  # on the left
    positions = (columns[past:] - padding).astype(np.int64)
    feeds: dict[str, Array] = {
        "input_ids": rng.integers(0, VOCABULARY, size=(batch, seq), dtype=np.int64),
        "attention_mask": (columns >= padding).astype(np.int64),
        "position_ids": positions,
    }
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            feeds[f"past_key_values.{layer}.{kind}"] = normal(rng, batch, KV_HEADS, past, HEAD)
    return feeds


GQA_DECODER_STEP = Architecture(
    "gqa_decoder_step", {"batch": 2, "seq": 1, "past": 7}, _build, _feeds
)
