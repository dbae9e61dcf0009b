"""Gathers at known or counted positions are slices; position arithmetic goes away."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.errors import KnError
from kn_graph.optimizer import optimize_graph_report
from tests.optimizer.check import build_graph, check, check_model, model_graph, ops_of, untouched
from tests.small_models import info, node

TABLE = {"x": ("float32", ["n", 7, 3])}
TALL = {"x": ("float32", [9, "n"])}


def at(indices, axis=1):
    return lambda g, x: g.gather(x, g.constant(np.array(indices)), axis)


# ---- constant indices -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indices", "left"),
    [
        (2, ["Slice", "View"]),
        (-1, ["Slice", "View"]),
        ([3], ["Slice"]),
        ([1, 2, 3], ["Slice"]),
        ([0, 2, 4, 6], ["Slice"]),
        ([-3, -2, -1], ["Slice"]),
        ([6, 4, 2], ["Flip", "Slice"]),
        ([0, 1, 2, 3, 4, 5, 6], []),
        ([6, 5, 4, 3, 2, 1, 0], ["Flip"]),
        ([[1, 2], [3, 4]], ["Slice", "View"]),
        ([2, 2, 2], ["Broadcast", "Slice"]),
    ],
)
def test_evenly_spaced_indices(indices, left):
    out = check(at(indices), TABLE, {})
    assert "Gather" not in ops_of(out)
    assert ops_of(out) == left


@pytest.mark.parametrize("indices", [[0, 2, 3], [1, 0, 2], [-1, 0, 1], [[0, 1], [1, 2]]])
def test_other_indices_stay(indices):
    untouched(at(indices), TABLE, "gather_spaced", "gather_positions")


def test_indices_that_do_not_exist_or_may_not_stay():
    wrong = np.full(100, 9)  # too many to be checked when the graph is built
    untouched(at(wrong), TABLE, "gather_spaced", "gather_positions")
    untouched(lambda g, x: g.gather(x, g.constant(wrong), 0), TABLE, "gather_spaced")


def test_the_first_row_of_a_symbolic_axis_of_a_model():
    # the class token, as PyTorch's legacy exporter selects it
    nodes = [node("Gather", "x zero", "y", axis=1)]
    graph = model_graph(nodes, [info("x", ["n", "s", 4])], weights={"zero": np.array(0)})
    out = check_model(graph, {"gather_positions": 0, "gather_spaced": 1}, sizes=[{"n": 2, "s": 3}])
    assert ops_of(out) == ["Slice", "View"]


def test_position_tables_of_symbolic_length():
    # BERT: position_ids is a constant [1, 512], of which the first `seq` are used
    ids = np.arange(64)[None]
    table = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)

    def build(order):
        def inner(g: Graph, x: Value) -> Value:
            rows = g.slice(g.constant(order), 1, 0, x.shape[1])
            return g.gather(g.constant(table), rows, 0)

        return inner

    x = {"x": ("float32", ["n", "m"])}
    sizes = [{"n": 2, "m": 3}, {"n": 1, "m": 64}]
    out = check(build(ids), x, {"gather_of_slice": 1}, sizes=sizes)
    assert "Gather" not in ops_of(out)
    shuffled = np.random.default_rng(0).permutation(64)[None]
    out = check(build(shuffled), x, {"gather_of_slice": 1, "fold_constants": 1}, sizes=sizes)
    assert "Gather" not in ops_of(out)
    out = check(build(np.zeros((1, 64), np.int64)), x, {}, sizes=sizes)
    assert ops_of(out) == ["Broadcast"] or "Gather" not in ops_of(out)


def test_constant_index_tuples():
    x = {"x": ("float32", [4, 5, "n"])}
    rows = np.stack(np.meshgrid(np.arange(2, 4), np.arange(5), indexing="ij"), -1)
    out = check(lambda g, x: g.gather_nd(x, g.constant(rows)), x, {"gather_tuples": 1})
    assert "GatherND" not in ops_of(out)
    columns = np.stack(np.meshgrid(np.arange(4), np.arange(3), indexing="ij"), -1)
    untouched(lambda g, x: g.gather_nd(x, g.constant(columns)), x, "gather_tuples")


# ---- counted positions ----------------------------------------------------------------------


def flat_positions(g: Graph, x: Value, rows: Value, columns: Value, width) -> Value:
    """Return rows[i]*width + columns[j] as [b, 1, 1, s], as the mask code of transformers does."""
    rows = g.view(rows, (*rows.shape, 1, 1, 1))
    columns = g.view(columns, (1, 1, 1, *columns.shape))
    return rows * g.size_tensor(np.array(width, object)) + columns


def test_a_mask_read_through_flattened_indices():
    # transformers >= 4.56, PyTorch's legacy exporter
    def build(g: Graph, x: Value) -> Value:
        b, s = x.shape
        where = flat_positions(g, x, g.iota(b), g.iota(s), s)
        return g.view(g.gather(g.view(x, (b * s, 1)), where, 0), (b, 1, 1, s))

    x = {"x": ("bool", ["n", "m"])}
    out = check(build, x, {"gather_positions": 1})
    assert ops_of(out) == ["View"]


def test_a_mask_that_is_longer_than_what_is_read():
    # with a cache: the mask is [batch, total], read up to past + seq
    inputs = {"x": ("bool", ["n", "m"]), "past": ("float32", ["p"]), "q": ("float32", ["q"])}

    def build(g: Graph, x: Value, past: Value, q: Value) -> Value:
        b, t = x.shape
        length = past.shape[0] + q.shape[0]
        where = flat_positions(g, x, g.iota(b), g.iota(length), t)
        return g.view(g.gather(g.view(x, (b * t, 1)), where, 0), (b, 1, 1, length))

    sizes = [{"n": 2, "m": 5, "p": 3, "q": 2}, {"n": 2, "m": 5, "p": 1, "q": 2}]
    out = check(build, inputs, {"gather_positions": 1}, sizes=sizes)
    assert ops_of(out) == ["Slice", "View"]
    # what reads outside is an error before and after
    graph = build_graph(build, inputs)
    for g in (graph, optimize_graph_report(graph)[0]):
        feeds = {"x": np.ones((2, 5), bool), "past": np.ones(4, "f"), "q": np.ones(2, "f")}
        with pytest.raises(KnError):
            cpu_eval_graph(g, feeds)


def test_fewer_rows_than_there_are_may_cross_a_row():
    def build(g: Graph, x: Value, q: Value) -> Value:
        b, s = x.shape
        where = flat_positions(g, x, g.iota(q.shape[0]), g.iota(s), s)
        return g.gather(g.view(x, (b * s,)), where, 0)

    inputs = {"x": ("bool", ["n", "m"]), "q": ("float32", ["q"])}
    untouched(build, inputs, "gather_positions")


def test_a_mask_read_by_tuples():
    # transformers >= 4.56, dynamo
    def build(g: Graph, x: Value) -> Value:
        b, s = x.shape
        rows = g.broadcast(g.view(g.iota(b), (b, 1, 1, 1, 1)), (b, 1, 1, s, 1))
        columns = g.broadcast(g.view(g.iota(s), (1, 1, 1, s, 1)), (b, 1, 1, s, 1))
        return g.gather_nd(x, g.concat([rows, columns], 4))

    x = {"x": ("bool", ["n", "m"])}
    out = check(build, x, {"gather_position_tuples": 1})
    assert ops_of(out) == ["View"]

    def turned(g: Graph, x: Value) -> Value:
        b, s = x.shape
        rows = g.broadcast(g.view(g.iota(b), (1, b, 1)), (s, b, 1))
        columns = g.broadcast(g.view(g.iota(s), (s, 1, 1)), (s, b, 1))
        return g.gather_nd(x, g.concat([rows, columns], 2))

    assert ops_of(check(turned, x, {"gather_position_tuples": 1})) == ["Permute"]


def test_position_embeddings_after_a_cache():
    # GPT-2: arange(seq) + past
    inputs = {"past": ("float32", ["p"]), "q": ("float32", ["q"])}
    table = np.random.default_rng(0).standard_normal((16, 5)).astype(np.float32)

    def build(g: Graph, past: Value, q: Value) -> Value:
        where = g.iota(q.shape[0]) + g.size_tensor(np.array(past.shape[0], object))
        return g.gather(g.constant(table), g.view(where, (1, q.shape[0])), 0)

    sizes = [{"p": 3, "q": 2}, {"p": 0, "q": 16}]
    out = check(build, inputs, {"gather_positions": 1}, sizes=sizes)
    assert ops_of(out) == ["Slice", "View"]


def test_positions_that_are_not_counted_stay():
    def squares(g: Graph, x: Value) -> Value:
        i = g.iota(x.shape[1])
        return g.gather(x, i * i, 0)

    untouched(squares, {"x": ("float32", [9, "m"])}, "gather_positions")

    def backwards(g: Graph, x: Value) -> Value:
        return g.gather(x, -g.iota(x.shape[1]), 0)

    untouched(backwards, {"x": ("float32", [9, "m"])}, "gather_positions")


def test_equal_elements_may_be_read_anywhere():
    zeros = np.zeros((1, 64), np.int64)

    def build(g: Graph, x: Value) -> Value:
        where = g.slice(g.constant(np.arange(64)[None]), 1, 0, x.shape[0])
        return g.gather_elements(g.constant(zeros), where, 1)

    out = check(build, {"x": ("float32", ["n"])}, {"gather_of_uniform": 1})
    assert ops_of(out) == ["Broadcast"]

    def unknown(g: Graph, i: Value) -> Value:
        return g.gather(g.constant(np.zeros(8, np.float32)), i, 0)

    untouched(unknown, {"i": ("int64", ["n"])}, "gather_of_uniform")  # may not exist


# ---- comparisons ----------------------------------------------------------------------------


def counted(fn, start, stop):
    def build(g: Graph, x: Value) -> Value:
        n = x.shape[0]
        return g.compare(fn, g.iota(n) + start, g.size_tensor(np.array(stop(n), object)))

    return build


@pytest.mark.parametrize(
    ("fn", "start", "stop", "decided"),
    [
        ("ge", 0, lambda n: 0, True),
        ("gt", 0, lambda n: 0, None),
        ("gt", 1, lambda n: 0, True),
        ("lt", 0, lambda n: n, True),
        ("lt", 1, lambda n: n, None),
        ("le", 1, lambda n: n, True),
        ("ge", 0, lambda n: n, False),
        ("lt", 5, lambda n: 5, False),
        ("ge", 0, lambda n: 1, None),
        ("ge", 0, lambda n: n - 1, None),
        ("le", 0, lambda n: 0, None),
    ],
)
def test_comparisons_of_positions_that_are_decided(fn, start, stop, decided):
    known = decided is not None
    out = check(counted(fn, start, stop), {"x": ("float32", ["n"])}, {"decided_compare": known})
    assert (ops_of(out) == ["Broadcast"]) is known
    if known:
        (truth,) = [n.op.array for n in out.nodes if n.op.title == "Constant"]
        assert truth.item() is decided


def test_a_causal_mask_of_one_query():
    def build(g: Graph, past: Value) -> Value:
        length = past.shape[0] + 1
        where = g.size_tensor(np.array(past.shape[0], object))
        return g.compare("le", g.iota(length), where)

    check(build, {"past": ("float32", ["n"])}, {"decided_compare": 1})


def test_floats_are_never_decided():
    untouched(lambda g, x: g.compare("ge", g.relu(x), g.scalar(0, DType.FLOAT32)), TALL,
              "decided_compare")  # fmt: skip
