"""The reference executor: what it checks, keeps, frees and says."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kn_graph import DType, Graph, cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.errors import (
    ExecutionError,
    GraphError,
    InputDTypeError,
    InputError,
    InputShapeError,
    InternalError,
    KnError,
    MissingInputError,
    OutOfMemoryError,
    SymbolError,
    UnexpectedInputError,
)
from kn_graph.op import Op
from kn_graph.reference import Kept
from kn_graph.types import TensorType

F32 = np.float32


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def two_inputs() -> Graph:
    g = Graph("pair")
    x, y = g.input("x", "float32", ["n", 3]), g.input("y", "float32", ["n", "m"])
    total = g.reduce("sum", y, [1], keep=True)
    total.names = ("total",)
    with g.origin("scale"):
        scaled = x * total
    g.output("z", scaled)
    g.output("total2", total * 2.0)
    return g


def feeds(**changes: Any) -> dict[str, Any]:
    given = {"x": ramp(2, 3), "y": ramp(2, 4)} | changes
    return {n: x for n, x in given.items() if x is not None}


# ---- inputs ---------------------------------------------------------------------------------

BAD_INPUTS: list[tuple[str, dict[str, Any], type[InputError], str, str, str]] = [
    ("missing", {"y": None}, MissingInputError, "y", "float32[n, m]", "nothing"),
    ("extra", {"q": 1}, UnexpectedInputError, "q", "", ""),
    ("type", {"x": np.ones((2, 3))}, InputDTypeError, "x", "float32[n, 3]", "float64[2, 3]"),
    ("object", {"x": object()}, InputDTypeError, "x", "float32[n, 3]", "object"),
    ("rank", {"x": ramp(2)}, InputShapeError, "x", "float32[n, 3]", "float32[2]"),
    ("scalar", {"x": F32(1)}, InputShapeError, "x", "float32[n, 3]", "float32[]"),
    ("size", {"x": ramp(2, 4)}, InputShapeError, "x", "float32[n, 3]", "float32[2, 4]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "name", "expected", "got"), [b[1:] for b in BAD_INPUTS],
    ids=[b[0] for b in BAD_INPUTS],
)  # fmt: skip
def test_bad_inputs_are_one_error_with_name_expected_and_got(
    change: Any, error: type[InputError], name: str, expected: str, got: str
) -> None:
    with pytest.raises(error) as caught:
        cpu_eval_graph(two_inputs(), feeds(**change))
    assert caught.value.name == name
    assert caught.value.expected == expected
    assert got in caught.value.got
    for part in (repr(name), expected, got):
        assert part in str(caught.value) or part == "nothing"
    assert "\n" not in str(caught.value)


def test_conflicting_sizes_name_both_inputs_and_both_numbers() -> None:
    with pytest.raises(SymbolError) as caught:
        cpu_eval_graph(two_inputs(), feeds(y=ramp(5, 4)))
    error = caught.value
    assert (error.name, error.expected, error.got) == ("n", "2", "5")
    for part in ("'n'", "'x'", "'y'", "2", "5"):
        assert part in str(error)
    with pytest.raises(SymbolError, match=r"'n' is 3 by dims, but 2 by axis 0 of input 'x'"):
        cpu_eval_graph(two_inputs(), feeds(), {"n": 3})


@pytest.mark.parametrize(
    ("dims", "text"),
    [({"k": 2}, "no symbolic size 'k'"), ({"n": -2}, "cannot be -2"), ({"n": 2.5}, "be 2.5")],
)
def test_dims_are_sizes_of_the_model(dims: Any, text: str) -> None:
    with pytest.raises(SymbolError, match=text):
        cpu_eval_graph(two_inputs(), feeds(), dims)


def test_sizes_that_no_input_shows() -> None:
    g = Graph()
    g.output("y", g.broadcast(g.scalar(1.0, DType.FLOAT32), [g.symbol("n"), 2]))
    assert cpu_eval_graph(g, {}, {"n": 3})["y"].shape == (3, 2)
    with pytest.raises(SymbolError, match=r"'n' has no number.*dims"):
        cpu_eval_graph(g, {})


def test_requirements_are_checked_before_anything_runs() -> None:
    g = Graph()
    x, y = g.input("x", "float32", ["a", 2]), g.input("y", "float32", ["b", 2])
    i = g.input("i", "int64", [1])
    g.output("failing", g.gather(x, i, 0))
    g.output("joined", g.concat([x, y], 1))
    given = {"x": ramp(2, 2), "y": ramp(3, 2), "i": np.array([99])}
    with pytest.raises(SymbolError, match=r"a=2, b=3.*concat operands 0 and 1"):
        cpu_eval_graph(g, given)
    with pytest.raises(ExecutionError, match="index 99"):
        cpu_eval_graph(g, given | {"y": ramp(2, 2)})


def test_sizes_that_are_neither_equal_nor_1_do_not_broadcast() -> None:
    g = Graph()
    x, y = g.input("x", "float32", ["a"]), g.input("y", "float32", ["b"])
    g.output("z", x + y)
    for a, b in ((3, 3), (1, 3), (3, 1)):
        assert cpu_eval_graph(g, {"x": ramp(a), "y": ramp(b)})["z"].shape == (3,)
    with pytest.raises(KnError, match=r"broadcast|sizes"):
        cpu_eval_graph(g, {"x": ramp(2), "y": ramp(3)})


def test_run_time_sizes_that_do_not_broadcast() -> None:
    g = Graph()
    x, k = g.input("x", "float32", [2, 1]), g.input("k", "int64", [2])
    g.output("y", g.broadcast(x, g.read_sizes(k)))
    assert cpu_eval_graph(g, {"x": ramp(2, 1), "k": np.array([2, 4])})["y"].shape == (2, 4)
    with pytest.raises(ExecutionError, match=r"cannot broadcast \[2, 1\] to \[3, 4\]"):
        cpu_eval_graph(g, {"x": ramp(2, 1), "k": np.array([3, 4])})


# ---- what is kept ---------------------------------------------------------------------------


def test_kept_values_have_their_node_and_its_time() -> None:
    got = cpu_eval_graph(two_inputs(), feeds(), keep=["total", "x"])
    assert list(got) == ["z", "total2", "x", "total"]
    kept = got["total"]
    assert isinstance(kept, Kept)
    assert kept.value.tolist() == [[6], [22]]
    assert kept.seconds > 0
    assert got["x"].value.tolist() == ramp(2, 3).tolist()
    np.testing.assert_array_equal(got["z"], ramp(2, 3) * kept.value)


def test_everything_can_be_kept() -> None:
    g = two_inputs()
    dead = g.broadcast(g.inputs[0][:1], (10**9, 10**9, 1, 3))
    got = cpu_eval_graph(g, feeds(), keep="all")
    names = {n for node in g.nodes for v in node.results for n in v.names or (v.name,)}
    assert list(got)[:2] == ["z", "total2"]
    assert dead.name not in got
    assert set(got) - {"z", "total2"} < names
    assert all(isinstance(got[n], Kept) for n in list(got)[2:])
    assert all(got[n].seconds >= 0 for n in list(got)[2:])
    node = g.outputs["z"].node
    assert got[g.outputs["z"].name].node == "scale" == node.label


def test_a_dead_value_is_kept_where_it_is_named() -> None:
    g = two_inputs()
    dead = g.relu(g.inputs[0])
    assert cpu_eval_graph(g, feeds(), keep=dead.name)[dead.name].value.shape == (2, 3)


def test_outputs_stay_values_where_their_names_are_kept() -> None:
    model = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) { h = Relu(x)
    y = Neg(h) }"""
    from onnx import parser

    graph = load_graph_from_onnx_bytes(parser.parse_model(model).SerializeToString())
    got = cpu_eval_graph(graph, {"x": ramp(2)}, keep="all")
    assert isinstance(got["y"], np.ndarray)
    assert got["h"].value.tolist() == [0, 1]


def test_unknown_names_cannot_be_kept() -> None:
    with pytest.raises(GraphError, match=r"no value 'totl' .*total"):
        cpu_eval_graph(two_inputs(), feeds(), keep=["totl"])


# ---- memory ---------------------------------------------------------------------------------


def test_a_terabyte_is_refused_before_it_is_taken() -> None:
    from onnx import parser

    model = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x, int64[2] shape) => (float[a, b] y) {
        wide = Expand(x, shape)
        y = Exp(wide)
    }"""
    graph = load_graph_from_onnx_bytes(parser.parse_model(model).SerializeToString())
    given = {"x": ramp(1), "shape": np.array([10**6, 250_000])}
    with pytest.raises(OutOfMemoryError, match=r"wide.*float32.*1,000,000,000,000 bytes"):
        cpu_eval_graph(graph, given)
    assert cpu_eval_graph(graph, given | {"shape": np.array([2, 3])})["y"].shape == (2, 3)


def test_values_are_freed_after_their_last_use() -> None:
    alive: list[weakref.ref[Any]] = []

    @dataclass(frozen=True)
    class Watch(Op):
        """Note the operand, and count how many of those before are still alive."""

        number: int

        def infer(self, ctx: Any, x: TensorType) -> TensorType:
            return x

        def eval(self, ctx: Any, x: Any) -> Any:
            gc.collect()
            assert sum(r() is not None for r in alive) <= 1
            out = x + 1
            alive.append(weakref.ref(out))
            return out

    g = Graph()
    x = g.input("x", "float32", [1000])
    for i in range(20):
        x = g.push(Watch(i), x)
    g.output("y", x)
    assert cpu_eval_graph(g, {"x": ramp(1000)})["y"][0] == 20


# ---- what runs ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(Op):
    """An operation whose reference does not do what its type rule says."""

    fault: str

    def infer(self, ctx: Any, x: TensorType) -> TensorType:
        return x

    def eval(self, ctx: Any, x: Any) -> Any:
        match self.fault:
            case "raises":
                raise ZeroDivisionError("oh")
            case "dtype":
                return x.astype(np.float64)
            case "rank":
                return x[None]
            case "shape":
                return x[:1]
            case "execution":
                raise ExecutionError("bad value")
            case "memory":
                raise MemoryError("too much")
        return x


FAULTS: list[tuple[str, type[KnError], str]] = [
    ("raises", InternalError, r"node bad.*ZeroDivisionError: oh.*Please report"),
    ("dtype", InternalError, r"node bad.*gave float64\[3\], expected float32\[3\]"),
    ("rank", InternalError, r"gave float32\[1, 3\]"),
    ("shape", InternalError, r"gave shape \[1\]"),
    ("execution", ExecutionError, r"^node bad \(Broken\): bad value$"),
    ("memory", OutOfMemoryError, r"node bad.*too much"),
]


@pytest.mark.parametrize(("fault", "error", "text"), FAULTS, ids=[f[0] for f in FAULTS])
def test_faults_name_the_node(fault: str, error: type[KnError], text: str) -> None:
    g = Graph()
    x = g.input("x", "float32", [3])
    with g.origin("bad"):
        g.output("y", g.push(Broken(fault), x))
    with pytest.raises(error, match=text):
        cpu_eval_graph(g, {"x": ramp(3)})


def test_dead_nodes_do_not_run() -> None:
    g = Graph()
    x = g.input("x", "float32", [3])
    g.push(Broken("raises"), x)
    g.output("y", g.relu(x))
    assert cpu_eval_graph(g, {"x": ramp(3)})["y"].tolist() == [0, 1, 2]


def test_outputs_are_fresh_arrays() -> None:
    g = Graph()
    x = g.input("x", "float32", [2, 3])
    c = g.constant(ramp(2, 3))
    for name, v in {"x": x, "again": x, "c": c, "t": g.transpose(c), "wide": x[:1]}.items():
        g.output(name, v)
    g.output("repeated", g.broadcast(x[:1], (5, 3)))
    given = ramp(2, 3)
    outputs = cpu_eval_graph(g, {"x": given})
    arrays = [given, c.constant, *outputs.values()]
    for i, a in enumerate(arrays):
        for b in arrays[i + 1 :]:
            assert not np.shares_memory(a, b)
    for out in outputs.values():
        assert out.flags.c_contiguous
        out[...] = -1  # writing to an output changes nothing else
    assert cpu_eval_graph(g, {"x": given})["c"].tolist() == ramp(2, 3).tolist()
    assert given.tolist() == ramp(2, 3).tolist()


def test_strided_reversed_and_swapped_inputs() -> None:
    g = two_inputs()
    plain = cpu_eval_graph(g, feeds())
    odd = {
        "x": np.asfortranarray(ramp(2, 3)),
        "y": ramp(2, 4)[:, ::-1][:, ::-1].astype(">f4"),
    }
    for name, x in cpu_eval_graph(g, odd).items():
        assert x.dtype == F32
        np.testing.assert_array_equal(x, plain[name])


def test_the_same_graph_runs_at_many_sizes_and_in_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    g = two_inputs().seal()

    def once(n: int) -> bool:
        x, y = ramp(n, 3), ramp(n, 2)
        got = cpu_eval_graph(g, {"x": x, "y": y})["z"]
        return bool(np.array_equal(got, x * y.sum(1, keepdims=True)))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(once, [*range(1, 40)] * 3))


def test_a_generator_of_names_can_be_kept() -> None:
    def names() -> Iterator[str]:
        yield "total"

    assert "total" in cpu_eval_graph(two_inputs(), feeds(), keep=names())
