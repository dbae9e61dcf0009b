"""Loop and Scan: types that change or stay, values, captured values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph.errors import (
    ExecutionError,
    KnError,
    MalformedModelError,
    ShapeError,
    UnsupportedModelError,
)
from kn_graph.ops.control import If, Loop
from kn_graph.ops.host import HostCall
from kn_graph.optimizer import optimize_graph
from kn_graph.reference import cpu_eval_graph
from kn_graph.types import NoType, SequenceType, TensorType
from kn_runtime import Device
from tests.ops.control_models import X, flag, integer, load, nodes_of, same_as_onnxruntime

# ---- Loop ---------------------------------------------------------------------------------------

FOR = """
g (int64 m, float[3] x) => (float[3] y, float[k, 3] rows) {
    true = Constant <value = bool {1}> ()
    y, rows = Loop (m, true, x) <
        body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t, float[3] r) {
            d = Identity(c)
            f = Cast <to = 1> (i)
            t = Add(s, f)
            r = Mul(t, x)
        }
    >
}"""


@pytest.mark.parametrize("count", [0, 1, 4, -2])
def test_a_loop_with_a_trip_count(count: int) -> None:
    y, rows = same_as_onnxruntime(FOR, {"m": integer(count), "x": X[1]})
    assert rows.shape == (max(count, 0), 3)
    assert y.shape == (3,)


def test_the_number_of_rows_is_the_trip_count() -> None:
    (node,) = nodes_of(load(FOR), Loop)
    assert node.op.count is not None
    assert not node.op.has_trip
    assert not node.op.has_condition
    text = FOR.replace("g (int64 m, float", "g (float").replace(
        "true = C", "m = Constant <value = int64 {4}> () true = C"
    )
    graph = load(text)
    assert graph.outputs["rows"].shape == (4, 3)
    text = FOR.replace("int64 m", "float[t] a").replace("true = C", "m = Size(a) true = C")
    assert str(load(text).outputs["rows"].type) == "float32[t, 3]"


WHILE = """
g (int64 m, bool go, float x) => (float y, float[k] rows) {
    limit = Constant <value = float {20}> ()
    two = Constant <value = float {2}> ()
    y, rows = Loop (m, go, x) <
        body = b (int64 i, bool c, float s) => (bool d, float t, float r) {
            t = Mul(s, two)  d = Less(t, limit)  r = Identity(s)
        }
    >
}"""


@pytest.mark.parametrize(("m", "go"), [(100, True), (2, True), (100, False), (0, True)])
def test_a_loop_with_a_condition(m: int, go: bool) -> None:
    feeds = {"m": integer(m), "go": flag(go), "x": np.float32(1.5)}
    same_as_onnxruntime(WHILE, feeds)


def test_a_loop_without_a_trip_count() -> None:
    text = WHILE.replace("int64 m, ", "").replace("(m, go, x)", '("", go, x)')
    graph = load(text)
    out = cpu_eval_graph(graph, {"go": flag(True), "x": np.float32(1.5)})
    assert out["y"] == 24
    assert out["rows"].tolist() == [1.5, 3, 6, 12]


def test_without_a_condition_that_of_the_body_does_not_matter_as_the_text_says() -> None:
    text = WHILE.replace("bool go, ", "").replace("(m, go, x)", '(m, "", x)')
    out = cpu_eval_graph(load(text), {"m": integer(6), "x": np.float32(1.5)})
    assert out["y"] == 96
    with pytest.raises(ShapeError, match="nothing ends the loop"):
        load(text.replace('(m, "", x)', '("", "", x)').replace("int64 m, ", ""))


def test_a_false_condition_leaves_the_initial_values() -> None:
    text = WHILE.replace("bool go, ", "").replace(
        "limit = C", "go = Constant <value = bool {0}> () limit = C", 1
    )
    graph = load(text)
    assert graph.outputs["rows"].shape == (0,)
    assert cpu_eval_graph(graph, {"m": integer(6), "x": np.float32(1.5)})["y"] == 1.5


GROW = """
g (int64 m, float[n, 2] x, float[n, 2] z) => (float[p, 2] y, float[p, 2] w) {
    true = Constant <value = bool {1}> ()
    y, w = Loop (m, true, x, z) <
        body = b (int64 i, bool c, float[p, 2] s, float[p, 2] u)
            => (bool d, float[p, 2] t, float[p, 2] v) {
            d = Identity(c)
            o = Constant <value = float[1, 2] {1, 2}> ()
            t = Concat <axis = 0> (s, o)
            both = Add(s, u)
            v = Concat <axis = 0> (both, o)
        }
    >
}"""


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("rows", [1, 2])
def test_carried_sizes_may_grow(count: int, rows: int) -> None:
    x = np.ones((rows, 2), np.float32)
    same_as_onnxruntime(GROW, {"m": integer(count), "x": x, "z": x * 3})


def test_sizes_that_grow_together_are_equal_and_known_in_the_end() -> None:
    graph = load(GROW)
    y, w = graph.outputs.values()
    assert y.shape == w.shape
    (node,) = nodes_of(graph, Loop)
    assert y.shape[0] == graph.inputs[1].shape[0] + node.op.count
    body = node.op.body
    assert body.inputs[2].shape == body.inputs[3].shape
    assert not body.constraints._items
    known = load(
        GROW.replace("g (int64 m, ", "g (").replace(
            "true = C", "m = Constant <value = int64 {5}> () true = C"
        )
    )
    assert str(known.outputs["y"].type) == "float32[n+5, 2]"


@pytest.mark.parametrize("rows", ["n", 1])
def test_sizes_that_start_equal_and_grow_differently_are_told_apart(rows: Any) -> None:
    # one row becomes two either way: they are told apart one iteration later
    text = GROW.replace("both = Add(s, u)", "v = Concat <axis = 0> (u, u)").replace(
        "v = Concat <axis = 0> (both, o)" if rows == 1 else "v = Concat <axis = 0> (u, u)",
        "" if rows == 1 else "both = Concat <axis = 0> (u, u)",
    )
    graph = load(text, input_shapes={"x": [rows, 2], "z": [rows, 2]})
    y, w = graph.outputs.values()
    assert y.shape != w.shape
    x = np.ones((1, 2), np.float32)
    out = cpu_eval_graph(graph, {"m": integer(3), "x": x, "z": x})
    assert (len(out["y"]), len(out["w"])) == (4, 8 if rows == 1 else 15)


def test_carried_sizes_may_depend_on_the_data() -> None:
    text = """
        g (int64 m, float[n] x) => (float[p] y) {
            true = Constant <value = bool {1}> ()
            y = Loop (m, true, x) <
                body = b (int64 i, bool c, float[p] s) => (bool d, float[p] t) {
                    d = Identity(c)
                    f = Cast <to = 1> (i)
                    keep = Greater(s, f)
                    t = Compress <axis = 0> (s, keep)
                }
            >
        }"""
    for count in (0, 2, 9):
        same_as_onnxruntime(text, {"m": integer(count), "x": X[1]})


DEEPER = """
g (int64 m, float[2, 3] x) => (float[k] y, int64[m] ranks) {
    true = Constant <value = bool {1}> ()
    y, ranks = Loop (m, true, x) <
        body = b (int64 i, bool c, float[k] s) => (bool d, float[l] t, int64 r) {
            d = Identity(c)
            axes = Constant <value = int64[1] {0}> ()
            deeper = Unsqueeze(s, axes)
            t = Neg(deeper)
            sizes = Shape(t)
            r = Size(sizes)
        }
    >
}"""


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_ranks_may_change_where_the_number_of_iterations_is_known(device: str) -> None:
    prepared = Device.parse(device).prepare(load(DEEPER))
    for count in (3, 1, 2, 3, 8):
        got = prepared.eval({"m": integer(count), "x": X})
        shape = (1,) * count + X.shape
        np.testing.assert_array_equal(got["y"], (X * (-1) ** count).reshape(shape))
        assert got["ranks"].tolist() == list(range(3, 3 + count))
    with pytest.raises(UnsupportedModelError, match=r"carried value 0 is .* a rank that changes"):
        prepared.eval({"m": integer(65), "x": X})
    fixed = DEEPER.replace("true = ", "m = Constant <value = int64 {2}> () true = ", 1)
    graph = load(fixed.replace("int64 m, ", "", 1))
    assert not nodes_of(graph, Loop)
    assert cpu_eval_graph(graph, {"x": X})["y"].shape == (1, 1, 2, 3)


def test_a_condition_that_is_known_ends_a_loop_that_changes_ranks() -> None:
    text = DEEPER.replace(
        "d = Identity(c)", "two = Constant <value = int64 {2}> () d = Less(i, two)"
    )
    graph = load(text)
    assert cpu_eval_graph(graph, {"m": integer(9), "x": X})["y"].ndim == 5  # for 0, 1 and 2


def test_a_rank_that_changes_as_often_as_data_say_is_named() -> None:
    text = DEEPER.replace("true = ", "n = Add(m, m) true = ", 1).replace("Loop (m", "Loop (n")
    with pytest.raises(UnsupportedModelError, match="trip count of a loop with changing ranks"):
        load(text)


def test_an_element_type_that_changes_is_refused() -> None:
    text = GROW.replace("t = Concat <axis = 0> (s, o)", "t = Cast <to = 7> (s)")
    with pytest.raises(MalformedModelError, match="carried value 0"):
        load(text)


def test_a_body_that_gives_too_little_is_refused() -> None:
    with pytest.raises(KnError, match="the body gives 1 values for 2"):
        load(GROW.replace("float[p, 2] t, float[p, 2] v)", "float[p, 2] t)"))


PREFIXES = """
g (int64 m, float[n] x) => (float[k] y, int64 count) {
    true = Constant <value = bool {1}> ()
    empty = SequenceEmpty()
    s = Loop (m, true, empty) <
        body = b (int64 i, bool c, seq(float[p]) s) => (bool d, seq(float[p]) t) {
            d = Identity(c)
            zero = Constant <value = int64[1] {0}> ()
            one = Constant <value = int64 {1}> ()
            next = Add(i, one)
            end = Unsqueeze(next, zero)
            part = Slice(x, zero, end)
            t = SequenceInsert(s, part)
        }
    >
    count = SequenceLength(s)
    y = ConcatFromSequence <axis = 0> (s)
}"""


def test_sequences_are_carried() -> None:
    graph = load(PREFIXES)
    (node,) = nodes_of(graph, Loop)
    assert isinstance(node.results[0].type, SequenceType)
    assert isinstance(node.results[0].type.elem, TensorType)
    assert isinstance(node.operands[0].type.elem, NoType)
    out = cpu_eval_graph(graph, {"m": integer(3), "x": X[1]})
    assert out["y"].tolist() == [3, 3, 4, 3, 4, 5]
    assert out["count"] == 3


def repeated(count: int, go: str) -> str:
    """Return the model with a known number of iterations, and another condition to go on."""
    known = f"n = Size(x) m = Constant <value = int64 {{{count}}}> () true = "
    text = PREFIXES.replace("int64 m, ", "").replace("Identity(c)", go)
    return text.replace("true = ", known, 1)


@pytest.mark.parametrize("go", ["Identity(c)", "Identity(true)"])
def test_a_list_is_known_where_the_number_of_iterations_is(go: str) -> None:
    # a script cuts a tensor at constant positions so
    graph = load(repeated(2, go))
    assert not nodes_of(graph, Loop)
    assert not nodes_of(optimize_graph(graph), HostCall)
    assert str(graph.outputs["y"].type) == "float32[-max(2, n)+n+3]"  # 1 + min(2, n)
    same_as_onnxruntime(repeated(2, go), {"x": X[1]})


def test_a_list_that_may_end_early_is_filled_in_a_loop() -> None:
    assert nodes_of(load(repeated(5, "Less(i, n)")), Loop)
    same_as_onnxruntime(repeated(5, "Less(i, n)"), {"x": X[1]})


def test_loops_nest_and_capture() -> None:
    same_as_onnxruntime(
        """
        g (float[3] x, float[3] w) => (float[3] y, float[k, 3] rows) {
            true = Constant <value = bool {1}> ()
            m = Constant <value = int64 {2}> ()
            u = Mul(x, w)
            y, rows = Loop (m, true, x) <
                body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t, float[3] r) {
                    d = Identity(c)
                    n = Add(i, m)
                    t = Loop (n, c, s) <
                        body = b2 (int64 j, bool e, float[3] s2) => (bool f, float[3] t2) {
                            f = Identity(e)
                            v = Add(s2, u)
                            k = Cast <to = 1> (i)
                            t2 = Add(v, k)
                        }
                    >
                    r = Sub(t, w)
                }
            >
        }""",
        {"x": X[0], "w": X[1]},
    )


@pytest.mark.parametrize("shape", ["int64[1] i, bool[1] c", "int64 i, bool c"])
def test_iteration_numbers_declared_with_one_axis(shape: str) -> None:
    text = """
        g (int64 m) => (int64[k] y) {
            true = Constant <value = bool {1}> ()
            rows = Loop (m, true) <
                body = b (SHAPE) => (bool d, int64 r) { d = Identity(c)  r = Identity(i) }
            >
            minus = Constant <value = int64[1] {-1}> ()
            y = Reshape(rows, minus)
        }""".replace("SHAPE", shape)
    assert cpu_eval_graph(load(text), {"m": integer(3)})["y"].tolist() == [0, 1, 2]


def test_rows_of_different_shapes_are_an_error_at_run_time() -> None:
    text = """
        g (int64 m, float[n] x) => (float[k, p] rows) {
            true = Constant <value = bool {1}> ()
            rows = Loop (m, true) <
                body = b (int64 i, bool c) => (bool d, float[p] r) {
                    d = Identity(c)
                    zero = Constant <value = int64[1] {0}> ()
                    end = Unsqueeze(i, zero)
                    r = Slice(x, zero, end)
                }
            >
        }"""
    graph = load(text)
    with pytest.raises(ExecutionError, match=r"rows of iterations 0 and 1 differ: \[0\] and \[1\]"):
        cpu_eval_graph(graph, {"m": integer(2), "x": X[0]})
    assert cpu_eval_graph(graph, {"m": integer(0), "x": X[0]})["rows"].shape == (0, 0)


def test_a_condition_on_a_size_is_known_inside_of_a_loop() -> None:
    text = """
        g (int64 m, float[n] x) => (float[p] y) {
            true = Constant <value = bool {1}> ()
            size = Size(x)
            one = Constant <value = int64 {1}> ()
            single = Equal(size, one)
            y = Loop (m, true, x) <
                body = b (int64 i, bool c, float[p] s) => (bool d, float[p] t) {
                    d = Identity(c)
                    t = If (single) <
                        then_branch = a () => (float[p] u) { u = Neg(s) },
                        else_branch = e () => (float[p] u) { u = Exp(s) }
                    >
                }
            >
        }"""
    graph = load(text)
    (node,) = nodes_of(graph, Loop)
    assert not nodes_of(node.op.body, If)
    assert str(graph.outputs["y"].type) == "float32[n]"


def test_the_loop_of_a_graph_that_is_specialized_and_printed() -> None:
    graph = load(GROW)
    small = graph.specialize({"n": 2})
    small.verify()
    feeds = {"m": integer(2), "x": X[:, :2], "z": X[:, 1:]}
    for name, y in cpu_eval_graph(graph, feeds).items():
        np.testing.assert_array_equal(cpu_eval_graph(small, feeds)[name], y)
    assert "body=b" in str(graph)
    assert "concat" in str(graph).lower()


# ---- Scan ---------------------------------------------------------------------------------------

SCAN = """
g (float[2] h, float[A] x, float[B] z) => (float[2] y, float[C] p, float[D] q) {
    y, p, q = Scan <num_scan_inputs = 2, ATTRIBUTES
        body = b (float[2] s, float[2] e, float[3] f) => (float[2] t, float[2] u, float[3] v) {
            t = Add(s, e)  u = Mul(t, h)  v = Neg(f)
        }
    > (h, x, z)
}"""


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("reverse", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (-1, 1)])
def test_scan(steps: int, reverse: tuple[int, int], axes: tuple[int, int]) -> None:
    attributes = "".join(
        f"{name} = {list(v)}, "
        for name, v in (
            ("scan_input_axes", axes), ("scan_output_axes", axes),
            ("scan_input_directions", reverse), ("scan_output_directions", reverse[::-1]),
        )
    )  # fmt: skip
    x = np.arange(2 * steps, dtype=np.float32).reshape(steps, 2)
    z = np.arange(3 * steps, dtype=np.float32).reshape(steps, 3)
    x, z = (a.T.copy() if axis else a for a, axis in zip((x, z), axes, strict=True))
    text = SCAN.replace("ATTRIBUTES", attributes)
    for name, a in zip("ABCD", (x, z, x, z), strict=True):
        text = text.replace(f"float[{name}]", f"float[{a.shape[0]}, {a.shape[1]}]")
    same_as_onnxruntime(text, {"h": np.array([1, 2], np.float32), "x": x, "z": z}, opset=11)


def scan_shapes(a: str, b: str) -> str:
    text = SCAN.replace("ATTRIBUTES", "").replace("float[A]", f"float[{a}]")
    return text.replace("float[B]", f"float[{b}]").replace("[C]", "[n, 2]").replace("[D]", "[n, 3]")


def test_scan_knows_sizes_and_takes_nothing() -> None:
    graph = load(scan_shapes("n, 2", "n, 3"))
    assert [str(v.type) for v in graph.outputs.values()] == [
        "float32[2]", "float32[n, 2]", "float32[n, 3]",
    ]  # fmt: skip
    graph = load(scan_shapes("0, 2", "0, 3"))
    feeds = {"h": X[0, :2], "x": X[:0, :2], "z": X[:0]}
    out = cpu_eval_graph(graph, feeds)
    np.testing.assert_array_equal(out["y"], X[0, :2])
    assert (out["p"].shape, out["q"].shape) == ((0, 2), (0, 3))


def test_scanned_tensors_have_equal_lengths() -> None:
    with pytest.raises(ShapeError, match="scanned tensors 0 and 1 have equal lengths"):
        load(scan_shapes("3, 2", "4, 3"))
    with pytest.raises(MalformedModelError, match="must have 2 elements of 0 or 1"):
        load(SCAN.replace("ATTRIBUTES", "scan_input_directions = [1],"))


SCAN_8 = """
g (LENGTHS float[2, 3] h, float[2, 4, 3] x) => (float[2, 3] y, float[2, 4, 3] p) {
    y, p = Scan <num_scan_inputs = 1, ATTRIBUTES
        body = b (float[3] s, float[3] e) => (float[3] t, float[3] u) { t = Add(s, e)  u = Neg(t) }
    > (FIRST, h, x)
}"""


@pytest.mark.parametrize("attributes", ["", "directions = [1],"])
def test_scan_of_batches(attributes: str) -> None:
    text = SCAN_8.replace("LENGTHS", "").replace("FIRST", '""').replace("ATTRIBUTES", attributes)
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    same_as_onnxruntime(text, {"h": X, "x": x}, opset=8)


def test_scan_of_batches_of_different_lengths() -> None:
    text = SCAN_8.replace("LENGTHS", "int64[2] n,").replace("FIRST", "n")
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    feeds = {"n": np.array([4, 2]), "h": X, "x": x}
    y, p = same_as_onnxruntime(text.replace("ATTRIBUTES", ""), feeds, opset=8)
    np.testing.assert_array_equal(y[1], X[1] + x[1, :2].sum(0))
    assert not p[1, 2:].any()
    graph = load(text.replace("ATTRIBUTES", ""), 8)
    with pytest.raises(ExecutionError, match="the length is 5, expected 0 to 4"):
        cpu_eval_graph(graph, {**feeds, "n": np.array([5, 2])})
    with pytest.raises(UnsupportedModelError, match="reverse direction together with"):
        load(text.replace("ATTRIBUTES", "directions = [1],"), 8)


def test_scan_captures_values_through_the_batch() -> None:
    text = SCAN_8.replace("LENGTHS", "float[3] w,").replace("FIRST", '""')
    text = text.replace("ATTRIBUTES", "").replace("u = Neg(t)", "k = Mul(t, w) u = Add(k, w)")
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    out = cpu_eval_graph(load(text, 8), {"w": X[1], "h": X, "x": x})
    expected = X[:, None] + np.cumsum(x, axis=1)
    np.testing.assert_allclose(out["p"], expected * X[1] + X[1])
