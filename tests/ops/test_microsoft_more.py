"""Operators of com.microsoft beside those of ONNX, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph.errors import KnError
from tests.ops.single_node import MICROSOFT, assert_like_onnxruntime, node_model, run_here

F32 = np.float32


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(F32)


def codes(*shape: int, dtype: Any = np.uint8, high: int = 255) -> Any:
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


X = random(2, 3, 4)
IMAGE = random(1, 2, 5, 4)
GRID = np.random.default_rng(1).uniform(-1.2, 1.2, (1, 3, 2, 2)).astype(F32)
IDS = np.array([[1, 2, 1, 2, 1], [3, 3, 3, 3, 3], [0, 1, 2, 3, 4]])

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("NhwcMaxPool", {"x": codes(1, 5, 6, 3)}, {"kernel_shape": [2, 3]}),
    (
        "NhwcMaxPool",
        {"x": codes(2, 5, 6, 3, dtype=np.int8, high=127)},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    ("GatherND", {"x": X, "i": np.array([[0, -1], [1, 0]])}, {}),
    ("Trilu", {"x": X, "k": np.array(1)}, {"upper": 0}),
    ("Trilu", {"x": X}, {}),
    ("Range", {"s": F32(0), "l": F32(3.5), "d": F32(0.5)}, {}),
    ("Range", {"s": np.int64(2), "l": np.int64(7)}, {}),
    ("Pad", {"x": X, "p": np.array([0, 1, 0, 0, 0, 1]), "v": np.array([7], F32)}, {}),
    ("Pad", {"x": X, "p": np.array([0, 1, 0, 0, 0, 1])}, {"mode": "reflect"}),
    ("CDist", {"a": X[0], "b": X[1]}, {"metric": "euclidean"}),
    ("CDist", {"a": X[0], "b": X[1, :2]}, {"metric": "sqeuclidean"}),
    ("MatMulInteger16", {"a": codes(2, 3, dtype=np.int16), "b": codes(3, 4, dtype=np.int16)}, {}),
    ("GridSample", {"x": IMAGE, "g": GRID}, {}),
    (
        "GridSample",
        {"x": IMAGE, "g": GRID},
        {"mode": "nearest", "padding_mode": "border", "align_corners": 1},
    ),
    ("GatedRMSNorm", {"x": X, "s": random(4), "g": random(2, 3, 4, seed=1)}, {"epsilon": 1e-4}),
    (
        "GatedRMSNorm",
        {"x": X, "s": random(4), "g": random(2, 3, 4, seed=1)},
        {"activation": "sigmoid"},
    ),
    *(("NGramRepeatBlock", {"i": IDS, "s": random(3, 5)}, {"ngram_size": n}) for n in (1, 2, 3)),
    *(
        (
            "MatMulBnb4",
            {"a": random(2, 24), "b": codes(36), "m": np.abs(random(5)) + 1},
            {"K": 24, "N": 3, "block_size": 16, "quant_type": kind},
        )
        for kind in (0, 1)
    ),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes"), CASES, ids=str)
def test_operators(operator: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    options: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5, "domain": MICROSOFT, **attributes}
    assert_like_onnxruntime(operator, inputs, **options)


def test_different_elements_come_in_order() -> None:
    x = {"x": np.array([3, 1, 3, 2, 1, 3], F32)}
    assert_like_onnxruntime("Unique", x, ("y", "i", "c"), domain=MICROSOFT)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "text"),
    [
        ("CDist", {"a": X[0], "b": X[1]}, {"metric": "cosine"}, "must be one of"),
        ("NGramRepeatBlock", {"i": IDS, "s": random(3, 5)}, {"ngram_size": 0}, "positive"),
        (
            "MatMulBnb4",
            {"a": random(2, 24), "b": codes(36), "m": random(5)},
            {"K": 24, "N": 3, "block_size": 16, "quant_type": 1, "transB": 0},
            "transB=0",
        ),
    ],
    ids=str,
)
def test_bad_nodes_are_refused(operator: str, inputs: Any, attributes: Any, text: str) -> None:
    with pytest.raises(KnError, match=text):
        run_here(node_model(operator, inputs, domain=MICROSOFT, **attributes), inputs)
