"""Native convolutions of integers are exactly those of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.lower import lower_step
from kn_cpu.lowering import Lowering
from kn_graph import DType, Graph
from kn_graph.dim import symbol
from kn_graph.ops.conv import Conv
from tests.cpu.integers import BEHIND, PAIRS, Behind, assert_exact, executor, integers, nothing

Array = np.ndarray[Any, Any]

BARE = 7
"""Pointers of the kernel without a program."""


@dataclass(frozen=True)
class Case:
    """A convolution.

    Attributes:
        x: sizes of the input.
        outputs: output channels.
        kernel: of the weights.
        strides: all 1 by default, as dilations.
        dilations: see `strides`.
        pads: none by default.
        groups: parts of the channels.
    """

    x: tuple[int, ...]
    outputs: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    pads: tuple[tuple[int, int], ...] | None = None
    groups: int = 1

    @property
    def weights(self) -> tuple[int, ...]:
        """Return the sizes of the weights."""
        return (self.outputs, self.x[1] // self.groups, *self.kernel)


CASES = [
    Case((1, 1, 1, 1), 1, (1, 1)),
    Case((2, 3, 13, 11), 33, (7, 7), (2, 2), pads=((3, 3), (3, 3))),
    Case((2, 16, 9, 7), 24, (3, 3), pads=((1, 1), (1, 1))),
    Case((1, 64, 8, 8), 70, (1, 1)),
    Case((2, 20, 7, 9), 16, (1, 1), (2, 2)),
    Case((1, 5, 6, 6), 40, (1, 1), pads=((1, 0), (0, 2))),
    Case((1, 6, 15, 17), 8, (3, 5), (1, 3), (2, 3), ((4, 1), (0, 7))),
    Case((1, 12, 9, 9), 18, (3, 3), groups=3, pads=((1, 1), (1, 1))),
    Case((2, 4, 30), 9, (5,), (2,), pads=((9, 9),)),
    Case((1, 2, 5, 6, 7), 5, (2, 3, 2), (1, 2, 1), pads=((0, 1), (1, 1), (2, 0))),
    Case((1, 32, 28, 28), 300, (3, 3), pads=((1, 1), (1, 1))),
    Case((3, 128, 1, 1), 50, (1, 1)),
    Case((0, 3, 4, 4), 5, (3, 3)),
    Case((1, 8, 2, 2), 3, (3, 3), pads=((1, 1), (1, 1))),
    Case((1, 8, 1, 1), 3, (3, 3), (2, 2), pads=((3, 3), (3, 3))),
]

DEPTHWISE = [
    Case((1, n, h, w), n, (k, k), (s, s), (d, d), ((a, b), (b, a)), n)
    for n, h, w, k, s, d, a, b in (
        (1, 5, 5, 3, 1, 1, 0, 0),
        (16, 9, 8, 3, 1, 1, 1, 1),
        (24, 12, 7, 3, 2, 1, 1, 0),
        (72, 7, 9, 5, 1, 1, 2, 2),
        (33, 11, 11, 5, 2, 1, 1, 2),
        (96, 6, 6, 3, 1, 2, 2, 2),
        (144, 20, 21, 3, 1, 1, 1, 1),
        (7, 1, 1, 3, 1, 1, 1, 1),
        (20, 10, 10, 2, 3, 3, 0, 5),
        (48, 4, 4, 7, 1, 1, 3, 3),
    )
] + [
    Case((2, 10, 17), 10, (4,), pads=((1, 2),), groups=10),
    Case((1, 9, 4, 5, 6), 9, (2, 2, 3), (1, 1, 2), pads=((1, 0), (0, 1), (1, 1)), groups=9),
    Case((1, 8, 6, 6), 16, (3, 3), groups=8),
]


def conv(
    case: Case,
    types: tuple[str, str],
    *,
    last: bool = True,
    behind: Behind = nothing,
    low: int | None = None,
) -> tuple[Graph, dict[str, Array]]:
    """Return a convolution as a graph, of an input with channels last or first, and its inputs."""
    rng = np.random.default_rng(0)
    rank = len(case.x)
    g = Graph("conv")
    order = (0, *range(2, rank), 1) if last else tuple(range(rank))
    feeds = {"x": integers(rng, types[0], *(case.x[a] for a in order))}
    stored = g.input("x", types[0], list(feeds["x"].shape))
    x = g.permute(stored, [order.index(a) for a in range(rank)])
    sums = g.conv(
        x, g.constant(integers(rng, types[1], *case.weights, low=low)), strides=case.strides,
        dilations=case.dilations, pads=case.pads, groups=case.groups, out_dtype=DType.INT32,
    )  # fmt: skip
    g.output("y", behind(g, sums, 1))
    for v in g.inputs:
        if v.name == "other":
            feeds["other"] = integers(rng, "uint8", *map(int, v.shape))
    return g, feeds


@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
@pytest.mark.parametrize("types", [*PAIRS, ("int16", "int8")], ids="-".join)
def test_all_types(types: tuple[str, str], last: bool) -> None:
    for case in (*CASES, *DEPTHWISE):
        assert_exact(*conv(case, types, last=last))


@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_computed_weights(types: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    for case in (*CASES, *DEPTHWISE[:3]):
        g = Graph("computed")
        x, w = g.input("x", types[0], list(case.x)), g.input("w", types[1], list(case.weights))
        sums = g.conv(
            x, w, strides=case.strides, dilations=case.dilations, pads=case.pads,
            groups=case.groups, out_dtype=DType.INT32,
        )  # fmt: skip
        g.output("y", sums)
        feeds = zip("xw", types, (case.x, case.weights), strict=True)
        assert_exact(g, {name: integers(rng, dtype, *shape) for name, dtype, shape in feeds})


@pytest.mark.parametrize("low", [-200, -127])
def test_weights_of_16_bits_that_span_8(low: int) -> None:
    for case in (*CASES, *DEPTHWISE):
        graph, feeds = conv(case, ("uint8", "int16"))
        (node,) = (n for n in graph.nodes if n.op.title == "Conv")
        w = node.operands[1].constant
        assert w is not None
        narrow = Graph("narrow")
        x = narrow.input("x", "uint8", list(feeds["x"].shape))
        rank = x.rank
        sums = narrow.conv(
            narrow.permute(x, (0, rank - 1, *range(1, rank - 1))),
            narrow.constant((w.astype(np.int32) % 256 + low).astype(np.int16)),
            strides=case.strides, dilations=case.dilations, pads=case.pads, groups=case.groups,
            out_dtype=DType.INT32,
        )  # fmt: skip
        narrow.output("y", sums)
        assert_exact(narrow, feeds)


@pytest.mark.parametrize("behind", BEHIND, ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[3], CASES[7], *DEPTHWISE[2:5]], ids=str)
def test_programs_behind_sums(case: Case, behind: Behind) -> None:
    for types in PAIRS:
        assert_exact(*conv(case, types, behind=behind))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    types=st.sampled_from(PAIRS),
    groups=st.integers(1, 3),
    channels=st.integers(1, 20),
    cols=st.integers(1, 40),
    last=st.booleans(),
)
def test_any_geometry(
    data: st.DataObject,
    types: tuple[str, str],
    groups: int,
    channels: int,
    cols: int,
    last: bool,
) -> None:
    def each(low: int, high: int) -> tuple[int, int]:
        number = st.integers(low, high)
        return data.draw(number), data.draw(number)

    kernel, dilations, strides = each(1, 4), each(1, 3), each(1, 3)
    pads = (each(0, 4), each(0, 4))
    sizes = [
        data.draw(st.integers(max(1, (k - 1) * d + 1 - sum(p)), 20))
        for k, d, p in zip(kernel, dilations, pads, strict=True)
    ]
    x = (2, groups * channels, *sizes)
    case = Case(x, groups * cols, kernel, strides, dilations, pads, groups)
    assert_exact(*conv(case, types, last=last))


def test_constant_scales_need_no_program_at_any_size() -> None:
    rng = np.random.default_rng(0)
    g = Graph("rounded")
    x = g.permute(g.input("x", "uint8", [symbol("n"), 5, 5, 8]), (0, 3, 1, 2))
    sums = g.conv(x, g.constant(integers(rng, "int8", 16, 8, 1, 1)), out_dtype=DType.INT32)
    scale = g.broadcast(g.constant(np.full((1, 16, 1, 1), 1e-2, np.float32)), sums.shape)
    g.output("y", g.permute(g.requantize(sums, scale, None, dtype=DType.UINT8), (0, 2, 3, 1)))
    run = executor(g).skeleton()
    (step,) = (s for s in run.plan.steps if isinstance(s.op, Conv))
    calls = lower_step(Lowering(run.plan, run.library), step)
    assert isinstance(calls, list)
    assert {len(c.pointers) for c in calls if c.family == "integer_conv"} == {BARE}
    assert_exact(g, {"x": integers(rng, "uint8", 3, 5, 5, 8)})


def test_symbolic_sizes() -> None:
    rng = np.random.default_rng(0)
    g = Graph("symbolic")
    n, side = symbol("n"), symbol("side")
    x = g.permute(g.input("x", "uint8", [n, side, side, 12]), (0, 3, 1, 2))
    pads = ((1, 1), (1, 1))
    for name, shape, groups in (("y", (20, 12, 3, 3), 1), ("z", (12, 1, 3, 3), 12)):
        w = g.constant(integers(rng, "int8", *shape))
        g.output(name, g.conv(x, w, pads=pads, groups=groups, out_dtype=DType.INT32))
    for size in (1, 2, 5, 30):
        assert_exact(g, {"x": integers(rng, "uint8", 2, size, size, 12)})
