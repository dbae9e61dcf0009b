"""Convolutions and their transposes, by the library and by our kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaExecutor, CudaOptions, HostBackend
from kn_cuda import conv_library as library
from kn_cuda.calls import LibraryCall
from kn_cuda.conv_graph import ConvGraph
from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.ops.conv import Conv, ConvTranspose
from tests.cuda.run import check, check_graph, host_backend, needs_compiler

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]
WAYS = ("library", "own")


@dataclass(frozen=True)
class Case:
    """A convolution: its shapes without the batch, and its attributes."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: int = 1
    more: tuple[int, ...] | None = None

    def node(self, g: Graph, dtype: str, name: str, *, turned: bool = False) -> Value:
        """Return the result of the operation; of a transpose where there is an output padding."""
        x = g.input(f"x{name}", dtype, ("n", *self.x))
        if turned:  # channels come last in memory
            x = g.permute(g.input(f"l{name}", dtype, ("n", *self.x[1:], self.x[0])), _first(self.x))
        w = g.constant(_normal(self.w).astype(x.dtype.numpy))
        window = (self.strides, self.dilations, self.pads)
        if self.more is None:
            return g.push(Conv(*window, self.groups), x, w)
        return g.push(ConvTranspose(*window, self.more, self.groups), x, w)


def _first(x: Sequence[int]) -> tuple[int, ...]:
    rank = len(x) + 1
    return (0, rank - 1, *range(1, rank - 1))


def _normal(shape: Sequence[int]) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape) / 3


CONVS = {
    "no axis": Case((5,), (7, 5), (), (), ()),
    "a line": Case((5, 19), (7, 5, 4), (3,), (2,), ((2, 1),)),
    "an image": Case((5, 9, 11), (7, 5, 3, 2), (1, 2), (2, 1), ((1, 1), (0, 1))),
    "a pixel": Case((35, 3, 5), (70, 35, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
    "a strided pixel": Case((18, 5, 5), (33, 18, 1, 1), (2, 2), (1, 1), ((0, 0), (0, 0))),
    "groups": Case((12, 7, 6), (9, 4, 3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 3),
    "a body": Case((3, 4, 5, 6), (6, 3, 2, 3, 2), (1, 2, 1), (1, 1, 2), ((0, 1), (1, 1), (1, 0))),
    "padding alone": Case((2, 2, 2), (3, 2, 2, 2), (4, 4), (1, 1), ((4, 4), (4, 4))),
    "depthwise": Case((9, 7, 13), (9, 1, 3, 3), (2, 1), (1, 2), ((1, 1), (0, 2)), 9),
    "two for each": Case((5, 6, 7), (10, 1, 5, 5), (1, 1), (1, 1), ((2, 2), (2, 2)), 5),
    "a depthwise line": Case((6, 21), (6, 1, 4), (1,), (1,), ((3, 0),), 6),
    "a depthwise body": Case(
        (4, 5, 4, 6), (4, 1, 3, 2, 2), (1, 2, 1), (2, 1, 1), ((1, 1), (1, 0), (0, 1)), 4
    ),
    "four axes": Case((2, 2, 3, 2, 3), (2, 2, 1, 2, 1, 2), (1,) * 4, (1,) * 4, ((0, 0),) * 4),
}

TRANSPOSES = {
    "a line": Case((5, 9), (5, 7, 4), (3,), (2,), ((2, 1),), 1, (0,)),
    "an image": Case((5, 4, 6), (5, 3, 3, 2), (2, 3), (1, 2), ((1, 0), (1, 1)), 1, (1, 2)),
    "groups": Case((6, 4, 3), (6, 2, 3, 3), (2, 2), (1, 1), ((1, 1), (1, 1)), 3, (0, 1)),
    "depthwise": Case((5, 4, 3), (5, 1, 4, 4), (2, 2), (1, 1), ((1, 1), (1, 1)), 5, (0, 0)),
    "beyond the last kernel": Case((2, 3), (2, 2, 2), (2,), (1,), ((0, 0),), 1, (3,)),
    "a body": Case((2, 2, 3, 2), (2, 3, 2, 2, 3), (1, 2, 2), (1,) * 3, ((0, 0),) * 3, 1, (0, 1, 0)),
}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what takes the library away."""

    def choose(way: str) -> None:
        if way == "own":
            monkeypatch.setattr(library, "refusal", lambda graph, arch: "a test")

    return choose


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cases", [CONVS, TRANSPOSES], ids=["conv", "transpose"])
def test_any_window_groups_and_rank(
    cases: dict[str, Case], way: str, own: Callable[[str], None]
) -> None:
    own(way)

    def build(g: Graph) -> Any:
        return [
            c.node(g, "float32", f"{i}{turned}", turned=turned)
            for i, c in enumerate(cases.values())
            for turned in (False, True)
        ]

    run = check(build, {"n": 2}, {"n": 0})
    assert (run.proof.kernels["conv_graph"] > 0) == (way == "library")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int64"])
def test_every_type(dtype: str, way: str, own: Callable[[str], None]) -> None:
    own(way)

    def build(g: Graph) -> Any:
        integer = DType.parse(dtype).is_int
        made = []
        for i, name in enumerate(("an image", "depthwise")):
            case = CONVS[name]
            x = g.input(f"x{i}", dtype, ("n", *case.x))
            w = np.rint(3 * _normal(case.w)) if integer else _normal(case.w)
            window = (case.strides, case.dilations, case.pads, case.groups)
            weights = g.constant(w.astype(x.dtype.numpy))
            made.append(g.push(Conv(*window), x, weights))
            if dtype in ("float16", "int8"):
                wide = DType.FLOAT32 if dtype == "float16" else DType.INT32
                made.append(g.push(Conv(*window, wide), x, weights))
        return made

    check(build, {"n": 2}, high=100)


def test_tiles_that_are_not_full_and_many_slabs(own: Callable[[str], None]) -> None:
    own("own")
    cases = [
        Case((37, 9, 10), (65, 37, 3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
        Case((16, 8, 8), (64, 16, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
        Case((1, 9, 10), (33, 1, 3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ]

    def build(g: Graph) -> Any:
        return [c.node(g, "float32", f"{i}", turned=i == 1) for i, c in enumerate(cases)]

    run = check(build, {"n": 1}, {"n": 3})
    assert run.proof.kernels["conv_tiled"] == 2 * len(cases)


@pytest.mark.parametrize("way", WAYS)
def test_nan_and_infinity_spread_to_the_windows_that_touch_them(
    way: str, own: Callable[[str], None]
) -> None:
    own(way)
    g = Graph("nan")
    x = g.input("x", "float32", (1, 3, 6, 7))
    both = ((1, 1), (1, 1))
    w = _normal((4, 3, 3, 3)).astype(np.float32)
    t = _normal((3, 2, 3, 3)).astype(np.float32)
    d = _normal((3, 1, 3, 3)).astype(np.float32)
    for weights in (w, t, d):
        weights[0, 0, 1, 2] = np.inf
    g.output("conv", g.relu(g.push(Conv((1, 1), (1, 1), both), x, g.constant(w))))
    g.output("depthwise", g.push(Conv((1, 1), (1, 1), both, 3), x, g.constant(d)))
    turned = ConvTranspose((2, 2), (1, 1), both, (0, 0))
    g.output("transpose", g.push(turned, x, g.constant(t)))
    array = _normal((1, 3, 6, 7)).astype(np.float32)
    array[0, 1, 2, 3], array[0, 0, 5, 6] = np.nan, np.inf
    check_graph(g, [{"x": array}])


def _graphs(run: CudaExecutor) -> list[ConvGraph]:
    calls = (c.call for s in run.loaded().skeleton.device_steps for c in s.calls)
    asked = (c.request for c in calls if isinstance(c, LibraryCall))
    return [r for r in asked if isinstance(r, ConvGraph)]


def _block(g: Graph, dtype: str, activation: str, digits: str = "") -> Value:
    """Return what a residual block ends with, which joins two convolutions.

    Args:
        g: where to add it.
        dtype: what it computes with.
        activation: the last function.
        digits: the type that weights have the digits of; that one by default.
    """
    narrow = DType.parse(digits or dtype).numpy
    x = g.permute(g.input("x", dtype, ("n", 6, 9, 5)), (0, 3, 1, 2))

    def conv(x: Value, seed: int) -> Value:
        arrays = _normal((5, 5, 3, 3)) + seed / 50, _normal((5, 1, 1)) + seed
        w, bias = (g.constant(a.astype(narrow).astype(x.dtype.numpy)) for a in arrays)
        return g.push(Conv((1, 1), (1, 1), ((1, 1), (1, 1))), x, w) + bias

    y = g.relu(conv(x, 0))
    return g.reduce("mean", g.unary(activation, conv(y, 1) + conv(x, 2)), (2, 3))


LAUNCHES = [
    # type, math, activation, graphs asked for, launches: three convolutions, a mean, what is alone
    ("float32", "fp32", "relu", 3, 4 + 1),
    ("float32", "tf32", "relu", 3, 4),
    ("float16", "fp32", "relu", 3, 4),
    ("bfloat16", "fp32", "silu", 3, 4),
    ("float32", "fp32", "silu", 3, 4 + 1),
    ("float16", "fp32", "hard_swish", 3, 4 + 1),
    ("float64", "fp32", "relu", 0, 4),
]


@pytest.mark.parametrize(("dtype", "math", "activation", "graphs", "launches"), LAUNCHES)
def test_what_is_behind_is_one_graph_where_the_device_fuses_it(
    dtype: str, math: Any, activation: str, graphs: int, launches: int
) -> None:
    g, exact = Graph("block"), Graph("exact")
    for each, type_ in ((g, dtype), (exact, "float64")):
        each.symbol("n")
        each.output("y", _block(each, type_, activation, dtype))
    feeds = {"x": _normal((2, 6, 9, 5)).astype(DType.parse(dtype).numpy)}
    run = CudaExecutor(g, host_backend(), CudaOptions(math=math))
    got, ref = run.eval(feeds)["y"], cpu_eval_graph(g, feeds)["y"]
    want = cpu_eval_graph(exact, {"x": feeds["x"].astype(np.float64)})["y"]
    # a graph rounds once, the reference behind every operation: it has to be as exact as that
    error, allowed = (np.abs(y.astype(np.float64) - want).max() for y in (got, ref))
    assert error <= 2 * allowed + 1e-14
    assert len(_graphs(run)) == graphs
    assert run.proof.total == launches


def test_a_sum_with_itself_is_no_bias_however_often() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 3, 4, 4))
        y = g.push(
            Conv((1, 1), (1, 1), ((0, 0), (0, 0))),
            x,
            g.constant(_normal((2, 3, 1, 1)).astype(np.float32)),
        )
        for _ in range(40):
            y = y + y
        return g.relu(y)

    assert check(build, {"n": 1}).proof.kernels["conv_graph"] == 1


def test_bfloat16_runs_by_our_kernels_on_what_has_none() -> None:
    g = Graph("t4")
    g.symbol("n")
    g.output("y", _block(g, "bfloat16", "relu"))
    old = HostBackend("sm_75", folder=host_backend()._cache.folder)
    assert not _graphs(CudaExecutor(g, old))
    assert len(_graphs(CudaExecutor(g, host_backend()))) == 3


def test_weights_may_be_computed(own: Callable[[str], None]) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 6, 5, 5))
        w = g.input("w", "float32", (4, 3, 3, 3)) * 2
        d = g.input("d", "float32", (6, 1, 3, 3))
        window = ((1, 1), (1, 1), ((1, 1), (1, 1)))
        return g.push(Conv(*window, 2), x, w), g.push(Conv(*window, 6), x, d)

    check(build, {"n": 2})
    own("own")
    check(build, {"n": 2})


def test_without_channels_or_elements_the_result_is_what_follows(
    own: Callable[[str], None],
) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", (2, 0, 5, 5))
        y = g.push(
            Conv((1, 1), (1, 1), ((0, 0), (0, 0))),
            x,
            g.constant(np.zeros((3, 0, 2, 2), np.float32)),
        )
        z = g.input("z", "float32", (2, 3, "n"))
        more = g.push(Conv((1,), (1,), ((2, 2),)), z, g.constant(np.ones((4, 3, 2), np.float32)))
        return y + 1, more + 1

    check(build, {"n": 0}, {"n": 3})


def test_results_are_stored_in_any_order_and_in_part() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 4, 6, 6))
        w = g.constant(_normal((3, 4, 3, 3)).astype(np.float32))
        y = g.push(Conv((1, 1), (1, 1), ((1, 1), (1, 1))), x, w)
        both = g.concat([g.relu(y), x], 1)
        return g.permute(y, (0, 3, 1, 2)), both

    check(build, {"n": 2})
