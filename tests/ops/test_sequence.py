"""Sequences and optionals: resolved while loading where they are visible, else at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kn_graph.errors import DTypeError, ExecutionError, KnError, MalformedModelError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from kn_graph.types import SequenceType, TensorType
from tests.ops.single_node import assert_same

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((1, 3), 9, np.float32)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    types: Mapping[str, Any] | None = None,
) -> bytes:
    """Return a model; `inputs` are arrays, of which int64 ones are initializers."""
    constants = {n: a for n, a in inputs.items() if a.dtype == np.int64}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
        if n not in constants
    ]
    declared += [helper.make_value_info(n, t) for n, t in (types or {}).items()]
    graph = helper.make_graph(
        list(nodes), "g", declared, [onnx.ValueInfoProto(name=o) for o in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
    ).SerializeToString()


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, op, **attributes)


def load(*args: Any, **options: Any) -> Graph:
    return load_graph_from_onnx_bytes(model(*args, **options))


def host_functions(graph: Graph) -> list[str]:
    return [n.op.title for n in graph.nodes if type(n.op).__name__ == "HostCall"]


def scalar(n: int) -> Any:
    return np.array(n, np.int64)


def same_lists(got: Any, expected: Any) -> None:
    assert isinstance(got, list)
    assert_same(got, expected)


# ---- visible sequences --------------------------------------------------------------------------

VISIBLE: list[tuple[str, list[Any]]] = [
    ("at", [node("SequenceAt", ["s", "i"])]),
    ("insert", [node("SequenceInsert", ["s", "b", "i"], ["t"]), node("SequenceAt", ["t", "i"])]),
    ("append", [node("SequenceInsert", ["s", "a"], ["t"]), node("SequenceAt", ["t", "last"])]),
    ("erase", [node("SequenceErase", ["s", "i"], ["t"]), node("SequenceAt", ["t", "i"])]),
    ("pop", [node("SequenceErase", ["s"], ["t"]), node("SequenceAt", ["t", "last"])]),
    ("length", [node("SequenceLength", ["s"])]),
    ("concat", [node("ConcatFromSequence", ["s"], axis=0)]),
    ("join", [node("SequenceErase", ["s", "i"], ["t"]),
              node("ConcatFromSequence", ["t"], axis=-1, new_axis=1)]),
]  # fmt: skip


@pytest.mark.parametrize("visible", [True, False])
@pytest.mark.parametrize(("name", "nodes"), VISIBLE, ids=[n for n, _ in VISIBLE])
def test_sequences_against_onnxruntime(name: str, nodes: list[Any], visible: bool) -> None:
    given = {"a": X, "b": Y, "c": X + 10, "i": scalar(1), "last": scalar(-1)}
    if visible:
        data = model([node("SequenceConstruct", ["a", "b", "c"], ["s"]), *nodes], given)
        graph = load_graph_from_onnx_bytes(data)
        assert not {"sequence_at", "sequence_length", "concat_from_sequence"} & set(
            host_functions(graph)
        )
        feeds: dict[str, Any] = {n: given[n] for n in "abc"}
    else:
        s = helper.make_sequence_type_proto(FLOATS)
        data = model(nodes, {k: v for k, v in given.items() if k != "c"}, types={"s": s})
        graph = load_graph_from_onnx_bytes(data)
        feeds = {"a": X, "b": Y, "s": [X, Y, X + 10]}
    got = cpu_eval_graph(graph, feeds)["y"]
    session = onnx.load_from_string(data)
    feeds = {i.name: feeds[i.name] for i in session.graph.input}
    expected = run_sequences_on_onnxruntime(data, feeds)[0]
    assert_same([got], [expected])


def run_sequences_on_onnxruntime(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def test_a_visible_sequence_costs_nothing() -> None:
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("SequenceInsert", ["e", "a"], ["s"]),
        node("SequenceInsert", ["s", "b", "zero"], ["t"]),
        node("SequenceAt", ["t", "zero"], ["y"]),
        node("SequenceLength", ["t"], ["n"]),
    ]
    graph = load(nodes, {"a": X, "b": Y, "zero": scalar(0)}, ("y", "n"))
    assert graph.outputs["y"] is graph.inputs[1]
    assert graph.outputs["n"].constant == 2


# ---- splitting ----------------------------------------------------------------------------------

SPLITS: list[tuple[Any, dict[str, Any]]] = [
    (None, {}),
    (None, {"axis": -1}),
    (None, {"axis": 1, "keepdims": 0}),
    (scalar(2), {"axis": 1}),
    (scalar(5), {"axis": 1}),
    (np.array([1, 0, 2]), {"axis": 1}),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("lengths", "attributes"), SPLITS, ids=str)
def test_split_to_sequence(lengths: Any, attributes: dict[str, Any], known: bool) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = {"x": x} if lengths is None else {"x": x, "n": lengths}
    split = node("SplitToSequence", list(given), **attributes)
    data = model([split], given)
    shapes = None if known else {"x": [None, None]}
    graph = load_graph_from_onnx_bytes(data, input_shapes=shapes)
    got = cpu_eval_graph(graph, {"x": x})["y"]
    same_lists(got, run_sequences_on_onnxruntime(data, {"x": x})[0])


def test_keepdims_is_ignored_where_lengths_are_given() -> None:
    graph = load([node("SplitToSequence", ["x", "n"], keepdims=0)], {"x": X, "n": scalar(1)})
    same_lists(cpu_eval_graph(graph, {"x": X})["y"], [X[:1], X[1:]])


def test_split_lengths_that_only_show_at_run_time() -> None:
    types = {"n": helper.make_tensor_type_proto(TensorProto.INT64, None)}
    nodes = [node("SplitToSequence", ["x", "n"], ["y"], axis=0)]
    graph = load_graph_from_onnx_bytes(
        model(nodes, {"x": X}, types=types), input_shapes={"n": [None]}
    )
    same_lists(cpu_eval_graph(graph, {"x": X, "n": np.array([2, 0])})["y"], [X, X[:0]])
    with pytest.raises(ExecutionError, match="do not add up to 2"):
        cpu_eval_graph(graph, {"x": X, "n": np.array([2, 1])})


def test_elements_of_a_split_keep_what_is_known_of_their_shape() -> None:
    nodes = [node("SplitToSequence", ["x"], ["s"], axis=0), node("SequenceAt", ["s", "k"])]
    types = {"k": helper.make_tensor_type_proto(TensorProto.INT64, [])}
    data = model(nodes, {"x": X}, types=types)
    graph = load_graph_from_onnx_bytes(data, input_shapes={"x": ["n", 3]})
    assert graph.outputs["y"].type == TensorType(graph.inputs[0].dtype, (1, 3))
    for k in (1, -2):
        got = cpu_eval_graph(graph, {"x": X, "k": scalar(k)})["y"]
        np.testing.assert_array_equal(got, X[k : k + 1 or None])
    with pytest.raises(ExecutionError, match="position 2 is outside a sequence of 2 elements"):
        cpu_eval_graph(graph, {"x": X, "k": scalar(2)})


def test_parts_of_one_element_are_seen_in_a_list_of_ones() -> None:
    # so PyTorch's exporter begins a repetition of rows as often as a tensor says
    one = onnx.numpy_helper.from_array(np.array([1]))
    nodes = [
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("ConstantOfShape", ["n"], ["l"], value=one),
        node("SplitToSequence", ["x", "l"], ["s"]), node("SequenceAt", ["s", "k"]),
    ]  # fmt: skip
    graph = load_graph_from_onnx_bytes(
        model(nodes, {"x": X, "k": scalar(1)}), input_shapes={"x": ["n", 3]}
    )
    assert graph.outputs["y"].type == TensorType(graph.inputs[0].dtype, (1, 3))
    np.testing.assert_array_equal(cpu_eval_graph(graph, {"x": X})["y"], X[1:])


# ---- types --------------------------------------------------------------------------------------


def test_types_of_elements_are_joined() -> None:
    graph = Graph()
    a = graph.input("a", "float32", ["n", 3])
    b = graph.input("b", "float32", [2, 3])
    (s,) = graph.host_call("sequence_construct", a, b, dtype=a.dtype)
    k = graph.input("k", "int64", [])
    (x,) = graph.host_call("sequence_at", s, k)
    assert x.shape[1] == 3
    assert x.shape[0] not in (2, a.shape[0])
    graph.output("y", graph.add(x, x))
    graph.output("s", s)
    graph.verify()
    out = cpu_eval_graph(graph, {"a": X[:1], "b": X, "k": scalar(0)})
    np.testing.assert_array_equal(out["y"], X[:1] * 2)
    same_lists(out["s"], [X[:1], X])
    (mixed,) = graph.host_call("sequence_construct", a, graph.view(b, (6,)), dtype=a.dtype)
    assert isinstance(mixed.type, SequenceType)
    assert not isinstance(mixed.type.elem, TensorType)


def test_elements_of_a_declared_sequence_have_its_rank() -> None:
    s = helper.make_sequence_type_proto(
        helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", "m"])
    )
    nodes = [node("SequenceAt", ["s", "i"], ["x"]), node("Transpose", ["x"])]
    graph = load(nodes, {"i": scalar(1)}, types={"s": s})
    assert not graph.symbols
    np.testing.assert_array_equal(cpu_eval_graph(graph, {"s": [Y, X]})["y"], X.T)


def test_input_shapes_give_the_rank_of_elements() -> None:
    s = helper.make_sequence_type_proto(FLOATS)
    nodes = [node("SequenceAt", ["s", "i"], ["x"]), node("Transpose", ["x"])]
    data = model(nodes, {"i": scalar(0)}, types={"s": s})
    with pytest.raises(KnError, match="input_shapes"):
        load_graph_from_onnx_bytes(data)
    graph = load_graph_from_onnx_bytes(data, input_shapes={"s": [None, 3]})
    np.testing.assert_array_equal(cpu_eval_graph(graph, {"s": [X]})["y"], X.T)


def test_concatenation_at_run_time() -> None:
    s = helper.make_sequence_type_proto(FLOATS)
    graph = load([node("ConcatFromSequence", ["s"], axis=0)], {}, types={"s": s})
    np.testing.assert_array_equal(cpu_eval_graph(graph, {"s": [X, Y]})["y"], np.vstack([X, Y]))
    with pytest.raises(ExecutionError, match="the sequence is empty"):
        cpu_eval_graph(graph, {"s": []})
    with pytest.raises(ExecutionError, match=r"cannot be joined: \[2, 3\], \[2, 2\]"):
        cpu_eval_graph(graph, {"s": [X, X[:, :2]]})


def test_a_sequence_of_other_elements_is_refused() -> None:
    nodes = [node("SequenceEmpty", [], ["s"]), node("SequenceInsert", ["s", "i"])]
    with pytest.raises(DTypeError, match=r"element 0 is int64\[\], expected a tensor of float32"):
        load(nodes, {"i": scalar(1)})
    with pytest.raises(DTypeError, match="element 1 is int64"):
        load([node("SequenceConstruct", ["a", "i"])], {"a": X, "i": scalar(1)})


# ---- mapping ------------------------------------------------------------------------------------


def test_sequence_map_is_expanded_by_its_definition() -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["p", "q"], ["r"]), helper.make_node("Shape", ["p"], ["k"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "pq"],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["n"]),
         helper.make_tensor_value_info("k", TensorProto.INT64, [1])],
    )  # fmt: skip
    s = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"]))
    nodes = [node("SequenceMap", ["s", "x"], ["y", "k"], body=body)]
    graph = load(nodes, {"x": X[0, :1]}, ("y", "k"), types={"s": s})
    out = cpu_eval_graph(graph, {"s": [X[0], X[1, :2]], "x": X[1, :1]})
    same_lists(out["y"], [X[0] * 3, X[1, :2] * 3])
    same_lists(out["k"], [np.array([3]), np.array([2])])
    assert cpu_eval_graph(graph, {"s": [], "x": X[1, :1]})["y"] == []


# ---- optionals ----------------------------------------------------------------------------------

OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3]))


def test_an_optional_input_may_be_missing() -> None:
    nodes = [node("OptionalHasElement", ["o"]), node("OptionalGetElement", ["o"], ["z"])]
    graph = load(nodes[:1], {}, types={"o": OPTIONAL})
    assert [cpu_eval_graph(graph, f)["y"].item() for f in ({"o": X}, {"o": None}, {})] == [
        True, False, False,
    ]  # fmt: skip
    graph = load(nodes[1:], {}, ("z",), types={"o": OPTIONAL})
    assert graph.outputs["z"].shape == (2, 3)
    np.testing.assert_array_equal(cpu_eval_graph(graph, {"o": X})["z"], X)
    with pytest.raises(ExecutionError, match="the optional is empty"):
        cpu_eval_graph(graph, {})


def test_visible_optionals_are_resolved() -> None:
    nodes = [
        node("Optional", ["a"], ["o"]),
        node("OptionalGetElement", ["o"], ["y"]),
        node("OptionalHasElement", ["o"], ["h"]),
        node("Optional", [], ["e"], type=FLOATS),
        node("OptionalHasElement", ["e"], ["n"]),
        node("OptionalHasElement", ["a"], ["t"]),
        node("OptionalHasElement", [], ["m"]),
        node("OptionalGetElement", ["a"], ["z"]),
    ]
    graph = load(nodes, {"a": X}, ("y", "h", "n", "t", "m", "z", "o", "e"))
    assert graph.outputs["y"] is graph.inputs[0] is graph.outputs["z"]
    truths = [bool(graph.outputs[n].constant) for n in "hntm"]
    assert truths == [True, False, True, False]
    out = cpu_eval_graph(graph, {"a": X})
    assert out["e"] is None
    np.testing.assert_array_equal(out["o"], X)


def test_an_optional_of_nothing_needs_a_type() -> None:
    with pytest.raises(MalformedModelError, match="neither an input nor a type"):
        load([node("Optional", [])], {})


def test_results_do_not_share_memory_with_inputs() -> None:
    s = helper.make_sequence_type_proto(FLOATS)
    graph = load([node("SequenceInsert", ["s", "a"])], {"a": X}, types={"s": s})
    given = [Y.copy()]
    out = cpu_eval_graph(graph, {"s": given, "a": X})["y"]
    assert len(given) == 1
    assert not any(np.shares_memory(e, x) for e in out for x in (given[0], X))
