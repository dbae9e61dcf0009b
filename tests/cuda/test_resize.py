"""Images of other sizes, and read at places that are data."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kn_graph import Graph
from kn_graph.ops.resize import Resize
from kn_graph.ops.sample import GridSample
from tests.cuda.run import check, check_graph, needs_compiler

pytestmark = needs_compiler

MODES: tuple[Any, ...] = ("nearest", "linear", "cubic")
PADDINGS: tuple[Any, ...] = ("zeros", "border", "reflection")

RULES: dict[str, dict[str, Any]] = {
    "halves": {},
    "corners": {"coordinates": "align_corners"},
    "scales": {"coordinates": "asymmetric", "scales": (Fraction(2), Fraction(5, 3))},
    "antialias": {"antialias": True, "sizes": (3, 5)},
    "inside": {"exclude_outside": True, "coordinates": "pytorch_half_pixel"},
    "copied": {"sizes": (7, 20)},
    "symmetric": {"coordinates": "half_pixel_symmetric", "nearest": "ceil"},
}


@pytest.mark.parametrize("mode", MODES)
def test_rules_of_coordinates(mode: Any) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 3, 7, 12))
        last = g.permute(g.input("l", "float32", ("n", 7, 12, 3)), (0, 3, 1, 2))
        made = []
        for options in RULES.values():
            op = Resize((2, 3), **{"sizes": (14, 20), "mode": mode, **options})
            made += [g.push(op, x), g.push(op, last)]
        return made

    check(build, {"n": 2}, {"n": 0})


@pytest.mark.parametrize("mode", MODES)
def test_any_axes_of_any_size(mode: Any) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", (2, "n", 8, 5))
        double = x.shape[1] * 2
        return [
            g.push(Resize((1,), (double,), mode=mode), x),
            g.push(Resize((3, 1), (7, 3), mode=mode, antialias=mode == "linear"), x),
            g.push(Resize((1, 2, 3), (double, 4, 11), mode=mode), x),
            g.push(Resize((), (), mode=mode), x),
        ]

    check(build, {"n": 5}, {"n": 1}, {"n": 3})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "uint8", "int8", "int64"])
def test_every_type(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", dtype, ("n", 6, 7))
        y = g.permute(g.input("y", "float32", ("n", 4, 5, 2)), (0, 1, 2, 3))
        resized = [g.push(Resize((1, 2), (9, 5), mode=mode), x) for mode in MODES]
        image = g.view(x, (x.shape[0], 1, 6, 7))
        return [*resized, *(g.push(GridSample(mode), image, y) for mode in MODES)]

    check(build, {"n": 2}, high=100)


def test_what_follows_runs_in_the_same_kernel() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 3, 4, 4))
        return g.relu(g.push(Resize((2, 3), (8, 8), mode="linear"), x) - 0.5)

    assert check(build, {"n": 2}).proof.launches == {"Resize": 1}


@pytest.mark.parametrize("mode", MODES)
def test_places_that_are_data(mode: Any) -> None:
    rng = np.random.default_rng(0)
    g = Graph("sample")
    x, y = g.input("x", "float32", (2, 3, 5, 7)), g.input("y", "float64", (2, 2, 3, 4, 5))
    line = g.input("line", "float32", (2, 3, 9))
    grids = {"x": (2, 4, 6, 2), "y": (2, 2, 3, 4, 3), "line": (2, 8, 1)}
    feeds = {}
    for v in (x, y, line):
        dtype = v.dtype.numpy
        grid = g.input(f"{v.name}_grid", v.dtype, grids[v.name])
        for padding in PADDINGS:
            for corners in (False, True):
                made = g.push(GridSample(mode, padding, corners), v, grid)
                g.output(f"{v.name}_{padding}_{corners}", made)
        feeds[v.name] = rng.standard_normal([int(str(n)) for n in v.shape]).astype(dtype)
        places = 1.5 * rng.standard_normal(grids[v.name])
        places.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 1e30, -1, 1]
        feeds[grid.name] = places.astype(dtype)
    feeds["x"][0, 0, 2, 3] = np.nan
    check_graph(g, [feeds])
