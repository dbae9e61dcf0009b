"""Selection by rank and running totals on native kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.ops.cumulative import CumulativeFn
from tests.cpu.steps import KERNELS, agree, check, native

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]
TYPES = ["float16", "bfloat16", "float32", "float64", *INTEGERS]
LENGTHS = [{"n": n} for n in (0, 1, 2, 3, 8, 9, 31, 64, 257, 1000)]


def extreme(dtype: str, n: int) -> np.ndarray[Any, Any]:
    """Return few values that repeat, the special ones of the type among them."""
    kind, rng = DType.parse(dtype), np.random.default_rng(n)
    if kind.is_float:
        chosen = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0, 3e-7], (3, n))
        return chosen.astype(kind.numpy)
    info = np.iinfo(kind.numpy)
    return rng.choice(np.array([info.min, info.max, 0, 1, 5], kind.numpy), (3, n))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [*TYPES, "uint64"])
def test_sorted_and_selected_elements_of_every_type(dtype: str, largest: bool) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", dtype, [3, "n"])
        few = g.top_k(g.input("y", dtype, [3, 40]), 4, 1, largest=largest)
        return [*g.top_k(x, x.shape[1], 1, largest=largest), *few]

    run = native(build)
    for sizes in LENGTHS:
        feeds = {"x": extreme(dtype, sizes["n"]), "y": extreme(dtype, 40)}
        agree(cpu_eval_graph(run.graph, feeds), run.eval(feeds))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_selection_along_any_axis_of_any_layout(axis: int) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", "float32", [5, 6, 70])
        found = list(g.top_k(x, 3, axis))
        turned = g.permute(g.input("y", "int64", [70, 5, 6]), [1, 2, 0])
        return [*found, *g.top_k(turned, 5, axis, largest=False)]

    check(build, high=9)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_running_totals(dtype: str, exclusive: bool, reverse: bool) -> None:
    def build(g: Graph) -> list[Value]:
        x = g.input("x", dtype, ["n", 3])
        fns: tuple[CumulativeFn, ...] = ("sum", "prod")
        return [
            g.cumulative(fn, v, axis, exclusive=exclusive, reverse=reverse)
            for fn in fns
            for v in (x, g.permute(x, [1, 0]))
            for axis in (0, 1)
        ]

    check(build, *LENGTHS[:5], {"n": 130}, high=7)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("largest", [True, False])
def test_what_is_masked_comes_last_in_its_order(share: float, largest: bool) -> None:
    masked = np.float32(-np.inf if largest else np.nan)
    run = native(lambda g: g.top_k(g.input("x", "float32", ["n", 500]), 500, largest=largest))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 40, (3, 500)).astype(np.float32)
    feeds = {"x": np.where(rng.random(x.shape) < share, x, masked)}
    agree(cpu_eval_graph(run.graph, feeds), run.eval(feeds))
