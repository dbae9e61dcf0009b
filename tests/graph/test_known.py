"""Floats computed from sizes stay known, as long as a float holds them exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from kn_graph import DType, Graph, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.known import Exact, exact_number
from kn_graph.ops.source import ReadSizes
from tests.ops.control_models import load, nodes_of, same_as_onnxruntime

F = np.float32
HEAD = '<ir_version: 8, opset_import: ["" : 18]> g (int8[n, m] x) => (int64[1] y)'
COMMON = """
s = Shape(x)
n = Gather <axis = 0> (s, zero)
m = Gather <axis = 0> (s, one)
f = Cast <to = {dtype}> (n)
g = Cast <to = {dtype}> (m)
"""
CONSTANTS = {"zero": np.array([0]), "one": np.array([1])}


def loaded(text: str, numbers: dict[str, float], dtype: str = "float32") -> Graph:
    """Load a model whose y is an int64 computed from float sizes f and g of an x [n, m]."""
    code = {"float32": 1, "float64": 11, "float16": 10}[dtype]
    model = onnx.parser.parse_model(f"{HEAD} {{ {COMMON.format(dtype=code)} {text} }}")
    stored = {k: np.array([v], dtype) for k, v in numbers.items()} | CONSTANTS
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, k) for k, a in stored.items())
    return load_graph_from_onnx_bytes(model.SerializeToString())


# text, constants, the size as text, and what NumPy makes of it
KNOWN: dict[str, tuple[str, dict[str, float], str, Callable[[Any, Any], Any]]] = {
    "doubled": ("z = Mul(f, c) z1 = Floor(z)", {"c": 2}, "2*n", lambda n, m: np.floor(n * F(2))),
    "halved": ("z = Mul(f, c) z1 = Floor(z)", {"c": 0.5}, "(n//2)", lambda n, m: n // 2),
    "one and a half": (
        "z = Mul(f, c) z1 = Floor(z)",
        {"c": 1.5},
        "(n//2)+n",
        lambda n, m: np.floor(n * F(1.5)),
    ),
    "rounded up": ("z = Div(f, c) z1 = Ceil(z)", {"c": 8}, "((n+7)//8)", lambda n, m: -(-n // 8)),
    "negative divisor": (
        "z = Div(f, c) z1 = Ceil(z)",
        {"c": -4},
        "((3*n+3)//4)-n",
        lambda n, m: -(n // 4),
    ),
    "truncated": ("z1 = Div(f, c)", {"c": 4}, "(n//4)", lambda n, m: n // 4),
    "whole again": ("z = Div(f, c) z1 = Mul(z, c)", {"c": 4}, "n", lambda n, m: n),
    "sum of halves": (
        "a = Mul(f, c) b = Mul(g, c) z = Add(a, b) z1 = Floor(z)",
        {"c": 0.5},
        "((m+n)//2)",
        lambda n, m: (n + m) // 2,
    ),
    "difference": ("z1 = Sub(f, c)", {"c": 1}, "n-1", lambda n, m: n - 1),
    "product": ("z1 = Mul(f, g)", {}, "n*m", lambda n, m: n * m),
    "the larger": ("z1 = Max(f, g)", {}, "max(n, m)", lambda n, m: max(n, m)),
    "negated": ("z = Neg(f) z1 = Add(z, c)", {"c": 4}, "-n+4", lambda n, m: 4 - n),
}
SIZES = [(1, 1), (3, 2), (7, 64), (8, 5), (33, 1), (4, 1000)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KNOWN)
def test_sizes_as_floats_stay_sizes(name: str, dtype: str) -> None:
    text, numbers, size, numpy = KNOWN[name]
    graph = loaded(text + " y = Cast <to = 7> (z1)", numbers, dtype)
    content = graph.outputs["y"].content
    assert content is not None
    assert [str(e) for e in content] == [size]
    for n, m in SIZES:
        got = cpu_eval_graph(graph, {"x": np.zeros((n, m), np.int8)})["y"]
        assert got.tolist() == [int(numpy(n, m))], (n, m)


UNKNOWN: dict[str, tuple[str, dict[str, float]]] = {
    "thirds": ("z1 = Div(f, c)", {"c": 3}),
    "tenths": ("z1 = Mul(f, c)", {"c": 0.1}),
    "divided by a size": ("z1 = Div(f, g)", {}),
    "truncated, of unknown sign": ("z = Sub(f, g) z1 = Div(z, c)", {"c": 2}),
    "a square root": ("z1 = Sqrt(f)", {}),
    "division by 0": ("z = Sub(c, c) z1 = Div(z, c)", {"c": 0}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_floats_round_is_left_to_run_time(name: str) -> None:
    text, numbers = UNKNOWN[name]
    assert loaded(text + " y = Cast <to = 7> (z1)", numbers).outputs["y"].content is None


def test_where_a_float_would_round_the_size_another_graph_serves() -> None:
    graph = loaded("z1 = Add(f, c) y = Cast <to = 7> (z1)", {"c": 1})
    content = graph.outputs["y"].content
    assert content is not None
    assert [str(e) for e in content] == ["n+1"]
    assert [str(g.condition) for g in graph.guards] == ["-n+16777215 >= 0", "-n+16777216 >= 0"]
    for n in (5, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 24) + 3):
        for g in (graph, optimize_graph(graph)):
            got = cpu_eval_graph(g, {"x": np.zeros((n, 1), np.int8)})["y"]
            assert got.tolist() == [int(F(F(n) + F(1)))], n


def test_half_precision_holds_small_sizes() -> None:
    graph = loaded("z1 = Mul(f, c) y = Cast <to = 7> (z1)", {"c": 2}, "float16")
    for n in (3, 1024, 1025, 2049, 4097):
        got = cpu_eval_graph(graph, {"x": np.zeros((n, 1), np.int8)})["y"]
        assert got.tolist() == [int(np.float16(np.float16(n) * np.float16(2)))], n


def test_a_comparison_of_floats_decides_a_branch() -> None:
    graph = loaded("t = GreaterOrEqual(f, c) y = Where(t, n, m)", {"c": 4})
    for n, m in SIZES:
        got = cpu_eval_graph(graph, {"x": np.zeros((n, m), np.int8)})["y"]
        assert got.tolist() == [n if n >= 4 else m]


def test_a_range_of_floats_has_a_length() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int8[n] x) => (float[k] y) {'
        "s = Shape(x) z = Constant <value = float {0.0}> () d = Constant <value = float {2.0}> ()"
        "i = Constant <value = int64 {0}> () n = Gather(s, i) f = Cast <to = 1> (n)"
        "y = Range(z, f, d) }"
    )
    graph = load_graph_from_onnx_bytes(model.SerializeToString())
    assert str(graph.outputs["y"].type) == "float32[((n+1)//2)]"
    assert not any(isinstance(node.op, ReadSizes) for node in optimize_graph(graph).nodes)
    for n in (1, 2, 7):
        got = cpu_eval_graph(graph, {"x": np.zeros(n, np.int8)})["y"]
        assert got.tolist() == np.arange(0, n, 2).tolist()


def test_a_graph_built_by_hand_assumes_nothing() -> None:
    g = Graph("by hand")
    x = g.input("x", "int8", ["n"])
    f = g.cast(g.size_tensor([x.shape[0]]), DType.FLOAT32)
    assert g.cast(f, DType.INT64).content is None


@pytest.mark.parametrize("x", [float("nan"), float("inf"), 0.1, 1e-30, 4097.0])
def test_numbers_of_many_digits_are_not_tracked(x: float) -> None:
    assert exact_number(x) is None


def test_small_dyadic_numbers_are_tracked() -> None:
    assert exact_number(-0.375) == Exact(-3, 8)


QUOTIENTS = """
g (float[n] x) => (float[m] y, int64[1] q) {
    n = Shape(x)
    five = Constant <value_ints = [5]> ()
    three = Constant <value_ints = [3]> ()
    over = Sub(n, five)
    q = Div(over, three)
    none = Sub(five, five)
    rows = Max(q, none)
    one = Constant <value = float {1.0}> ()
    y = Expand(one, rows)
}"""


def test_quotients_of_sizes_stay_sizes_where_only_a_call_shows_their_sign() -> None:
    # so exporters write the length behind a convolution
    assert not nodes_of(load(QUOTIENTS), ReadSizes)
    for n in (4, 11, 1, 13, 5):  # 4 - 5 is truncated to 0, and 1 - 5 to -1
        same_as_onnxruntime(QUOTIENTS, {"x": np.zeros(n, np.float32)})
