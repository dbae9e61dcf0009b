"""Random numbers: distributions, seeds, independence of nodes, Dropout in training."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, MalformedModelError
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.random import Random
from kn_graph.random_bits import RandomStreams, random_bits
from kn_graph.reference import cpu_eval_graph
from kn_runtime import Device
from tests.ops.single_node import node_model

F32 = np.float32
COUNT = 20_000
FLOATS = [F32, np.float64, np.float16, ml_dtypes.bfloat16]


def drawn(distribution: Any, dtype: Any, *, seed: int = 0, key: int | None = None) -> Any:
    g = Graph()
    g.output("y", g.random(distribution, (COUNT,), DType.from_numpy(dtype), key=key))
    return cpu_eval_graph(g, [], seed=seed)["y"]


def run(operator: str, inputs: dict[str, Any], **attributes: Any) -> Any:
    graph = load_graph_from_onnx_bytes(node_model(operator, inputs, **attributes))
    return cpu_eval_graph(graph, inputs)["y"]


# ---- the operation --------------------------------------------------------------------------


def test_bits_are_philox() -> None:
    """Known answers of Philox4x32-10 (Random123's kat_vectors)."""
    zeros = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert random_bits(0, 0, 4).tolist() == zeros
    assert random_bits(0, 0, 3).tolist() == zeros[:3]
    assert random_bits(0, 0, 12)[:4].tolist() == zeros


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers_fill_the_unit_interval(dtype: Any) -> None:
    x = drawn("uniform", dtype)
    assert x.dtype == dtype
    wide = x.astype(np.float64)
    assert ((wide >= 0) & (wide < 1)).all()
    counts, _ = np.histogram(wide, 16, (0, 1))
    expected = COUNT / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi square, 15 degrees of freedom


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_have_the_moments_of_a_normal_distribution(dtype: Any) -> None:
    x = drawn("normal", dtype).astype(np.float64)
    assert abs(x.mean()) < 0.03
    assert abs(x.std() - 1) < 0.03
    assert abs((x**3).mean()) < 0.1
    assert abs((x**4).mean() - 3) < 0.25
    within = (np.abs(x) < 1).mean()
    assert abs(within - math.erf(1 / math.sqrt(2))) < 0.02


def test_numbers_follow_the_documented_formula() -> None:
    g = Graph()
    uniform, normal = g.random("uniform", (2, 3)), g.random("normal", (5,))
    g.output("u", uniform)
    g.output("n", normal)
    out = cpu_eval_graph(g, [], seed=7)
    streams = [v.node.op.stream for v in (uniform, normal) if isinstance(v.node.op, Random)]
    words = random_bits(7, streams[0], 6)
    np.testing.assert_array_equal(out["u"].ravel(), ((words >> 8) * 2.0**-24).astype(F32))
    pairs = random_bits(7, streams[1], 10).reshape(5, 2).astype(np.float64)
    u, v = (pairs[:, 0] + 0.5) / 2**32, pairs[:, 1] / 2**32
    want = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    np.testing.assert_allclose(out["n"], want, rtol=1e-6)


def test_runs_repeat_and_seeds_and_nodes_differ() -> None:
    first = drawn("uniform", F32)
    np.testing.assert_array_equal(first, drawn("uniform", F32))
    assert (first != drawn("uniform", F32, seed=1)).mean() > 0.99
    g = Graph()
    a, b = g.random("uniform", (COUNT,)), g.random("uniform", (COUNT,))
    assert a is not b
    g.output("a", a)
    g.output("b", b)
    out = cpu_eval_graph(g, [])
    assert abs(np.corrcoef(out["a"], out["b"])[0, 1]) < 0.03
    copy = g.specialize({})
    np.testing.assert_array_equal(cpu_eval_graph(copy, [])["b"], out["b"])


def test_a_key_of_the_model_replaces_the_seed_of_the_run() -> None:
    one = drawn("normal", F32, key=5)
    np.testing.assert_array_equal(one, drawn("normal", F32, key=5, seed=9))
    assert (one != drawn("normal", F32, key=6)).mean() > 0.99


def test_bodies_do_not_share_streams_with_the_graphs_around_them() -> None:
    outer = Graph()
    streams = set()
    for _ in range(3):
        body = Graph(parent=outer)
        for g in (outer, body, Graph(parent=body)):
            op = g.random("uniform", (1,)).node.op
            assert isinstance(op, Random)
            streams.add(op.stream)
    assert len(streams) == 9


def test_empty_shapes_and_other_types() -> None:
    g = Graph()
    n = g.symbol("n", lo=0)
    g.output("y", g.random("normal", (n, 3)))
    assert cpu_eval_graph(g, [], dims={"n": 0})["y"].shape == (0, 3)
    for wrong in (DType.INT32, DType.FLOAT8E5M2):
        with pytest.raises(DTypeError, match="random numbers are"):
            g.random("uniform", (2,), wrong)


# ---- converters -----------------------------------------------------------------------------


def test_uniform_bounds_and_normal_moments_are_attributes() -> None:
    u = run("RandomUniform", {}, shape=[COUNT], low=-2.0, high=3.0)
    assert (u.dtype, u.min() >= -2, u.max() <= 3) == (F32, True, True)
    assert abs(u.mean() - 0.5) < 0.05
    n = run("RandomNormal", {}, shape=[COUNT], mean=10.0, scale=2.0, dtype=11)
    assert n.dtype == np.float64
    assert (abs(n.mean() - 10) < 0.1, abs(n.std() - 2) < 0.1) == (True, True)


@pytest.mark.parametrize("operator", ["RandomNormalLike", "RandomUniformLike"])
def test_like_takes_shape_and_type_of_its_input(operator: str) -> None:
    x = np.zeros((2, 3), np.float16)
    assert run(operator, {"x": x}).dtype == np.float16
    assert run(operator, {"x": np.zeros((2, 3), np.int32)}, dtype=1).shape == (2, 3)
    with pytest.raises(DTypeError):
        run(operator, {"x": np.zeros(2, np.int32)})
    model = node_model(operator, {"x": x}, symbolic={"x": ("n", 3)})
    assert str(load_graph_from_onnx_bytes(model).outputs["y"].type) == "float16[n, 3]"


def test_a_seed_in_the_model_fixes_the_numbers() -> None:
    a, b = (run("RandomNormal", {}, shape=[8], seed=s, dtype=1) for s in (1.0, 1.5))
    np.testing.assert_array_equal(a, run("RandomNormal", {}, shape=[8], seed=1.0))
    assert (a != b).all()
    graph = load_graph_from_onnx_bytes(node_model("RandomNormal", {}, shape=[8], seed=1.0))
    np.testing.assert_array_equal(cpu_eval_graph(graph, [], seed=3)["y"], a)


@pytest.mark.parametrize("dtype", [F32, np.float64, np.float16])
def test_bernoulli_draws_with_the_given_probability(dtype: Any) -> None:
    p = np.repeat(np.array([0, 1e-3, 0.25, 1], dtype), COUNT)
    x = run("Bernoulli", {"p": p})
    assert x.dtype == dtype
    assert set(np.unique(x)) <= {0, 1}
    means = x.astype(F32).reshape(4, COUNT).mean(1)
    np.testing.assert_allclose(means, [0, 1e-3, 0.25, 1], atol=0.01)
    assert (means[0], means[3]) == (0, 1)
    assert 0 < means[1] < 3e-3
    assert run("Bernoulli", {"p": p}, dtype=9).dtype == np.bool_


def test_multinomial_draws_classes_by_log_probability() -> None:
    p = np.array([[0.2, 0, 0.5, 0.3], [0, 0, 0, 1]])
    with np.errstate(divide="ignore"):
        logits = (np.log(p) + 5).astype(F32)  # not normalised, with -inf
    x = run("Multinomial", {"x": logits}, sample_size=COUNT, dtype=7)
    assert (x.dtype, x.shape) == (np.int64, (2, COUNT))
    for row, want in zip(x, p, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / COUNT, want, atol=0.02)
    one = run("Multinomial", {"x": logits})
    assert (one.dtype, one.shape) == (np.int32, (2, 1))
    with pytest.raises(MalformedModelError, match="log probabilities"):
        run("Multinomial", {"x": logits[0]})


@pytest.mark.parametrize("word", [0, 2**32 - 1])
def test_the_most_extreme_words_stay_in_range(monkeypatch: Any, word: int) -> None:
    def constant_bits(seed: int, stream: int, count: int, draw: int) -> Any:
        return np.full(count, word, np.uint32)

    monkeypatch.setattr("kn_graph.random_bits.random_bits", constant_bits)
    for dtype in FLOATS:
        assert np.isfinite(drawn("normal", dtype, key=1).astype(F32)).all()
        assert (drawn("uniform", dtype, key=1) < 1).all()
    p = np.array([0, 1], F32)
    assert run("Bernoulli", {"p": p}, seed=1.0).tolist() == [0, 1]
    wide = np.zeros((1, 1000), F32)  # a running sum that rounds
    assert run("Multinomial", {"x": wide}, seed=1.0).item() == (999 if word else 0)


# ---- Dropout --------------------------------------------------------------------------------


def dropout(x: Any, ratio: Any, training: Any, constant: list[str], **attributes: Any) -> Any:
    inputs = {"x": x, "r": ratio, "t": training}
    given = {n: a for n, a in inputs.items() if a is not None and n not in constant}
    model = node_model("Dropout", inputs, ("y", "mask"), constant=constant, **attributes)
    out = cpu_eval_graph(load_graph_from_onnx_bytes(model), given)
    return out["y"], out["mask"]


@pytest.mark.parametrize("constant", [[], ["r", "t"], ["t"]])
@pytest.mark.parametrize("dtype", [F32, np.float16, np.float64])
def test_training_dropout_drops_and_scales(constant: list[str], dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=COUNT).astype(dtype)
    y, mask = dropout(x, F32(0.25), np.array(True), constant, opset=22)
    assert (y.dtype, mask.dtype) == (dtype, np.bool_)
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_array_equal(y[~mask], 0)
    np.testing.assert_allclose(y[mask], x[mask] / dtype(0.75), rtol=2e-3)


@pytest.mark.parametrize("constant", [[], ["r", "t"]])
@pytest.mark.parametrize(("ratio", "training"), [(0.5, False), (0.0, True), (None, None)])
def test_dropout_that_drops_nothing(constant: list[str], ratio: Any, training: Any) -> None:
    x = np.array([1, np.nan, 3], F32)
    given = None if ratio is None else F32(ratio)
    flag = None if training is None else np.array(training)
    y, mask = dropout(x, given, flag, [c for c in constant if ratio is not None])
    np.testing.assert_array_equal(y, x)
    assert mask.all()


def test_dropout_of_everything_and_of_the_default_half() -> None:
    x = np.full(COUNT, np.inf, F32)
    y, mask = dropout(x, F32(1), np.array(True), ["t"])
    assert not mask.any()
    np.testing.assert_array_equal(y, 0)
    _, mask = dropout(x, None, np.array(True), ["t"])
    assert abs(mask.mean() - 0.5) < 0.02


def test_two_dropouts_of_one_tensor_differ_and_a_seed_fixes_them() -> None:
    nodes = [helper.make_node("Dropout", ["x", "", "t"], [y], y) for y in ("a", "b")]
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in ("a", "b")]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [100]),
        helper.make_tensor_value_info("t", TensorProto.BOOL, []),
    ]
    opsets = [helper.make_opsetid("", 22)]
    graph = load_graph_from_onnx_bytes(
        helper.make_model(
            helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10
        ).SerializeToString()
    )
    out = cpu_eval_graph(graph, {"x": np.ones(100, F32), "t": np.array(True)})
    assert (out["a"] != out["b"]).any()
    x = np.ones(100, F32)
    fixed = [dropout(x, F32(0.5), np.array(True), ["t"], seed=s)[1] for s in (3, 3, -4)]
    np.testing.assert_array_equal(fixed[0], fixed[1])
    assert (fixed[0] != fixed[2]).any()


# ---- loops ----------------------------------------------------------------------------------


def loop_of(node: NodeProto, trips: int) -> bytes:
    """Return a model whose output is the rows that a loop draws."""
    identity = helper.make_node("Identity", ["going"], ["on"])
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
    ]
    ends = [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("r", TensorProto.FLOAT, [4]),
    ]
    body = helper.make_graph([identity, node], "body", inputs, ends)
    loop = helper.make_node("Loop", ["n", ""], ["rows"], body=body)
    output = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 4])
    count = numpy_helper.from_array(np.array(trips), "n")
    graph = helper.make_graph([loop], "g", [], [output], [count])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return model.SerializeToString()


@pytest.mark.parametrize("attributes", [{}, {"seed": 3.0}])
@pytest.mark.parametrize("operator", ["RandomNormal", "RandomUniform"])
def test_iterations_of_a_loop_draw_other_numbers(operator: str, attributes: Any) -> None:
    node = helper.make_node(operator, [], ["r"], shape=[4], **attributes)
    graph = load_graph_from_onnx_bytes(loop_of(node, 5))
    rows = cpu_eval_graph(graph, {})["rows"]
    assert len({x.item() for x in rows.ravel()}) == rows.size
    np.testing.assert_array_equal(rows, cpu_eval_graph(graph, {})["rows"])
    for device in ("reference", "cpu"):
        for optimize in (False, True):
            prepared = Device.parse(device).prepare(graph, optimize=optimize)
            np.testing.assert_array_equal(rows, prepared.eval({})["rows"])
    first = load_graph_from_onnx_bytes(loop_of(node, 1))
    np.testing.assert_array_equal(rows[:1], cpu_eval_graph(first, {})["rows"])


def test_draws_of_a_stream_do_not_overlap() -> None:
    streams = RandomStreams(7)
    draws = [streams.bits(5, 6, None).tolist() for _ in range(3)]
    assert draws[0] == random_bits(7, 5, 6).tolist()
    assert draws[1] == random_bits(7, 5, 6, 1).tolist()
    assert len({w for row in draws for w in row}) == 18
    assert streams.bits(6, 6, None).tolist() == random_bits(7, 6, 6).tolist()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_runs_of_a_bound_call_go_on_drawing(device: str) -> None:
    g = Graph()
    drawn = g.random("uniform", (COUNT,))
    g.output("y", drawn)
    prepared, op = Device.parse(device).prepare(g), drawn.node.op
    assert isinstance(op, Random)
    call = prepared.bind({}, seed=3)
    np.testing.assert_array_equal(call.outputs["y"], prepared.eval({}, seed=3)["y"])
    for before in (0, 1, 2):
        words = random_bits(3, op.stream, COUNT, before)
        np.testing.assert_array_equal(call.outputs["y"], ((words >> 8) * 2.0**-24).astype(F32))
        call.run()
