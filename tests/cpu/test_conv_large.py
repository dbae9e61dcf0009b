"""Results that no cache holds are stored past the caches, and are the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cpu.conv import ConvProblem, Order, conv_call, packed_weights, weight_layout
from kn_cpu.gemm import pack_call
from kn_cpu.memory import aligned
from kn_graph.dim import evaluate
from tests.cpu.products import channels_last, numbers, registers, run_call
from tests.cpu.rows import layout_of

Array = np.ndarray[Any, Any]

IMAGES, CHANNELS, SIDE = 4, 8, 160
CACHES = 4 << 20
"""Floats, of the same name in `native/conv.c`."""


def room(images: int, outputs: int, shift: int) -> Array:
    """Return memory for a result with its channels last that begins `shift` floats off a line."""
    count = images * outputs * SIDE * SIDE
    flat = aligned(4 * (count + shift)).view(np.float32)[shift:]
    return np.moveaxis(flat.reshape(images, SIDE, SIDE, outputs), -1, 1)


def convolved(x: Array, w: Array, bias: Array, residual: Array | None, shift: int) -> Array:
    """Return a convolution of 1 x 1."""
    out = room(x.shape[0], w.shape[0], shift)
    problem = ConvProblem(
        layout_of(x), layout_of(out), (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), 1,
        None if residual is None else layout_of(residual),
    )  # fmt: skip
    weights = np.zeros(evaluate(packed_weights(registers(), problem), {}), np.float32)
    layout = weight_layout(layout_of(w), 1, Order.IN_PLACE)
    run_call(pack_call(layout, registers()), w, weights, out=1)
    call = conv_call(registers(), problem, Order.IN_PLACE, low=-1.0)
    run_call(call, x, weights, out, bias, residual, out=2)
    return out


@pytest.mark.parametrize("outputs", [64, 40, 48])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("adds", [False, True])
def test_results_that_no_cache_holds_are_the_same_bits(outputs: int, shift: int, adds: bool):
    rng = np.random.default_rng(0)
    x = channels_last(numbers(rng, IMAGES, CHANNELS, SIDE, SIDE))
    w, bias = numbers(rng, outputs, CHANNELS, 1, 1), numbers(rng, outputs)
    shape = (IMAGES, outputs, SIDE, SIDE)
    residual = channels_last(numbers(rng, *shape)) if adds else None
    assert x.size + np.prod(shape) > CACHES > x.size / IMAGES + 2 * np.prod(shape[1:])
    got = convolved(x, w, bias, residual, shift)
    for i in range(IMAGES):
        each = slice(i, i + 1)
        want = convolved(x[each], w, bias, None if residual is None else residual[each], shift)
        np.testing.assert_array_equal(got[each].view(np.int32), want.view(np.int32))
