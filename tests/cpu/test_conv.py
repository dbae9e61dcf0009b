"""Native convolutions (direct, depthwise, Winograd) against the reference in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.conv import (
    ConvProblem,
    Order,
    conv_call,
    packed_weights,
    weight_layout,
    weight_rows,
    window_order,
)
from kn_cpu.conv_choice import winograd_wins
from kn_cpu.conv_lines import conv_lines_call, has_conv_lines
from kn_cpu.copy import copy_call
from kn_cpu.depthwise import depthwise_call, depthwise_weights, is_depthwise
from kn_cpu.gemm import pack_call
from kn_cpu.product import REGISTERS, BlockProgram
from kn_cpu.winograd import (
    ERROR_FACTOR,
    has_winograd,
    winograd_call,
    winograd_tiles_call,
    winograd_tiles_size,
    winograd_weights_call,
    winograd_weights_size,
)
from kn_graph.dim import evaluate, symbol
from kn_graph.ops.conv import Conv
from kn_plan.layout import StridedLayout
from tests.cpu.check import reference
from tests.cpu.products import (
    assert_sums,
    channels_last,
    gelu,
    gelu_program,
    numbers,
    registers,
    run_call,
)
from tests.cpu.rows import layout_of, run

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """Sizes of a convolution."""

    images: int
    channels: int
    outputs: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[tuple[int, int], ...] = ()
    groups: int = 1

    @property
    def op(self) -> Conv:
        rank = len(self.space)
        ones, none = (1,) * rank, ((0, 0),) * rank
        return Conv(
            self.strides or ones, self.dilations or ones, self.pads or none, self.groups
        )  # fmt: skip


@dataclass(frozen=True)
class Behind:
    """gelu(x * scale) + rest, in the memory of the result."""

    scale: Array
    rest: Array

    @classmethod
    def make(cls, shape: tuple[int, ...]) -> Behind:
        rng = np.random.default_rng(3)
        ones = (1,) * (len(shape) - 2)
        return cls(numbers(rng, 1, shape[1], *ones), channels_last(numbers(rng, *shape)))

    def made(self, out: Array) -> tuple[BlockProgram, tuple[Array | None, ...]]:
        scale = np.broadcast_to(self.scale, out.shape)
        inputs = tuple(map(layout_of, (scale, self.rest)))
        return BlockProgram(gelu_program(), (layout_of(out),), inputs), (
            out, None, self.scale, self.rest,
        )  # fmt: skip

    def check(self, got: Array, plain: Array) -> None:
        want = gelu(plain.astype(np.float64) * self.scale) + self.rest
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


@dataclass(frozen=True)
class Data:
    """Operands, and what has to come out."""

    case: Case
    x: Array
    w: Array
    bias: Array | None
    residual: Array | None
    bounds: tuple[float, float]

    @classmethod
    def make(cls, case: Case, epilogue: bool, seed: int = 0) -> Data:
        rng = np.random.default_rng(seed)
        x = numbers(rng, case.images, case.channels, *case.space)
        w = numbers(rng, case.outputs, case.channels // case.groups, *case.kernel)
        shape = reference(case.op, x, w).shape
        if not epilogue:
            return cls(case, x, w, None, None, (-np.inf, np.inf))
        bias, residual = numbers(rng, case.outputs), numbers(rng, *shape)
        return cls(case, x, w, bias, residual, (-1.0, 4.0))

    def check(self, got: Array, factor: float = 1.0) -> None:
        wide = (self.x.astype(np.float64), self.w.astype(np.float64))
        want = reference(self.case.op, *wide)
        size = reference(self.case.op, *map(abs, wide))
        rank = len(self.case.space)
        for more in (self.bias, self.residual):
            if more is not None:
                more = more.reshape(-1, *(1,) * rank) if more.ndim == 1 else more
                want, size = want + more, size + abs(more)
        terms = self.w[0].size
        assert_sums(got, np.clip(want, *self.bounds), size, terms, factor)

    def problem(self, x: Array, out: Array, residual: Array | None) -> ConvProblem:
        op = self.case.op
        return ConvProblem(
            layout_of(x), layout_of(out), self.case.kernel, op.strides, op.dilations, op.pads,
            op.groups, None if residual is None else layout_of(residual),
        )  # fmt: skip

    def direct(self, x_last: bool, out_last: bool, *, few: bool = False) -> Array:
        x = channels_last(self.x) if x_last else self.x
        out = np.full(reference(self.case.op, self.x, self.w).shape, np.nan, np.float32)
        out = channels_last(out) if out_last else out
        problem = self.problem(x, out, self.residual)
        dilation = problem.dilations[-1]
        order = window_order(problem.x, problem.kernel, problem.groups, dilation, many=few)
        weights = np.full(evaluate(packed_weights(registers(), problem), {}), np.nan, np.float32)
        if few:
            rows = weight_rows(layout_of(self.w), problem.groups, order)
            weights = np.empty(tuple(map(int, rows.sizes)), np.float32)
            run(copy_call(layout_of(weights), rows, 4), weights, self.w)
        else:
            layout = weight_layout(layout_of(self.w), problem.groups, order)
            run_call(pack_call(layout, registers()), self.w, weights, out=1)
        low, high = self.bounds
        call = conv_call(registers(), problem, order, few=few, low=low, high=high)
        run_call(call, x, weights, out, self.bias, self.residual, out=2)
        return out

    def depthwise(self, behind: Behind | None = None) -> Array:
        x, residual = channels_last(self.x), self.residual
        residual = None if residual is None else channels_last(residual)
        out = channels_last(np.full(reference(self.case.op, self.x, self.w).shape, np.nan, "f4"))
        problem = self.problem(x, out, residual)
        assert is_depthwise(problem)
        turned = depthwise_weights(layout_of(self.w))
        weights = np.empty(tuple(map(int, turned.sizes)), np.float32)
        run(copy_call(layout_of(weights), turned, 4), weights, self.w)
        low, high = self.bounds
        program, more = (None, ()) if behind is None else behind.made(out)
        call = depthwise_call(registers(), problem, low=low, high=high, program=program)
        run_call(call, x, weights, out, self.bias, residual, *more, out=2)
        return out

    def lines(self, behind: Behind | None = None) -> Array:
        out = channels_last(np.full(reference(self.case.op, self.x, self.w).shape, np.nan, "f4"))
        problem = self.problem(self.x, out, None)
        assert has_conv_lines(problem)
        weights = np.full(evaluate(packed_weights(registers(), problem), {}), np.nan, np.float32)
        layout = weight_layout(layout_of(self.w), 1, Order.CHANNELS_FIRST)
        run_call(pack_call(layout, registers()), self.w, weights, out=1)
        low, high = self.bounds
        program, more = (None, ()) if behind is None else behind.made(out)
        call = conv_lines_call(registers(), problem, low=low, high=high, program=program)
        run_call(call, self.x, weights, out, self.bias, *more, out=2)
        return out

    def winograd(self, behind: Behind | None = None, *, shared: bool = False) -> Array:
        x, residual = channels_last(self.x), self.residual
        residual = None if residual is None else channels_last(residual)
        out = channels_last(np.full(reference(self.case.op, self.x, self.w).shape, np.nan, "f4"))
        problem = self.problem(x, out, residual)
        assert has_winograd(problem)
        size = evaluate(winograd_weights_size(problem, registers()), {})
        weights = np.full(size, np.nan, np.float32)
        run_call(winograd_weights_call(problem, registers()), self.w, weights, out=1)
        low, high = self.bounds
        program, more = (None, ()) if behind is None else behind.made(out)
        if shared:
            size = evaluate(winograd_tiles_size(registers(), problem), {})
            tiles = np.full(size, -77, np.float32)
            run_call(winograd_tiles_call(registers(), problem), x, tiles, out=1)
            x = tiles
        call = winograd_call(
            registers(), problem, shared=shared, low=low, high=high, program=program
        )
        run_call(call, x, weights, out, self.bias, residual, *more, out=2)
        return out


def same(k: int, rank: int = 2) -> tuple[tuple[int, int], ...]:
    return ((k // 2, k // 2),) * rank


DIRECT = [
    Case(1, 3, 20, (9, 11), (7, 7), (2, 2), (), same(7)),
    Case(2, 3, 33, (12, 40), (3, 3), (2, 2), (), ((0, 1), (1, 2))),
    Case(1, 1, 9, (19, 23), (5, 5), (1, 1), (), same(5)),
    Case(1, 4, 40, (3, 5), (3, 3), (1, 1), (3, 3), ((3, 2), (3, 3))),
    Case(2, 16, 33, (7, 7), (3, 3), (1, 1), (), same(3)),
    Case(1, 20, 24, (14, 13), (3, 3), (2, 2), (), ((1, 0), (0, 1))),
    Case(1, 600, 40, (5, 5), (3, 3), (1, 1), (), same(3)),
    Case(3, 32, 64, (10, 10), (1, 1)),
    Case(1, 24, 96, (6, 7), (1, 1), (2, 2)),
    Case(1, 64, 100, (1, 1), (1, 1)),
    Case(2, 12, 18, (8, 8), (3, 3), (1, 1), (2, 2), ((2, 2), (2, 2)), 3),
    Case(1, 4, 8, (6, 6), (3, 3), (1, 1), (), same(3), 4),
    Case(1, 24, 32, (30,), (5,), (1,), (2,), ((4, 4),), 2),
    Case(1, 1, 16, (100,), (9,), (4,), (), ((3, 2),)),
    Case(1, 5, 7, (4, 5, 6), (2, 3, 3), (1, 1, 1), (), ((0, 0), (1, 1), (1, 1))),
    Case(1, 16, 17, (5, 4, 6), (3, 3, 3), (2, 1, 1), (1, 1, 2), ((1, 1), (1, 1), (2, 2))),
    Case(2, 8, 8, (6, 9), (4, 2), (3, 1), (), ((2, 1), (0, 3))),
    Case(1, 0, 5, (4, 4), (3, 3), (), (), same(3)),
    Case(0, 3, 5, (4, 4), (3, 3), (), (), same(3)),
    Case(1, 3, 8, (2, 2), (7, 7), (), (), ((5, 5), (5, 5))),
    Case(1, 128, 200, (23, 23), (3, 3), (1, 1), (), same(3)),
]


@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
@pytest.mark.parametrize("case", DIRECT, ids=str)
def test_direct(case: Case, epilogue: bool) -> None:
    data = Data.make(case, epilogue)
    for x_last in (False, True):
        for out_last in (False, True):
            data.check(data.direct(x_last, out_last))


FEW = [
    Case(1, 33, 1, (9, 11), (3, 3), (1, 1), (), same(3)),
    Case(2, 8, 2, (7, 5), (5, 5), (2, 1), (), same(5)),
    Case(1, 1, 1, (700,), (256,), (2,)),
    Case(1, 3, 4, (6, 7), (3, 3), (1, 1), (2, 2), same(3)),
    Case(2, 40, 6, (3, 4), (1, 1), (), (), (), 2),
    Case(1, 20, 1, (2, 3, 5), (2, 2, 2)),
]


@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_few_outputs(case: Case, epilogue: bool) -> None:
    data = Data.make(case, epilogue)
    for x_last in (False, True):
        for out_last in (False, True):
            data.check(data.direct(x_last, out_last, few=True))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_blocks_go_through_a_program(last: bool, groups: int) -> None:
    data = Data.make(Case(2, 12, 70, (9, 13), (3, 3), (), (), same(3), groups), False)
    rng = np.random.default_rng(1)
    out, rest = np.empty((2, 70, 9, 13), np.float32), numbers(rng, 2, 70, 9, 13)
    scale = numbers(rng, 70, 1, 1)
    x = channels_last(data.x)
    if last:
        out, rest = channels_last(out), channels_last(rest)
    scales = np.broadcast_to(scale, out.shape)
    layouts = tuple(map(layout_of, (out, scales, rest)))
    problem = data.problem(x, out, None)
    order = window_order(problem.x, problem.kernel, groups)
    weights = np.empty(evaluate(packed_weights(registers(), problem), {}), np.float32)
    layout = weight_layout(layout_of(data.w), groups, order)
    run_call(pack_call(layout, registers()), data.w, weights, out=1)
    behind = BlockProgram(gelu_program(), layouts[:1], layouts[1:])
    if not last:
        with pytest.raises(ValueError, match="not evenly spaced"):
            conv_call(registers(), problem, order, program=behind)
        return
    call = conv_call(registers(), problem, order, program=behind)
    run_call(call, x, weights, None, None, None, out, None, scales, rest, out=5)
    want = reference(data.case.op, data.x.astype(np.float64), data.w.astype(np.float64))
    np.testing.assert_allclose(out, gelu(want * scale) + rest, rtol=1e-5, atol=2e-5)


DEPTHWISE = [
    Case(1, 16, 16, (9, 11), (3, 3), (1, 1), (), same(3), 16),
    Case(2, 24, 24, (14, 14), (3, 3), (1, 1), (), same(3), 24),
    Case(1, 7, 7, (5, 5), (3, 3), (2, 2), (), same(3), 7),
    Case(1, 40, 40, (13, 12), (5, 5), (1, 1), (), same(5), 40),
    Case(1, 33, 33, (15, 8), (5, 5), (2, 2), (), ((1, 2), (2, 1)), 33),
    Case(1, 18, 18, (10, 30), (7, 7), (1, 1), (), same(7), 18),
    Case(1, 17, 17, (20, 31), (7, 7), (2, 2), (), same(7), 17),
    Case(1, 20, 20, (30, 30), (3, 3), (1, 1), (), (), 20),
    Case(1, 20, 20, (9, 9), (3, 3), (1, 1), (2, 2), ((2, 2), (2, 2)), 20),
    Case(1, 20, 20, (9, 40), (3, 5), (1, 1), (3, 1), ((3, 3), (2, 2)), 20),
    Case(1, 18, 18, (10, 20), (7, 3), (2, 1), (), ((3, 3), (1, 1)), 18),
    Case(2, 19, 19, (31,), (7,), (1,), (), ((3, 3),), 19),
    Case(1, 17, 17, (4, 5, 6), (3, 3, 3), (1, 1, 1), (), same(3, 3), 17),
    Case(1, 32, 32, (1, 1), (3, 3), (1, 1), (), same(3), 32),
    Case(1, 64, 64, (3, 2), (5, 5), (1, 1), (), same(5), 64),
    Case(1, 5, 5, (3, 3), (9, 9), (1, 1), (), same(9), 5),
]


@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise(case: Case, epilogue: bool) -> None:
    data = Data.make(case, epilogue)
    data.check(data.depthwise())


WINOGRAD = [
    Case(1, 16, 32, (8, 8), (3, 3), (), (), same(3)),
    Case(2, 20, 33, (7, 9), (3, 3), (), (), same(3)),
    Case(1, 3, 5, (4, 5), (3, 3), (), (), ((0, 1), (2, 0))),
    Case(3, 40, 17, (6, 6), (3, 3)),
    Case(1, 600, 48, (5, 5), (3, 3), (), (), same(3)),
    Case(1, 8, 8, (1, 1), (3, 3), (), (), same(3)),
    Case(1, 64, 160, (30, 29), (3, 3), (), (), same(3)),
]


@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
@pytest.mark.parametrize("case", WINOGRAD, ids=str)
def test_winograd_within_its_documented_error(case: Case, epilogue: bool) -> None:
    data = Data.make(case, epilogue)
    got = data.winograd()
    data.check(got, ERROR_FACTOR)
    np.testing.assert_array_equal(data.winograd(shared=True), got)


LINES = [
    Case(1, 3, 20, (9, 11), (7, 7), (2, 2), (), same(7)),
    Case(2, 3, 33, (12, 40), (3, 3), (2, 2), (), ((0, 1), (1, 2))),
    Case(1, 1, 9, (19, 23), (5, 5), (1, 1), (), same(5)),
    Case(3, 7, 70, (5, 6), (1, 1)),
    Case(1, 2, 16, (50, 13), (3, 2), (1, 2), (), ((2, 2), (0, 1))),
    Case(1, 3, 48, (8, 12), (4, 4), (4, 4)),
    Case(2, 1, 17, (97,), (8,), (2,), (), ((3, 4),)),
    Case(1, 1, 5, (3, 2), (5, 7), (1, 1), (), ((2, 2), (3, 9))),
    Case(1, 4, 1, (1, 1), (1, 1)),
]


@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
@pytest.mark.parametrize("case", LINES, ids=str)
def test_lines_of_few_channels(case: Case, epilogue: bool) -> None:
    data = replace(Data.make(case, epilogue), residual=None)
    data.check(data.lines())
    plain = data.lines()
    behind = Behind.make(plain.shape)
    behind.check(data.lines(behind), plain)


@pytest.mark.parametrize("epilogue", [False, True], ids=["plain", "epilogue"])
@pytest.mark.parametrize(
    "case", [*WINOGRAD[:6], *(DEPTHWISE[i] for i in (0, 1, 4, -4, -3, -1))], ids=str
)
def test_results_go_through_a_program_in_place(case: Case, epilogue: bool) -> None:
    data = Data.make(case, epilogue)
    kernel = data.winograd if case.groups == 1 else data.depthwise
    plain = kernel()
    behind = Behind.make(plain.shape)
    behind.check(kernel(behind), plain)


@settings(max_examples=40, deadline=None)
@given(
    rank=st.integers(1, 3),
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 20), st.integers(1, 40)),
    window=st.lists(
        st.tuples(
            st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 3),
            st.integers(0, 3), st.integers(0, 6),
        ),
        min_size=3, max_size=3,
    ),
    x_last=st.booleans(),
    out_last=st.booleans(),
    seed=st.integers(0, 1 << 30),
)  # fmt: skip
def test_any_window(
    rank: int,
    sizes: tuple[int, int, int],
    window: list[tuple[int, ...]],
    x_last: bool,
    out_last: bool,
    seed: int,
) -> None:
    axes = window[:rank]
    space = tuple(
        max(1, (k - 1) * d + 1 - before - after) + more for k, _, d, before, after, more in axes
    )
    case = Case(
        *sizes, space, tuple(a[0] for a in axes), tuple(a[1] for a in axes),
        tuple(a[2] for a in axes), tuple((a[3], a[4]) for a in axes),
    )  # fmt: skip
    data = Data.make(case, bool(seed % 2), seed)
    data.check(data.direct(x_last, out_last))


@pytest.mark.parametrize("kernel", ["direct", "depthwise"])
def test_nan_spreads_to_the_windows_that_touch_it_only(kernel: str) -> None:
    groups = 16 if kernel == "depthwise" else 1
    data = Data.make(Case(1, 16, 16, (9, 9), (3, 3), (), (), same(3), groups), False)
    data.x[0, 4, 4, 4], data.x[0, 3, 0, 8] = np.nan, np.inf
    got = data.depthwise() if groups > 1 else data.direct(True, True)
    data.check(got)
    assert 0 < np.isnan(got).sum() < got.size


def problem_of(channels: Any, cols: int, side: Any, images: Any = 1) -> ConvProblem:
    def last(c: Any) -> StridedLayout:
        return StridedLayout((images, c, side, side), (c * side * side, 1, c * side, c))

    return ConvProblem(last(channels), last(cols), (3, 3), (1, 1), (1, 1), same(3))


CHOICES = [
    (64, 64, 56, 1, 1),
    (128, 128, 28, 1, 1),
    (256, 256, 14, 1, 1),
    (512, 512, 7, 1, 0),
    (512, 512, 7, 8, 1),
    (64, 64, 20, 1, 1),
    (128, 128, 10, 1, 0),
    (192, 192, 13, 1, 1),
    (12, 24, 208, 1, 1),
    (16, 16, 80, 1, 1),
    (1, 16, 80, 1, 0),
    (3, 64, 224, 1, 0),
]


@pytest.mark.parametrize(("channels", "cols", "side", "images", "expected"), CHOICES)
def test_the_choice_follows_measured_times(
    channels: int, cols: int, side: int, images: int, expected: int
) -> None:
    problem = problem_of(channels, cols, side, images)
    assert winograd_wins(problem, REGISTERS["avx512"]) == expected
    assert winograd_wins(problem, REGISTERS["avx512"], strict=True) == 0


@pytest.mark.parametrize(("channels", "cols", "side", "images", "_"), CHOICES)
def test_symbolic_sizes_get_the_blocks_of_known_ones(
    channels: int, cols: int, side: int, images: int, _: int
) -> None:
    registers = REGISTERS["avx512"]
    sizes = symbol("side"), symbol("images")
    known, symbolic = problem_of(channels, cols, side, images), problem_of(channels, cols, *sizes)
    env = {s: n for size, n in zip(sizes, (side, images), strict=True) for s in size.symbols}
    for call in (
        lambda p: conv_call(registers, p, window_order(p.x, p.kernel)),
        lambda p: winograd_call(registers, p),
    ):
        want, got = call(known), call(symbolic)
        assert [evaluate(n, env) for n in got.numbers] == list(want.numbers)
        assert evaluate(got.units, env) == want.units
        assert evaluate(got.scratch, env) == want.scratch
    wins = winograd_wins(symbolic, registers)
    assert evaluate(wins, env) == winograd_wins(known, registers)
