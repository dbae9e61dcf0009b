"""Normalisation against the NumPy reference."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from kn_cpu.norm import norm_call
from kn_graph.compare.step import step_band
from kn_graph.ops.norm import Norm
from tests.cpu.check import Array, check, normal, reference, stored
from tests.cpu.rows import Bound, layout_of, run

SHAPES = [
    ((1, 1), (1,)), ((3, 7), (1,)), ((5, 768), (1,)), ((2, 3, 65), (2,)), ((2, 3, 4099), (2,)),
    ((2, 5, 6, 7), (2, 3)), ((2, 35, 9, 9), (2, 3)), ((2, 4, 3, 5, 6), (2, 3, 4)), ((3, 4), (0,)),
    ((3, 4), ()), ((2, 70000), (1,)), ((4, 3, 5), (0, 2)), ((0, 3), (1,)), ((3, 0), (1,)),
]  # fmt: skip


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_norm_of_contiguous_tensors(
    shape: tuple[int, ...], axes: tuple[int, ...], center: bool
) -> None:
    op = Norm(axes, 1e-5, center)
    x = normal(shape) * 3 + 5
    out = np.zeros_like(x)
    check(op, norm_call(op, layout_of(out), layout_of(x)), out, x, operands=[x])


@pytest.mark.parametrize("axes", [(3,), (1,), (2, 3), (1, 2), (0, 3), (1, 2, 3)])
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_norm_of_any_strides(order: tuple[int, ...], axes: tuple[int, ...]) -> None:
    op = Norm(axes, 1e-3)
    x = normal((2, 19, 5, 18)) - 1
    view = stored(x, order, gap=order[0] % 2)
    for out in (stored(np.zeros_like(x), order), stored(np.zeros_like(x))):
        check(op, norm_call(op, layout_of(out), layout_of(view)), out, view, operands=[x])


def affine(x: Array, kind: str) -> tuple[Array, Array, Array]:
    """Return scale, bias and residual in x's shape, repeated as the usual normalisations do."""
    shape = {"layer": x.shape[-1:], "channel": (x.shape[1], 1, 1), "full": x.shape}[kind]
    scale, bias = normal(shape, 1), normal(shape, 2)
    return np.broadcast_to(scale, x.shape), np.broadcast_to(bias, x.shape), normal(x.shape, 3)


@pytest.mark.parametrize("kind", ["layer", "channel", "full"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)])
@pytest.mark.parametrize("axes", [(3,), (2, 3), (1,), (1, 2, 3)])
def test_scale_bias_and_residual(axes: tuple[int, ...], order: tuple[int, ...], kind: str) -> None:
    op = Norm(axes, 1e-5)
    x = stored(normal((2, 21, 6, 17)), order)
    scale, bias, residual = affine(x, kind)
    plain = reference(op, x)
    band = step_band(op, [x], plain).tolerance["out0"]
    for used in ((1, 1, 1), (1, 1, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        operands = [a if u else None for a, u in zip((scale, bias, residual), used, strict=True)]
        parts = [np.float64(d) if a is None else a.astype(np.float64)
                 for a, d in zip(operands, (1, 0, 0), strict=True)]  # fmt: skip
        want = plain * parts[0] + parts[1] + parts[2]
        sizes = np.abs(plain * parts[0]) + np.abs(parts[1]) + np.abs(parts[2])
        out = stored(np.zeros_like(x), order)
        layouts = [None if a is None else layout_of(a) for a in operands]
        run(norm_call(op, layout_of(out), layout_of(x), *layouts), out, x, *operands)
        allowed = band * np.abs(parts[0]) + 2.0**-22 * sizes
        assert (np.abs(out - want) <= allowed).all()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_spread_over_their_group(special: float, order: tuple[int, ...]) -> None:
    for center in (True, False):
        op = Norm((1,), 1e-5, center)
        x = normal((5, 37))
        x[2, 35] = special
        x[3, 0] = special
        x, out = stored(x, order), stored(np.zeros_like(x), order)
        check(op, norm_call(op, layout_of(out), layout_of(x)), out, x, operands=[x])


def test_large_offsets_lose_nothing_beyond_the_band() -> None:
    op = Norm((1,), 0.0)
    x = normal((3, 100_003)) + 1000
    for order in ((0, 1), (1, 0)):
        view, out = stored(x, order), stored(np.zeros_like(x), order)
        check(op, norm_call(op, layout_of(out), layout_of(view)), out, view, operands=[x])


@pytest.mark.parametrize("axes", [(1,), (1, 2)])
def test_a_first_row_that_is_far_from_the_others_costs_no_accuracy(axes: tuple[int, ...]) -> None:
    op = Norm(axes, 0.0)
    x = normal((3, 5_003, 6)) + 1000
    x[0, 0] = 0
    x[1, 0, 2] = 1e6
    out = np.zeros_like(x)
    check(op, norm_call(op, layout_of(out), layout_of(x)), out, x, operands=[x])


def test_in_place() -> None:
    op = Norm((1,), 1e-5)
    x = normal((7, 61))
    want = reference(op, x)
    Bound(norm_call(op, layout_of(x), layout_of(x)), (x, x, None, None, None))()
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-5)
