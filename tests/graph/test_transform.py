"""Copies of graphs: specialised, cut out, put into others, optimized. Results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph, cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from kn_graph.errors import DTypeError, GraphError, KnError, ShapeError, SymbolError
from kn_graph.transform import copy_graph

F32 = np.float32


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def assert_same(want: dict[str, Any], got: dict[str, Any]) -> None:
    assert list(want) == list(got)
    for name, x in want.items():
        assert x.dtype == got[name].dtype
        np.testing.assert_allclose(got[name], x, rtol=1e-6, err_msg=name)


def kinds(g: Graph) -> list[str]:
    return [type(n.op).__name__ for n in g.nodes]


def attention_like() -> Graph:
    """A graph with symbolic sizes, shape arithmetic and two outputs."""
    g = Graph("scores")
    x = g.input("x", "float32", ["batch", "seq", 8])
    w = g.constant(np.random.default_rng(0).normal(size=(8, 12)).astype(F32))
    batch, seq = g.symbols["batch"], g.symbols["seq"]
    with g.origin("project"):
        parts = g.split(x @ w, 2, [4, 4, 4])
    q, k, v = (g.permute(g.view(p, (batch, seq, 2, 2)), (0, 2, 1, 3)) for p in parts)
    with g.origin("softmax"):
        p = g.softmax(q @ g.transpose(k))
    p.names = ("weights",)
    out = g.view(g.permute(p @ v, (0, 2, 1, 3)), (batch, seq, 4))
    g.output("out", out)
    g.output("last", out[:, -1])
    return g


def run_time_sizes() -> Graph:
    """A graph whose sizes come from tensors: read, and of results."""
    g = Graph("sizes")
    x, k = g.input("x", "float32", ["n"]), g.input("k", "int64", [1])
    (count,) = g.read_sizes(k)
    head = g.slice(x, 0, 0, count)
    head.names = ("head",)
    found = g.nonzero(g.relu(head))
    found.names = ("found",)
    g.output("rows", g.broadcast(head, (3, count)))
    g.output("found", found)
    g.output("picked", g.gather(x, g.view(found, (found.shape[1],)), 0) * 2.0)
    return g


GRAPHS: dict[str, tuple[Callable[[], Graph], Callable[[int], dict[str, Any]]]] = {
    "attention": (attention_like, lambda n: {"x": ramp(n, n + 1, 8) / 10}),
    "run_time_sizes": (
        run_time_sizes,
        lambda n: {"x": (ramp(n + 3) - 2), "k": np.array([n])},
    ),
}
graphs = pytest.mark.parametrize("name", GRAPHS)


# ---- copies ---------------------------------------------------------------------------------


@graphs
def test_a_copy_gives_the_same_and_keeps_names(name: str) -> None:
    build, feeds = GRAPHS[name]
    g = build()
    copy = copy_graph(g, {})
    copy.verify()
    assert all(v.graph is copy for v in copy.outputs.values())
    assert [v.name for v in copy.inputs] == [v.name for v in g.inputs]
    assert {n for node in copy.nodes for v in node.results for n in v.names} == {
        n for node in g.nodes for v in node.results for n in v.names
    }
    assert {n for node in copy.nodes for n in node.origins} == {
        n for node in g.nodes for n in node.origins
    }
    for n in (1, 2, 4):
        assert_same(cpu_eval_graph(g, feeds(n)), cpu_eval_graph(copy, feeds(n)))


def test_a_copy_leaves_dead_nodes_out_and_inputs_in() -> None:
    g = Graph()
    x, unused = g.input("x", "float32", [3]), g.input("unused", "float32", [3])
    g.exp(unused)
    g.output("y", g.relu(x))
    copy = copy_graph(g, {})
    assert kinds(copy) == ["Input", "Input", "Unary"]
    assert [v.name for v in copy.inputs] == ["x", "unused"]


def test_a_sealed_graph_has_sealed_copies() -> None:
    g = attention_like()
    assert not copy_graph(g, {}).sealed
    assert copy_graph(g.seal(), {}).sealed


# ---- specialize -----------------------------------------------------------------------------


@graphs
def test_specialized_graphs_give_the_same(name: str) -> None:
    build, feeds = GRAPHS[name]
    for n in (1, 2, 5):
        g = build()
        given = feeds(n)
        numbers = {
            symbol.name: int(given[v.name].shape[axis])
            for v in g.inputs
            for axis, size in enumerate(v.shape)
            if not isinstance(size, int) and (symbol := size.as_symbol) is not None
        }
        fixed = g.specialize(numbers)
        fixed.verify()
        assert not fixed.symbols
        assert_same(cpu_eval_graph(g, given), cpu_eval_graph(fixed, given))
        assert_same(cpu_eval_graph(g, given), cpu_eval_graph(optimize_graph(fixed), given))


def test_some_symbols_can_stay() -> None:
    g = attention_like()
    fixed = g.specialize({"batch": 2})
    assert list(fixed.symbols) == ["seq"]
    assert fixed.outputs["out"].shape == (2, g.symbols["seq"], 4)
    x = ramp(2, 3, 8)
    assert_same(cpu_eval_graph(g, {"x": x}), cpu_eval_graph(fixed, {"x": x}))
    with pytest.raises(KnError, match="axis 0"):
        cpu_eval_graph(fixed, {"x": ramp(3, 3, 8)})


def test_shapes_become_constants() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 2])
    content = np.array([g.symbols["n"] * 2 + 1, 3], object)
    g.output("sizes", g.size_tensor(content))
    g.output("x", x)
    fixed = g.specialize({"n": 4})
    assert fixed.outputs["sizes"].constant is not None
    assert fixed.outputs["sizes"].constant.tolist() == [9, 3]


def test_numbers_that_the_graph_does_not_allow() -> None:
    g = Graph()
    x, y = g.input("x", "float32", ["a", 2]), g.input("y", "float32", ["b", 2])
    g.output("z", g.concat([x, y], 1))
    for dims, text in (
        ({"a": 2, "b": 3}, "concat operands 0 and 1"),
        ({"c": 2}, "no symbolic size 'c'"),
        ({"a": -1}, "cannot be -1"),
        ({"a": 0}, "'a' is 0"),
        ({"a": 2.5}, "cannot be 2.5"),
    ):
        with pytest.raises(SymbolError, match=text):
            g.specialize(dims)  # type: ignore[arg-type]
    assert g.specialize({"a": 2, "b": 2}).outputs["z"].shape == (2, 4)
    half = g.specialize({"a": 2})
    with pytest.raises(SymbolError):
        cpu_eval_graph(half, {"x": ramp(2, 2), "y": ramp(3, 2)})


def test_a_specialized_graph_leaves_the_first_as_it_was() -> None:
    g = attention_like()
    before = str(g)
    g.specialize({"batch": 1, "seq": 1})
    assert str(g) == before


# ---- extract --------------------------------------------------------------------------------


def test_a_part_between_two_values() -> None:
    g = attention_like()
    x = ramp(2, 3, 8) / 10
    whole = cpu_eval_graph(g, {"x": x}, keep=["weights"])
    front = g.extract(["x"], ["weights"])
    front.verify()
    assert list(front.outputs) == ["weights"]
    assert_same({"weights": whole["weights"].value}, cpu_eval_graph(front, {"x": x}))
    back = g.extract(["weights"], ["out", "last"])
    back.verify()
    assert [v.name for v in back.inputs] == ["weights", "x"]  # the values come from x
    got = cpu_eval_graph(back, {"weights": whole["weights"].value, "x": x})
    assert_same({n: whole[n] for n in ("out", "last")}, got)
    # the part follows what it is given
    zeros = np.zeros_like(whole["weights"].value)
    assert not cpu_eval_graph(back, {"weights": zeros, "x": x})["out"].any()


def test_a_part_keeps_names_and_origins() -> None:
    part = attention_like().extract(["x"], ["weights"])
    assert part.find("weights").node.origins == ("softmax",)
    assert {"project", "softmax"} <= {n for node in part.nodes for n in node.origins}


def test_a_part_may_be_nothing_or_one_constant() -> None:
    g = Graph()
    x = g.input("x", "float32", [3])
    c = g.constant(ramp(3))
    g.output("c", c)
    part = g.extract(["x"], ["x"])
    assert kinds(part) == ["Input"]
    assert_same(cpu_eval_graph(part, {"x": ramp(3)}), {"x": ramp(3)})
    assert_same(cpu_eval_graph(g.extract([], ["c"]), {}), {"c": ramp(3)})
    assert kinds(g.extract([], [x])) == ["Input"]


def test_a_part_reads_the_sizes_it_needs() -> None:
    g = run_time_sizes()
    feeds: dict[str, Any] = {"x": ramp(6), "k": np.array([4])}
    whole = cpu_eval_graph(g, feeds)
    part = g.extract(["x", "k"], ["rows"])
    part.verify()
    assert_same({"rows": whole["rows"]}, cpu_eval_graph(part, feeds))
    # cut behind the read: the value itself shows the size
    behind = g.extract(["head"], ["rows"])
    assert [v.name for v in behind.inputs] == ["head"]
    assert_same({"rows": whole["rows"]}, cpu_eval_graph(behind, {"head": ramp(4)}))
    found = g.extract(["found", "x"], ["picked"])
    assert [v.name for v in found.inputs] == ["found", "x"]
    got = cpu_eval_graph(found, {"found": whole["found"], "x": ramp(6)})
    assert_same({"picked": whole["picked"]}, got)


def test_a_part_requires_what_the_whole_does() -> None:
    g = Graph()
    x, y = g.input("x", "float32", ["a", 2]), g.input("y", "float32", ["b", 2])
    g.require_ge(g.symbols["a"], 3, "three or more")
    g.output("z", g.relu(g.concat([x, y], 1)))
    part = g.extract([], ["z"])
    with pytest.raises(SymbolError, match="three or more"):
        cpu_eval_graph(part, {"x": ramp(2, 2), "y": ramp(2, 2)})
    alone = g.extract([], [y])
    assert cpu_eval_graph(alone, {"y": ramp(1, 2)})["y"].shape == (1, 2)


def test_a_part_keeps_defaults() -> None:
    g = Graph()
    x = g.input("x", "float32", [3], default=ramp(3))
    g.output("y", x * 2.0)
    assert_same(cpu_eval_graph(g, {}), cpu_eval_graph(g.extract([], ["y"]), {}))


def test_unknown_and_foreign_values_of_a_part() -> None:
    g, other = attention_like(), attention_like()
    with pytest.raises(GraphError, match="no value 'nope'"):
        g.extract(["nope"], ["out"])
    with pytest.raises(GraphError, match="no value 'nope'"):
        g.extract(["x"], ["nope"])
    for inputs, outputs in (([other.inputs[0]], ["out"]), (["x"], [other.outputs["out"]])):
        with pytest.raises(GraphError, match="belongs to graph"):
            g.extract(inputs, outputs)


# ---- inline ---------------------------------------------------------------------------------


def test_inlining_twice_gives_two_copies_or_one() -> None:
    inner = attention_like()
    outer = Graph("outer")
    x, y = (outer.input(n, "float32", ["b", "s", 8]) for n in "xy")
    first = outer.inline(inner, {"x": x})
    count = len(outer.nodes)
    again = outer.inline(inner, {"x": x})
    assert again == first
    assert len(outer.nodes) == count
    second = outer.inline(inner, {"x": y})
    assert second["out"] is not first["out"]
    outer.output("sum", first["out"] + second["out"])
    outer.verify()
    a, b = ramp(2, 3, 8) / 10, ramp(2, 3, 8) / 20
    want = [cpu_eval_graph(inner, {"x": v})["out"] for v in (a, b)]
    got = cpu_eval_graph(outer, {"x": a, "y": b})["sum"]
    np.testing.assert_allclose(got, want[0] + want[1], rtol=1e-6)


def test_inlining_at_sizes_of_its_own() -> None:
    inner = attention_like()
    outer = Graph()
    x = outer.input("x", "float32", ["n", 8])
    n = outer.symbols["n"]
    doubled = outer.concat([x, x], 0)
    out = outer.inline(inner, {"x": outer.view(doubled, (1, 2 * n, 8))})
    assert out["out"].shape == (1, 2 * n, 4)
    outer.output("out", out["out"])
    outer.verify()
    a = ramp(3, 8) / 10
    want = cpu_eval_graph(inner, {"x": np.concatenate([a, a])[None]})["out"]
    np.testing.assert_allclose(cpu_eval_graph(outer, {"x": a})["out"], want, rtol=1e-6)


def test_inlined_run_time_sizes_stay_apart() -> None:
    inner = run_time_sizes()
    outer = Graph()
    x = outer.input("x", "float32", [6])
    k, m = outer.input("k", "int64", [1]), outer.input("m", "int64", [1])
    results = [outer.inline(inner, {"x": x, "k": size}) for size in (k, m)]
    for i, r in enumerate(results):
        for name, value in r.items():
            outer.output(f"{name}{i}", value)
    outer.verify()
    got = cpu_eval_graph(outer, {"x": ramp(6) - 2, "k": np.array([4]), "m": np.array([6])})
    for i, count in enumerate((4, 6)):
        want = cpu_eval_graph(inner, {"x": ramp(6) - 2, "k": np.array([count])})
        assert_same(want, {n: got[f"{n}{i}"] for n in want})


def test_known_sizes_make_inlined_reads_static() -> None:
    outer = Graph()
    x = outer.input("x", "float32", [6])
    got = outer.inline(run_time_sizes(), {"x": x, "k": outer.constant(np.array([2]))})
    assert got["rows"].shape == (3, 2)
    assert "ReadSizes" not in kinds(outer)


def test_inlining_requires_what_the_graph_does() -> None:
    inner = Graph("inner")
    x = inner.input("x", "float32", ["n"])
    inner.require_ge(inner.symbols["n"], 3, "three or more")
    inner.output("y", inner.relu(x))
    outer = Graph()
    with pytest.raises(ShapeError, match="three or more"):
        outer.inline(inner, {"x": outer.input("short", "float32", [2])})
    outer.output("y", outer.inline(inner, {"x": outer.input("x", "float32", ["m"])})["y"])
    with pytest.raises(SymbolError, match="three or more"):
        cpu_eval_graph(outer, {"x": ramp(2), "short": ramp(2)})


def test_inlining_what_was_decided_for_some_sizes() -> None:
    inner = load_graph_from_onnx_bytes(squeeze_all())
    assert inner.guards
    outer = Graph()
    fits, wrong = outer.input("fits", "float32", [2, 3]), outer.input("wrong", "float32", [1, 3])
    assert outer.inline(inner, {"x": fits})["y"].shape == (2, 3)
    with pytest.raises(GraphError, match="a-1 == 0 is False"):
        outer.inline(inner, {"x": wrong})
    later = outer.input("later", "float32", ["n", 3])
    outer.output("y", outer.inline(inner, {"x": later})["y"])
    feeds = {"fits": ramp(2, 3), "wrong": ramp(1, 3)}
    assert_same(cpu_eval_graph(outer, feeds | {"later": ramp(4, 3)}), {"y": ramp(4, 3)})
    with pytest.raises(SymbolError, match="does not hold"):
        cpu_eval_graph(outer, feeds | {"later": ramp(1, 3)})


def squeeze_all() -> bytes:
    from onnx import parser

    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[a, 3] x) => (float[n, m] y) { y = Squeeze(x) }"""
    data: bytes = parser.parse_model(text).SerializeToString()
    return data


BAD_INLINES: list[tuple[dict[str, tuple[str, list[Any]]], type[KnError], str]] = [
    ({}, GraphError, "input 'x' is not given"),
    ({"x": ("float32", [2, 3])}, ShapeError, "'x'"),
    ({"x": ("float32", [2, 3, 9])}, ShapeError, "'x' at axis 2"),
    ({"x": ("int64", [2, 3, 8])}, DTypeError, "'x'"),
    ({"x": ("float32", [2, 3, 8]), "z": ("float32", [2])}, GraphError, "no input 'z'"),
]


@pytest.mark.parametrize(("given", "error", "text"), BAD_INLINES)
def test_values_that_do_not_fit_are_refused(given: Any, error: type[KnError], text: str) -> None:
    outer = Graph()
    values = {n: outer.input(n, dtype, shape) for n, (dtype, shape) in given.items()}
    with pytest.raises(error, match=text):
        outer.inline(attention_like(), values)


def test_foreign_values_are_refused() -> None:
    outer, other = Graph("outer"), Graph("other")
    with pytest.raises(GraphError, match="belongs to graph 'other'"):
        outer.inline(attention_like(), {"x": other.input("x", "float32", [2, 3, 8])})


def test_inlining_uses_defaults() -> None:
    inner = Graph()
    x = inner.input("x", "float32", [3])
    scale = inner.input("scale", "float32", [3], default=ramp(3))
    inner.output("y", x * scale)
    outer = Graph()
    outer.output("y", outer.inline(inner, {"x": outer.input("x", "float32", [3])})["y"])
    assert_same(cpu_eval_graph(outer, {"x": ramp(3)}), {"y": ramp(3) ** 2})


def test_sequences_are_inlined() -> None:
    inner = Graph()
    x = inner.input("x", "float32", [2])
    outer = Graph()
    from kn_graph.types import SequenceType

    s = inner.input_of_type("s", SequenceType(x.type))
    inner.output("s", s)
    given = outer.input_of_type("t", SequenceType(x.type))
    result = outer.inline(inner, {"x": outer.input("x", "float32", [2]), "s": given})
    assert result["s"] is given
