"""Native transposed convolution against the reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.conv import ConvProblem
from kn_cpu.conv_transpose import conv_transpose_call, has_conv_transpose, transposed_weights
from kn_cpu.gemm import pack_call
from kn_cpu.product import packed_size
from kn_graph.dim import evaluate
from kn_graph.ops.conv import ConvTranspose
from tests.cpu.check import reference
from tests.cpu.products import assert_sums, channels_last, numbers, registers, run_call
from tests.cpu.rows import layout_of

Array = np.ndarray[Any, Any]


def check(op: ConvTranspose, x: Array, w: Array, *, epilogue: bool, out_last: bool) -> None:
    rng = np.random.default_rng(7)
    wide = (x.astype(np.float64), w.astype(np.float64))
    want, size = reference(op, *wide), reference(op, *map(abs, wide))
    out, x = np.full(want.shape, np.nan, np.float32), channels_last(x)
    out = channels_last(out) if out_last else out
    bias = residual = None
    low, high = -np.inf, np.inf
    if epilogue:
        bias, residual, low, high = (
            numbers(rng, want.shape[1]),
            numbers(rng, *want.shape),
            -1.0,
            3.0,
        )
        column = bias.reshape(-1, *(1,) * (x.ndim - 2))
        want, size = want + column + residual, size + abs(column) + abs(residual)
    problem = ConvProblem(
        layout_of(x), layout_of(out), w.shape[2:], op.strides, op.dilations, op.pads, op.groups,
        None if residual is None else layout_of(residual),
    )  # fmt: skip
    assert has_conv_transpose(problem)
    layout = transposed_weights(layout_of(w), op.groups)
    _, points, channels, cols = layout.sizes
    floats = op.groups * packed_size(points * channels, cols, registers())
    weights = np.full(evaluate(floats, {}), np.nan, np.float32)
    run_call(pack_call(layout, registers()), w, weights, out=1)
    call = conv_transpose_call(registers(), problem, low=low, high=high)
    run_call(call, x, weights, out, bias, residual, out=2)
    assert_sums(out, np.clip(want, low, high), size, w[:, 0].size)


@settings(max_examples=60, deadline=None)
@given(
    rank=st.integers(1, 3),
    images=st.integers(1, 2),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    axes=st.lists(
        st.tuples(
            st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2),
            st.integers(0, 2), st.integers(0, 2), st.integers(0, 2),
        ),
        min_size=3, max_size=3,
    ),
    epilogue=st.booleans(),
    out_last=st.booleans(),
)  # fmt: skip
def test_any_kernel(
    rank: int,
    images: int,
    groups: int,
    channels: tuple[int, int],
    axes: list[tuple[int, ...]],
    epilogue: bool,
    out_last: bool,
) -> None:
    space, kernel, strides, dilations, before, after, more = zip(*axes[:rank], strict=True)
    sizes = [
        (n - 1) * s + (k - 1) * d + 1 + m - b - a
        for n, k, s, d, b, a, m in zip(
            space, kernel, strides, dilations, before, after, more, strict=True
        )
    ]
    if min(sizes) < 0:
        return
    rng = np.random.default_rng(0)
    op = ConvTranspose(
        strides, dilations, tuple(zip(before, after, strict=True)), more, groups
    )  # fmt: skip
    x = numbers(rng, images, groups * channels[0], *space)
    w = numbers(rng, groups * channels[0], channels[1], *kernel)
    check(op, x, w, epilogue=epilogue, out_last=out_last)


@pytest.mark.parametrize(
    ("channels", "cols", "side", "k", "stride", "pad"),
    [(600, 70, 5, 4, 2, 1), (64, 32, 40, 2, 2, 0), (16, 3, 9, 4, 4, 0), (32, 160, 120, 3, 1, 1)],
)
def test_sizes_of_models(
    channels: int, cols: int, side: int, k: int, stride: int, pad: int
) -> None:
    rng = np.random.default_rng(0)
    op = ConvTranspose((stride,) * 2, (1, 1), ((pad, pad),) * 2, (0, 0))
    x, w = numbers(rng, 1, channels, side, 7), numbers(rng, channels, cols, k, k)
    check(op, x, w, epilogue=True, out_last=True)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_weights_that_are_no_numbers_spread_to_what_they_cover(odd: float) -> None:
    rng = np.random.default_rng(0)
    x, w = numbers(rng, 1, 3, 4, 5), numbers(rng, 3, 20, 3, 2)
    w[1, 3, 0, 1], w[0, 18, 2, 0] = odd, -odd
    for strides, pads in (((1, 1), ((0, 0), (0, 0))), ((2, 3), ((1, 0), (0, 1)))):
        op = ConvTranspose(strides, (1, 1), pads, (0, 0))
        check(op, x, w, epilogue=False, out_last=True)
