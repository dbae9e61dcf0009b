"""`PreparedGraph.eval`: what goes in, what comes out, and who owns it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import kn_runtime
from kn_graph import DType, Graph
from kn_graph.errors import (
    ExecutionError,
    InputDTypeError,
    InputShapeError,
    MissingInputError,
    SymbolError,
    UnexpectedInputError,
    UsageError,
)
from kn_runtime import Device, PreparedGraph
from tests.small_models import info, node
from tests.small_models import model as small

F32 = np.float32
DEVICES = ("reference", "cpu")


def identity(shape: Any = ("n",), dtype: int = TensorProto.FLOAT) -> PreparedGraph:
    return kn_runtime.load(small([node("Identity", "x", "y")], [info("x", shape, dtype)]))


def sub() -> PreparedGraph:
    inputs = [info("a", ["n", 3]), info("b", ["n", 3])]
    return kn_runtime.load(small([node("Sub", "a b", "y")], inputs))


A, B = np.full((2, 3), 5, F32), np.ones((2, 3), F32)


# ---- ways of giving inputs -----------------------------------------------------------------


@pytest.mark.parametrize("inputs", [{"a": A, "b": B}, {"b": B, "a": A}, [A, B], (A, B)])
def test_inputs_by_name_or_in_order(inputs: Any) -> None:
    np.testing.assert_array_equal(sub().eval(inputs)["y"], A - B)


@pytest.mark.parametrize("inputs", [A, "ab", 3, None, {1, 2}])
def test_other_containers_are_refused(inputs: Any) -> None:
    with pytest.raises(InputDTypeError, match="a list in the model's order"):
        sub().eval(inputs)


class Exported:
    """An array of another library that speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnAnotherDevice:
    """An array that cannot be read here."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is on a GPU")

    def __dlpack_device__(self) -> Any:
        return (1, 0)


BASE = np.arange(24, dtype=F32).reshape(4, 6)


@pytest.mark.parametrize(
    "x",
    [
        BASE[::2, ::-2],
        BASE.T[1:],
        np.broadcast_to(F32(3), (2, 3)),
        np.frombuffer(BASE.tobytes(), F32).reshape(4, 6),
        BASE.astype(">f4"),
        np.ndarray((2, 2), F32, bytes(17), 1),  # misaligned
        Exported(BASE),
    ],
    ids=["strided", "transposed", "stride 0", "read-only", "big-endian", "misaligned", "DLPack"],
)
@pytest.mark.parametrize("device", DEVICES)
def test_any_strides_order_and_library(x: Any, device: str) -> None:
    proto = small([node("Neg", "x", "y")], [info("x", ["n", "m"])], ["y", "x"])
    outputs = kn_runtime.load(proto, device).eval({"x": x})
    np.testing.assert_array_equal(outputs["y"], -outputs["x"])
    np.testing.assert_array_equal(outputs["x"], np.asarray(getattr(x, "array", x)))
    assert all(a.dtype == F32 and a.dtype.isnative for a in outputs.values())


def test_numbers_and_lists_are_arrays_of_their_own_type() -> None:
    assert identity([], TensorProto.DOUBLE).eval({"x": 2.5})["y"] == 2.5
    assert identity([2], TensorProto.INT64).eval({"x": [1, 2]})["y"].tolist() == [1, 2]
    with pytest.raises(InputDTypeError, match="expected float32"):
        identity([2]).eval({"x": [1.0, 2.0]})


# ---- what is refused -----------------------------------------------------------------------


def failure(error: Any, model: PreparedGraph, inputs: Any) -> Any:
    with pytest.raises(error) as caught:
        model.eval(inputs)
    return caught.value


def test_missing_inputs_are_all_named() -> None:
    error = failure(MissingInputError, sub(), {})
    assert str(error) == "input 'a' (float32[n, 3]), 'b' (float32[n, 3]) is missing; given: nothing"
    assert (error.name, error.expected) == ("a", "float32[n, 3]")
    assert "'b' (float32[n, 3]) is missing; given: 'a'" in str(
        failure(MissingInputError, sub(), [A])
    )


def test_extra_inputs_are_named() -> None:
    error = failure(UnexpectedInputError, sub(), {"a": A, "b": B, "c": A})
    assert str(error) == "the model has no input 'c'; its inputs are 'a', 'b'"
    assert "3 inputs given by position" in str(failure(UnexpectedInputError, sub(), [A, B, A]))


@pytest.mark.parametrize(
    ("x", "got"),
    [
        (np.ones(2), "float64[2]"),
        (np.ones(2, np.float16), "float16[2]"),
        (np.ones(2, ml_dtypes.bfloat16), "bfloat16[2]"),
        (np.ones(2, np.int32), "int32[2]"),
        (np.ones(2, bool), "bool[2]"),
        (np.array(["a"]), "string[1]"),
        (np.zeros(2, "datetime64[s]"), "datetime64[s]"),
        (np.zeros(2, [("a", "f4")]), "[('a', '<f4')]"),
        ([[1], [2, 3]], "list"),
        (None, "NoneType"),
        (object(), "object"),
        (np.array([object()]), "object"),
        (OnAnotherDevice(), "OnAnotherDevice"),
    ],
)
def test_other_element_types_are_refused(x: Any, got: str) -> None:
    error = failure(InputDTypeError, identity(), {"x": x})
    assert isinstance(error, TypeError) is False  # it is about a value, not a Python type
    assert (error.name, error.expected) == ("x", "float32[n]")
    assert str(error).startswith("input 'x': expected float32[n], got ")
    assert got in error.got


def test_the_advice_of_the_error_works() -> None:
    text = str(failure(InputDTypeError, identity(), {"x": np.ones(2)}))
    assert "np.asarray(x, 'float32') converts it" in text
    bfloat16 = identity(dtype=TensorProto.BFLOAT16)
    text = str(failure(InputDTypeError, bfloat16, {"x": np.ones(2)}))
    assert "np.asarray(x, 'bfloat16')" in text
    assert np.asarray(np.ones(2), "bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("shape", "why"),
    [((2,), "of rank 1, not 2"), ((2, 4), "axis 1 has size 4, not 3"), ((), "of rank 0, not 2")],
)
def test_wrong_shapes_are_refused(shape: tuple[int, ...], why: str) -> None:
    error = failure(InputShapeError, sub(), {"a": np.ones(shape, F32), "b": B})
    assert (error.name, error.expected) == ("a", "float32[n, 3]")
    assert error.got.startswith(f"float32{list(shape)}")
    assert why in str(error)


def test_sizes_that_contradict_each_other_name_both_inputs() -> None:
    error = failure(SymbolError, sub(), {"a": A, "b": np.ones((5, 3), F32)})
    assert str(error) == "size 'n' is 2 by axis 0 of input 'a', but 5 by axis 0 of input 'b'"
    assert (error.name, error.expected, error.got) == ("n", "2", "5")


def past_and_new() -> PreparedGraph:
    inputs = [info("mask", ["past + seq"]), info("x", ["seq"]), info("cache", ["past"])]
    return kn_runtime.load(small([node("Concat", "cache x", "y", axis=0)], inputs))


def test_compound_sizes_are_checked() -> None:
    good = {"mask": np.ones(5, F32), "x": np.ones(2, F32), "cache": np.ones(3, F32)}
    assert past_and_new().eval(good)["y"].shape == (5,)
    error = failure(SymbolError, past_and_new(), good | {"mask": np.ones(6, F32)})
    assert error.name == "mask"
    assert "axis 0 has size 6, not 5" in str(error)
    assert "past = 3 by axis 0 of input 'cache'" in str(error)


@pytest.mark.parametrize("order", [1, -1])
def test_compound_sizes_are_solved_for_a_symbol_that_nothing_else_shows(order: int) -> None:
    inputs = [info("x", ["2*n + 1"]), info("y", ["n + m"])][::order]
    nodes = [
        node("Shape", "x", "nx"),
        node("Shape", "y", "ny"),
        node("Div", "nx two", "n"),
        node("Sub", "ny n", "m"),
    ]
    model = kn_runtime.load(small(nodes, inputs, ["m"], {"two": np.array([2])}))
    assert model.eval({"x": np.ones(7, F32), "y": np.ones(9, F32)})["m"].tolist() == [6]
    bad = {"x": np.ones(8, F32), "y": np.ones(9, F32)}
    assert "no 'n' gives axis 0 the size 8" in str(failure(SymbolError, model, bad))


def test_a_size_that_no_input_shows_must_be_given() -> None:
    graph = Graph()
    k = graph.symbol("k")
    graph.output("y", graph.broadcast(graph.scalar(1, DType.FLOAT32), (k,)))
    model = Device.cpu().prepare(graph)
    assert model.eval({}, dims={"k": 6})["y"].shape == (6,)
    text = str(failure(SymbolError, model, {}))
    assert "'k' has no number, since no input shows it; give it in dims" in text


def test_a_closed_graph_refuses_to_run() -> None:
    with identity() as model:
        model.eval([np.ones(1, F32)])
    model.close()  # again: nothing happens
    with pytest.raises(UsageError, match="closed"):
        model.eval([np.ones(1, F32)])


# ---- what comes out ------------------------------------------------------------------------


def test_outputs_come_in_the_order_of_the_file() -> None:
    nodes = [node("Neg", "x", "b"), node("Abs", "x", "a")]
    model = kn_runtime.load(small(nodes, [info("x", ["n"])], ["b", "x", "a", "b"]))
    assert list(model.eval([np.ones(1, F32)])) == ["b", "x", "a"]


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_belong_to_the_caller(device: str) -> None:
    nodes = [node("Neg", "x", "y"), node("Transpose", "y", "t"), node("Identity", "y", "z")]
    w = np.arange(6, dtype=F32).reshape(2, 3)
    model = kn_runtime.load(
        small(nodes, [info("x", ["n", "m"])], ["y", "t", "z", "x", "w"], {"w": w}), device
    )
    x = np.arange(6, dtype=F32).reshape(2, 3)
    first = model.eval([x])
    for number, array in enumerate(first.values()):
        assert array.flags.c_contiguous
        array[:] = number
    for number, array in enumerate(first.values()):
        assert (array == number).all()
    np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3))
    again = model.eval([x])
    np.testing.assert_array_equal(again["y"], -x)
    np.testing.assert_array_equal(again["w"], w)


@pytest.mark.parametrize("device", DEVICES)
def test_rank_0_stays_an_array(device: str) -> None:
    model = kn_runtime.load(small([node("Neg", "x", "y")], [info("x", [])], ["y", "x"]), device)
    for x in (np.array(2, F32), F32(2)):
        for y in model.eval([x]).values():
            assert type(y) is np.ndarray
            assert y.shape == ()
            y[()] = 1


@pytest.mark.parametrize(
    "x",
    [np.array(["a", "ß"], object), np.array(["a", "ß"]), ["a", "ß"]],
    ids=["object", "U", "list"],
)
def test_strings_are_object_arrays_of_str(x: Any) -> None:
    y = identity(dtype=TensorProto.STRING).eval({"x": x})["y"]
    assert (y.dtype, y.tolist(), type(y[0])) == (np.dtype(object), ["a", "ß"], str)


@pytest.mark.parametrize("x", [np.array([b"a"]), np.array([1, "a"], object)])
def test_other_objects_are_no_strings(x: Any) -> None:
    failure(InputDTypeError, identity(dtype=TensorProto.STRING), {"x": x})


TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])


def test_sequences_are_lists() -> None:
    sequence = helper.make_value_info("x", helper.make_sequence_type_proto(TENSOR))
    model = kn_runtime.load(small([node("Identity", "x", "y")], [sequence]))
    given = [np.ones(1, F32), np.ones(2, F32)]
    y = model.eval({"x": given})["y"]
    assert [e.shape for e in y] == [(1,), (2,)]
    y[0][0] = 5
    assert given[0][0] == 1
    assert model.eval({"x": []})["y"] == []
    assert "as a list" in str(failure(InputDTypeError, model, {"x": np.ones((2, 3), F32)}))
    text = str(failure(InputDTypeError, model, {"x": [np.ones(1)]}))
    assert text.startswith("input 'x[0]': expected float32[x_0], got float64[1]")


def test_maps_are_dicts() -> None:
    mapping = helper.make_map_type_proto(TensorProto.INT64, TENSOR)
    model = kn_runtime.load(small([], [helper.make_value_info("x", mapping)], ["x"]))
    given = {3: np.ones(2, F32)}
    x = model.eval({"x": given})["x"]
    x[3][:] = 5
    assert given[3].tolist() == [1, 1]
    assert "as a dict" in str(failure(InputDTypeError, model, {"x": [1]}))


def test_an_empty_optional_is_none() -> None:
    optional = helper.make_value_info("x", helper.make_optional_type_proto(TENSOR))
    model = kn_runtime.load(small([node("Identity", "x", "y")], [optional]))
    assert model.eval({"x": None})["y"] is None
    assert model.eval({})["y"] is None
    assert model.eval([np.ones(2, F32)])["y"].tolist() == [1, 1]


# ---- sizes that need another graph ---------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_a_size_of_zero_runs_where_one_was_assumed(device: str) -> None:
    nodes = [node("Neg", "x", "t"), node("ReduceSum", "t", "y", keepdims=0)]
    model = kn_runtime.load(small(nodes, [info("x", ["n", 2])], ["t", "y"]), device)
    for n in (2, 0, 1, 0):
        outputs = model.eval([np.ones((n, 2), F32)])
        assert (outputs["t"].shape, float(outputs["y"])) == ((n, 2), -2.0 * n)


def squeeze_if_one() -> Any:
    """Return the model that TorchScript exports of `x.squeeze(1)`."""

    def branch(operator: str, inputs: str, name: str) -> Any:
        return helper.make_graph([node(operator, inputs, "r")], name, [], [info("r")])

    then, other = branch("Squeeze", "x axis", "then"), branch("Identity", "x", "other")
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s index", "size", axis=0),
        node("Equal", "size one", "is_one"),
        node("If", "is_one", "y", then_branch=then, else_branch=other),
        node("Neg", "y", "z"),
    ]
    weights = {"axis": np.array([1]), "index": np.array(1), "one": np.array(1)}
    return small(nodes, [info("x", ["n", "m"])], ["z"], weights)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimize", [False, True])
def test_a_conditional_squeeze_follows_the_size(device: str, optimize: bool) -> None:
    model = kn_runtime.load(squeeze_if_one(), device, optimize=optimize)
    for shape, expected in {(3, 4): (3, 4), (3, 1): (3,), (1, 2): (1, 2), (0, 1): (0,)}.items():
        x = np.arange(np.prod(shape), dtype=F32).reshape(shape)
        z = model.eval([x])["z"]
        np.testing.assert_array_equal(z, -x.reshape(expected))


@pytest.mark.parametrize("ir_version", [3, 10])
@pytest.mark.parametrize("device", DEVICES)
def test_an_initializer_that_is_an_input_may_be_fed(device: str, ir_version: int) -> None:
    inputs, weights = [info("x", ["n"]), info("w", [1])], {"w": np.ones(1, F32)}
    proto = small([node("Add", "x w", "y")], inputs, ["y"], weights, ir_version=ir_version)
    model = kn_runtime.load(proto, device)
    x, w = np.zeros(2, F32), np.full(1, 7, F32)
    assert model.eval([x])["y"].tolist() == [1, 1]
    assert model.eval({"x": x, "w": w})["y"].tolist() == [7, 7]
    assert model.eval({"x": x[:0], "w": w})["y"].tolist() == []
    assert model.eval({"x": x})["y"].tolist() == [1, 1]
    failure(InputDTypeError, model, {"x": x, "w": np.ones(1)})
    failure(InputShapeError, model, {"x": x, "w": np.ones(2, F32)})
    failure(MissingInputError, model, {"w": w})


def test_an_initializer_that_is_no_input_cannot_be_fed() -> None:
    proto = small([node("Add", "x w", "y")], [info("x")], ["y"], {"w": np.ones(1, F32)})
    failure(UnexpectedInputError, kn_runtime.load(proto), {"x": A[0], "w": np.zeros(1, F32)})


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_a_rank_may_follow_from_the_elements_of_an_input(device: str, optimize: bool) -> None:
    nodes = [node("Expand", "x size", "e"), node("Squeeze", "e", "y")]
    inputs = [info("x", [1, 1, 1]), info("size", [3], TensorProto.INT64)]
    model = kn_runtime.load(small(nodes, inputs), device, optimize=optimize)
    x = np.full((1, 1, 1), 5, F32)
    for size in [(2, 3, 1), (2, 3, 1), (1, 1, 4), (2, 2, 2), (1, 1, 1), (2, 0, 1)]:
        y = model.eval({"x": x, "size": np.array(size)})["y"]
        np.testing.assert_array_equal(y, np.broadcast_to(x, size).squeeze())
    failure(InputShapeError, model, {"x": x, "size": np.array([1, 1])})


def test_a_bound_call_sees_new_elements_that_change_the_graph() -> None:
    inputs = [info("x", [2, 3]), info("axes", [1], TensorProto.INT64)]
    model = kn_runtime.load(small([node("Unsqueeze", "x axes", "y")], inputs), "cpu")
    axes = np.array([0])
    call = model.bind({"x": A, "axes": axes})
    assert call.outputs["y"].shape == (1, 2, 3)
    axes[0] = 2
    with pytest.raises(ExecutionError, match=r"has shape \[2, 3, 1\] now"):
        call.run()


@pytest.mark.parametrize("device", DEVICES)
def test_arithmetic_may_follow_what_reads_an_empty_optional(device: str) -> None:
    optional = helper.make_optional_type_proto(
        helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    )
    inputs = [helper.make_value_info("o", optional), info("x", ["n"])]
    nodes = [node("OptionalHasElement", "o", "has"), node("Not", "has", "n")]
    nodes.append(node("Where", "n x zero", "y"))
    model = kn_runtime.load(small(nodes, inputs, weights={"zero": np.zeros(1, F32)}), device)
    assert model.eval({"o": None, "x": A[0]})["y"].tolist() == [5, 5, 5]
    assert model.eval({"o": A[0], "x": A[0]})["y"].tolist() == [0, 0, 0]


# ---- threads -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_threads_do_not_disturb_each_other(device: str) -> None:
    model = kn_runtime.load(squeeze_if_one(), device)

    def run(seed: int) -> bool:
        shape = (seed % 5, seed % 3)  # three graphs: as loaded, for 1, and for 0
        x = np.full(shape, seed, F32)
        expected = -x[:, 0] if shape[1] == 1 else -x
        return all(np.array_equal(model.eval([x])["z"], expected) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(100)))


def test_the_seed_decides_random_operations() -> None:
    proto = small([node("RandomNormal", "", "y", shape=[4])], [], ["y"])
    model = kn_runtime.load(proto)
    first, again, other = (model.eval({}, seed=s)["y"].tolist() for s in (1, 1, 2))
    assert first == again != other
