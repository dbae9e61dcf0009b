"""Recurrent layers against the NumPy reference, with the products of their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_graph import Graph, cpu_eval_graph
from kn_graph.compare.step import step_band
from kn_graph.compare.verdict import compare_outputs
from kn_graph.errors import ExecutionError
from kn_graph.ops.recurrent import CELLS, OPTIONAL_OPERANDS, Recurrent

Array = np.ndarray[Any, Any]

KERNELS = library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

DIRECTIONS = ("forward", "reverse", "bidirectional")
KINDS = ("rnn", "gru", "lstm")
EVERY = OPTIONAL_OPERANDS


def operands(
    kind: str,
    optional: tuple[str, ...] = EVERY,
    *,
    directions: int = 1,
    steps: int = 5,
    batch: int = 3,
    features: int = 4,
    hidden: int = 7,
    seed: int = 0,
) -> dict[str, Array]:
    """Return random operands by name; weights are small enough for states to stay apart."""
    rng = np.random.default_rng(seed)
    rows = CELLS[kind].gates * hidden  # type: ignore[index]
    shapes = {
        "x": (steps, batch, features),
        "w": (directions, rows, features),
        "r": (directions, rows, hidden),
        "bias": (directions, 2 * rows),
        "initial_h": (directions, batch, hidden),
        "initial_c": (directions, batch, hidden),
        "peepholes": (directions, 3 * hidden),
    }
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    arrays["r"] /= max(1, hidden) ** 0.5
    arrays["lengths"] = rng.integers(0, steps + 1, batch).astype(np.int32)
    lstm = ("initial_c", "peepholes")
    names = [n for n in optional if kind == "lstm" or n not in lstm]
    return {n: arrays[n] for n in ("x", "w", "r", *names)}


def layer(
    kind: Any,
    arrays: Mapping[str, Array],
    *,
    constant: tuple[str, ...] = ("w", "r"),
    **options: Any,
) -> Graph:
    """Return a graph of one layer; batch and steps are symbolic."""
    g = Graph("layer")
    axes: dict[str, Sequence[Any]] = {
        "x": ["s", "b", "i"],
        "lengths": ["b"],
        "initial_h": [None, "b", None],
        "initial_c": [None, "b", None],
    }
    values: dict[str, Any] = {}
    for name, x in arrays.items():
        named = zip(axes.get(name) or x.shape, x.shape, strict=True)
        shape = [symbol if symbol and size else size for symbol, size in named]
        values[name] = g.constant(x) if name in constant else g.input(name, str(x.dtype), shape)
    results = g.recurrent(
        kind, values.pop("x"), values.pop("w"), values.pop("r"), **values, **options
    )
    for name, v in zip(("y", "y_h", "y_c"), results, strict=False):
        g.output(name, v)
    return g


def check(kind: Any, arrays: Mapping[str, Array], **options: Any) -> None:
    """Require the step band around the reference, and the same bits from one thread and two."""
    assert KERNELS is not None
    graph = layer(kind, arrays, **options)
    feeds = {v.name: arrays[v.name] for v in graph.inputs}
    one, two = (CpuExecutor(graph, KERNELS, n) for n in (1, 2))
    assert [h.reason for h in one.skeleton().host_steps] == []
    got, again, want = one.eval(feeds), two.eval(feeds), cpu_eval_graph(graph, feeds)
    for name, x in got.items():
        np.testing.assert_array_equal(x, again[name], err_msg=name)
    (op,) = (n.op for n in graph.nodes if isinstance(n.op, Recurrent))
    band = step_band(op, list(arrays.values()), tuple(want.values()))
    outputs = {f"out{i}": x for i, x in enumerate(got.values())}
    report = compare_outputs(outputs, band)
    assert report.ok, f"{op}\n{report.describe()}"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("optional", [(), ("bias", "initial_h", "initial_c"), EVERY], ids=len)
@pytest.mark.parametrize("kind", KINDS)
def test_directions_and_operands(kind: str, optional: tuple[str, ...], direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    check(kind, operands(kind, optional, directions=count), direction=direction)


@pytest.mark.parametrize("hidden", [1, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_sizes(kind: str, hidden: int) -> None:
    for late in {False, kind == "gru"}:
        for batch in (1, 2):
            arrays = operands(kind, hidden=hidden, batch=batch, directions=2)
            check(kind, arrays, direction="bidirectional", linear_before_reset=late)


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 4, 5, 6, 7, 11, 13, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_batches(kind: str, batch: int) -> None:
    arrays = operands(kind, hidden=33, batch=batch, steps=4)
    check(kind, arrays, linear_before_reset=kind == "gru", direction="reverse")
    del arrays["lengths"]
    check(kind, arrays)


@pytest.mark.parametrize("steps", [0, 1, 2, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind: str, steps: int) -> None:
    check(kind, operands(kind, steps=steps, hidden=17, directions=2), direction="bidirectional")


def test_no_features_and_no_hidden_units() -> None:
    check("lstm", operands("lstm", features=0))
    check("gru", operands("gru", ("bias",), hidden=0))


def test_many_units_of_work() -> None:
    check("lstm", operands("lstm", steps=9, batch=40, hidden=72))
    arrays = operands("gru", steps=30, batch=3, hidden=72, directions=2)
    check("gru", arrays, direction="bidirectional", linear_before_reset=True)


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("rnn", {"clip": 0.3}),
    ("rnn", {"clip": 0.0}),
    ("gru", {"clip": 0.3}),
    ("gru", {"clip": 0.3, "linear_before_reset": True}),
    ("lstm", {"clip": 0.3}),
    ("lstm", {"clip": 0.3, "input_forget": True}),
    ("lstm", {"input_forget": True, "activations": [["sigmoid", "relu", "tanh"]]}),
    ("lstm", {"quantize_hidden": True}),
    ("rnn", {"quantize_hidden": True}),
    ("gru", {"quantize_hidden": True, "linear_before_reset": True}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=str)
@pytest.mark.parametrize("optional", [("bias",), EVERY], ids=len)
def test_options(kind: str, options: dict[str, Any], optional: tuple[str, ...]) -> None:
    check(kind, operands(kind, optional), **options)


ACTIVATIONS: list[Any] = [
    *("sigmoid", "tanh", "relu", "softsign", "softplus", "gelu", "sin"),
    ("affine", (("alpha", 0.5), ("beta", 0.25))),
    ("elu", (("alpha", 0.7),)),
    ("hard_sigmoid", ()),
    ("hard_sigmoid", (("alpha", 0.3), ("beta", 0.4))),
    ("leaky_relu", (("alpha", 0.2),)),
    ("scaled_tanh", (("alpha", 0.7), ("beta", 1.2))),
    ("thresholded_relu", (("alpha", 0.1),)),
]


@pytest.mark.parametrize("f", ACTIVATIONS, ids=str)
def test_activations(f: Any) -> None:
    check("rnn", operands("rnn", hidden=19), activations=[[f]])
    others = [["sigmoid", f, "tanh"], [f, "tanh", f]]
    arrays = operands("lstm", hidden=19, directions=2, steps=2)  # more of them may grow for ever
    check("lstm", arrays, direction="bidirectional", activations=others)
    for late in (False, True):
        for functions in (["sigmoid", f], [f, "tanh"]):
            arrays = operands("gru", hidden=19, steps=2)
            check("gru", arrays, activations=[functions], linear_before_reset=late)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_computed(kind: str) -> None:
    for late in {False, kind == "gru"}:
        arrays = operands(kind, hidden=18, directions=2)
        options = {"direction": "bidirectional", "linear_before_reset": late}
        check(kind, arrays, constant=(), **options)
        check(kind, arrays, constant=("w", "r", "bias", "peepholes", "initial_h"), **options)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_floats(kind: str, dtype: Any) -> None:
    arrays = operands(kind, hidden=18, directions=2)
    narrow = {n: x if n == "lengths" else x.astype(dtype) for n, x in arrays.items()}
    for constant in ((), ("w", "r", "bias", "peepholes")):
        check(kind, narrow, constant=constant, direction="bidirectional")


def test_operands_and_results_in_another_order() -> None:
    assert KERNELS is not None
    arrays = operands("lstm", hidden=18, batch=5, directions=2)
    turned = {n: np.ascontiguousarray(x.T) for n, x in arrays.items()}
    g = Graph("turned")
    values: dict[str, Any] = {}
    for name, x in turned.items():
        v = g.constant(x) if name in ("w", "r") else g.input(name, str(x.dtype), list(x.shape))
        values[name] = g.permute(v, tuple(reversed(range(x.ndim))))
    results = g.recurrent("lstm", **values, direction="bidirectional")
    for name, v in zip(("y", "y_h", "y_c"), results, strict=True):
        g.output(name, g.permute(v, tuple(reversed(range(v.rank)))))
    feeds = {v.name: turned[v.name] for v in g.inputs}
    run = CpuExecutor(g, KERNELS, 2)
    assert "lstm" not in {h.step.kind for h in run.skeleton().host_steps}
    for name, x in cpu_eval_graph(g, feeds).items():
        np.testing.assert_allclose(run.eval(feeds)[name], x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("flipped", [False, True])
def test_orders_of_steps_and_rows(flipped: bool, batch_first: bool) -> None:
    assert KERNELS is not None
    rng = np.random.default_rng(0)
    g = Graph("orders")
    x = g.input("x", "float32", ["b", "s", 5] if batch_first else ["s", "b", 5])
    x = g.permute(x, (1, 0, 2)) if batch_first else x
    x = g.flip(x, 0) if flipped else x
    w, r = (rng.standard_normal((2, 24, n)).astype(np.float32) for n in (5, 6))
    for name, v in zip(
        ("y", "y_h", "y_c"),
        g.recurrent("lstm", x, g.constant(w), g.constant(r), direction="bidirectional"),
        strict=True,
    ):
        g.output(name, v)
    run = CpuExecutor(g, KERNELS, 2)
    assert not run.skeleton().host_steps
    for shape in ((1, 1, 5), (1, 7, 5), (7, 1, 5), (6, 5, 5)):
        feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
        for name, want in cpu_eval_graph(g, feeds).items():
            np.testing.assert_allclose(run.eval(feeds)[name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_stay_in_their_row(kind: str) -> None:
    arrays = operands(kind, ("bias", "initial_h", "initial_c", "peepholes"), batch=6, hidden=21)
    arrays["x"][1, 1, 2] = np.nan
    arrays["x"][2, 2, 0] = np.inf
    arrays["x"][0, 3] = -1e30
    arrays["initial_h"][0, 4, 20] = np.nan
    arrays["initial_h"][0, 5, 3] = np.inf
    for late in {False, kind == "gru"}:
        check(kind, arrays, linear_before_reset=late)
        check(kind, arrays, linear_before_reset=late, clip=2.0)


def test_a_length_out_of_range_is_an_error() -> None:
    assert KERNELS is not None
    arrays = operands("lstm", directions=2)
    graph = layer("lstm", arrays, direction="bidirectional")
    feeds = {v.name: arrays[v.name] for v in graph.inputs}
    run = CpuExecutor(graph, KERNELS, 2)
    for lengths in ([1, 6, 9], [5, -1, 2]):
        feeds["lengths"] = np.array(lengths, np.int32)
        with pytest.raises(ExecutionError) as want:
            cpu_eval_graph(graph, feeds)
        with pytest.raises(ExecutionError) as got:
            run.eval(feeds)
        assert str(got.value) == str(want.value)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_layer(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    direction = data.draw(st.sampled_from(DIRECTIONS))
    sizes = {
        name: data.draw(st.integers(1, most), name)
        for name, most in (("steps", 6), ("batch", 9), ("features", 5), ("hidden", 40))
    }
    optional = tuple(n for n in EVERY if data.draw(st.booleans(), n))
    directions = 2 if direction == "bidirectional" else 1
    arrays = operands(kind, optional, directions=directions, **sizes)
    options: dict[str, Any] = {"linear_before_reset": kind == "gru" and data.draw(st.booleans())}
    options["input_forget"] = kind == "lstm" and data.draw(st.booleans())
    options["clip"] = data.draw(st.sampled_from([None, 0.5]))
    check(kind, arrays, direction=direction, **options)
