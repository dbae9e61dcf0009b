"""Building graphs: merging, names, ownership, operators, shape arithmetic, layout methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.errors import DTypeError, GraphError, KnError, ShapeError
from kn_graph.ops.layout import Concat
from kn_graph.ops.random import Random

F32 = np.float32


def run(g: Graph, value: Value, **feeds: Any) -> Any:
    """Evaluate one value."""
    name = f"out{len(g.outputs)}"
    g.output(name, value)
    return cpu_eval_graph(g, feeds)[name]


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


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


TYPED: tuple[tuple[str, Callable[[Graph, Value, Any], Value]], ...] = (
    ("int32", lambda g, x, t: g.scalar(3, t)),
    ("float32", lambda g, x, t: g.scalar(0.5, t)),
    ("int32", lambda g, x, t: g.size_tensor([4, 2], t)),
    ("float64", lambda g, x, t: g.cast(x, t)),
    ("int32", lambda g, x, t: g.bit_cast(x, t)),
    ("int32", lambda g, x, t: g.iota(4, t)),
    ("float64", lambda g, x, t: g.random("uniform", [2], t, key=1)),
    ("int8", lambda g, x, t: g.quantize(x, g.scalar(0.5, "float32"), dtype=t)),
    ("float64", lambda g, x, t: g.quantize(x, g.scalar(0.5, "float32"), precision=t)),
    ("int8", lambda g, x, t: g.requantize(x, g.scalar(0.5, "float32"), None, dtype=t)),
    ("int8", lambda g, x, t: g.clamp_cast(x, t)),
    ("float64", lambda g, x, t: g.dequantize(x, g.scalar(0.5, "float32"), dtype=t)),
    ("float64", lambda g, x, t: g.matmul(x, x, out_dtype=t)),
    ("float64", lambda g, x, t: g.conv(*images(g, x), out_dtype=t)),
    ("float64", lambda g, x, t: g.conv_transpose(*images(g, x), out_dtype=t)),
    ("float64", lambda g, x, t: g.attention(*[images(g, x)[0]] * 3, softmax_dtype=t)),
    ("float64", lambda g, x, t: g.cosine_window(4, [0.5, 0.5], t)),
)


def images(g: Graph, x: Value) -> list[Value]:
    return [g.view(x, [1, 1, 4, 4])] * 2


@pytest.mark.parametrize(("dtype", "call"), TYPED)
def test_element_types_may_be_named(dtype: str, call: Callable[[Graph, Value, Any], Value]) -> None:
    g = Graph()
    x = g.input("x", "float32", [4, 4])
    named, given = call(g, x, dtype), call(g, x, DType.parse(dtype))
    assert named.type == given.type
    assert named is given or isinstance(named.node.op, Random)
    for wrong in ("float33", np.float32):
        with pytest.raises(DTypeError, match="element type"):
            call(g, x, wrong)


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
