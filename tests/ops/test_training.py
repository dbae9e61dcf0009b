"""One step of an optimizer of weights, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph.errors import MalformedModelError
from tests.ops.single_node import assert_same, node_model, run_here

DOMAIN = "ai.onnx.preview.training"
F32 = np.float32


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(F32)


def step(operator: str, t: int, groups: int, results: int, **options: Any) -> tuple[Any, Any]:
    """Return the tensors given (groups of two) and the results."""
    shapes = ((2, 3), (4,))
    tensors = [np.abs(random(*s, seed=i)) for i in range(groups) for s in shapes]
    inputs = {"r": F32(0.1), "t": np.int64(t)} | {f"i{n}": v for n, v in enumerate(tensors)}
    names = [f"o{n}" for n in range(2 * results)]
    model = node_model(operator, inputs, names, domain=DOMAIN, **options)
    got = run_here(model, inputs)
    return [tensors[i::2] for i in (0, 1)], [got[i::2] for i in (0, 1)]


@pytest.mark.parametrize("t", [0, 3])
@pytest.mark.parametrize("norm", [0.0, 0.01])
def test_adagrad(norm: float, t: int) -> None:
    options = {"norm_coefficient": norm, "decay_factor": 0.5, "epsilon": 1e-4}
    for (x, gradient, squares), got in zip(*step("Adagrad", t, 3, 2, **options), strict=True):
        full = norm * x + gradient
        total = squares + full * full
        moved = x - 0.1 / (1 + t * 0.5) * full / (np.sqrt(total) + 1e-4)
        assert_same(got, [moved.astype(F32), total.astype(F32)], rtol=1e-5)


@pytest.mark.parametrize("t", [0, 1, 7])
@pytest.mark.parametrize("post", [0.0, 0.1])
def test_adam(post: float, t: int) -> None:
    options = {"norm_coefficient": 0.01, "norm_coefficient_post": post, "epsilon": 1e-4}
    for given, got in zip(*step("Adam", t, 4, 3, **options), strict=True):
        x, gradient, mean, squares = (v.astype(np.float64) for v in given)
        full = 0.01 * x + gradient
        mean = 0.9 * mean + 0.1 * full
        squares = 0.999 * squares + 0.001 * full * full
        rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) if t else 0.1
        moved = (1 - post) * (x - rate * mean / (np.sqrt(squares) + 1e-4))
        assert_same(got, [v.astype(F32) for v in (moved, mean, squares)], rtol=1e-4)


@pytest.mark.parametrize("t", [0, 2])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(mode: str, t: int) -> None:
    options = {"norm_coefficient": 0.01, "alpha": 0.9, "beta": 0.5, "mode": mode}
    for (x, gradient, state), got in zip(*step("Momentum", t, 3, 2, **options), strict=True):
        full = 0.01 * x + gradient
        state = 0.9 * state + (0.5 if t else 1.0) * full
        moved = x - 0.1 * (full + 0.9 * state if mode == "nesterov" else state)
        assert_same(got, [moved.astype(F32), state.astype(F32)], rtol=1e-5)


def test_a_wrong_number_of_tensors_is_refused() -> None:
    inputs = {"r": F32(0.1), "t": np.int64(0), "x": random(3), "g": random(3)}
    with pytest.raises(MalformedModelError, match="a multiple of 3"):
        run_here(node_model("Adagrad", inputs, domain=DOMAIN), inputs)
