"""Products of matrices: merged, flattened, and computed for the rows that are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kn_graph import DType, Graph, Value, cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.liveness import live_nodes
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.layout import Slice
from kn_graph.ops.matmul import MatMul
from kn_graph.optimizer import OptimizerSettings
from kn_graph.optimizer.rules import sibling
from models.generate import build, inputs
from tests.optimizer.rewriting import (
    EXPORTS,
    assert_equal,
    constant,
    feeds,
    ops,
    optimized,
    refusals,
    stored,
)

RNG = np.random.default_rng(11)


def random(g: Graph, *shape: int, dtype: str = "float32") -> Value:
    return constant(g, RNG.standard_normal(shape), dtype)


def widths(graph: Graph) -> list[tuple]:
    """Return the shapes of all products."""
    nodes = live_nodes(graph, graph.outputs.values())
    return [n.results[0].shape for n in nodes if isinstance(n.op, MatMul)]


# ---- siblings -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("biases", [(True, True, True), (False,) * 3, (True, False, True)])
@pytest.mark.parametrize("columns", [(8, 8, 8), (8, 2, 2), (8, 0, 1)])
def test_projections_of_an_attention(dtype, biases, columns):
    """MatMul and Add on [b, s, k], as PyTorch's exporters write nn.Linear."""
    g = Graph()
    g.symbol("s", lo=0)
    x = g.tanh(g.input("x", dtype, ["b", "s", 4]))
    for i, (bias, n) in enumerate(zip(biases, columns, strict=True)):
        y = g.matmul(x, random(g, 4, n, dtype=dtype))
        g.output(f"y{i}", g.relu(y + random(g, n, dtype=dtype) if bias else y))
    out, _ = optimized(g, merge_matmul=1)
    assert ops(out)["MatMul"] == 1
    assert ops(out)["add"] == any(biases)
    for s in (0, 1, 3):
        assert_equal(g, out, feeds(g, s=s))


def test_gemms_with_transposed_weights():
    """Gemm with transB on a flattened input, as PyTorch's older exporters write nn.Linear."""
    nodes, weights = [], {}
    for i, n in enumerate((6, 5)):
        nodes.append(helper.make_node("Gemm", ["x", f"w{i}", f"b{i}"], [f"y{i}"], transB=1))
        weights[f"w{i}"] = RNG.standard_normal((n, 4)).astype(np.float32)
        weights[f"b{i}"] = RNG.standard_normal(n).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "gemms",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, ["n", n])
            for i, n in ((0, 6), (1, 5))
        ],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    g = load_graph_from_onnx_bytes(made.SerializeToString())
    out, _ = optimized(g, merge_matmul=1)
    assert ops(out) == {"MatMul": 1, "add": 1}
    assert_equal(g, out, feeds(g))


def test_gate_and_up():
    g = Graph()
    x = g.input("x", "float32", ["b", "s", 4])
    gate, up = (g.matmul(x, random(g, 4, 6)) for _ in range(2))
    g.output("y", g.matmul(g.unary("silu", gate) * up, random(g, 6, 4)))
    out, _ = optimized(g, merge_matmul=1)
    assert ops(out) == {"MatMul": 2, "silu": 1, "mul": 1}
    assert_equal(g, out, feeds(g))


def test_integers_stay_exact():
    g = Graph()
    x = g.input("x", "int8", ["n", 4])
    for i in range(2):
        w = g.constant(RNG.integers(-128, 128, (4, 3)).astype(np.int8))
        g.output(f"y{i}", g.matmul(x, w, out_dtype=DType.INT32))
    out, _ = optimized(g, merge_matmul=1)
    assert ops(out) == {"MatMul": 1}
    assert_equal(g, out, feeds(g))


def test_products_that_others_read_without_bias():
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    a, b = (g.matmul(x, random(g, 4, 6)) for _ in range(2))
    g.output("a", a)
    g.output("a with bias", a + random(g, 6))
    g.output("b", g.relu(b + random(g, 6)))
    out, _ = optimized(g, merge_matmul=1)
    assert ops(out)["MatMul"] == 1
    assert_equal(g, out, feeds(g))


def test_slices_of_siblings_that_nobody_reads_go():
    """What is sliced out of a merged product alone is computed alone."""
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    y = g.matmul(x, random(g, 4, 6))
    g.output("y", g.slice(y, 1, 2, 3))
    out, _ = optimized(g, slice_early=1)
    assert widths(out)[0][1] == 3
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize("case", ["other input", "computed", "left", "other type", "one"])
def test_near_miss_siblings(case):
    g = Graph()
    x = g.input("x", "float32", [4, 4])
    w = random(g, 4, 4)
    first = g.matmul(x, random(g, 4, 4))
    others: dict[str, Callable[[], Value]] = {
        "other input": lambda: g.matmul(g.relu(x), w),
        "computed": lambda: g.matmul(x, g.input("w", "float32", [4, 4])),
        "left": lambda: g.matmul(w, x),
        "other type": lambda: g.cast(g.matmul(x, w, out_dtype=DType.FLOAT64), DType.FLOAT32),
        "one": lambda: g.relu(x),
    }
    g.output("y", first + others[case]())
    optimized(g, merge_matmul=0)


def test_large_siblings_are_not_copied(monkeypatch):
    monkeypatch.setattr(sibling, "LARGEST", 100)
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    g.output("y", g.matmul(x, random(g, 4, 4)) * g.matmul(x, random(g, 4, 4)))
    _, report = optimized(g, merge_matmul=0)
    assert any("MiB" in why for why in refusals(report, "merge_matmul"))


def test_setting_keeps_siblings_apart():
    g = Graph()
    x = g.input("x", "float32", ["n", 4])
    g.output("y", g.matmul(x, random(g, 4, 4)) * g.matmul(x, random(g, 4, 4)))
    out, _ = optimized(g, OptimizerSettings(merge_matmul=False), merge_matmul=0)
    assert ops(out)["MatMul"] == 2


def test_products_in_a_row_are_not_merged():
    g = Graph()
    x = g.input("x", "float32", ["n", 64])
    g.output("y", g.matmul(g.matmul(x, random(g, 64, 2)), random(g, 2, 64)))
    out, _ = optimized(g)
    assert ops(out) == {"MatMul": 2}


# ---- one tall matrix ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [("b", 3, 4), (1, 3, 4), ("b", 2, "s", 4)])
@pytest.mark.parametrize("repeated", [False, True])
def test_stacked_weights_are_one_matrix(shape, repeated):
    g = Graph()
    x = g.input("x", "float32", shape)
    w = random(g, *(1,) * (len(shape) - 2), 4, 5)
    if repeated or shape[0] != 1:
        w = g.broadcast(w, (*x.shape[:-2], 4, 5))
    g.output("y", g.push(MatMul(), x, w))
    out, _ = optimized(g, flatten_matmul=1)
    assert [len(s) for s in widths(out)] == [2]
    assert_equal(g, out, feeds(g))


def test_one_matrix_by_a_constant_on_the_left():
    g = Graph()
    x = g.input("x", "float32", [1, 4, "n"])
    g.output("y", g.matmul(random(g, 1, 3, 4), x))
    out, _ = optimized(g, flatten_matmul=1)
    assert [len(s) for s in widths(out)] == [2]
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize("case", ["computed", "several", "left", "repeated rows"])
def test_near_miss_stacks(case):
    g = Graph()
    x = g.input("x", "float32", [1 if case == "computed" else 2, 3, 4])
    if case == "computed":
        y = g.matmul(x, g.input("w", "float32", [1, 4, 5]))
    elif case == "several":
        y = g.matmul(x, random(g, 2, 4, 5))
    elif case == "repeated rows":
        y = g.matmul(x, g.broadcast(random(g, 1, 1, 5), (2, 4, 5)))
    else:
        y = g.matmul(random(g, 1, 5, 3), x)
    g.output("y", y)
    out, _ = optimized(g, flatten_matmul=0)
    assert_equal(g, out, feeds(g))


# ---- slices ---------------------------------------------------------------------------------


def sliced(graph: Graph) -> list[tuple]:
    """Return what is sliced: the operations in front of slices, with their shapes."""
    nodes = live_nodes(graph, graph.outputs.values())
    found = [n.operands[0] for n in nodes if isinstance(n.op, Slice)]
    return [(v.node.op.title, *v.shape) for v in found]


def decoder_head(g: Graph, x: Value, *, gemm: bool) -> Value:
    """Return the logits: a norm, an MLP with residual, a norm, a large matrix."""
    y = g.norm(x, [2], 1e-5) * random(g, 4) + random(g, 4)
    if gemm:  # the older exporter flattens, adds the bias there, and views back
        flat = g.view(y, (x.shape[0] * x.shape[1], 4))
        y = g.view(g.gelu(g.matmul(flat, random(g, 4, 8)) + random(g, 8)), (*x.shape[:2], 8))
    else:
        y = g.gelu(g.matmul(y, random(g, 4, 8)) + random(g, 8))
    y = g.matmul(y, random(g, 8, 4)) + x
    return g.matmul(g.norm(y, [2], 1e-5, center=False), random(g, 4, 50))


@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_last_position_of_a_decoder(gemm, keep):
    g = Graph()
    x = g.input("x", "float32", ["b", "s", 4])
    logits = decoder_head(g, x, gemm=gemm)
    g.output("y", logits[:, -1:] if keep else logits[:, -1])
    out, _ = optimized(g)
    b = x.shape[0]
    assert [s[0] for s in widths(out)] == [b, b, b]
    assert {what for what, *_ in sliced(out)} == {"Input"}
    for s in (1, 2, 5):
        assert_equal(g, out, feeds(g, s=s))


def test_every_kind_of_row_wise_operation():
    g = Graph()
    x = g.input("x", "float64", ["b", 6, 5])
    scale, mask = random(g, 6, 1, dtype="float64"), g.input("mask", "float64", [6, 5])
    y = g.softmax(g.relu(x) * scale, 2) + mask
    y = g.select(g.compare("gt", y, g.scalar(0.1, x.dtype)), y, g.log_softmax(y, -1))
    y = g.cast(g.cast(g.norm(y, [2], 1e-5), DType.FLOAT32), DType.FLOAT64)
    g.output("y", g.slice(y, 1, 1, 2, 3))
    out, _ = optimized(g)
    assert {what for what, *_ in sliced(out)} == {"Input", "View"}  # of the mask
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize(
    ("axis", "shapes"), [(0, [(1, 3, 4), (1, 4, 5)]), (1, [(2, 1, 4), (2, 4, 5)]), (2, None)]
)
def test_slice_of_a_product_of_computed_matrices(axis, shapes):
    g = Graph()
    x, y = g.input("x", "float32", [2, 3, 4]), g.input("y", "float32", [2, 4, 5])
    g.output("z", g.slice(g.matmul(g.tanh(x), g.tanh(y)), axis, 1, 1))
    out, _ = optimized(g)
    assert ops(out)["MatMul"] == 1
    assert {what for what, *_ in sliced(out)} == {"Input"}
    assert widths(out) == [{0: (1, 3, 5), 1: (2, 1, 5), 2: (2, 3, 1)}[axis]]
    assert_equal(g, out, feeds(g))


@pytest.mark.parametrize(
    "make",
    [
        lambda g, x: g.norm(x, [1, 2], 1e-5),
        lambda g, x: g.softmax(x, 1),
        lambda g, x: g.push(Cumulative("sum", 1), x),
        lambda g, x: g.pool(x, "max", [2]),
    ],
    ids=["norm", "softmax", "cumulative", "pool"],
)
def test_near_miss_rows_depend_on_each_other(make):
    g = Graph()
    x = g.input("x", "float32", ["b", 6, 6])
    axis = 2 if make(g, x).node.op.title == "Pool" else 1
    g.output("y", g.slice(make(g, x), axis, 2, 1))
    out, _ = optimized(g, slice_early=0)
    assert_equal(g, out, feeds(g))


def test_near_miss_all_rows_are_read():
    g = Graph()
    x = g.input("x", "float32", ["b", "s", 4])
    y = g.matmul(x, random(g, 4, 50))
    g.output("y", y[:, -1])
    g.output("all", g.reduce("max", y))
    out, _ = optimized(g, slice_early=0)
    assert ops(out)["MatMul"] == 1


def test_near_miss_product_is_an_output_too():
    g = Graph()
    x = g.input("x", "float32", ["b", "s", 4])
    y = g.matmul(x, random(g, 4, 50))
    g.output("y", y[:, -1])
    g.output("all", y)
    optimized(g, slice_early=0)


def test_setting_keeps_slices():
    g = Graph()
    x = g.input("x", "float32", ["b", "s", 4])
    g.output("y", g.relu(x)[:, -1])
    optimized(g, OptimizerSettings(slice_early=False), slice_early=0)


@settings(deadline=None, max_examples=60)
@given(
    axis=st.integers(0, 2),
    kinds=st.lists(
        st.sampled_from(["relu", "scale", "row", "norm", "softmax", "matmul", "gemm", "residual"]),
        min_size=1,
        max_size=5,
    ),
    start=st.integers(0, 2),
    length=st.integers(0, 2),
    special=st.sampled_from([0.0, np.nan, np.inf]),
)
def test_any_chain_of_rows(axis, kinds, start, length, special):
    rng = np.random.default_rng(0)
    g = Graph()
    x = v = g.input("x", "float64", ["b", 4, 4])

    def weights(*shape: int) -> Value:
        return constant(g, rng.standard_normal(shape), "float64")

    make: dict[str, Callable[[Value], Value]] = {
        "relu": g.relu,
        "scale": lambda v: v * weights(4, 1),
        "row": lambda v: v + weights(4),
        "norm": lambda v: g.norm(v, [1], 1e-3),
        "softmax": lambda v: g.softmax(v, 2),
        "matmul": lambda v: g.matmul(v, weights(4, 4)),
        "gemm": lambda v: g.view(
            g.matmul(g.view(v, (v.shape[0] * 4, 4)), weights(4, 4)) + weights(4), v.shape
        ),
        "residual": lambda v: v + x,
    }
    for kind in kinds:
        v = make[kind](v)
    g.output("y", g.slice(v, axis, start, length))
    out, _ = optimized(g)
    given_inputs = feeds(g, b=4)
    given_inputs["x"][2, 1, 3] = special
    want, got = cpu_eval_graph(g, given_inputs)["y"], cpu_eval_graph(out, given_inputs)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


# ---- models ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "merged"), [("transformer_layer", 1), ("gqa_decoder_step", 4)])
def test_generated_models(name, merged):
    g = load_graph_from_onnx_bytes(build(name).SerializeToString())
    out, _ = optimized(g, merge_matmul=merged)
    assert_equal(g, out, inputs(name), tolerance=1e-4)


@pytest.mark.real_models
@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize(
    ("name", "merged", "sliced"),
    [
        ("bert_mini", 4, 0),
        ("distilbert", 6, 5),
        ("clip_text", 4, 0),
        ("vit_tiny", 12, 8),
        ("t5_encoder", 3, 0),
        ("llama_prefill", 8, 0),
        ("llama_kv", 8, 0),
        ("whisper_encoder", 2, 0),
        ("gpt2_prefill", 0, 0),
    ],
)
def test_exports(name, exporter, merged, sliced):
    g = stored(EXPORTS, f"{name}.{exporter}.onnx")
    _, report = optimized(g, merge_matmul=merged)
    assert report.fired["slice_early"] >= sliced
