"""Recurrent layers on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kn_cuda.steps.recurrent as rule
from kn_cuda import CudaExecutor, recurrent_kernel
from kn_graph import Graph
from kn_graph.dim import size_min
from kn_graph.errors import ExecutionError
from kn_graph.ops.recurrent import OPTIONAL_OPERANDS
from tests.cpu.test_recurrent import DIRECTIONS, KINDS, Array, layer, operands
from tests.cuda.run import SEEDS, assert_clean, check_graph, host_backend, launched, needs_compiler

pytestmark = needs_compiler


def run(kind: str, arrays: dict[str, Array], *, ulps: int = 0, **options: Any) -> CudaExecutor:
    """Compare a layer of symbolic sizes with the reference."""
    g = layer(kind, arrays, **options)
    return check_graph(g, [{v.name: arrays[v.name] for v in g.inputs}], ulps=ulps)


CELLS = [("rnn", {}), ("lstm", {}), ("gru", {}), ("gru", {"linear_before_reset": True})]


@pytest.fixture
def in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have layers take some launches a step, however small they are."""
    monkeypatch.setattr(rule, "MOST_WEIGHTS", -1)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_directions_and_operands(kind: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    for optional in ((), OPTIONAL_OPERANDS):
        ran = run(kind, operands(kind, optional, directions=count), direction=direction)
        assert ran.proof.kernels == {"gemm": 1, "recurrent_steps": 1}
    assert_clean([k.widened for k in ran.loaded().skeleton.kernels])


@pytest.mark.usefixtures("in_rounds")
@pytest.mark.parametrize("kind", KINDS)
def test_directions_and_operands_in_rounds(kind: str) -> None:
    run(kind, operands(kind, ()), direction="reverse")
    ran = run(kind, operands(kind, directions=2), direction="bidirectional")
    assert launched(ran, "recurrent_cell") == 5
    assert launched(ran, "recurrent_steps") == 0
    assert_clean([k.widened for k in ran.loaded().skeleton.kernels])


@pytest.mark.usefixtures("in_rounds")
def test_one_block_computes_all_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_kernel, "blocks_for", lambda count, threads: size_min(count, 1))
    run("gru", operands("gru", hidden=33, batch=9, directions=2), direction="bidirectional")


@pytest.mark.usefixtures("in_rounds")
@pytest.mark.parametrize("kind", KINDS)
def test_other_types_and_sizes_in_rounds(kind: str) -> None:
    arrays = operands(kind, hidden=18, batch=5, directions=2)
    late = {"linear_before_reset": True} if kind == "gru" else {}
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        other = {n: x if n == "lengths" else x.astype(dtype) for n, x in arrays.items()}
        run(kind, other, ulps=1, direction="bidirectional", **late)
    for steps, batch in ((0, 2), (1, 1), (3, 0)):
        arrays = operands(kind, ("initial_h", "bias"), steps=steps, batch=batch, hidden=33)
        run(kind, arrays, direction="reverse")


@pytest.mark.usefixtures("in_rounds")
@pytest.mark.parametrize("kind", KINDS)
def test_special_values_stay_in_their_row_in_rounds(kind: str) -> None:
    arrays = operands(kind, ("bias", "lengths"), batch=4)
    arrays["x"][1, 1, 2] = np.nan
    arrays["x"][2, 2, 0] = np.inf
    run(kind, arrays)


@pytest.mark.parametrize(
    ("kind", "hidden", "launches"), [("lstm", 182, 2 * 3), ("gru", 250, 4 * 3), ("rnn", 363, 2 * 3)]
)
def test_large_layers_take_some_launches_a_step(kind: str, hidden: int, launches: int) -> None:
    ran = run(kind, operands(kind, steps=3, batch=2, hidden=hidden))
    around = ran.proof.total - launches
    assert 3 <= around <= 5  # the product of the inputs; states that begin and end
    assert launched(ran, "recurrent_steps") == 0


@pytest.mark.parametrize(("kind", "hidden"), [("rnn", 1), ("gru", 33), ("gru", 64), ("lstm", 100)])
def test_hidden_sizes(kind: str, hidden: int) -> None:
    arrays = operands(kind, hidden=hidden, batch=2, directions=2)
    run(kind, arrays, direction="bidirectional", linear_before_reset=hidden == 64)


@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (1, 1), (3, 0), (20, 1), (2, 9)])
def test_steps_and_batches(steps: int, batch: int) -> None:
    run("lstm", operands("lstm", steps=steps, batch=batch, directions=2), direction="bidirectional")


def test_no_features_and_no_hidden_units() -> None:
    run("lstm", operands("lstm", features=0))
    ran = run("gru", operands("gru", ("bias",), hidden=0))
    assert ran.proof.total == 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("rnn", {"clip": 0.3}),
        ("gru", {"clip": 0.3, "linear_before_reset": True}),
        ("lstm", {"clip": 0.3, "input_forget": True}),
        ("lstm", {"activations": [["hard_sigmoid", "relu", "softsign"]]}),
        ("gru", {"activations": [["sigmoid", ("leaky_relu", (("alpha", 0.2),))]]}),
    ],
)
def test_options(kind: str, options: dict[str, Any]) -> None:
    run(kind, operands(kind), **options)


def test_directions_may_have_their_own_activations() -> None:
    arrays = operands("rnn", directions=2)
    run("rnn", arrays, direction="bidirectional", activations=[["tanh"], ["relu"]])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_types(dtype: Any) -> None:
    arrays = operands("lstm", hidden=18, directions=2)
    other = {n: x if n == "lengths" else x.astype(dtype) for n, x in arrays.items()}
    run("lstm", other, ulps=1, direction="bidirectional")


def test_weights_that_are_computed_and_operands_in_another_order() -> None:
    arrays = operands("lstm", hidden=18, batch=5, directions=2)
    turned = {n: np.ascontiguousarray(x.T) for n, x in arrays.items()}
    g = Graph("turned")
    values: dict[str, Any] = {}
    for name, x in turned.items():
        v = g.input(name, str(x.dtype), x.shape)
        values[name] = g.permute(v, tuple(reversed(range(x.ndim))))
    results = g.recurrent("lstm", **values, direction="bidirectional")
    for name, v in zip(("y", "y_h", "y_c"), results, strict=True):
        g.output(name, g.permute(v, tuple(reversed(range(v.rank)))))
    check_graph(g, [turned])


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_stay_in_their_row(kind: str) -> None:
    arrays = operands(kind, ("bias", "initial_h", "initial_c"), batch=4)
    arrays["x"][1, 1, 2] = np.nan
    arrays["x"][2, 2, 0] = np.inf
    ran = run(kind, arrays)
    assert launched(ran, "recurrent_steps") == 1


@pytest.mark.parametrize("length", [-1, 6])
def test_a_length_that_no_sequence_has_is_an_error(length: int) -> None:
    arrays = operands("gru", ("lengths",))
    g = layer("gru", arrays)
    good = {v.name: arrays[v.name] for v in g.inputs}
    bad = {**good, "lengths": np.array([2, length, 0], np.int32)}
    for seed in SEEDS:
        ran = CudaExecutor(g, host_backend(seed))
        with pytest.raises(ExecutionError, match=f"sequence_lens holds {length}; .* 5 steps"):
            ran.eval(bad)
        ran.eval(good)


@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_states_that_are_rounded_together(kind: str, options: dict[str, Any]) -> None:
    for optional, directions, direction in (
        ((), 1, "reverse"),
        (OPTIONAL_OPERANDS, 2, "bidirectional"),
    ):
        arrays = operands(kind, optional, directions=directions, batch=4, hidden=19)
        run(kind, arrays, direction=direction, quantize_hidden=True, **options)


@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_states_of_one_sequence_are_rounded_in_one_launch(
    kind: str, options: dict[str, Any]
) -> None:
    arrays = operands(kind, directions=2, batch=1, hidden=33)
    arrays["lengths"][:] = 4
    ran = run(kind, arrays, direction="bidirectional", quantize_hidden=True, **options)
    assert ran.proof.kernels == {"gemm": 1, "recurrent_steps": 1}


def test_many_states_are_rounded_together() -> None:
    run("lstm", operands("lstm", batch=40, hidden=33, seed=1), quantize_hidden=True)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spreads_where_states_are_rounded_together(special: float) -> None:
    arrays = operands("lstm", ("lengths", "initial_h"), batch=4)
    arrays["lengths"] = np.array([5, 1, 0, 3], np.int32)
    arrays["initial_h"][0, 1, 2] = special
    arrays["x"][3, 3] = special  # behind the end of its sequence: nobody reads it
    run("lstm", arrays, quantize_hidden=True)


def test_sequences_that_have_ended_do_not_widen_the_range() -> None:
    arrays = operands("rnn", ("lengths", "initial_h"), batch=3)
    arrays["lengths"] = np.array([5, 0, 2], np.int32)
    arrays["initial_h"][0, 1] = 1000  # counts in the first step only
    run("rnn", arrays, quantize_hidden=True, activations=[["relu"]])


@pytest.mark.parametrize("length", [-1, 6])
def test_a_length_that_no_sequence_has_is_an_error_in_rounds(length: int) -> None:
    arrays = operands("lstm", ("lengths",))
    g = layer("lstm", arrays, quantize_hidden=True)
    bad = {v.name: arrays[v.name] for v in g.inputs}
    bad["lengths"] = np.array([2, length, 0], np.int32)
    with pytest.raises(ExecutionError, match=f"sequence_lens holds {length}; .* 5 steps"):
        CudaExecutor(g, host_backend()).eval(bad)
