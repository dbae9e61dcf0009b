"""Operators and indexing of values, and arithmetic of sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.errors import DTypeError, ShapeError
from kn_graph.ops.source import Constant, Sizes

F32 = np.float32


def run(g: Graph, value: Value, **feeds: Any) -> Any:
    """Evaluate one value."""
    name = f"out{len(g.outputs)}"
    g.output(name, value)
    return cpu_eval_graph(g, feeds)[name]


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


# ---- operators ------------------------------------------------------------------------------

OPERATORS: list[Callable[[Any], Any]] = [
    lambda x: x + 2.5,
    lambda x: 2.5 + x,
    lambda x: x - 1.5,
    lambda x: 1.5 - x,
    lambda x: x * 3,
    lambda x: 3 * x,
    lambda x: x / 4,
    lambda x: 4 / (x + 1),
    lambda x: x**2,
    lambda x: -x,
    lambda x: x + x,
    lambda x: x @ x.swapaxes(-1, -2) if isinstance(x, np.ndarray) else x @ x.graph.transpose(x),
    lambda x: x * np.array([1, 2, 3, 4], F32),
    lambda x: np.array([1, 2, 3, 4], F32) * x,
    lambda x: np.float32(2) * x + np.float64(0.5),
]


@pytest.mark.parametrize("f", OPERATORS)
def test_operators_are_those_of_numpy(f: Callable[[Any], Any]) -> None:
    g = Graph()
    a = ramp(2, 3, 4)
    got = run(g, f(g.input("x", "float32", [2, 3, 4])), x=a)
    assert got.dtype == F32
    np.testing.assert_allclose(got, f(a), rtol=1e-6)


INDICES: list[Any] = [
    0, -1, slice(None), slice(1, None), slice(None, -1), slice(None, None, 2), slice(5, 0, -2),
    slice(None, None, -1), slice(-100, 100), slice(3, 2), (0, 0, 0), (slice(1), 2), (..., 1),
    (..., slice(1, 3)), (None, 0), (..., None), (None, ..., None), (0, ..., 0), (slice(None), None),
    (1, slice(None, None, -2), slice(1, -1)), np.int64(1), slice(np.int64(1), np.int64(2)),
    (), ..., None, (0, 1, 2, None), (slice(2, -3, -1), slice(-1, -4, -1)),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_is_that_of_numpy(index: Any) -> None:
    g = Graph()
    a = ramp(2, 3, 4)
    np.testing.assert_array_equal(run(g, g.input("x", "float32", [2, 3, 4])[index], x=a), a[index])


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_of_symbolic_sizes_is_that_of_numpy(index: Any) -> None:
    g = Graph()
    x = g.input("x", "float32", ["a", "b", "c"])
    try:
        y = x[index]
    except ShapeError as error:
        assert "known" in str(error) or "symbolic" in str(error), error  # noqa: PT017
        return
    g.output("y", y)
    for shape in ((2, 3, 4), (6, 5, 4)):
        a = ramp(*shape)
        np.testing.assert_array_equal(cpu_eval_graph(g, {"x": a})["y"], a[index])


def test_values_are_not_iterated_over() -> None:
    g = Graph()
    with pytest.raises(TypeError, match="not iterable"):
        list(g.input("x", "float32", ["n"]))  # type: ignore[call-overload]


NUMBERS: list[tuple[str, Any, bool]] = [
    ("int64", 2, True),
    ("int64", 2.0, True),
    ("int64", 1.5, False),
    ("uint8", 300, False),
    ("uint8", -1, False),
    ("int8", -128, True),
    ("int8", np.nan, False),
    ("bool", True, True),
    ("bool", 1, True),
    ("bool", 2, False),
    ("uint64", 2**64 - 1, True),
    ("int64", 2**63, False),
    ("float32", 1, True),
    ("float32", 0.1, True),
    ("float16", 0.1, True),
    ("float32", 1j, False),
    ("float32", "a", False),
    ("complex64", 1j, True),
    ("bfloat16", 0.1, True),
    ("int4", 7, True),
    ("int4", 8, False),
]


@pytest.mark.parametrize(("dtype", "number", "fits"), NUMBERS)
def test_a_scalar_is_never_another_number(dtype: str, number: Any, fits: bool) -> None:
    g = Graph()
    kind = DType.parse(dtype)
    if not fits:
        with pytest.raises(DTypeError, match=dtype):
            g.scalar(number, kind)
        return
    value = g.scalar(number, kind)
    assert value.type == g.scalar(0, kind).type
    assert value.constant is not None
    assert value.constant == np.asarray(number).astype(kind.numpy)


def test_operators_do_not_round_their_numbers() -> None:
    g = Graph()
    i = g.input("i", "int64", [3])
    for attempt in (lambda: i * 1.5, lambda: 0.5 + i, lambda: i - np.array([0.5])):
        with pytest.raises(DTypeError, match="int64"):
            attempt()
    assert run(g, i * 2, i=np.array([1, 2, 3])).tolist() == [2, 4, 6]


# ---- shape arithmetic -----------------------------------------------------------------------


def shape_of(g: Graph, x: Value) -> Value:
    content = np.empty(x.rank, object)
    content[:] = x.shape
    return g.size_tensor(content)


def test_shape_arithmetic_is_no_computation() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 4, "m"])
    n, m = g.symbols["n"], g.symbols["m"]
    shape = shape_of(g, x)
    two = g.constant(np.array(2))
    doubled = g.mul(shape, g.broadcast(two, (3,)))
    total = g.reduce("prod", shape, [0])
    picked = g.gather(shape, g.constant(np.array([2, 0])), 0)
    joined = g.concat([picked, g.view(total, (1,)), shape[1:2]], 0)
    halves = g.div(doubled, two)
    assert doubled.content is not None
    assert doubled.content.tolist() == [2 * n, 8, 2 * m]
    assert joined.content is not None
    assert joined.content.tolist() == [m, n, 4 * n * m, 4]
    assert halves is shape
    assert {type(o.op) for o in g.nodes} <= {type(x.node.op), Constant, Sizes}
    got = run(g, joined, x=ramp(3, 4, 5))
    assert got.tolist() == [5, 3, 60, 4]


ARITHMETIC: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("add", lambda a, b: a + b),
    ("sub", lambda a, b: a - b),
    ("mul", lambda a, b: a * b),
    ("div", lambda a, b: int(a / b) if b else 0),
    ("min", min),
    ("max", max),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(-3, 4)), max_size=8),
       st.integers(1, 9), st.integers(1, 9))  # fmt: skip
def test_random_arithmetic_of_sizes_gives_what_arrays_give(
    steps: list[tuple[int, int, int]], n: int, m: int
) -> None:
    """Folded over symbols, over numbers, and not folded at all: always the same."""
    sizes = np.array([n, m, 3])
    graphs = []
    shapes: list[Any] = [["n", "m", 3], [n, m, 3], None]
    for shape in shapes:
        g = Graph()
        if shape is None:
            value = g.input("x", "int64", [3])
        else:
            value = shape_of(g, g.input("x", "int8", shape))
        for fn, kind, number in steps:
            other = [
                g.constant(np.array([number, 1, 2])),
                g.broadcast(g.constant(np.array(number)), (3,)),
                g.flip(value, 0),
            ][kind]
            if ARITHMETIC[fn][0] == "div":
                other = g.maximum(other, g.constant(np.ones(3, np.int64)))
            value = g.binary(ARITHMETIC[fn][0], value, other)
        g.output("y", value)
        feed = sizes if shape is None else np.zeros((n, m, 3), np.int8)
        graphs.append(cpu_eval_graph(g, {"x": feed})["y"].tolist())
    assert graphs[0] == graphs[1] == graphs[2]


def test_integers_that_do_not_fit_are_computed_when_run() -> None:
    g = Graph()
    big = g.constant(np.array([2**62], np.int64))
    wrapped = g.mul(big, g.constant(np.array([4])))
    assert wrapped.content is None
    assert run(g, wrapped).tolist() == [0]
    narrow = g.constant(np.array([2**31 - 1], np.int32))
    wrapped = g.add(narrow, g.constant(np.array([1], np.int32)))
    assert run(g, wrapped).tolist() == [-(2**31)]


def test_large_integer_tensors_are_not_tracked() -> None:
    g = Graph()
    x = g.constant(np.arange(65))
    assert g.add(x, x).content is None
    y = g.constant(np.arange(64))
    assert g.add(y, y).constant is not None


def test_comparisons_of_sizes_are_decided_where_they_can_be() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    shape = shape_of(g, x)
    known = g.compare("ge", shape, g.constant(np.array([1, 4])))
    assert known.constant is not None
    assert known.constant.tolist() == [True, True]
    open_question = g.compare("eq", shape, g.constant(np.array([1, 4])))
    assert open_question.constant is None
    assert run(g, open_question, x=ramp(1, 4)).tolist() == [True, True]
