"""Constants are computed beforehand within a budget; decided control flow goes away."""

from __future__ import annotations

import numpy as np
import pytest

from kn_graph import DType, Graph, TensorType, Value, cpu_eval_graph, load_graph_from_onnx_path
from kn_graph.optimizer import OptimizerSettings, optimize_graph_report
from kn_graph.optimizer.rules.fold import FoldConstants
from tests.ops.examples import EXAMPLES
from tests.ops.examples_control import body
from tests.optimizer.check import build_graph, check, check_model, model_graph, ops_of, untouched
from tests.small_models import info, node

X = {"x": ("float32", ["n", 4])}
MIB = 1 << 20


def constant(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 9).astype(dtype)


# ---- constants ------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.op.__name__}{e.note}")
@pytest.mark.parametrize("number", [3, 1, 0])
def test_every_operation_of_constants_is_what_the_reference_says(example, number):
    graph = example.graph()
    sizes = next((s for s in example.sizes if set(s.values()) == {number}), example.sizes[0])
    feeds = example.feeds(sizes)
    want = cpu_eval_graph(graph, feeds, sizes)
    fed = Graph("constants")
    fixed = graph.specialize({k: v for k, v in sizes.items() if k in graph.symbols})
    out = fed.inline(fixed, {n: fed.constant(a) for n, a in feeds.items()})
    for name, v in out.items():
        fed.output(name, v)
    optimized, _ = optimize_graph_report(fed)
    got = cpu_eval_graph(optimized, {})
    for name, x in want.items():
        np.testing.assert_allclose(
            np.asarray(got[name], np.float64) if x.dtype.kind == "f" else got[name],
            np.asarray(x, np.float64) if x.dtype.kind == "f" else x,
            rtol=1e-5,
            atol=1e-6,
        )
    if example.op in FoldConstants.roots and "Random" not in ops_of(optimized):
        titles = {n.op.title for n in optimized.nodes}
        assert titles <= {"Constant", "Broadcast", *_DATA}, str(optimized)


_DATA = ("NonZero", "Unique", "NonMaxSuppression", "View", "Permute", "Slice", "Sizes", "Gather")
"""What stays where a size is only known at run time."""


def test_arithmetic_of_constants_of_a_model():
    nodes = [node("Sqrt", "v", "s"), node("Div", "w s", "k"), node("Mul", "x k", "y")]
    weights = {"v": np.full(4, 4, np.float32), "w": constant((3, 4))}
    graph = model_graph(nodes, [info("x", ["n", 4])], weights=weights)
    out = check_model(graph, {"fold_constants": 2}, sizes=[{"n": 3}])
    assert ops_of(out) == ["Broadcast", "mul"]


def test_the_budget_is_the_size_of_the_constants_or_4_mib():
    def outer(rows: int, columns: int):
        def build(g: Graph) -> Value:
            a, b = g.constant(constant((rows, 1))), g.constant(constant((1, columns)))
            return g.add(a, b)

        return build

    check(outer(64, 64), {}, {"fold_constants": 1}, sizes=[{}])
    check(outer(1024, 1024), {}, {"fold_constants": 1}, sizes=[{}])  # 4 MiB
    report = untouched(outer(1024, 1025), {}, "fold_constants")
    assert [why for rule, why in report.refused if rule == "fold_constants"]

    def product(rows: int):
        def build(g: Graph) -> Value:
            return g.constant(constant((rows, 2))) @ g.constant(constant((2, 1024)))

        return build

    check(product(1024), {}, {"fold_constants": 1}, sizes=[{}], rtol=1e-4)
    untouched(product(1025), {}, "fold_constants")
    large = constant((2 * MIB,))
    check(lambda g: g.constant(large) + 1, {}, {"fold_constants": 1}, sizes=[{}])


def test_weights_of_a_recurrent_layer_are_converted_once():
    hidden = 600  # 5.8 MB of floats
    codes = np.random.default_rng(0).integers(-9, 9, (1, 4 * hidden, hidden)).astype(np.int8)
    scale = np.full((1, 1, 1), 1e-3, np.float32)

    def build(other_use: bool):
        def layer(g: Graph, x: Value) -> list[Value]:
            r = g.cast(g.constant(codes), DType.FLOAT32) * g.constant(scale)
            w = g.constant(constant((1, 4 * hidden, 2)))
            y, *_ = g.recurrent("lstm", x, w, r)
            return [y, g.exp(r)] if other_use else [y]

        return layer

    inputs = {"x": ("float32", [1, 1, 2])}
    out = check(build(False), inputs, {"fold_constants": 2}, sizes=[{}], rtol=1e-5)
    assert "cast" not in {name.lower() for name in ops_of(out)}
    assert "lstm" in ops_of(out)
    untouched(build(True), inputs, "fold_constants")


def test_integer_weights_lose_their_zero_point_whatever_their_size():
    codes = np.random.default_rng(0).integers(-9, 9, (2 * MIB + 64) // 64 * 64).astype(np.int8)
    codes = codes.reshape(-1, 64)
    rows = codes.shape[0]

    def product(g: Graph, x: Value) -> Value:
        zero = g.constant(np.arange(64, dtype=np.int8))
        shift = g.constant(np.int32(3))
        weights = g.centered(g.constant(codes), zero)
        sums = g.reduce("sum", g.cast(weights, DType.INT32), (0,))
        return g.matmul(x, weights, out_dtype=DType.INT32) - g.cast(shift, DType.INT32) * sums

    out = check(product, {"x": ("uint8", [2, rows])}, {}, sizes=[{}])
    assert "cast" not in {name.lower() for name in ops_of(out)}
    assert "Reduce" not in ops_of(out)


def test_a_huge_result_is_never_allocated():
    one = np.ones((1, 1), np.float32)

    def build(g: Graph) -> Value:
        wide = g.broadcast(g.constant(one), (1 << 40, 1 << 20))
        return g.reduce("sum", wide, [0, 1])

    graph = build_graph(build, {})
    optimized, report = optimize_graph_report(graph)
    assert "reduce_sum" in ops_of(optimized)
    assert report.refused


def test_a_broadcast_stays_a_broadcast_and_is_computed_small():
    def build(g: Graph, x: Value) -> Value:
        c = g.broadcast(g.constant(constant((1, 4))), x.shape)
        return x * g.exp(g.sqrt(c * c))

    out = check(build, X, {"narrow_elementwise": 3})
    assert ops_of(out) == ["Broadcast", "mul"]


def test_large_results_of_equal_elements_are_a_scalar():
    zeros = np.zeros((256, 256), np.float32)
    out = check(
        lambda g, x: x + g.matmul(g.constant(zeros), g.constant(zeros)),
        {"x": ("float32", [256, 256])},
        {"fold_constants": 1},
        sizes=[{}],
    )
    assert ops_of(out) == []  # x + 0


def test_what_fails_stays_to_fail_when_it_runs():
    def build(g: Graph) -> Value:
        table = g.constant(constant((200, 2)))
        return g.gather(table, g.constant(np.full(100, 300)), 0)

    report = untouched(build, {}, "fold_constants")
    assert any("computing fails" in why for _, why in report.refused)


def test_it_can_be_switched_off():
    off = OptimizerSettings(fold=False)
    check(
        lambda g, x: x + g.exp(g.constant(constant((4,)))), X,
        {"fold_constants": 0, "fold_layout": 0}, settings=off,
    )  # fmt: skip


# ---- layouts of constants -------------------------------------------------------------------


def test_layouts_of_constants_are_views_of_their_memory():
    weight = constant((512, 256))
    out = check(
        lambda g, x: x @ g.transpose(g.constant(weight)),
        {"x": ("float32", ["n", 256])},
        {"fold_layout": 1},
        rtol=1e-5,
    )
    (array,) = [n.op.array for n in out.nodes if n.op.title == "Constant"]
    assert np.shares_memory(array, weight)


def test_a_large_constant_is_not_kept_twice():
    weight = constant((512, 256))

    def tied(g: Graph, x: Value) -> Value:
        w = g.constant(weight)
        return g.gather(w, g.cast(x @ g.transpose(w), DType.INT64), 0)

    report = untouched(tied, {"x": ("float32", ["n", 256])}, "fold_layout")
    assert report.refused["fold_layout", "the constant is used in other layouts, too"]

    def parts(g: Graph, x: Value) -> list[Value]:
        w = g.constant(weight)
        return [x @ w[:, :128], x @ w[:, 128:]]

    optimized, _ = optimize_graph_report(build_graph(parts, {"x": ("float32", ["n", 512])}))
    assert "Slice" not in {
        n.op.title for n in optimized.nodes if n.operands and n.operands[0].constant is not None
    }


def test_a_mapped_weight_keeps_its_place_in_the_file(tmp_path):
    import onnx

    from tests.small_models import model

    weights = {"w": constant((512, 64))}
    made = model(
        [node("Reshape", "w shape", "r"), node("MatMul", "x r", "y")],
        [info("x", ["n", 128])],
        weights={**weights, "shape": np.array([128, 256])},
    )
    onnx.save(made, tmp_path / "m.onnx")
    graph = load_graph_from_onnx_path(tmp_path / "m.onnx")
    optimized, report = optimize_graph_report(graph)
    assert report.fired["fold_layout"] == 1
    (op,) = [n.op for n in optimized.nodes if n.op.title == "Constant"]
    assert op.origin is not None
    assert op.array.shape == (128, 256)


# ---- control flow ---------------------------------------------------------------------------


def decided_if(truth: bool):
    def build(g: Graph, x: Value) -> tuple[Value, ...]:
        then_body = body(g, [x.type], lambda b, y: [b.relu(y)])
        else_body = body(g, [x.type], lambda b, y: [-y])
        # not folded while it is built
        condition = g.reduce("all", g.constant(np.array([truth] * 100)), [0])
        return g.if_else(condition, then_body, else_body, [x])

    return build


@pytest.mark.parametrize(("truth", "left"), [(True, "relu"), (False, "neg")])
def test_an_if_on_a_constant_is_its_branch(truth, left):
    out = check(decided_if(truth), X, {"inline_if": 1})
    assert ops_of(out) == [left]


def test_an_if_whose_sizes_differ_stays():
    def build(g: Graph, x: Value) -> tuple[Value, ...]:
        then_body = body(g, [x.type], lambda b, y: [b.relu(y)])
        else_body = body(g, [x.type], lambda b, y: [y[:, :2]])
        condition = g.reduce("all", g.constant(np.array([True] * 100)), [0])
        return g.if_else(condition, then_body, else_body, [x])

    report = untouched(build, X, "inline_if")
    assert report.refused["inline_if", "a size is only known when it has run"]


def test_a_loop_of_no_iterations_gives_what_it_starts_from():
    def build(g: Graph, x: Value) -> tuple[Value, ...]:
        row = TensorType(x.dtype, (4,))
        scalars = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]
        loop = body(g, [*scalars, row], lambda b, i, c, y: [c, y + y, b.relu(y)])
        start = g.reduce("sum", x, [0])
        return g.loop(loop, [start], trip=g.constant(np.array(0)))

    out = check(build, X, {"skip_loop": 1})
    assert "Loop" not in ops_of(out)


def test_a_loop_that_runs_stays():
    def build(g: Graph, x: Value) -> tuple[Value, ...]:
        scalars = [TensorType(DType.INT64, ()), TensorType(DType.BOOL, ())]
        loop = body(g, [*scalars, x.type], lambda b, i, c, y: [c, y + y])
        return g.loop(loop, [x], trip=g.constant(np.array(2)))

    untouched(build, X, "skip_loop")


# ---- sizes that become known ----------------------------------------------------------------


def sized(*numbers: float):
    def build(g: Graph, x: Value) -> Value:
        scaled = g.cast(g.unary("floor", g.constant(np.array(numbers)) * 2), DType.INT64)
        return g.broadcast(g.view(x, (*x.shape, 1)), (*x.shape, *g.read_sizes(scaled)))

    return build


def test_sizes_computed_from_constants_are_numbers():
    out = check(sized(1.7), X, {"known_sizes": 1})
    assert out.outputs["y0"].shape[-1] == 3
    assert ops_of(out) == ["Broadcast", "View"]


def test_an_illegal_size_fails_when_it_runs():
    untouched(sized(-3.1), X, "known_sizes")


def test_scales_of_blocks_are_multiplied_into_weights():
    """As 4-bit weights are written: a scale for every 32 elements of a row, repeated and cut."""
    weights = np.arange(4 * 60, dtype=np.float32).reshape(4, 60)
    scales = np.arange(8, dtype=np.float32).reshape(4, 2, 1) + 1

    def build(g: Graph, x: Value) -> Value:
        rows = g.view(g.broadcast(g.constant(scales), (4, 2, 32)), (4, 64))
        w = g.mul(g.constant(weights), g.slice(rows, 1, 0, 60))
        return g.matmul(x, g.permute(w, (1, 0)))

    out = check(build, {"x": ("float32", ["n", 60])}, {"fold_constants": 1}, rtol=1e-6)
    assert ops_of(out) == ["MatMul"]
