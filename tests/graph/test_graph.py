"""Building graphs: merging, names, ownership, operators, shape arithmetic, layout methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.errors import DTypeError, GraphError, KnError, ShapeError
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, Permute, Slice, View
from kn_graph.ops.source import Constant, Sizes

F32 = np.float32


def run(g: Graph, value: Value, **feeds: Any) -> Any:
    """Evaluate one value."""
    name = f"out{len(g.outputs)}"
    g.output(name, value)
    return cpu_eval_graph(g, feeds)[name]


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def kinds(g: Graph) -> list[str]:
    return [type(n.op).__name__ for n in g.nodes]


# ---- equal nodes are one --------------------------------------------------------------------


def test_equal_nodes_are_one_and_different_ones_are_not() -> None:
    g = Graph()
    x, y = g.input("x", "float32", [3]), g.input("y", "float32", [3])
    assert g.add(x, y) is g.add(x, y)
    assert g.add(x, y) is not g.add(y, x)
    assert g.unary("leaky_relu", x, alpha=0.1) is g.unary("leaky_relu", x, alpha=0.1)
    assert g.unary("leaky_relu", x, alpha=0.1) is not g.unary("leaky_relu", x, alpha=0.2)
    assert g.relu(g.relu(x)) is g.relu(g.relu(x))
    assert g.top_k(x, 2)[1] is g.top_k(x, 2)[1]


def test_equal_inputs_stay_apart() -> None:
    g = Graph()
    assert g.input("x", "float32", [3]) is not g.input("y", "float32", [3])
    with pytest.raises(GraphError, match="two inputs are called 'x'"):
        g.input("x", "float32", [3])


CONSTANTS: list[tuple[Any, Any, bool]] = [
    (np.array([1, 2], F32), np.array([1, 2], F32), True),
    (np.array([1, 2], F32), np.array([1, 2], np.float64), False),
    (np.array([1, 2], np.int32), np.array([1, 2], np.uint32), False),
    (np.array([1, 2], F32), np.array([[1, 2]], F32), False),
    (np.array(0.0, F32), np.array(-0.0, F32), False),
    (np.array(np.nan, F32), np.array(np.nan, F32), True),
    (np.array(1, np.float16), np.array(1, ml_dtypes.bfloat16), False),
    (np.array(["a", "b"]), np.array(["a", "b"], object), True),
    (np.array(["a", "b"]), np.array(["a", "c"]), False),
    (np.zeros(0, F32), np.zeros(0, F32), True),
    (np.zeros((0, 2), F32), np.zeros((2, 0), F32), False),
    (ramp(4, 4), ramp(4, 4).copy(order="F"), True),
    (ramp(8)[::2], np.array([0, 2, 4, 6], F32), True),
    (np.array(True), np.array(1, np.uint8), False),
]


@pytest.mark.parametrize(("a", "b", "same"), CONSTANTS)
def test_constants_are_equal_by_their_bytes(a: Any, b: Any, same: bool) -> None:
    g = Graph()
    assert (g.constant(a) is g.constant(b)) is same


def test_large_constants_are_equal_by_where_they_are() -> None:
    g = Graph()
    a = np.zeros(100_000, F32)
    assert g.constant(a) is g.constant(a)
    assert g.constant(a) is not g.constant(a.copy())
    here, there = ("weights.bin", 0, 400_000), ("weights.bin", 400_000, 400_000)
    assert g.constant(a, origin=here) is g.constant(a.copy(), origin=here)
    assert g.constant(a, origin=here) is not g.constant(a, origin=there)


def test_constants_of_foreign_byte_order_are_those_of_this_machine() -> None:
    g = Graph()
    swapped = np.array([1, 2], F32).astype(np.dtype(F32).newbyteorder())
    value = g.constant(swapped)
    assert value is g.constant(np.array([1, 2], F32))
    assert run(g, value).tolist() == [1, 2]


def test_constants_are_of_known_types() -> None:
    g = Graph()
    for array in (np.array(["2020"], "M8[D]"), np.array([None], object), np.array([b"a"], object)):
        with pytest.raises(DTypeError):
            g.constant(array)


# ---- names and origins ----------------------------------------------------------------------


def test_a_node_that_is_used_again_has_both_origins() -> None:
    g = Graph()
    x = g.input("x", "float32", [3])
    with g.origin("first"):
        a = g.relu(x)
    with g.origin("second"):
        assert g.relu(x) is a
        with g.origin("inner"):
            b = g.sigmoid(x)
        c = g.tanh(x)
    d = g.exp(x)
    assert a.provenance.nodes == ("first", "second")
    assert (b.node.origins, c.node.origins, d.node.origins) == (("inner",), ("second",), ())
    assert a.node.label == "first"
    assert d.node.label == f"%{d.node.index} exp"


def test_an_operation_that_changes_nothing_leaves_its_name_on_the_operand() -> None:
    g = Graph()
    x = g.input("x", "float32", [3, 4])
    with g.origin("reshape"):
        assert g.view(x, (3, 4)) is x
    assert "reshape" in x.node.origins


def test_values_are_found_by_name_and_number() -> None:
    g = Graph("digits")
    x = g.input("image", "float32", [3, 4])
    y = g.relu(x)
    values, indices = g.top_k(y, 2)
    g.output("best", indices)
    assert g.find("image") is x
    assert g.find("best") is indices
    assert g.find(f"%{y.node.index}") is y
    assert g.find(indices.name) is indices
    assert g.find(values.name) is values
    for name in ("imag", "%99", "%0.7", "%0.x", "%-1", "%", "", "%1.-1"):
        with pytest.raises(GraphError, match="has no value"):
            g.find(name)
    with pytest.raises(GraphError, match="similar names: image"):
        g.find("imag")


# ---- what is refused ------------------------------------------------------------------------


def test_values_of_another_graph_are_refused() -> None:
    g, other = Graph("here"), Graph("there")
    x, y = g.input("x", "float32", [3]), other.input("y", "float32", [3])
    for attempt in (
        lambda: g.add(x, y),
        lambda: x + y,
        lambda: g.output("y", y),
        lambda: g.view(y, (3,)),
        lambda: g.concat([x, y], 0),
        lambda: g.relu(y),
    ):
        with pytest.raises(GraphError, match="value y belongs to graph 'there', not to 'here'"):
            attempt()
    assert g.nodes == [x.node]


def test_a_sealed_graph_does_not_change() -> None:
    g = Graph("done")
    x = g.input("x", "float32", [3])
    y = g.relu(x)
    g.output("y", y)
    assert not g.sealed
    assert g.seal() is g
    assert g.sealed
    for attempt in (
        lambda: g.relu(x),
        lambda: g.sigmoid(x),
        lambda: x + 1.0,
        lambda: g.output("z", x),
        lambda: g.input("z", "float32", [1]),
        lambda: g.constant(np.zeros(3)),
        lambda: g.read_sizes(g.inputs[0]),
    ):
        with pytest.raises(KnError, match=r"sealed|holds sizes|integers"):
            attempt()
    assert len(g.nodes) == 2
    assert list(g.outputs) == ["y"]


def test_outputs_have_one_name_each() -> None:
    g = Graph()
    x = g.input("x", "float32", [3])
    g.output("y", x)
    with pytest.raises(GraphError, match="two outputs are called 'y'"):
        g.output("y", x)
    g.output("z", x)
    assert list(g.outputs) == ["y", "z"]


def test_a_failure_leaves_the_graph_as_it_was() -> None:
    g = Graph()
    x, y = g.input("x", "float32", [3]), g.input("y", "float32", [4])
    before = list(g.nodes)
    with pytest.raises(ShapeError) as caught:
        g.push(Concat(1), x, y)
    assert str(caught.value).startswith("Concat(x: float32[3], y: float32[4]): ")
    assert g.nodes == before


BAD_SHAPES: list[tuple[list[Any], str]] = [
    ([-1], "negative"),
    ([2.5], "2.5"),
    ([True], "True"),
    ([""], "name"),
]


@pytest.mark.parametrize(("shape", "text"), BAD_SHAPES)
def test_sizes_are_integers_and_not_negative(shape: list[Any], text: str) -> None:
    g = Graph()
    with pytest.raises(ShapeError, match=text):
        g.input("x", "float32", shape)
    x = g.input("y", "float32", [2, 3])
    if not isinstance(shape[0], str):
        for build in (g.view, g.broadcast):
            with pytest.raises(ShapeError):
                build(x, [*shape, 6])


def test_sizes_may_be_integers_of_numpy() -> None:
    g = Graph()
    sizes: Any = np.array([2, 3])
    one, two, four = (np.int64(n) for n in (1, 2, 4))
    numpy_sizes: Any = (one, two, four)
    x = g.input("x", "float32", sizes)
    values = [x, g.view(x, sizes[::-1]), g.slice(x, 1, *numpy_sizes[:2])]
    values += [g.broadcast(values[-1], [numpy_sizes[2], 2, 2]), g.repeat(x, 0, numpy_sizes[1])]
    assert [v.shape for v in values] == [(2, 3), (3, 2), (2, 2), (4, 2, 2), (4, 3)]
    assert all(type(s) is int for v in values for s in v.shape)


BAD_CALLS: list[tuple[str, Callable[[Graph, Value], Any]]] = [
    ("too few axes", lambda g, x: g.permute(x, [0, 1])),
    ("too many axes", lambda g, x: g.permute(x, [0, 1, 2, 3])),
    ("an axis twice", lambda g, x: g.permute(x, [0, 0, 1])),
    ("axis", lambda g, x: g.permute(x, [0, 1, 3])),
    ("too many pads", lambda g, x: g.pad(x, [(0, 0)] * 5)),
    ("too few pads", lambda g, x: g.pad(x, [(0, 0)])),
    ("too many negative pads", lambda g, x: g.pad(x, [(-1, 0)] * 5)),
    ("pads more than there is", lambda g, x: g.pad(x, [(-2, -1), (0, 0), (0, 0)])),
    ("wide reflection", lambda g, x: g.pad(x, [(2, 0), (0, 0), (0, 0)], "reflect")),
    ("numbers of elements", lambda g, x: g.view(x, (5, 5))),
    ("negative sizes", lambda g, x: g.view(x, (-4, -6))),
    ("two inferred sizes", lambda g, x: g.reshape(x, (-1, -1))),
    ("inferred size of nothing", lambda g, x: g.reshape(x, (0, -1))),
    ("inferred size is none", lambda g, x: g.reshape(x, (5, -1))),
    ("broadcast", lambda g, x: g.broadcast(x, (5, 3, 4))),
    ("broadcast to less", lambda g, x: g.broadcast(x, (3, 4))),
    ("squeeze", lambda g, x: g.squeeze(x, [0])),
    ("squeeze axis", lambda g, x: g.squeeze(x, [3])),
    ("unsqueeze axis", lambda g, x: g.unsqueeze(x, [5])),
    ("unsqueeze twice", lambda g, x: g.unsqueeze(x, [0, 0])),
    ("slice ends outside", lambda g, x: g.slice(x, 0, 1, 2)),
    ("slice starts outside", lambda g, x: g.slice(x, 0, -1, 1)),
    ("slice of negative length", lambda g, x: g.slice(x, 0, 0, -1)),
    ("step of 0", lambda g, x: g.slice_bounds(x, 0, None, None, 0)),
    ("concat of nothing", lambda g, x: g.concat([], 0)),
    ("concat axis", lambda g, x: g.concat([x], 3)),
    ("concat ranks", lambda g, x: g.concat([x, x[0]], 0)),
    ("concat sizes", lambda g, x: g.concat([x, x[:, :2]], 0)),
    ("split", lambda g, x: g.split(x, 1, [1, 1])),
    ("repeat", lambda g, x: g.repeat(x, 0, -1)),
    ("flip", lambda g, x: g.flip(x, 3)),
    ("add", lambda g, x: g.add(x, x[:, :2])),
    ("index outside", lambda g, x: x[2]),
    ("negative index outside", lambda g, x: x[-3]),
    ("too many indices", lambda g, x: x[0, 0, 0, 0]),
    ("two ellipses", lambda g, x: x[..., ...]),
    ("index by a list", lambda g, x: x[[0, 1]]),
    ("index by a name", lambda g, x: x["a"]),
    ("index by a float", lambda g, x: x[1.5]),
    ("slice by a float", lambda g, x: x[:1.5]),
    ("index by a truth", lambda g, x: x[True]),
    ("transpose", lambda g, x: g.transpose(x[0, 0])),
]


@pytest.mark.parametrize(("name", "call"), BAD_CALLS, ids=[n for n, _ in BAD_CALLS])
def test_bad_calls_are_typed_errors(name: str, call: Callable[[Graph, Value], Any]) -> None:
    g = Graph()
    x = g.input("x", "float32", [2, 3, 4])
    with pytest.raises(ShapeError):
        call(g, x)
    g.verify()


def test_bad_types_are_typed_errors() -> None:
    g = Graph()
    x, i = g.input("x", "float32", [3]), g.input("i", "int64", [3])
    s, b = g.input("s", "string", [3]), g.input("b", "bool", [3])
    for attempt in (
        lambda: g.add(x, i),
        lambda: g.concat([x, i], 0),
        lambda: g.select(x, x, x),
        lambda: g.select(b, x, i),
        lambda: g.relu(s),
        lambda: g.add(b, b),
        lambda: g.pad(x, [(1, 0)], value=g.scalar(0, DType.INT64)),
        lambda: g.input("y", "float33", [3]),
        lambda: g.bit_cast(x, DType.INT16),
        lambda: g.exp(i),
    ):
        with pytest.raises(DTypeError):
            attempt()


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


# ---- layout methods -------------------------------------------------------------------------


@st.composite
def layout_steps(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, Any, Any]]]:
    """A shape, and a chain of (method, its arguments, the same with NumPy)."""
    start = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    a = ramp(*start)
    steps: list[tuple[str, Any, Any]] = []
    for _ in range(draw(st.integers(1, 8))):
        make = draw(st.sampled_from(LAYOUT))
        step = make(draw, a)
        if step is not None and step[2](a).size <= 4096:
            steps.append(step)
            a = step[2](a)
    return start, steps


def axis_of(draw: st.DrawFn, a: Any) -> int:
    return draw(st.integers(-a.ndim, a.ndim - 1))


def permute_step(draw: st.DrawFn, a: Any) -> Any:
    axes = draw(st.permutations(range(a.ndim)))
    return "permute", (axes,), lambda x: x.transpose(axes)


def slice_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    axis = axis_of(draw, a)
    bound = st.none() | st.integers(-6, 6)
    start, stop = draw(bound), draw(bound)
    step = draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
    where = [slice(None)] * a.ndim
    where[axis] = slice(start, stop, step)
    return "slice_bounds", (axis, start, stop, step), lambda x: x[tuple(where)]


def flip_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    axis = axis_of(draw, a)
    return "flip", (axis,), lambda x: np.flip(x, axis)


def repeat_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    axis, count = axis_of(draw, a), draw(st.integers(0, 3))
    reps = [1] * a.ndim
    reps[axis] = count
    if draw(st.booleans()):
        return "repeat", (axis, count), lambda x: np.tile(x, reps)
    return "repeat_interleave", (axis, count), lambda x: np.repeat(x, count, axis)


def unsqueeze_step(draw: st.DrawFn, a: Any) -> Any:
    if a.ndim > 5:
        return None
    axis = draw(st.integers(-a.ndim - 1, a.ndim))
    return "unsqueeze", ([axis],), lambda x: np.expand_dims(x, axis)


def squeeze_step(draw: st.DrawFn, a: Any) -> Any:
    ones = [i for i, n in enumerate(a.shape) if n == 1]
    if not ones:
        return None
    axis = draw(st.sampled_from(ones))
    return "squeeze", ([axis],), lambda x: x.squeeze(axis)


def broadcast_step(draw: st.DrawFn, a: Any) -> Any:
    shape = tuple(draw(st.integers(0, 3)) if n == 1 else n for n in a.shape)
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), *shape)
    return "broadcast", (shape,), lambda x: np.broadcast_to(x, shape)


def pad_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    mode: Any = draw(st.sampled_from(["constant", "edge", "reflect"]))
    pads = []
    for n in a.shape:
        low, high = -n, 3
        if mode != "constant":
            low, high = 0, 3 if mode == "edge" and n else max(0, n - 1)
        before = draw(st.integers(low, high))
        pads.append((before, draw(st.integers(max(low, -n - min(before, 0)), high))))

    def pad(x: Any) -> Any:
        cuts = tuple(
            slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(x.shape, pads, strict=True)
        )
        return np.pad(x[cuts], [(max(0, b), max(0, a)) for b, a in pads], mode=mode)

    return "pad", (pads, mode), pad


def reshape_step(draw: st.DrawFn, a: Any) -> Any:
    if a.size == 0:
        return None
    shape, rest = [], a.size
    for _ in range(draw(st.integers(0, 3))):
        n = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        shape.append(n)
        rest //= n
    shape.insert(draw(st.integers(0, len(shape))), -1)
    return "reshape", (shape,), lambda x: x.reshape(shape)


def flatten_step(draw: st.DrawFn, a: Any) -> Any:
    axis = draw(st.integers(0, a.ndim))
    shape = (int(np.prod(a.shape[:axis])), int(np.prod(a.shape[axis:])))
    return "flatten", (axis,), lambda x: x.reshape(shape)


LAYOUT = [
    permute_step, slice_step, flip_step, repeat_step, unsqueeze_step, squeeze_step, broadcast_step,
    pad_step, reshape_step, flatten_step,
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(layout_steps())
def test_chains_of_layout_methods_are_those_of_numpy(chain: Any) -> None:
    start, steps = chain
    g = Graph()
    value, expected = g.input("x", "float32", start), ramp(*start)
    for method, arguments, numpy_step in steps:
        value = getattr(g, method)(value, *arguments)
        expected = numpy_step(expected)
        assert value.shape == expected.shape
    g.output("y", value)
    g.verify()
    np.testing.assert_array_equal(cpu_eval_graph(g, {"x": ramp(*start)})["y"], expected)


@settings(max_examples=100, deadline=None)
@given(layout_steps())
def test_chains_of_layout_methods_fold_the_contents_of_small_integers(chain: Any) -> None:
    start, steps = chain
    g = Graph()
    value, expected = g.constant(ramp(*start, dtype=np.int64)), ramp(*start, dtype=np.int64)
    for method, arguments, numpy_step in steps:
        value = getattr(g, method)(value, *arguments)
        expected = numpy_step(expected)
    np.testing.assert_array_equal(run(g, value), expected)


def test_splits_stacks_and_concats() -> None:
    g = Graph()
    x = g.input("x", "float32", [2, 5])
    parts = g.split(x, 1, [2, 0, 3])
    assert [p.shape for p in parts] == [(2, 2), (2, 0), (2, 3)]
    a = ramp(2, 5)
    np.testing.assert_array_equal(run(g, g.concat(parts, 1), x=a), a)
    np.testing.assert_array_equal(run(g, g.stack([x, x], -1), x=a), np.stack([a, a], -1))
    np.testing.assert_array_equal(run(g, g.expand(x[:, :1], (3, 1, 4)), x=a),
                                  np.broadcast_to(a[:, :1], (3, 2, 4)))  # fmt: skip


def test_what_changes_nothing_is_no_node() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 3])
    n = g.symbols["n"]
    for same in (
        g.view(x, (n, 3)),
        g.reshape(x, (-1, 3)),
        g.broadcast(x, (n, 3)),
        g.permute(x, (0, 1)),
        g.slice(x, 0, 0, n),
        x[:],
        x[...],
        g.pad(x, [(0, 0), (0, 0)]),
        g.concat([x], 0),
        g.repeat(x, 1, 1),
        g.cast(x, DType.FLOAT32),
        g.squeeze(g.unsqueeze(x, [0]), [0]),
    ):
        assert same is x or kinds(g)[-1] == "View"
    assert not {"Permute", "Slice", "Broadcast", "Pad", "Concat", "Cast"} & set(kinds(g))


@pytest.mark.parametrize(
    ("op", "operand"),
    [
        (Permute((0,)), (2, 3)),
        (Flip(2), (2, 1)),
        (Pad(((0, 0),), "edge"), (2, 3)),
        (Slice(2, 0, 3), (2, 3)),
        (Concat(2), (2, 3)),
        (View((2, 4)), (2, 3)),
        (Broadcast((2, 3, 1)), (2, 3)),
    ],
)
def test_operations_that_change_nothing_are_checked_all_the_same(op: Any, operand: Any) -> None:
    g = Graph()
    with pytest.raises(ShapeError):
        g.push(op, g.input("x", "float32", operand))
