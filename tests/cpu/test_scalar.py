"""Scalar programs on the native interpreter, against the NumPy meaning of the same programs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu import native
from kn_cpu.native import STEP, NativeLibrary
from kn_cpu.scalar import ScalarKernel, ScalarRefusal, compile_program
from kn_cpu.scalar_lower import CLASSES, OPS
from kn_graph.compare.walk import Context
from kn_graph.dim import symbol
from kn_graph.dtype import DType, Kind
from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Compare, Select, Unary
from kn_graph.scalar import SCALAR_TABLE, ScalarFunction
from kn_plan.layout import StridedLayout
from kn_plan.program import ProgramBuilder, ScalarProgram
from tests.graph.test_scalar import (
    assert_close,
    float_operands,
    int_operands,
    operand_types,
    param_sets,
)

pytestmark = pytest.mark.skipif(not native.available(), reason=str(native.unavailable_reason()))

Array = np.ndarray[Any, Any]
ISAS, TYPES = native.available(), [d for d in CLASSES if d.bits >= (16 if d.is_float else 8)]
F32, F64, F16, BF16 = DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16
INTS = [d for d in TYPES if d.is_int]


def compiled(program: ScalarProgram) -> ScalarKernel:
    kernel = compile_program(program)
    assert isinstance(kernel, ScalarKernel), kernel
    return kernel


def layout_of(x: Array) -> StridedLayout:
    return StridedLayout(x.shape, tuple(s // x.itemsize for s in x.strides))


def execute(
    program: ScalarProgram, outputs: Sequence[Array], inputs: Sequence[Array],
    lib: NativeLibrary | None = None, threads: int = 1,
) -> None:  # fmt: skip
    """Run a program on arrays of one shape, with any strides."""
    call = compiled(program).call(*([layout_of(x) for x in xs] for xs in (outputs, inputs)))
    lib = lib or native.load(ISAS[-1])
    kernel = lib.kernel("scalar", call.kernel)
    step = np.array([(kernel, 0, 0, call.units, call.grain, call.scratch)], STEP)
    pointers = np.array([x.__array_interface__["data"][0] for x in (*outputs, *inputs)], np.int64)
    lib.run(step, np.array(call.numbers, np.int64), pointers, threads)


def results(
    program: ScalarProgram, inputs: Sequence[Array], lib: NativeLibrary | None = None,
    threads: int = 1,
) -> list[Array]:  # fmt: skip
    outputs = [np.empty(inputs[0].shape, program.dtype(r).numpy) for r in program.outputs]
    execute(program, outputs, inputs, lib, threads)
    return outputs


def meaning(program: ScalarProgram, inputs: Sequence[Array]) -> list[Array]:
    return program.evaluate(Context({}), inputs)


def op_of(row: ScalarFunction, params: dict[str, Any]) -> Op:
    if row.name == "select":
        return Select()
    if row.name in ("eq", "ne", "lt", "le", "gt", "ge"):
        return Compare(row.name)
    pairs = tuple(params.items())
    return Unary(row.name, pairs) if row.arity == 1 else Binary(row.name, pairs)


def program_of(op: Op, dtypes: Sequence[DType], result: DType) -> ScalarProgram:
    builder = ProgramBuilder()
    inputs = [builder.input(d) for d in dtypes]
    return builder.build([builder.apply(op, inputs, result)])


# --- one function ------------------------------------------------------------------------------

ROWS = [r for r in SCALAR_TABLE.values() if r.name != "fma"]
FLOAT_CASES = [(r, d) for r in ROWS if Kind.FLOAT in r.kinds for d in (F32, F64)]
INT_CASES = [(r, d) for r in ROWS for d in INTS if d.kind in r.kinds]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("row", "dtype"), FLOAT_CASES, ids=lambda v: getattr(v, "name", v))
def test_functions_meet_the_bound_of_their_row(row: ScalarFunction, dtype: DType, isa: str) -> None:
    arrays, types = float_operands(row, dtype), operand_types(row, dtype)
    for params in param_sets(row):
        program = program_of(op_of(row, params), types, row.result_type(*types))
        flat = [np.ascontiguousarray(a.ravel()) for a in arrays]
        (out,) = results(program, flat, native.load(isa))
        assert_close(row, out, flat, params, dtype)


@pytest.mark.parametrize(("row", "dtype"), INT_CASES, ids=lambda v: getattr(v, "name", v))
def test_integers_are_exact_and_wrap(row: ScalarFunction, dtype: DType) -> None:
    arrays, types = int_operands(row, dtype), operand_types(row, dtype)
    program = program_of(op_of(row, dict(row.params)), types, row.result_type(*types))
    (want,) = meaning(program, arrays)
    for isa in ISAS:
        np.testing.assert_array_equal(results(program, arrays, native.load(isa))[0], want)


@pytest.mark.parametrize("row", [r for r in ROWS if Kind.BOOL in r.kinds], ids=lambda r: r.name)
def test_bools(row: ScalarFunction) -> None:
    arrays = [np.array(c) for c in zip(*product([False, True], repeat=row.arity), strict=True)]
    program = program_of(op_of(row, {}), [DType.BOOL] * row.arity, DType.BOOL)
    np.testing.assert_array_equal(results(program, arrays)[0], meaning(program, arrays)[0])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("row", [r for r in ROWS if Kind.FLOAT in r.kinds], ids=lambda r: r.name)
def test_narrow_floats_are_rounded_once(row: ScalarFunction, dtype: DType) -> None:
    some = [a.ravel()[-600:] for a in float_operands(row, F32)]
    arrays = [a if a.dtype == np.bool_ else a.clip(-60, 60).astype(dtype.numpy) for a in some]
    types = operand_types(row, dtype)
    program = program_of(op_of(row, dict(row.params)), types, row.result_type(*types))
    for isa in ISAS:
        (out,) = results(program, arrays, native.load(isa))
        assert_close(row, out, arrays, row.params, dtype)


SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 100.0, 65519.0, 65520.0, 1e-7, 6e-8, 2.9e-8, 3e-8, 1e-40,
           3.4e38, -3e38, np.inf, -np.inf, np.nan, 0.1, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8,
           1 + 3 * 2**-8, 0.3333]  # fmt: skip
BOTH = [(a, b) for a in TYPES for b in TYPES if not (a is F64 and b in (F16, BF16))]


def values_of(dtype: DType, target: DType) -> Array:
    """Return values whose conversion C defines."""
    if dtype is DType.BOOL:
        return np.array([False, True] * 20)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        some = [info.min, info.min + 1, -1, 0, 1, 2, 77, 100, 255, info.max - 1, info.max]
        rng = np.random.default_rng(0)
        more = rng.integers(info.min, info.max, 60, dtype.numpy, endpoint=True)
        return np.append(np.array([s for s in some if info.min <= s <= info.max]), more).astype(
            dtype.numpy
        )
    if target.is_int:
        low = 0 if target.kind is Kind.UINT else -(2 ** (target.bits - 1)) * 0.99
        high = 2 ** (target.bits - (target.kind is Kind.INT)) * 0.99
        high = min(high, 65000 if dtype is F16 else high)
        return np.linspace(max(low, -65000 if dtype is F16 else low), high, 99).astype(dtype.numpy)
    return np.array(SPECIAL * 3).astype(dtype.numpy)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("source", "target"), BOTH, ids=str)
def test_conversions_are_those_of_the_reference(source: DType, target: DType) -> None:
    x = values_of(source, target)
    program = program_of(Cast(target), [source], target)
    (want,) = meaning(program, [x])
    for isa in ISAS:
        (got,) = results(program, [x], native.load(isa))
        assert got.dtype == want.dtype
        if not target.is_float:
            np.testing.assert_array_equal(got, want)
            continue
        wide, expected = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(wide, expected)
        np.testing.assert_array_equal(np.signbit(wide), np.signbit(expected))


def test_every_half_and_bfloat_is_read_and_written() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    for dtype in (F16, BF16):
        x = bits.view(dtype.numpy)
        (wide,) = results(program_of(Cast(F32), [dtype], F32), [x])
        np.testing.assert_array_equal(wide, x.astype(np.float32))
        with np.errstate(over="ignore", invalid="ignore"):
            near = np.concatenate([np.nextafter(wide, s * np.inf, dtype=np.float32)
                                   for s in (1, -1)] + [wide + wide * 2.0**-9])  # fmt: skip
            want = near.astype(dtype.numpy)
        (narrow,) = results(program_of(Cast(dtype), [F32], dtype), [near])
        np.testing.assert_array_equal(narrow.astype(np.float32), want.astype(np.float32))


def test_bits_are_reinterpreted() -> None:
    x = np.array([1.5, -0.0, np.inf], np.float32)
    (out,) = results(program_of(BitCast(DType.INT32), [F32], DType.INT32), [x])
    np.testing.assert_array_equal(out, x.view(np.int32))
    y = np.array([200, 3], np.uint8)
    (out,) = results(program_of(BitCast(DType.INT8), [DType.UINT8], DType.INT8), [y])
    np.testing.assert_array_equal(out, y.view(np.int8))


# --- programs ----------------------------------------------------------------------------------


def chain(*steps: tuple[str, float] | str, dtype: DType = F32, inputs: int = 1) -> ScalarProgram:
    """Apply functions one after another; a number is the second operand, `xN` another input."""
    builder = ProgramBuilder()
    x = [builder.input(dtype) for _ in range(inputs)]
    at = x[0]
    for step in steps:
        if isinstance(step, str):
            name, _, other = step.partition(" ")
            if other:
                second = at if other == "at" else x[int(other[1:])]
                at = builder.apply(Binary(name), [at, second], dtype)
            else:
                at = builder.apply(Unary(name), [at], dtype)
        else:
            name, number = step
            at = builder.apply(Binary(name), [at, builder.number(number, dtype)], dtype)
    return builder.build([at])


def gated(function: str, *gate: tuple[str, float] | str) -> ScalarProgram:
    """Multiply x by a chain of functions of it."""
    builder = ProgramBuilder()
    x = at = builder.input(F32)
    for step in gate:
        if isinstance(step, str):
            at = builder.apply(Unary(step), [at], F32)
        else:
            at = builder.apply(Binary(step[0]), [at, builder.number(step[1], F32)], F32)
    return builder.build([builder.apply(Binary(function), [at, x], F32)])


INF = float("inf")
FUSED = {
    "affine": (chain(("mul", 2.0), ("add", 3.0)), ["affine_f32"]),
    "affine_clamp": (
        chain(("mul", 0.5), ("add", 1.0), ("max", 0.0), ("min", 6.0)), ["affine_clamp_f32"]),
    "clip_crossed": (chain(("max", 3.0), ("min", -1.0)), ["clamp_f32"]),
    "sub": (chain(("sub", 2.0), "relu"), ["affine_clamp_f32"]),
    "div": (chain(("div", 4.0), ("div", 3.0)), ["affine_f32", "div_f32"]),
    "add_relu": (chain("add x1", "relu", inputs=2), ["add_clamp_f32"]),
    "scale_bias_relu": (chain("mul x1", "add x2", "relu", inputs=3), ["mul_add_clamp_f32"]),
    "gelu": (chain("mul x1", "add x2", "gelu", inputs=3), ["mul_add_f32", "gelu_f32"]),
    "silu": (gated("mul", "sigmoid"), ["silu_f32"]),
    "hard_swish": (
        gated("mul", ("mul", float(np.float32(1 / 6))), ("add", 0.5), ("max", 0.0), ("min", 1.0)),
        ["hard_swish_f32"]),
    "not_hard_swish": (
        gated("mul", ("mul", 0.2), ("add", 0.5), ("max", 0.0), ("min", 1.0)),
        ["affine_clamp_f32", "mul_f32"]),
    "nan": (chain(("max", float("nan"))), ["max_f32"]),
    "half": (chain(("mul", 2.0), ("add", 3.0), dtype=F16),
             ["affine_f32", "round_f16", "affine_f32", "round_f16"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_superinstructions(name: str) -> None:
    program, names = FUSED[name]
    kernel = compiled(program)
    assert list(kernel.names) == names
    with np.errstate(over="ignore"):
        x = np.array([*SPECIAL, *np.linspace(-8, 8, 77)]).astype(program.inputs[0].numpy)
    inputs = [np.roll(x, i) for i in range(len(program.inputs))]
    with np.errstate(all="ignore"):
        (want,) = meaning(program, inputs)
        size = np.abs(np.prod(inputs[:2], axis=0)).astype(np.float32) + 1
    for isa in ISAS:
        (got,) = results(program, inputs, native.load(isa))
        where = np.isfinite(size) & np.isfinite(want)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        error = np.abs(got[where].astype(float) - want[where].astype(float))
        unit = 0 if program.inputs[0] is F16 else 3e-7
        assert (error <= unit * size[where]).all()


def test_a_constant_zero_keeps_the_sign_of_zero() -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0], np.float32)
    for name, number in product(("add", "sub", "mul"), (0.0, -0.0, 1.0)):
        program = chain((name, number))
        (got,), (want,) = results(program, [x]), meaning(program, [x])
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    builder = ProgramBuilder()
    y, zeros = builder.input(F32), [builder.number(n, F32) for n in (0.0, -0.0)]
    program = builder.build([builder.apply(Binary("sub"), [z, y], F32) for z in zeros])
    for got, want in zip(results(program, [x]), meaning(program, [x]), strict=True):
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def quantize(target: DType) -> ScalarProgram:
    """QuantizeLinear and DequantizeLinear as the loader writes them, with a mask at the end."""
    builder, info = ProgramBuilder(), np.iinfo(target.numpy)
    x, scale = builder.input(F32), builder.input(F32)
    ratio = builder.apply(Binary("div"), [x, scale], F32)
    at = builder.apply(Unary("round_even"), [ratio], F32)
    for name, number in (("add", 7.0), ("max", float(info.min)), ("min", float(info.max))):
        at = builder.apply(Binary(name), [at, builder.number(number, F32)], F32)
    whole = builder.apply(Cast(target), [at], target)
    back = builder.apply(Cast(F32), [whole], F32)
    less = builder.apply(Binary("sub"), [back, builder.number(7.0, F32)], F32)
    result = builder.apply(Binary("mul"), [less, scale], F32)
    small = builder.apply(Compare("lt"), [result, x], DType.BOOL)
    wide = builder.apply(Cast(DType.INT64), [small], DType.INT64)
    return builder.build([whole, result, small, wide])


@pytest.mark.parametrize("target", [DType.INT8, DType.UINT8, DType.INT16], ids=str)
def test_quantization_with_several_outputs_is_exact(target: DType) -> None:
    rng = np.random.default_rng(0)
    x, scale = (rng.normal(0, 50, (13, 301)).astype(np.float32) for _ in range(2))
    scale = np.broadcast_to(np.abs(scale[:, :1]) + np.float32(0.1), x.shape)
    program = quantize(target)
    for isa in ISAS:
        got = results(program, [x, scale], native.load(isa))
        for one, want in zip(got, meaning(program, [x, scale]), strict=True):
            assert one.dtype == want.dtype
            np.testing.assert_array_equal(one, want)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 15, 17, 31, 63, 64, 65, 511, 513, 1023, 4095, 4097])
def test_no_element_is_left_out_and_none_beyond_is_touched(n: int) -> None:
    for isa, dtype in product(ISAS, (F32, F16)):
        program = chain(("mul", 2.0), "exp", dtype=dtype)
        x = np.linspace(-3, 3, n).astype(dtype.numpy)
        memory = np.full(n + 64, 99, dtype.numpy)
        execute(program, [memory[:n]], [x], native.load(isa))
        want = np.exp(x.astype(float) * 2)
        np.testing.assert_allclose(memory[:n].astype(float), want, rtol=2e-3)
        assert (memory[n:] == 99).all()


def strided(draw: Any, shape: Sequence[int], dtype: Any) -> Array:
    """Return a view with these sizes: axes in any order, reversed, with gaps, or repeated."""
    order = draw(st.permutations(range(len(shape))))
    gap = draw(st.sampled_from([0, 0, 1]))
    kept = [1 if draw(st.sampled_from([0, 0, 1])) else n for n in shape]
    memory = np.zeros([kept[a] + gap for a in order], dtype)
    memory[...] = np.random.default_rng(len(shape)).integers(-9, 9, memory.shape)
    view = memory[tuple(slice(0, kept[a]) for a in order)].transpose(np.argsort(order))
    flipped = tuple(slice(None, None, draw(st.sampled_from([1, 1, -1]))) for _ in shape)
    return np.broadcast_to(view[flipped] if shape else view, shape)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_layouts_of_up_to_eight_axes(data: st.DataObject) -> None:
    draw = data.draw
    sizes = st.sampled_from([0, 1, 1, 2, 3, 5, 17])
    shape = [*draw(st.lists(sizes, max_size=7)), *draw(st.sampled_from([(), (1,), (40,), (700,)]))]
    while np.prod(shape, dtype=float) > 20000:
        shape.pop(0)
    builder = ProgramBuilder()
    types = [F32, F32, draw(st.sampled_from([F32, DType.INT8, BF16])), DType.INT64]
    x = [builder.input(d) for d in types]
    narrow = builder.apply(Cast(F32), [x[2]], F32) if types[2] is not F32 else x[2]
    total = builder.apply(Binary("add"), [builder.apply(Binary("mul"), x[:2], F32), narrow], F32)
    whole = builder.apply(Cast(DType.INT64), [total], DType.INT64)
    program = builder.build(
        [total, builder.apply(Binary("sub"), [whole, x[3]], DType.INT64)],
        first=draw(st.integers(0, 1)),
    )
    inputs = [strided(draw, shape, d.numpy) for d in program.inputs]
    order = draw(st.permutations(range(len(shape))))
    memories = [
        np.full([shape[a] + 1 for a in order], 77, program.dtype(r).numpy) for r in program.outputs
    ]
    inside: Any = tuple(slice(0, shape[a]) for a in order)
    outputs = [m[(*inside, ...)].transpose(np.argsort(order)) for m in memories]
    execute(program, outputs, inputs, native.load(draw(st.sampled_from(ISAS))))
    for got, want in zip(outputs, meaning(program, inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    for memory, shown in zip(memories, outputs, strict=True):
        shown[...] = 77
        assert (memory == 77).all()


@pytest.mark.parametrize("shape", [(300, 24), (40, 700), (8, 96, 49), (2, 64, 7, 7)])
def test_rows_columns_and_scalars_are_broadcast(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    program = chain("mul x1", "add x2", "sub x3", "gelu", inputs=4)
    for axis in range(len(shape)):
        sizes = [n if a == axis else 1 for a, n in enumerate(shape)]
        row = np.broadcast_to(rng.normal(size=sizes).astype(np.float32), shape)
        column = np.broadcast_to(rng.normal(size=shape[:1] + (1,) * (len(shape) - 1)), shape)
        inputs = [x, row, column.astype(np.float32), np.broadcast_to(np.float32(0.5), shape)]
        (want,) = meaning(program, inputs)
        for isa in ISAS:
            (got,) = results(program, inputs, native.load(isa))
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_an_output_may_lie_over_an_input() -> None:
    builder = ProgramBuilder()
    x, y = builder.input(F32), builder.input(F32)
    first = builder.apply(Binary("add"), [x, y], F32)
    program = builder.build([first, builder.apply(Binary("mul"), [first, x], F32), y])
    a, b = (np.random.default_rng(i).normal(size=(9, 1000)).astype(np.float32) for i in (0, 1))
    want = [w.copy() for w in meaning(program, [a, b])]
    other = np.empty_like(a)
    execute(program, [a, b, other], [a, b])
    for got, expected in zip((a, b, other), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_results_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(0).normal(size=(700, 501)).astype(np.float32)
    program = chain("mul x1", "tanh", "add x1", inputs=2)
    row = np.broadcast_to(x[0], x.shape)
    one, two = (results(program, [x, row], threads=t)[0].tobytes() for t in (1, 3))
    assert one == two


def test_many_values_reuse_registers_or_are_refused() -> None:
    long = chain(*[("add", float(i)) for i in range(300)], "add x1", inputs=2)
    assert compiled(long).registers <= 5
    builder = ProgramBuilder()
    x = builder.input(F32)
    many = [builder.apply(Binary("mul"), [x, builder.number(i + 2.0, F32)], F32) for i in range(99)]
    at = many[0]
    for other in reversed(many):
        at = builder.apply(Binary("sub"), [at, other], F32)
    refused = compile_program(builder.build([at]))
    assert isinstance(refused, ScalarRefusal)
    assert "more than 96 registers" in str(refused)


def test_refusals_name_the_instruction() -> None:
    cases = [
        (program_of(Cast(F16), [F64], F16), "cast_float16(%0): no native conversion of float64"),
        (program_of(Binary("add"), [DType.UINT64] * 2, DType.UINT64), "uint64: no native"),
        (program_of(BitCast(DType.INT16), [F16], DType.INT16), "cast_int16(%0): no native rein"),
    ]
    for program, text in cases:
        refused = compile_program(program)
        assert isinstance(refused, ScalarRefusal)
        assert str(refused).startswith(text)


def test_sizes_may_be_symbols() -> None:
    n = symbol("n")
    layout = StridedLayout.contiguous((n, 3))
    call = compiled(chain("relu")).call([layout], [layout])
    assert n in call.numbers
    assert "n" in str(call.units)


def test_instructions_have_the_numbers_of_the_library() -> None:
    for isa in ISAS:
        names = ctypes.c_char_p.in_dll(native.load(isa).handle, "kn_scalar_names").value
        assert names is not None
        assert tuple(names.decode().split()) == OPS


# --- epilogues ---------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "cols"), [(48, 64), (5, 7), (1, 1), (3, 600), (6, 512)])
def test_a_block_of_a_product_gets_the_program_as_an_epilogue(
    isa: str, rows: int, cols: int
) -> None:
    lib, rng = native.load(isa), np.random.default_rng(0)
    block = rng.normal(size=(rows, cols + 5)).astype(np.float32)
    shape, row, col = (rows + 4, cols + 9), 2, 3
    bias, residual = rng.normal(size=shape[1]), rng.normal(size=shape)
    bias, residual = bias.astype(np.float32), residual.astype(ml_dtypes.bfloat16)
    builder = ProgramBuilder()
    x, b, r = builder.input(F32), builder.input(F32), builder.input(BF16)
    sum_ = builder.apply(Unary("silu"), [builder.apply(Binary("add"), [x, b], F32)], F32)
    wide = builder.apply(Cast(F32), [r], F32)
    program = builder.build([builder.apply(Binary("mul"), [sum_, wide], F32)])
    kernel = compiled(program)
    numbers = np.array(
        kernel.numbers((0, 0), (shape[1], 1), (0, 0), (0, 1), (shape[1], 1)), np.int64
    )
    out = np.full(shape, 5, np.float32)
    addresses = [out.ctypes.data, 0, bias.ctypes.data, residual.ctypes.data]
    pointers, scratch = np.array(addresses, np.int64), np.empty(kernel.scratch + 64, np.uint8)
    run = lib.handle.kn_scalar_block
    address, number = ctypes.c_void_p, ctypes.c_int64
    run.argtypes = (address, address, address, address, *[number] * 5)
    aligned = -(-scratch.ctypes.data // 64) * 64
    where = (cols + 5, row, col, rows, cols)
    run(numbers.ctypes.data, pointers.ctypes.data, aligned, block.ctypes.data, *where)
    here = (slice(row, row + rows), slice(col, col + cols))
    full: list[Any] = [block[:, :cols], np.broadcast_to(bias, shape)[here], residual[here]]
    (want,) = meaning(program, full)
    np.testing.assert_allclose(out[here], want, rtol=1e-5, atol=1e-6)
    out[here] = 5
    assert (out == 5).all()
