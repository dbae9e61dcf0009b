"""Norms and softmax on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_cuda import CudaOptions
from kn_graph import DType, Graph
from kn_graph.ops.norm import Norm, Softmax
from tests.cuda.run import assert_clean, check, check_graph, launched, needs_compiler

pytestmark = needs_compiler

LENGTHS = [1, 16, 17, 33, 64, 500, 520, 4096, 4100]


def normed(g: Graph, x: Any, axes: tuple[int, ...], *, center: bool = True) -> Any:
    return g.push(Norm(axes, 1e-5, center), x)


@pytest.mark.parametrize("threads", [32, 256])
def test_rows_of_all_lengths(threads: int) -> None:
    def build(g: Graph) -> Any:
        made = []
        for length in LENGTHS:
            x = g.input(f"x{length}", "float32", ("n", length))
            made += [normed(g, x, (1,)), normed(g, x, (1,), center=False)]
            made += [g.softmax(x, 1), g.log_softmax(x, 1)]
        return made

    run = check(build, {"n": 3}, {"n": 0}, options=CudaOptions(threads=threads))
    assert launched(run, "norm_rows") == 2 * len(LENGTHS)
    online = launched(run, "softmax_online")
    assert online == 2 * sum(n > 16 * threads or n > 512 > 16 * threads for n in LENGTHS)


@pytest.mark.parametrize("length", [1, 256, 257, 700])
def test_rows_whose_length_is_a_symbol_take_one_launch(length: int) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", (3, "n"))
        return g.softmax(x, 1), g.log_softmax(x * 2, 1), normed(g, x, (1,))

    run = check(build, {"n": length}, {"n": 0})
    assert launched(run, "softmax_held" if length <= 256 else "softmax_online") == 2
    assert launched(run, "norm_rows") == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_any_axis_of_every_type(dtype: str, axis: int) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", 7, 40))
        return g.softmax(x, axis), g.log_softmax(x, axis), normed(g, x, (axis,))

    check(build, {"n": 3}, {"n": 1}, {"n": 0}, ulps=1)


@pytest.mark.parametrize("axes", [(0,), (1, 2), (1, 3), (2, 3), (0, 1, 2, 3)], ids=str)
def test_several_axes_also_where_channels_lie_last(axes: tuple[int, ...]) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 6, 5, 8))
        turned = g.permute(g.input("z", "float32", ("n", 5, 8, 6)), (0, 3, 1, 2))
        return normed(g, x, axes), normed(g, turned, axes, center=False) + 1

    check(build, {"n": 3}, {"n": 1}, {"n": 0})


def test_a_group_norm_with_scale_bias_residual_and_activation_is_one_launch() -> None:
    def build(g: Graph) -> Any:
        x, r = (g.input(name, "float32", ("n", 8, 5, 6)) for name in "xr")
        scale, bias = (g.input(name, "float32", (8, 1, 1)) for name in "sb")
        groups = g.view(x, (x.shape[0], 4, 2, 5, 6))
        y = g.view(normed(g, groups, (2, 3, 4)), x.shape)
        return g.unary("silu", y * scale + bias) + r

    run = check(build, {"n": 3}, {"n": 0})
    assert run.proof.launches == {"Norm": 1}


@pytest.mark.parametrize("wanted", ["float32", "float16"])
def test_a_layer_norm_with_scale_and_bias_is_one_launch(wanted: str) -> None:
    def build(g: Graph) -> Any:
        x, s, b = (
            g.input(k, "float16", d) for k, d in (("x", ("n", 72)), ("s", (72,)), ("b", (72,)))
        )
        wide = g.cast(x, DType.FLOAT32)
        return g.cast(normed(g, x, (1,)) * s + b, DType.parse(wanted)), g.softmax(wide, 1) * 3

    run = check(build, {"n": 3}, {"n": 0}, ulps=1)
    assert run.proof.launches == {"Norm": 1, "Softmax": 1}


def test_a_large_mean_costs_no_digits() -> None:
    g = Graph("mean")
    x = g.input("x", DType.FLOAT32, (2, 600))
    g.output("y", normed(g, x, (1,)))
    noise = np.random.default_rng(0).standard_normal((2, 600))
    check_graph(g, [{"x": (noise + 100).astype(np.float32)}])


@pytest.mark.parametrize("length", [9, 100, 600, 5000])
@pytest.mark.parametrize("place", [0, 8])
def test_special_values(length: int, place: int) -> None:
    g = Graph("special")
    x = g.input("x", DType.FLOAT32, (8, length))
    for name, y in (("s", g.softmax(x, 1)), ("l", g.push(Softmax(1, log=True), x)),
                    ("n", normed(g, x, (1,)))):  # fmt: skip
        g.output(name, y)
    array = np.random.default_rng(0).standard_normal((8, length)).astype(np.float32)
    for row, special in enumerate([np.nan, np.inf, -np.inf]):
        array[row, place] = special
    array[3] = -np.inf
    array[4, : place + 1] = -np.inf
    array[5, place + 1 :] = -np.inf
    array[6] = 3e38
    array[7] *= 1e4
    check_graph(g, [{"x": array}])


def test_windows_of_larger_tensors_and_indices_of_64_bits() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 6, 50))
        cut = g.slice(x, 2, 3, 40, 1)
        return (
            g.softmax(cut, 2),
            normed(g, g.flip(x, 2), (2,)),
            g.softmax(g.permute(x, (2, 0, 1)), 1),
        )

    run = check(build, {"n": 1}, {"n": 5})
    assert_clean([k.widened for k in run.loaded().skeleton.kernels])
