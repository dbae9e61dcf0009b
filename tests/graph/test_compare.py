"""Bands: what they catch, what they let pass, and how they say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kn_graph import DType, Graph, KnError, cpu_eval_graph
from kn_graph.compare import (
    CompareReport,
    bisect,
    compare_arrays,
    compare_outputs,
    model_band,
    step_band,
    to_float64,
)
from kn_graph.compare.step import EXACT, MEASURED, RULES, rounds
from kn_graph.compare.walk import Context
from kn_graph.errors import ExecutionError, UsageError
from kn_graph.ops.attention import Attention
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.reduce import Reduce
from kn_graph.value import Value
from tests.ops.example import Example
from tests.ops.test_examples import EXAMPLES, OPERATIONS, name_of

F32 = np.float32
X = np.random.default_rng(1).standard_normal((48, 300)).astype(F32)
W = np.random.default_rng(2).standard_normal((300, 40)).astype(F32)
PRODUCT = X @ W


def gemm_graph() -> Graph:
    g = Graph("gemm")
    g.output("y", g.input("x", "float32", ("m", 300)) @ g.constant(W))
    return g


def model_verdict(actual: np.ndarray) -> CompareReport:
    return compare_outputs({"y": actual}, model_band(gemm_graph(), {"x": X}))


def step_verdict(actual: np.ndarray) -> CompareReport:
    return compare_outputs({"out0": actual}, step_band(MatMul(), (X, W), PRODUCT))


BANDS = pytest.mark.parametrize("verdict", [model_verdict, step_verdict])


# ---- a product, wrong and right --------------------------------------------------------------


def to_tf32(x: np.ndarray) -> np.ndarray:
    """Round to 10 bits behind the leading one, to nearest."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
    return rounded.astype(np.uint32).view(F32)


def small_elements_off(x: np.ndarray) -> np.ndarray:
    small = np.abs(x) <= np.quantile(np.abs(x), 0.1)
    return np.where(small, x * F32(1.05), x)


def with_nan(x: np.ndarray) -> np.ndarray:
    out = x.copy()
    out[3, 5] = np.nan
    return out


def sequential(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    total = np.zeros((x.shape[0], w.shape[1]), F32)
    for k in range(x.shape[1]):
        total += x[:, k : k + 1] * w[k]
    return total


def fused(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One rounding a step: the product of two float32 is exact in float64."""
    total = np.zeros((x.shape[0], w.shape[1]), F32)
    for k in range(x.shape[1]):
        total = (total + x[:, k : k + 1].astype(np.float64) * w[k]).astype(F32)
    return total


WRONG: dict[str, Callable[[], np.ndarray]] = {
    "tf32": lambda: to_tf32(X) @ to_tf32(W),
    "one operand in tf32": lambda: to_tf32(X) @ W,
    "float16": lambda: X.astype(np.float16).astype(F32) @ W.astype(np.float16).astype(F32),
    "dropped tail of k": lambda: X[:, :-1] @ W[:-1],
    "dropped tail column": lambda: np.concatenate([PRODUCT[:, :-1], np.zeros((48, 1), F32)], 1),
    "5 % off on the smallest": lambda: small_elements_off(PRODUCT),
    "one NaN": lambda: with_nan(PRODUCT),
    "zeros": lambda: np.zeros_like(PRODUCT),
    "NaN": lambda: np.full_like(PRODUCT, np.nan),
}
RIGHT: dict[str, Callable] = {
    "itself": lambda: PRODUCT,
    "sequential": lambda: sequential(X, W),
    "backwards": lambda: sequential(X[:, ::-1], W[::-1]),
    "fused multiply-add": lambda: fused(X, W),
    "in blocks": lambda: sum(X[:, k : k + 32] @ W[k : k + 32] for k in range(0, 300, 32)),
    "float64": lambda: (X.astype(np.float64) @ W).astype(F32),
}


@BANDS
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_product_is_caught(verdict: Callable, name: str) -> None:
    report = verdict(WRONG[name]())
    assert not report.ok
    assert report.verdicts[0].outside > 0


@BANDS
@pytest.mark.parametrize("name", RIGHT)
def test_another_order_of_the_same_product_passes(verdict: Callable, name: str) -> None:
    report = verdict(RIGHT[name]())
    assert report.ok, report.describe()


def test_products_may_be_declared_less_precise() -> None:
    rough = {"out0": to_tf32(X) @ to_tf32(W)}
    assert compare_outputs(rough, step_band(MatMul(), (X, W), PRODUCT, products="tf32")).ok
    dropped = {"out0": X[:, :-1] @ W[:-1]}
    assert not compare_outputs(dropped, step_band(MatMul(), (X, W), PRODUCT, products="tf32")).ok
    with pytest.raises(UsageError, match="products are computed in float32, tf32"):
        step_band(MatMul(), (X, W), PRODUCT, products="int8")  # type: ignore[arg-type]


# ---- steps -----------------------------------------------------------------------------------


def naive_softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True))
    total = np.zeros((len(x), 1), F32)
    for j in range(x.shape[1]):
        total += powers[:, j : j + 1]
    return powers * (F32(1) / total)


def running_norm(x: np.ndarray) -> np.ndarray:
    """Welford's single pass."""
    mean, square = np.zeros((len(x), 1), F32), np.zeros((len(x), 1), F32)
    for j in range(x.shape[1]):
        delta = x[:, j : j + 1] - mean
        mean += delta / F32(j + 1)
        square += delta * (x[:, j : j + 1] - mean)
    return (x - mean) * (F32(1) / np.sqrt(square / F32(x.shape[1]) + F32(1e-5)))


def online_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One pass over the keys with a running maximum, as fused kernels do."""
    shape = q.shape[:3]
    top, total = np.full(shape, -np.inf, F32), np.zeros(shape, F32)
    out = np.zeros((*shape, v.shape[3]), F32)
    scale = F32(1 / np.sqrt(q.shape[3]))
    for j in range(k.shape[2]):
        score = (q * k[:, :, j : j + 1]).sum(3) * scale
        new = np.maximum(top, score)
        old, power = np.exp(top - new), np.exp(score - new)
        total = total * old + power
        out = out * old[..., None] + power[..., None] * v[:, :, j : j + 1]
        top = new
    return out / total[..., None]


def gelu(x: np.ndarray) -> np.ndarray:
    inner = F32(0.7978845608) * (x + F32(0.044715) * x * x * x)
    return F32(0.5) * x * (1 + np.tanh(inner))


def sequential_sum(x: np.ndarray) -> np.ndarray:
    total = np.zeros(len(x), F32)
    for j in range(x.shape[1]):
        total += x[:, j]
    return total


Q, K, V = (np.random.default_rng(s).standard_normal((2, 3, 20, 16)).astype(F32) for s in (3, 4, 5))
LARGE = X * F32(5)
SHIFTED = X + F32(100)

STEPS: dict[str, tuple] = {
    "softmax": (Softmax(1), (X,), naive_softmax),
    "softmax of large logits": (Softmax(1), (LARGE,), naive_softmax),
    "log softmax": (Softmax(1, log=True), (X,), lambda x: np.log(naive_softmax(x))),
    "norm": (Norm((1,), 1e-5), (X,), running_norm),
    "norm far from zero": (Norm((1,), 1e-5), (SHIFTED,), running_norm),
    "attention": (Attention(), (Q, K, V), online_attention),
    "sum": (Reduce("sum", (1,)), (X,), sequential_sum),
    "sum of positives": (Reduce("sum", (1,)), (np.abs(X),), sequential_sum),
    "mean": (Reduce("mean", (1,)), (SHIFTED,), lambda x: sequential_sum(x) / F32(x.shape[1])),
    "product": (Reduce("prod", (1,)), (X[:, :9],), lambda x: x[:, ::-1].prod(1)),
    "exp": (Unary("exp"), (X,), np.exp),
    "gelu": (Unary("gelu_tanh"), (X,), gelu),
    "add": (Binary("add"), (X, SHIFTED), np.add),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_computed_in_another_way_passes_and_one_slightly_off_does_not(name: str) -> None:
    op, operands, other = STEPS[name]
    reference = op.eval(Context(), *operands)
    band = step_band(op, operands, reference)
    report = compare_outputs({"out0": other(*operands)}, band)
    assert report.ok, report.describe()
    for wrong in (reference * F32(1.001), small_elements_off(reference)):
        report = compare_outputs({"out0": wrong}, band)
        if name == "softmax of large logits":  # what is below 1e-38 may be off
            wrong = np.where(reference < 1e-30, reference, wrong)
        assert not report.ok, "an error of 0.1 % passes"


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_half_precision_may_round_once(dtype: DType) -> None:
    x, w = X.astype(dtype.numpy), W.astype(dtype.numpy)
    reference = MatMul().eval(Context(), x, w)
    band = step_band(MatMul(), (x, w), reference)
    wide = x.astype(F32), w.astype(F32)
    assert compare_outputs({"out0": sequential(*wide).astype(dtype.numpy)}, band).ok
    total = np.zeros((48, 40), dtype.numpy)
    for k in range(300):
        total = total + x[:, k : k + 1] * w[k]
    assert not compare_outputs({"out0": total}, band).ok, "sums in half precision are not enough"


def test_integers_and_choices_are_exact() -> None:
    x = np.arange(6).reshape(2, 3)
    total = Reduce("sum", (1,)).eval(Context(), x)
    assert not compare_outputs({"out0": total + 1}, step_band(Reduce("sum", (1,)), (x,), total)).ok
    largest = Reduce("max", (1,)).eval(Context(), X)
    off = np.nextafter(largest, F32(np.inf))
    assert not compare_outputs({"out0": off}, step_band(Reduce("max", (1,)), (X,), largest)).ok


def test_every_operation_has_a_rule_or_is_exact() -> None:
    tables = [EXACT, frozenset(RULES), MEASURED]
    for op in OPERATIONS:
        assert sum(op in t for t in tables) == 1, op.__name__


def test_order_decides_whether_a_product_overflows() -> None:
    x = np.array([[1e30, 1e30, 1e-30]], F32)
    op = Reduce("prod", (1,))
    (verdict,) = compare_outputs(
        {"out0": np.array([1e30], F32)}, step_band(op, (x,), op.eval(Context(), x))
    ).verdicts
    assert verdict.ok
    assert verdict.undecided == 1


# ---- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_the_reference_is_inside_its_own_bands(example: Example) -> None:
    graph = example.graph()
    for sizes in example.sizes:
        feeds = example.feeds(sizes)
        try:
            outputs = cpu_eval_graph(graph, feeds)
        except KnError:
            continue  # such as a top 3 of nothing
        report = compare_outputs(outputs, model_band(graph, feeds))
        assert report.ok, report.describe()
        assert bisect(graph, feeds, cpu_eval_graph) is None
        wide = cpu_eval_graph(to_float64(graph), feeds)
        assert wide.keys() == outputs.keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_float64_keeps_no_narrower_arithmetic(example: Example) -> None:
    wide = to_float64(example.graph())
    wide.verify()
    for v in wide.outputs.values():
        assert str(getattr(v.type, "dtype", "")) not in ("float16", "bfloat16", "float32")


def test_what_only_moves_is_exact() -> None:
    g = Graph()
    x = g.input("x", "float32", (4, 5))
    g.output("moved", g.relu(g.permute(x, (1, 0))))
    g.output("scaled", x * 3.0)
    feeds = {"x": X[:4, :5]}
    out = cpu_eval_graph(g, feeds)
    band = model_band(g, feeds)
    off = {n: np.nextafter(v, F32(9)) for n, v in out.items()}
    report = compare_outputs(off, band)
    assert [v.ok for v in report.verdicts] == [False, True]


def test_an_index_may_be_another_one_that_is_as_good() -> None:
    g = Graph()
    scores = g.input("x", "float32", (3, 300)) @ g.constant(W)
    g.output("best", g.arg_reduce(scores, 1, keep=True))
    x = X[:3].copy()
    band = model_band(g, {"x": x})
    best = cpu_eval_graph(g, {"x": x})["best"]
    assert compare_outputs({"best": best}, band).ok
    assert not compare_outputs({"best": (best + 1) % 40}, band).ok
    assert not compare_outputs({"best": best + 40}, band).ok, "there is no such index"
    ties = band.ties["best"]
    scores_row = ties.scores.copy()
    scores_row[0, (best[0] + 1) % 40] = scores_row[0, best[0]] * (1 + 1e-9)
    near = replace(band, ties={"best": replace(ties, scores=scores_row)})
    found = best.copy()
    found[0] = (best[0] + 1) % 40
    assert compare_outputs({"best": found}, near).ok


def test_top_k_indices_may_swap_equal_values() -> None:
    g = Graph()
    values, indices = g.top_k(g.input("x", "float32", (4,)), 3)
    g.output("values", values)
    g.output("indices", indices)
    feeds = {"x": np.array([1, 3, 3, 0], F32)}
    out = cpu_eval_graph(g, feeds)
    assert out["indices"].tolist() == [1, 2, 0]
    band = model_band(g, feeds)
    assert compare_outputs(out | {"indices": np.array([2, 1, 0])}, band).ok
    assert not compare_outputs(out | {"indices": np.array([1, 0, 2])}, band).ok


def test_indices_that_became_floats_are_compared_as_floats() -> None:
    g = Graph()
    _, indices = g.top_k(g.input("x", "uint8", (3,)), 2)
    g.output("y", g.cast(indices, DType.FLOAT32))
    feeds = {"x": np.array([1, 2, 2], np.uint8)}
    band = model_band(g, feeds)
    assert not band.ties
    assert compare_outputs(cpu_eval_graph(g, feeds), band).ok


def test_one_lucky_difference_does_not_make_the_band_narrow() -> None:
    g = Graph()
    x = g.input("x", "float32", (1,))
    g.output("y", (x + 1e4) - 1e4)
    feeds = {"x": np.array([0.5], F32)}
    assert cpu_eval_graph(to_float64(g), feeds)["y"] == cpu_eval_graph(g, feeds)["y"]
    tolerance = model_band(g, feeds).tolerance["y"]
    assert tolerance > 1e-3, "the rounding of 1e4 has to show"


def test_a_few_rows_that_move_together_do_not_make_the_band_narrow() -> None:
    """Elements of a softmax share one sum: 4 rows of 3,000 are a few differences, not 12,000."""
    w = np.random.default_rng(6).standard_normal((64, 3000)).astype(F32)
    feeds = {"x": np.random.default_rng(7).standard_normal((4, 64)).astype(F32)}

    def bands(end: Callable[[Graph, Value], Value]) -> list[np.ndarray]:
        g = Graph()
        g.output("y", end(g, g.input("x", "float32", (4, 64)) @ g.constant(w)))
        return [model_band(g, feeds, samples=n).tolerance["y"] for n in (None, 0, 3)]

    by_default, one, more = bands(lambda g, x: g.softmax(x))
    assert np.array_equal(by_default, more)
    assert not np.array_equal(one, more)
    by_default, one, more = bands(lambda g, x: x)
    assert np.array_equal(by_default, one)
    assert not np.array_equal(one, more)


def test_overflow_of_the_model_is_undecided_not_right() -> None:
    g = Graph()
    x = g.input("x", "float16", (2,))
    g.output("y", g.div(x * 1000.0, g.scalar(1000, DType.FLOAT16)))
    feeds = {"x": np.array([100, 1], np.float16)}
    band = model_band(g, feeds)
    report = compare_outputs({"y": np.array([100, 1], np.float16)}, band)
    assert report.ok
    assert report.verdicts[0].undecided == 1
    assert not compare_outputs({"y": np.array([100, 2], np.float16)}, band).ok


def test_float64_models_have_a_band() -> None:
    g = Graph()
    g.output("y", g.input("x", "float64", (48, 300)) @ g.constant(W.astype(np.float64)))
    x = X.astype(np.float64)
    band = model_band(g, {"x": x})
    right = sum(x[:, k : k + 32] @ W[k : k + 32].astype(np.float64) for k in range(0, 300, 32))
    assert compare_outputs({"y": right}, band).ok
    assert not compare_outputs({"y": (X @ W).astype(np.float64)}, band).ok


def test_half_of_many_elements_undecided_is_no_agreement() -> None:
    tolerance = np.where(np.arange(100) < 60, np.inf, 0.0)
    verdict = compare_arrays("y", np.zeros(100), np.zeros(100), tolerance)
    assert (verdict.ok, verdict.why) == (False, "undecided")


# ---- where it begins -------------------------------------------------------------------------


def chain() -> Graph:
    g = Graph("chain")
    x = g.input("x", "float32", ("n", 300))
    with g.origin("/fc/MatMul"):
        y = x @ g.constant(W)
    with g.origin("/act"):
        y = g.relu(y)
    with g.origin("/norm"):
        y = g.norm(y, [1], 1e-5)
    g.output("y", g.softmax(y, 1))
    return g


def broken(kind: type) -> Callable:
    """Return a runner that computes one kind of operation with an error of 1 %."""

    def run(graph: Graph, inputs: dict) -> dict:
        out = cpu_eval_graph(graph, inputs)
        if any(isinstance(n.op, kind) for n in graph.nodes):
            out = {n: v * F32(1.01) for n, v in out.items()}
        return out

    return run


def test_sizes_that_roundings_decide_leave_out_a_run_that_they_break() -> None:
    g = Graph("durations")
    x, z = g.input("x", "float32", [1]), g.input("z", "float32", [1])
    numbers = (g.mul(x, z), g.add(x, g.sub(z, z)))  # 3 and 3, or a little more
    longs = [g.cast(g.unary("ceil", v), DType.INT64) for v in numbers]
    (first,), (second,) = (g.read_sizes(v) for v in longs)
    g.output("y", g.unary("exp", g.view(g.broadcast(z, (first,)), (second, 1))))
    feeds = {"x": np.array([3], np.float32), "z": np.ones(1, np.float32)}
    band = model_band(g, feeds, samples=20)
    assert compare_outputs(cpu_eval_graph(g, feeds), band).ok


@pytest.mark.parametrize(("kind", "node"), [(MatMul, "/fc/MatMul"), (Norm, "/norm")])
def test_bisect_finds_the_first_wrong_node(kind: type, node: str) -> None:
    found = bisect(chain(), {"x": X}, broken(kind))
    assert found is not None
    assert found.node == node
    assert not found.report.ok
    assert isinstance(found.graph.nodes[-1].op, kind)
    text = found.describe()
    assert text.startswith(f"first difference at node {node} (%")
    assert "outside of the band" in text


def test_bisect_reports_a_node_that_fails() -> None:
    def run(graph: Graph, inputs: dict) -> dict:
        if any(isinstance(n.op, Softmax) for n in graph.nodes):
            raise ExecutionError("no such kernel")
        return cpu_eval_graph(graph, inputs)

    found = bisect(chain(), {"x": X}, run)
    assert found is not None
    assert "it failed: no such kernel" in found.describe()


def test_bisect_keeps_weights_as_constants() -> None:
    found = bisect(chain(), {"x": X}, broken(MatMul))
    assert found is not None
    assert list(found.inputs) == ["in0"]


def test_rounding_is_known_of_functions() -> None:
    assert rounds(Binary("add"))
    assert not rounds(Binary("max"))
    assert rounds(Reduce("mean", (0,)))
    assert not rounds(Reduce("max", (0,)))
