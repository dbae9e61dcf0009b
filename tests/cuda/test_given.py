"""Numbers of quantization, which kernels are given: layers that differ in them share kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kn_cuda.calls import Given
from kn_cuda.expression import given_numbers
from kn_graph import Graph, Value
from kn_graph.ops.norm import Norm
from kn_graph.ops.reduce import Reduce
from kn_plan.program import ScalarProgram
from tests.cuda.corpus import kernels_of
from tests.cuda.run import check, needs_compiler

SCALES = ((0.037, 121, -128.0), (0.25, -7, -5.0), (3e-39, 127, 3.0))
"""A scale, a zero, and a lower bound of each layer; the last scale is no normal float."""


def quantized(g: Graph, x: Value, layer: int, to: str = "int8") -> Value:
    """Return x in whole numbers, and back, as files write it."""
    scale, zero, low = SCALES[layer]
    whole = g.unary("round_even", x / np.float32(scale)) + np.float32(zero)
    lowest, highest = g.constant(np.float32(low)), g.constant(np.float32(120))
    kept = g.binary("min", g.binary("max", whole, lowest), highest)
    narrow = g.cast(kept, to)
    centred = g.cast(narrow, "int16") - np.int16(zero)
    return g.cast(centred, "float32") * np.float32(scale)


def weights(g: Graph, *shape: int) -> Value:
    return g.constant(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def alone(g: Graph, x: Value, layer: int) -> Value:
    return quantized(g, x, layer)


def behind_a_product(g: Graph, x: Value, layer: int) -> Value:
    return quantized(g, g.matmul(x, weights(g, 64, 64)), layer)


def in_front_of_a_norm(g: Graph, x: Value, layer: int) -> Value:
    flat = g.matmul(x, weights(g, 64, 64))
    return g.push(Norm((1,), 1e-5), quantized(g, flat, layer))


def behind_a_sum(g: Graph, x: Value, layer: int) -> Value:
    return quantized(g, g.push(Reduce("sum", (1,)), x), layer)


LAYERS = (alone, behind_a_product, in_front_of_a_norm, behind_a_sum)


def several(layer: Callable[[Graph, Value, int], Value]) -> Callable[[Graph], Any]:
    """Return what builds a layer for each of the scales."""

    def build(g: Graph) -> Any:
        return [layer(g, g.input(f"x{i}", "float32", ("n", 64)), i) for i in range(len(SCALES))]

    return build


@needs_compiler
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_share_kernels_and_have_numbers_of_their_own(
    layer: Callable[[Graph, Value, int], Value],
) -> None:
    run = check(several(layer), {"n": 5}, {"n": 37}, {"n": 0})
    one = Graph("one")
    one.symbol("n", lo=0)
    one.output("y", layer(one, one.input("x", "float32", ("n", 64)), 0))
    assert {k.name for k in run.loaded().skeleton.kernels} == {k.name for k in kernels_of(one)}


def program(build: Callable[[Graph], Value]) -> ScalarProgram:
    """Return the only program of the plan of a graph."""
    from kn_cuda.target import CudaTarget
    from kn_plan.planner import plan_graph

    g = Graph("program")
    g.output("y", build(g))
    (found,) = {s.program for s in plan_graph(g, CudaTarget()).steps if s.program}
    return found


@pytest.mark.parametrize(
    ("build", "numbers"),
    [
        (lambda g: quantized(g, g.input("x", "float32", (4,)), 0), 5),
        (lambda g: g.cast(g.input("x", "int32", (4,)), "float32") * np.float32(0.1), 1),
        (lambda g: g.input("x", "float32", (4,)) * np.float32(0.1), 0),
        (lambda g: g.input("x", "int32", (4,)) * np.int32(3), 0),
        (lambda g: g.unary("round_even", g.input("x", "float64", (4,)) * 0.1), 0),
    ],
)
def test_numbers_are_given_where_programs_quantize(
    build: Callable[[Graph], Value], numbers: int
) -> None:
    assert len(given_numbers(program(build))) == numbers


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, float("inf"), float("nan"), 1e-45, -7.25])
def test_a_float_stands_in_the_low_bytes_of_an_address(number: float) -> None:
    slot = np.array([Given(number).bits], np.int64)
    assert slot.view(np.float32)[0].tobytes() == np.float32(number).tobytes()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_a_whole_number_does(dtype: str) -> None:
    info = np.iinfo(dtype)
    for number in (int(info.min), -1 if info.min else 1, int(info.max)):
        slot = np.array([Given(number).bits], np.int64)
        assert slot.view(dtype)[0] == number
