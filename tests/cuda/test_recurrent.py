"""Recurrent layers on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_graph import Graph
from kn_graph.errors import ExecutionError, UnsupportedOnDeviceError
from kn_graph.ops.recurrent import OPTIONAL_OPERANDS
from tests.cpu.test_recurrent import DIRECTIONS, KINDS, Array, layer, operands
from tests.cuda.run import SEEDS, assert_clean, check_graph, host_backend, launched, needs_compiler

pytestmark = needs_compiler


def run(kind: str, arrays: dict[str, Array], *, ulps: int = 0, **options: Any) -> CudaExecutor:
    """Compare a layer of symbolic sizes with the reference."""
    g = layer(kind, arrays, **options)
    return check_graph(g, [{v.name: arrays[v.name] for v in g.inputs}], ulps=ulps)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_directions_and_operands(kind: str, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    for optional in ((), OPTIONAL_OPERANDS):
        ran = run(kind, operands(kind, optional, directions=count), direction=direction)
        assert ran.proof.kernels == {"gemm": 1, "recurrent_steps": 1}
    assert_clean([k.widened for k in ran.loaded().skeleton.kernels])


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


def test_states_that_are_rounded_together_have_no_kernel() -> None:
    g = layer("lstm", operands("lstm", ("bias",)), quantize_hidden=True)
    with pytest.raises(UnsupportedOnDeviceError, match="rounds the states"):
        CudaExecutor(g, host_backend())
