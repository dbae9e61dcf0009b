"""Padding and joining, each of a result in one launch."""

from __future__ import annotations

from typing import Any

import pytest

from kn_graph import Graph
from kn_graph.ops.layout import Pad
from tests.cuda.run import check, needs_compiler

pytestmark = needs_compiler

PADS = [((0, 0), (1, 2), (0, 3)), ((2, 0), (0, 0), (3, 3)), ((0, 0), (0, 0), (0, 0))]


def test_every_mode_around_any_axes() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", (3, 5, 4))
        y = g.permute(g.input("y", "float32", (4, 5, 3)), (2, 1, 0)) * 2
        value = g.input("value", "float32", ())
        made = []
        for pads in PADS[:2]:
            for t in (x, y):
                made.append(g.push(Pad(pads), t, value))
                made += [g.push(Pad(pads, mode), t) for mode in ("edge", "reflect", "wrap")]
        return made

    run = check(build)
    assert run.proof.launches["Pad"] == 2 * 2 * 4


@pytest.mark.parametrize("dtype", ["int8", "float16", "int32", "float64", "bool"])
def test_elements_of_any_type_and_axes_of_any_size(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x, value = g.input("x", dtype, ("n", 3)), g.input("value", dtype, ())
        padded = [g.push(Pad(((1, 2), (0, 5))), x, value), g.push(Pad(((0, 0), (7, 8)), "wrap"), x)]
        return [*padded, g.concat([x, x], 0), g.concat([x, g.flip(x, 0), x], 1)]

    check(build, {"n": 4}, {"n": 1}, {"n": 0}, high=2)


def test_an_empty_tensor_is_padded_with_the_value_alone() -> None:
    def build(g: Graph) -> Any:
        x, value = g.input("x", "float32", ("n", 0)), g.input("value", "float32", ())
        return g.push(Pad(((1, 0), (2, 1))), x, value)

    check(build, {"n": 2}, {"n": 0})


@pytest.mark.parametrize("count", [2, 8, 9, 17])
def test_many_parts_are_joined_by_few_launches(count: int) -> None:
    def build(g: Graph) -> Any:
        parts = [g.input(f"x{i}", "float32", ("n", 1 + i % 3, 3)) for i in range(count)]
        turned = [g.permute(p, (0, 2, 1)) for p in parts]
        return g.concat(parts, 1), g.concat(turned, 2)

    run = check(build, {"n": 3}, {"n": 0})
    assert run.proof.launches["Concat"] == 2 * -(-count // 8)
