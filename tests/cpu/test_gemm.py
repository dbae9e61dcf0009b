"""Native products of matrices against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.gemm import Packed, gemm_call, pack_call, packed_layout
from kn_cpu.product import BlockProgram, packed_size
from kn_graph.dim import evaluate, symbol
from kn_plan.layout import StridedLayout
from tests.cpu.products import (
    assert_sums,
    gelu,
    gelu_program,
    numbers,
    registers,
    run_call,
)
from tests.cpu.rows import layout_of

Array = np.ndarray[Any, Any]

SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 24, 31, 33, 48, 64, 65, 100]


def pack(b: Array) -> tuple[Packed, Array]:
    regs = registers()
    depth, cols = b.shape[-2:]
    batch = b.shape[0] if b.ndim > 2 else 1
    floats = batch * evaluate(packed_size(depth, cols, regs), {})
    target = np.full(floats, np.nan, np.float32)
    run_call(pack_call(layout_of(b), regs), b, target, out=1)
    return packed_layout(b.shape, regs), target


def product(
    a: Array,
    b: Array,
    out: Array,
    *,
    bias: Array | None = None,
    residual: Array | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    packed: bool = False,
) -> None:
    """Multiply natively and check."""
    batch = out.shape[:-2]
    left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    wide = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    added = [None if v is None else np.broadcast_to(v, out.shape) for v in (bias, residual)]
    layout, right = pack(b) if packed else (layout_of(wide), wide)
    if isinstance(layout, Packed) and b.ndim < out.ndim:
        layout = Packed((*batch, *b.shape[-2:]), (0,) * len(batch))
    call = gemm_call(
        registers(), layout_of(out), layout_of(left), layout,
        bias=None if added[0] is None else layout_of(added[0]),
        residual=None if added[1] is None else layout_of(added[1]),
        low=bounds[0], high=bounds[1],
    )  # fmt: skip
    run_call(call, left, right, out, *added, out=2)
    more = [v.astype(np.float64) for v in added if v is not None]
    with np.errstate(invalid="ignore"):
        want = left.astype(np.float64) @ wide + sum(more)
        size = abs(left).astype(np.float64) @ abs(wide) + sum(map(abs, more))
    assert_sums(out, np.clip(want, *bounds), size, a.shape[-1])


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("cols", SIZES)
def test_odd_sizes(rows: int, cols: int) -> None:
    rng = np.random.default_rng(rows * 100 + cols)
    for depth in (0, 1, 5, 33):
        a, b = numbers(rng, rows, depth), numbers(rng, depth, cols)
        for packed in (False, True):
            product(a, b, np.empty((rows, cols), np.float32), packed=packed)
        turned = np.asfortranarray(a), np.asfortranarray(b)
        product(turned[0], b, np.empty((rows, cols), np.float32), packed=True)
        product(a, turned[1], np.empty((rows, cols), np.float32))
        product(*turned, np.empty((cols, rows), np.float32).T)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 150), st.integers(1, 700)),
    packed=st.booleans(),
    turn=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    bias=st.sampled_from(["none", "column", "row", "one"]),
    residual=st.sampled_from(["none", "plain", "turned", "column"]),
    seed=st.integers(0, 1 << 30),
)
def test_any_strides_and_epilogues(
    sizes: tuple[int, int, int],
    packed: bool,
    turn: tuple[bool, bool, bool],
    bias: str,
    residual: str,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    rows, cols, depth = sizes

    def matrix(turned: bool, n: int, m: int) -> Array:
        wide = numbers(rng, m, n + 3).T if turned else numbers(rng, n + 3, m)
        return wide[3:]

    shapes = {"column": (1, cols), "row": (rows, 1), "one": (1, 1)}
    more = None if bias == "none" else numbers(rng, *shapes[bias])
    rest = {
        "none": None,
        "plain": matrix(False, rows, cols),
        "turned": matrix(True, rows, cols),
        "column": numbers(rng, 1, cols),
    }[residual]
    product(
        matrix(turn[0], rows, depth), matrix(turn[1], depth, cols), matrix(turn[2], rows, cols),
        bias=more, residual=rest, bounds=(-3.0, 5.0), packed=packed,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 70, 300, 40), (5, 1, 64, 33), (2, 13, 17, 257)])
def test_batches_repeat_and_fold(shape: tuple[int, int, int, int]) -> None:
    n, rows, cols, depth = shape
    rng = np.random.default_rng(0)
    a, b = numbers(rng, n, 2, rows, depth), numbers(rng, n, 1, depth, cols)
    product(a, b, np.empty((n, 2, rows, cols), np.float32))
    product(a, b[0, 0], np.empty((n, 2, rows, cols), np.float32), packed=True)
    product(a[:, 0], b[:, 0], np.empty((n, rows, cols), np.float32), packed=True)
    heads = numbers(rng, n, rows, 2, depth).transpose(0, 2, 1, 3)
    product(heads, b[:1], np.empty((n, rows, 2, cols), np.float32).transpose(0, 2, 1, 3))
    product(a[:1, :1], b, np.empty((n, 2, rows, cols), np.float32), bias=numbers(rng, cols))


def test_more_batch_axes_than_there_is_room_for_are_refused() -> None:
    x = StridedLayout((2, 2, 2, 2, 4, 4), (1000, 3, 300, 70, 4, 1))
    with pytest.raises(ValueError, match="4 batch axes"):
        gemm_call(registers(), x, x, x)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 20])
def test_nan_and_infinities_are_kept(rows: int, packed: bool) -> None:
    rng = np.random.default_rng(rows)
    a, b = numbers(rng, rows, 40), numbers(rng, 40, 70)
    a[0, 3], b[7, 5], b[9, 66] = np.nan, np.inf, -np.inf
    out = np.empty((rows, 70), np.float32)
    product(a, b, out, packed=packed)
    product(a, b, out, packed=packed, bounds=(0.0, 6.0))
    assert np.isnan(out[0]).all()


def test_denormal_numbers_are_not_flushed() -> None:
    a, b = np.full((20, 1), 1e-20, np.float32), np.full((1, 40), 1e-21, np.float32)
    out = np.empty((20, 40), np.float32)
    product(a, b, out)
    assert (out > 0).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_blocks_go_through_a_program(turned: bool, packed: bool, batch: int) -> None:
    rng = np.random.default_rng(0)
    rows, cols, depth = 67, 150, 40
    a, b = numbers(rng, batch, rows, depth), numbers(rng, depth, cols)
    shape = (batch, rows, cols)
    out, scale, rest = np.empty(shape, np.float32), numbers(rng, cols), numbers(rng, *shape)
    if turned:
        a, shape = a[:1], (1, rows, cols)
        rest, out = (np.empty((1, cols, rows), np.float32).swapaxes(1, 2) for _ in range(2))
        rest[...] = numbers(rng, *shape)
    scales = np.broadcast_to(scale, shape)
    kernel = gelu_program()
    layouts = tuple(map(layout_of, (out, scales, rest)))
    layout, right = (
        pack(b) if packed else (layout_of(np.broadcast_to(b, (a.shape[0], *b.shape))), b)
    )
    if isinstance(layout, Packed):
        layout = Packed((a.shape[0], *b.shape), (0,))
    behind = BlockProgram(kernel, layouts[:1], layouts[1:])
    call = gemm_call(registers(), layout_of(out), layout_of(a), layout, program=behind)
    run_call(call, a, right, None, None, None, out, None, scales, rest, out=5)
    x = a.astype(np.float64) @ b
    np.testing.assert_allclose(out, gelu(x * scale) + rest, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("free", ["rows", "cols", "depth"])
def test_numbers_for_symbolic_sizes_are_right_at_any_size(free: str) -> None:
    sizes: dict[str, Any] = {"rows": 37, "cols": 70, "depth": 130}
    n = symbol("n")
    for actual in (1, 5, 130, 700):
        known = {**sizes, free: actual}
        rows, cols, depth = ({**sizes, free: n}[k] for k in ("rows", "cols", "depth"))
        shapes = ((rows, cols), (rows, depth), (depth, cols))
        layouts = [StridedLayout.contiguous(s) for s in shapes]
        call = gemm_call(registers(), *layouts)
        env = {s: actual for m in call.numbers if not isinstance(m, int) for s in m.symbols}
        bound = type(call)(
            call.kernel, tuple(evaluate(m, env) for m in call.numbers),
            evaluate(call.units, env), call.grain, evaluate(call.scratch, env),
        )  # fmt: skip
        rng = np.random.default_rng(actual)
        a = numbers(rng, known["rows"], known["depth"])
        b = numbers(rng, known["depth"], known["cols"])
        out = np.empty((known["rows"], known["cols"]), np.float32)
        run_call(bound, a, b, out, out=2)
        size = abs(a).astype(np.float64) @ abs(b)
        assert_sums(out, a.astype(np.float64) @ b, size, known["depth"])
