"""RNN, GRU and LSTM: formulas, options, onnxruntime, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_graph.errors import (
    DTypeError,
    ExecutionError,
    GraphError,
    KnError,
    MalformedModelError,
    ShapeError,
)
from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.reference import cpu_eval_graph
from tests.ops.single_node import (
    assert_like_onnxruntime,
    assert_same,
    node_model,
    run_here,
    run_onnxruntime,
)

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STATES = {"RNN": ("y", "y_h"), "GRU": ("y", "y_h"), "LSTM": ("y", "y_h", "y_c")}
DIRECTIONS = ("forward", "reverse", "bidirectional")
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


def operands(
    op: str,
    *optional: str,
    directions: int = 1,
    steps: int = 5,
    batch: int = 3,
    features: int = 4,
    hidden: int = 2,
    dtype: Any = np.float32,
    seed: int = 0,
) -> dict[str, Any]:
    """Return random inputs of a node in the operator's order; those not asked for are None."""
    rng = np.random.default_rng(seed)
    d, rows = directions, GATES[op] * hidden
    shapes = {
        "x": (steps, batch, features),
        "w": (d, rows, features),
        "r": (d, rows, hidden),
        "b": (d, 2 * rows),
        "lengths": (batch,),
        "h": (d, batch, hidden),
        "c": (d, batch, hidden),
        "p": (d, 3 * hidden),
    }
    arrays: dict[str, Any] = {n: rng.normal(size=s).astype(dtype) for n, s in shapes.items()}
    arrays["lengths"] = np.resize([steps, 1, max(steps - 2, 1)], batch).astype(np.int32)
    names = list(shapes) if op == "LSTM" else list(shapes)[:6]
    return {n: arrays[n] if n in ("x", "w", "r", *optional) else None for n in names}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("optional", [(), ("b", "h", "c"), ("b", "lengths", "h", "c", "p")])
@pytest.mark.parametrize("op", GATES)
def test_directions_and_operands(op: str, optional: tuple[str, ...], direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    inputs = operands(op, *optional, directions=count)
    assert_like_onnxruntime(
        op, inputs, STATES[op], hidden_size=2, direction=direction, **CLOSE
    )  # fmt: skip


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {"clip": 0.3}),
    ("RNN", {"activations": ["Relu"]}),
    ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]}),
    ("RNN", {"activations": ["LeakyRelu"]}),
    ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.25]}),
    ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.5]}),
    ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [2.0]}),
    ("RNN", {"activations": ["HardSigmoid"]}),
    ("RNN", {"activations": ["HardSigmoid"], "activation_beta": [0.1]}),
    ("RNN", {"activations": ["Elu"]}),
    ("RNN", {"activations": ["Softsign"]}),
    ("RNN", {"activations": ["Softplus"]}),
    ("RNN", {"activations": ["Tanh", "Tanh"]}),
    ("GRU", {"clip": 0.3}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"linear_before_reset": 1, "clip": 0.5, "direction": "reverse"}),
    ("GRU", {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.5]}),
    ("GRU", {"activations": ["HardSigmoid", "Softsign"], "activation_alpha": [0.3]}),
    ("LSTM", {"clip": 0.3}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Affine"], "activation_alpha": [0.3, 0.5]}),
]


@pytest.mark.parametrize("every", [False, True], ids=["plain", "every operand"])
@pytest.mark.parametrize(("op", "options"), OPTIONS, ids=str)
def test_options(op: str, options: dict[str, Any], every: bool) -> None:
    optional = ("b", "lengths", "h", "c", "p") if every else ("b",)
    assert_like_onnxruntime(
        op, operands(op, *optional), STATES[op], hidden_size=2, **options, **CLOSE
    )


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [("ThresholdedRelu", 1.0, 0.0), ("Affine", 1.0, 0.0), ("ScaledTanh", 1.0, 1.0)],
)
def test_default_parameters_are_those_of_the_operators(
    name: str, alpha: float, beta: float
) -> None:
    # onnxruntime takes 0 for these
    inputs = operands("RNN")
    plain = node_model("RNN", inputs, activations=[name])
    explicit = node_model(
        "RNN", inputs, activations=[name], activation_alpha=[alpha], activation_beta=[beta]
    )
    assert_same(run_here(plain, inputs), run_here(explicit, inputs))


def test_activations_of_each_direction_take_their_own_parameters() -> None:
    options: dict[str, Any] = {
        "activations": ["Tanh", "Elu"],
        "activation_alpha": [0.5],
        "direction": "bidirectional",
    }
    assert_like_onnxruntime(
        "RNN", operands("RNN", directions=2), STATES["RNN"], hidden_size=2, **options, **CLOSE
    )


def test_gates_and_peepholes_by_hand() -> None:
    inputs = operands("LSTM", "b", "h", "c", "p", steps=1, batch=1)
    (w,), (r,), (b,), (p,) = (inputs[n] for n in "wrbp")
    x, h, c = inputs["x"][0], inputs["h"][0], inputs["c"][0]
    i, o, f, new = np.split(x @ w.T + h @ r.T + b[:8] + b[8:], 4, axis=1)
    p_i, p_o, p_f = np.split(p, 3)
    cell = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * np.tanh(new)
    hidden = sigmoid(o + p_o * cell) * np.tanh(cell)
    got = run_here(node_model("LSTM", inputs, STATES["LSTM"], hidden_size=2), inputs)
    assert_same(got, [hidden[None, None], hidden[None], cell[None]], **CLOSE)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lengths_mask_and_the_reverse_direction_starts_at_the_end(direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    inputs = operands("LSTM", "lengths", "h", "c", directions=count)
    names = STATES["LSTM"]
    model = node_model("LSTM", inputs, names, hidden_size=2, direction=direction)
    y, *last = run_here(model, inputs)
    for row, length in enumerate(inputs["lengths"].tolist()):
        one: dict[str, Any] = {n: v for n, v in inputs.items() if n in ("w", "r")}
        one = {
            "x": inputs["x"][:length, row : row + 1],
            **one,
            "b": None,
            "lengths": None,
            "h": inputs["h"][:, row : row + 1],
            "c": inputs["c"][:, row : row + 1],
        }
        alone = node_model("LSTM", one, names, hidden_size=2, direction=direction)
        y_one, *last_one = run_here(alone, one)
        np.testing.assert_allclose(y[:length, :, row], y_one[:, :, 0], **CLOSE)
        assert not y[length:, :, row].any()
        for a, b in zip(last, last_one, strict=True):
            np.testing.assert_allclose(a[:, row], b[:, 0], **CLOSE)


@pytest.mark.parametrize("op", GATES)
def test_a_length_of_zero_keeps_the_initial_states(op: str) -> None:
    # onnxruntime gives zeros; the ONNX text says nothing
    inputs = operands(op, "lengths", "h", "c")
    inputs["lengths"] = np.array([0, 5, 0], np.int32)
    got = run_here(node_model(op, inputs, STATES[op], hidden_size=2), inputs)
    assert not got[0][:, :, [0, 2]].any()
    for name, state in zip("hc", got[1:], strict=False):
        np.testing.assert_array_equal(state[:, [0, 2]], inputs[name][:, [0, 2]])


@pytest.mark.parametrize("op", GATES)
def test_no_steps_and_no_rows(op: str) -> None:
    inputs = operands(op, "h", "c", steps=0)
    y, *last = run_here(node_model(op, inputs, STATES[op], hidden_size=2), inputs)
    assert y.shape == (0, 1, 3, 2)
    np.testing.assert_array_equal(last[0], inputs["h"])
    inputs = operands(op, "b", "lengths", batch=0)
    y, *last = run_here(node_model(op, inputs, STATES[op], hidden_size=2), inputs)
    assert y.shape == (5, 1, 0, 2)
    assert last[0].shape == (1, 0, 2)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_batch_first_is_a_permutation(op: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    inputs = operands(op, "b", "lengths", "h", "c", directions=count)
    options: dict[str, Any] = {"hidden_size": 2, "direction": direction}
    y, *last = run_here(node_model(op, inputs, STATES[op], **options), inputs)
    for name in ("x", "h", "c"):
        if inputs.get(name) is not None:
            inputs[name] = inputs[name].transpose(1, 0, 2)
    got = run_here(node_model(op, inputs, STATES[op], layout=1, **options), inputs)
    assert_same(got, [y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in last)])


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_float32_rounded_once(op: str, dtype: Any) -> None:
    inputs = operands(op, "b", "h", "c", dtype=dtype)
    wide = {n: None if a is None else a.astype(np.float32) for n, a in inputs.items()}
    expected = run_here(node_model(op, wide, STATES[op], opset=22, hidden_size=2), wide)
    got = run_here(node_model(op, inputs, STATES[op], opset=22, hidden_size=2), inputs)
    assert_same(got, [e.astype(dtype) for e in expected])


@pytest.mark.parametrize("op", GATES)
def test_double_stays_double(op: str) -> None:
    inputs = operands(op, "b", dtype=np.float64)
    narrow = {n: None if a is None else a.astype(np.float32) for n, a in inputs.items()}
    got = run_here(node_model(op, inputs, STATES[op], hidden_size=2), inputs)
    single = run_here(node_model(op, narrow, STATES[op], hidden_size=2), narrow)
    assert got[0].dtype == np.float64
    np.testing.assert_allclose(got[0], single[0], rtol=1e-4, atol=1e-5)
    assert (got[0] != single[0]).any()


@pytest.mark.parametrize("opset", [1, 7, 14, 22])
@pytest.mark.parametrize("op", GATES)
def test_opsets(op: str, opset: int) -> None:
    options: dict[str, Any] = {"output_sequence": 1} if opset < 7 else {}
    inputs = operands(op, "b")
    expected = run_here(node_model(op, inputs, STATES[op], hidden_size=2), inputs)
    model = node_model(op, inputs, STATES[op], opset=opset, hidden_size=2, **options)
    assert_same(run_here(model, inputs), expected)


@pytest.mark.parametrize("wanted", [("", "y_h"), ("y",), ("", "", "y_c")])
def test_outputs_that_nobody_wants(wanted: tuple[str, ...]) -> None:
    assert_like_onnxruntime("LSTM", operands("LSTM", "b"), wanted, hidden_size=2, **CLOSE)


def test_sizes_may_be_symbolic() -> None:
    symbolic = {"x": ("seq", "batch", 4), "lengths": ("batch",)}
    inputs = operands("GRU", "lengths")
    model = node_model("GRU", inputs, STATES["GRU"], symbolic=symbolic, hidden_size=2)
    graph = load_graph_from_onnx_bytes(model)
    assert [str(v.type) for v in graph.outputs.values()] == [
        "float32[seq, 1, batch, 2]",
        "float32[1, batch, 2]",
    ]
    for steps, batch in ((1, 1), (4, 7)):
        inputs = operands("GRU", "lengths", steps=steps, batch=batch)
        assert_same(run_here(model, inputs), run_onnxruntime(model, inputs), **CLOSE)


def test_strided_operands_are_read_right() -> None:
    graph = Graph()
    x = graph.input("x", "float32", (5, 3, 4))
    w, r = graph.input("w", "float32", (1, 2, 4)), graph.input("r", "float32", (1, 2, 2))
    y, _ = graph.recurrent("rnn", x, w, r, direction="reverse")
    graph.output("y", y)
    arrays = {n: a for n, a in operands("RNN").items() if a is not None}
    strided = {n: np.repeat(a, 2, axis=-1)[..., ::2] for n, a in arrays.items()}
    assert_same([cpu_eval_graph(graph, strided)["y"]], [cpu_eval_graph(graph, arrays)["y"]])


def test_nan_spreads_through_its_row_only() -> None:
    inputs = operands("LSTM")
    inputs["x"][2, 1, 0] = np.nan
    y, *_ = run_here(node_model("LSTM", inputs, STATES["LSTM"], hidden_size=2), inputs)
    assert np.isnan(y[2:, :, 1]).all()
    assert np.isfinite(y[:2]).all()
    assert np.isfinite(y[:, :, [0, 2]]).all()


def test_equal_layers_are_one_node() -> None:
    graph = Graph()
    x, w = graph.input("x", "float32", (5, 3, 4)), graph.input("w", "float32", (1, 2, 4))
    r = graph.input("r", "float32", (1, 2, 2))
    assert graph.recurrent("rnn", x, w, r) == graph.recurrent("rnn", x, w, r)


BAD_NODES: list[tuple[str, dict[str, Any], dict[str, Any], type[KnError], str]] = [
    ("LSTM", {}, {"direction": "backward"}, MalformedModelError, "backward"),
    ("LSTM", {}, {"hidden_size": 3}, ShapeError, "hidden_size"),
    ("LSTM", {}, {"activations": ["Tanh"]}, MalformedModelError, "1 activations, expected 3"),
    ("RNN", {}, {"activations": ["Swish"]}, MalformedModelError, "'Swish' is no activation"),
    ("RNN", {}, {"clip": -1.0}, GraphError, "clip"),
    ("RNN", {}, {"layout": 2}, MalformedModelError, "layout"),
    ("GRU", {"b": np.zeros((1, 6), np.float32)}, {}, ShapeError, "bias"),
    ("GRU", {"w": np.zeros((2, 6, 4), np.float32)}, {}, ShapeError, "w"),
    ("GRU", {"h": np.zeros((1, 3, 2))}, {}, DTypeError, "initial_h"),
    ("GRU", {"lengths": np.zeros(3, np.int64)}, {}, DTypeError, "lengths"),
    ("GRU", {"lengths": np.zeros(2, np.int32)}, {}, ShapeError, "lengths"),
    ("LSTM", {"x": np.zeros((5, 4), np.float32)}, {}, ShapeError, "x"),
]


@pytest.mark.parametrize(("op", "changes", "options", "error", "text"), BAD_NODES, ids=str)
def test_bad_nodes_are_refused_by_name(
    op: str, changes: Any, options: Any, error: type[KnError], text: str
) -> None:
    inputs = operands(op) | changes
    with pytest.raises(error, match=text):
        load_graph_from_onnx_bytes(node_model(op, inputs, STATES[op], **options))


@pytest.mark.parametrize("length", [-1, 6])
def test_a_length_outside_of_the_sequence_is_an_error(length: int) -> None:
    inputs = operands("RNN", "lengths")
    inputs["lengths"][1] = length
    with pytest.raises(ExecutionError, match=f"sequence_lens holds {length}"):
        run_here(node_model("RNN", inputs, hidden_size=2), inputs)


def test_only_an_lstm_has_cells() -> None:
    graph = Graph()
    x, w = graph.input("x", "float32", (5, 3, 4)), graph.input("w", "float32", (1, 2, 4))
    r, h = graph.input("r", "float32", (1, 2, 2)), graph.input("h", "float32", (1, 3, 2))
    with pytest.raises(GraphError, match="rnn has no operand initial_c"):
        graph.recurrent("rnn", x, w, r, initial_c=h)
