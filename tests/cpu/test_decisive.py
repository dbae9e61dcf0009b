"""Arithmetic in programs, and functions that decide integers, equal the reference bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu import native
from kn_cpu.decisive import decisive_buffers
from kn_cpu.executor import CpuExecutor
from kn_cpu.native import STEP, library
from kn_cpu.scalar import ScalarKernel, compile_program
from kn_cpu.target import CpuTarget
from kn_graph import DType, Graph, cpu_eval_graph, optimize_graph
from kn_graph.dim import symbol
from kn_graph.ops.elementwise import Binary, Cast, Unary
from kn_graph.scalar import ScalarFunction
from kn_graph.value import Value
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from kn_plan.program import ProgramBuilder, ScalarProgram
from tests.cpu.test_scalar import FLOAT_CASES, ISAS, layout_of, meaning, op_of, program_of
from tests.graph.test_scalar import operand_types, param_sets

pytestmark = pytest.mark.skipif(not native.available(), reason=str(native.unavailable_reason()))

Array = np.ndarray[Any, Any]
F32 = DType.FLOAT32
NEARLY = {"gelu", "gelu_tanh", "scaled_tanh"}
"""Negative numbers cancel in the first two; products of few digits lie at ties of float32."""

FUNCTIONS = [r for r, d in FLOAT_CASES if d is F32 and not r.rounds_once]


def run(program: ScalarProgram, inputs: Sequence[Array], isa: str, *, exact: bool) -> list[Array]:
    kernel = compile_program(program, exact=exact)
    assert isinstance(kernel, ScalarKernel), kernel
    outputs = [np.empty(inputs[0].shape, program.dtype(r).numpy) for r in program.outputs]
    call = kernel.call(*([layout_of(x) for x in xs] for xs in (outputs, inputs)))
    lib = native.load(isa)
    step = np.array(
        [(lib.kernel("scalar", call.kernel), 0, 0, call.units, call.grain, call.scratch)], STEP
    )
    pointers = np.array([x.ctypes.data for x in (*outputs, *inputs)], np.int64)
    lib.run(step, np.array(call.numbers, np.int64), pointers, 1)
    return outputs


# --- programs ----------------------------------------------------------------------------------

UNARY = ("neg", "abs", "sqrt", "floor", "round_even", "relu", "square", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "min", "max")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_arithmetic_is_rounded_operation_by_operation(data: st.DataObject) -> None:
    draw, builder = data.draw, ProgramBuilder()
    inputs = [builder.input(F32) for _ in range(3)]
    values = list(inputs)
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 3)) == 0:
            op: Any = Unary(draw(st.sampled_from(UNARY)))
            values.append(builder.apply(op, [draw(st.sampled_from(values))], F32))
            continue
        number = builder.number(
            float(np.float32(draw(st.sampled_from([0.1, -1.7, 3.0, 0.0])))), F32
        )
        operands = [draw(st.sampled_from([*values[-3:], number])) for _ in range(2)]
        values.append(builder.apply(Binary(draw(st.sampled_from(BINARY))), operands, F32))
    program = builder.build([values[-1], *draw(st.sets(st.sampled_from(values[3:]), max_size=2))])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = [rng.normal(0, 2, 533).astype(np.float32) for _ in program.inputs]
    with np.errstate(all="ignore"):
        wanted = meaning(program, arrays)
    for isa, exact in product(ISAS, (False, True)):
        for got, want in zip(run(program, arrays, isa, exact=exact), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda r: r.name)
def test_exact_functions_are_rounded_once(row: ScalarFunction) -> None:
    rng, types = np.random.default_rng(1), operand_types(row, F32)
    x = np.concatenate([rng.normal(0, s, 9000) for s in (1e-3, 1, 6, 30)]).astype(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38, 88.7], np.float32)
    arrays = [np.roll(np.concatenate([x, special]), 7 * i) for i in range(row.arity)]
    for params in param_sets(row):
        program = program_of(op_of(row, params), types, row.result_type(*types))
        with np.errstate(all="ignore"):
            (want,) = meaning(program, arrays)
        for isa in ISAS:
            (got,) = run(program, arrays, isa, exact=True)
            if row.name in NEARLY:
                where = np.isfinite(want)
                got, near = got[where], np.spacing(np.abs(want[where])) + 1e-15 * x.max()
                assert (np.abs(got - want[where]) <= near).all()
            else:
                np.testing.assert_array_equal(got, want)


# --- graphs ------------------------------------------------------------------------------------


def channels_of(x: Value) -> int:
    channels: Any = x.shape[1]
    return int(channels)


def weights(g: Graph, *shape: int) -> Value:
    return g.constant(np.random.default_rng(sum(shape)).integers(-127, 128, shape).astype(np.int8))


def layer(g: Graph, x: Value, channels: int, kernel: int = 1) -> Value:
    """Quantize by the range of x, convolve, and scale, as `quantize_dynamic` writes it."""
    codes, scale, zero = g.dynamic_quantize(x)
    w = weights(g, channels, channels_of(x), kernel, kernel)
    total = g.conv_integer(codes, w, zero, pads=[(kernel // 2, kernel // 2)] * 2)
    return g.mul(g.cast(total, F32), g.mul(scale, g.scalar(0.004, F32)))


def gated(g: Graph, x: Value, function: str) -> Value:
    return g.mul(x, g.unary("sigmoid", x)) if function == "gate" else g.unary(function, x)


def dynamic_network(function: str) -> Graph:
    """Three convolutions around a residual sum."""
    g = Graph("dynamic")
    x = g.input("x", F32, (1, 3, symbol("h"), 20))
    first = gated(g, layer(g, x, 16, 3), function)
    second = g.add(first, layer(g, first, 16))
    third = gated(g, layer(g, second, 24, 3), function)
    codes, _, zero = g.dynamic_quantize(third)
    g.output("codes", codes)
    g.output("zero", zero)
    g.output("third", third)
    return g.seal()


def static_network(function: str) -> Graph:
    """Quantized by known scales: the function stands between two quantizations."""
    g = Graph("static")
    x = g.input("x", F32, (1, 3, symbol("h"), 20))
    for channels in (16, 16, 24):
        codes = g.quantize(x, g.scalar(0.037, F32), g.constant(np.uint8(117)))
        x = g.dequantize(codes, g.scalar(0.037, F32), g.constant(np.uint8(117)))
        w = g.dequantize(weights(g, channels, channels_of(x), 3, 3), g.scalar(0.0021, F32))
        x = gated(g, g.conv(x, w, pads=[(1, 1)] * 2), function)
    g.output("codes", g.quantize(x, g.scalar(0.03, F32), g.constant(np.uint8(90))))
    return g.seal()


NETWORKS: dict[str, Callable[[str], Graph]] = {
    "dynamic": dynamic_network,
    "static": static_network,
}


def executed(graph: Graph, feeds: dict[str, Array]) -> dict[str, Any]:
    kernels = library()
    assert kernels is not None
    return CpuExecutor(graph, kernels, 2).eval(feeds)


@pytest.mark.parametrize("function", ["gate", "silu", "sigmoid", "tanh", "softplus", "hard_swish"])
@pytest.mark.parametrize(
    ("name", "optimize"), [("dynamic", False), ("dynamic", True), ("static", True)]
)
def test_quantized_networks_equal_the_reference(name: str, function: str, optimize: bool) -> None:
    graph = NETWORKS[name](function)
    graph = optimize_graph(graph) if optimize else graph
    for seed, height in enumerate((17, 40)):
        x = np.random.default_rng(seed).normal(0, 1.5, (1, 3, height, 20)).astype(np.float32)
        got, want = executed(graph, {"x": x}), cpu_eval_graph(graph, {"x": x})
        for key, array in want.items():
            np.testing.assert_array_equal(got[key], array, err_msg=key)


# --- what decides ------------------------------------------------------------------------------


def decides(graph: Graph) -> set[str]:
    """Return the functions of programs that are computed exactly."""
    plan = plan_graph(graph, CpuTarget(), PlanOptions())
    decisive = decisive_buffers(plan)
    return {
        i.op.fn
        for s in plan.steps
        if s.program is not None and any(o.buffer in decisive for o in s.writes)
        for i in s.program.instructions
        if isinstance(i.op, Unary)
    }


def floats(g: Graph, x: Value) -> Value:
    w = np.random.default_rng(0).normal(size=(8, channels_of(x), 3, 3)).astype(np.float32)
    return g.conv(x, g.constant(w))


def rounded(g: Graph, x: Value) -> Value:
    return g.push(Cast(DType.INT8), x)


def moved(g: Graph, x: Value) -> Value:
    return g.pad(g.pool(g.unary("tanh", x), "max", (2, 2)), [(0, 0), (0, 0), (1, 1), (1, 1)])


CASES: dict[str, tuple[Callable[[Graph, Value], Value], bool]] = {
    "rounded at once": (lambda g, x: rounded(g, g.unary("tanh", x)), True),
    "rounded behind moves and sums": (lambda g, x: rounded(g, moved(g, x) + 1.0), True),
    "never rounded": (lambda g, x: g.unary("tanh", x), False),
    "behind a sum of floats": (lambda g, x: rounded(g, g.unary("tanh", floats(g, x))), False),
    "before a sum of floats": (lambda g, x: rounded(g, floats(g, g.unary("tanh", x))), False),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_decides_an_integer_is_exact(case: str) -> None:
    build, expected = CASES[case]
    g = Graph("case")
    g.output("y", build(g, g.input("x", F32, (1, 3, 12, 12))))
    assert ("tanh" in decides(g.seal())) is expected
