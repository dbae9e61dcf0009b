"""Scalar programs as CUDA kernels, against the NumPy meaning of the same programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cuda.calls import Launch
from kn_cuda.expression import program_function
from kn_cuda.scalar import scalar_launch
from kn_cuda.source import KernelSource
from kn_cuda.types import storage_type
from kn_graph import Graph
from kn_graph.compare.walk import Context
from kn_graph.dim import symbol
from kn_graph.dtype import DType, Kind
from kn_graph.ops.elementwise import Binary, BitCast, Cast, Unary
from kn_graph.scalar import SCALAR_TABLE, ScalarFunction
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from kn_plan.program import ProgramBuilder, ScalarProgram
from tests.cpu.test_scalar import op_of, program_of
from tests.cuda.run import SEEDS, assert_clean, check, host_backend, needs_compiler, run_launch
from tests.graph.test_scalar import assert_close, float_operands, int_operands, operand_types

pytestmark = needs_compiler

Array = np.ndarray[Any, Any]
F16, F32, F64, BF16 = DType.FLOAT16, DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16
INTS = [d for d in DType if d.is_int and d.bits >= 8]
CASTABLE = [F16, BF16, F32, F64, *INTS, DType.BOOL]
ROWS = [r for r in SCALAR_TABLE.values() if r.name != "fma"]  # no graph has it


def launch_of(program: ScalarProgram, outs: Sequence[Array], inputs: Sequence[Array]) -> Launch:
    """Return a launch on arrays of any strides, each in memory of its own."""
    operands = [
        Operand(i, StridedLayout(x.shape, tuple(s // x.itemsize for s in x.strides)))
        for i, x in enumerate((*outs, *inputs))
    ]
    typed = [
        (o, storage_type(DType.from_numpy(x.dtype)))
        for o, x in zip(operands, (*outs, *inputs), strict=True)
    ]
    return scalar_launch(program, typed[: len(outs)], typed[len(outs) :], 64)


def results(program: ScalarProgram, inputs: Sequence[Array], seed: int = 0) -> list[Array]:
    outs = [np.empty(inputs[0].shape, program.dtype(r).numpy) for r in program.outputs]
    launch = launch_of(program, outs, inputs)
    return run_launch(launch, [*outs, *inputs], seed=seed)[: len(outs)]


def meaning(program: ScalarProgram, inputs: Sequence[Array]) -> list[Array]:
    return program.evaluate(Context({}), inputs)


def row_program(row: ScalarFunction, dtype: DType) -> ScalarProgram:
    types = operand_types(row, dtype)
    return program_of(op_of(row, dict(row.params)), types, row.result_type(*types))


@pytest.fixture(scope="module", autouse=True)
def kernels_of_rows() -> list[KernelSource]:
    """Compile the kernels of all rows as one unit, which takes less time than one by one."""
    kernels = []
    for row, dtype in product(ROWS, (F16, BF16, F32, F64, *INTS, DType.BOOL)):
        if dtype.kind in row.kinds:
            program = row_program(row, dtype)
            arrays = [np.zeros(1000, d.numpy) for d in program.inputs]
            outs = [np.zeros(1000, program.dtype(r).numpy) for r in program.outputs]
            kernels.append(launch_of(program, outs, arrays).kernel)
    for source, target in product(CASTABLE, CASTABLE):
        arrays = [np.zeros(1000, d.numpy) for d in (target, source)]
        cast = program_of(Cast(target), [source], target)
        kernels.append(launch_of(cast, arrays[:1], arrays[1:]).kernel)
    host_backend().prepare(kernels)
    return kernels


def test_kernels_of_all_rows_are_clean(kernels_of_rows: list[KernelSource]) -> None:
    assert_clean([k for k in kernels_of_rows if k.name.startswith("scalar_map")])


FLOATS = [(r, d) for r in ROWS if Kind.FLOAT in r.kinds for d in (F32, F64)]


@pytest.mark.parametrize(("row", "dtype"), FLOATS, ids=lambda v: getattr(v, "name", v))
def test_functions_meet_the_bound_of_their_row(row: ScalarFunction, dtype: DType) -> None:
    flat = [np.ascontiguousarray(a.ravel()) for a in float_operands(row, dtype)]
    (out,) = results(row_program(row, dtype), flat)
    assert_close(row, out, flat, row.params, dtype)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("row", [r for r in ROWS if Kind.FLOAT in r.kinds], ids=lambda r: r.name)
def test_narrow_floats_are_rounded_once(row: ScalarFunction, dtype: DType) -> None:
    some = [a.ravel()[-600:] for a in float_operands(row, F32)]
    arrays = [a if a.dtype == np.bool_ else a.clip(-60, 60).astype(dtype.numpy) for a in some]
    (out,) = results(row_program(row, dtype), arrays)
    assert_close(row, out, arrays, row.params, dtype)


@pytest.mark.parametrize(
    ("row", "dtype"),
    [(r, d) for r in ROWS for d in INTS if d.kind in r.kinds],
    ids=lambda v: getattr(v, "name", v),
)
def test_integers_are_exact_and_wrap(row: ScalarFunction, dtype: DType) -> None:
    arrays, program = int_operands(row, dtype), row_program(row, dtype)
    np.testing.assert_array_equal(results(program, arrays)[0], meaning(program, arrays)[0])


@pytest.mark.parametrize("row", [r for r in ROWS if Kind.BOOL in r.kinds], ids=lambda r: r.name)
def test_bools(row: ScalarFunction) -> None:
    arrays = [np.array(c) for c in zip(*product([False, True], repeat=row.arity), strict=True)]
    program = row_program(row, DType.BOOL)
    np.testing.assert_array_equal(results(program, arrays)[0], meaning(program, arrays)[0])


def values_of(dtype: DType) -> Array:
    """Return numbers at the limits of all types, as far as a type has them."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    edges = [s * (2.0**e + d) for s in (1, -1) for e in (7, 8, 15, 16, 31, 32) for d in (-1, 0, 1)]
    some = [0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.75, 1e-8, 65504.0, 65519.0, 65520.0, *edges]
    odd = [np.nan, np.inf, -np.inf, -0.0] if dtype.is_float else []
    with np.errstate(all="ignore"):
        wide = np.array([*some, *odd])
        return (wide if dtype.is_float else wide.astype(np.int64)).astype(dtype.numpy)


def in_range(x: Array, target: DType) -> Array:
    """Return what converts to a type in one way only: C says nothing about the rest."""
    if target.kind not in (Kind.INT, Kind.UINT) or x.dtype.kind in "iub":
        return x
    info, wide = np.iinfo(target.numpy), x.astype(np.float64)
    return x[(np.trunc(wide) >= float(info.min)) & (np.trunc(wide) <= float(info.max))]


@pytest.mark.parametrize("target", CASTABLE, ids=str)
@pytest.mark.parametrize("source", CASTABLE, ids=str)
def test_conversions_are_those_of_the_reference(source: DType, target: DType) -> None:
    x = in_range(values_of(source), target)
    program = program_of(Cast(target), [source], target)
    (got,), (want,) = results(program, [x]), meaning(program, [x])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    if target.is_float:
        assert (np.signbit(got) == np.signbit(want)).all()


@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_floats_that_no_integer_holds_become_the_lowest(source: DType) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], source.numpy)
    for target in (DType.INT32, DType.INT64):
        least = np.iinfo(target.numpy).min
        (got,) = results(
            program_of(Cast(target), [source], target), [np.append(x, -x.dtype.type(least))]
        )
        assert (got == least).all()


@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_the_upper_half_of_uint64_is_reached(source: DType) -> None:
    x = np.array([2.0**63, 1.25 * 2**63, 1.75 * 2**63], source.numpy)
    (got,) = results(program_of(Cast(DType.UINT64), [source], DType.UINT64), [x])
    assert got.tolist() == [2**63, 5 * 2**61, 7 * 2**61]


@pytest.mark.parametrize(
    ("source", "target"),
    [(F32, DType.INT32), (DType.UINT32, F32), (F16, DType.UINT16), (DType.INT16, BF16),
     (F64, DType.INT64), (DType.UINT64, F64), (DType.INT8, DType.UINT8)],
    ids=str,
)  # fmt: skip
def test_bits_are_kept(source: DType, target: DType) -> None:
    x = np.arange(-300, 300).astype(np.int64).astype(f"i{source.itemsize}").view(source.numpy)
    if source.is_float:
        x = np.linspace(-3, 3, 600).astype(source.numpy)
    elif target.is_float:  # a NaN may lose what is in it
        x = np.linspace(-3, 3, 600).astype(target.numpy).view(source.numpy)
    (got,) = results(program_of(BitCast(target), [source], target), [x])
    assert got.tobytes() == x.tobytes()


# --- whole programs ----------------------------------------------------------------------------


def residual() -> ScalarProgram:
    """Return (x * s + r, silu of it) with a number."""
    b = ProgramBuilder()
    x, s, r = (b.input(F32) for _ in range(3))
    total = b.apply(Binary("add"), (b.apply(Binary("mul"), (x, s), F32), r), F32)
    shifted = b.apply(Binary("add"), (total, b.number(0.1, F32)), F32)
    return b.build([total, b.apply(Unary("silu"), (shifted,), F32)])


def assert_program(program: ScalarProgram, outs: list[Array], inputs: list[Array]) -> Launch:
    """Run a program on arrays that are views of others, and on indices of 64 bits."""
    launch = launch_of(program, outs, inputs)
    flat = [_memory(x) for x in (*outs, *inputs)]
    for seed, wide in product(SEEDS, (False, True)):
        after = run_launch(launch, flat, seed=seed, wide=wide)
        for i, want in enumerate(meaning(program, inputs)):
            got = np.lib.stride_tricks.as_strided(after[i], outs[i].shape, outs[i].strides)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return launch


def _memory(x: Array) -> Array:
    """Return what an array is a view of, from its first element on."""
    count = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
    return np.lib.stride_tricks.as_strided(x, (count,), (x.itemsize,)).copy()


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 255, 256, 257, 1023])
def test_tails_of_vectors(n: int) -> None:
    outs = [np.zeros(n, np.float32), np.zeros(n, np.float32)]
    launch = assert_program(residual(), outs, [normal(n), normal(n), normal(n)])
    assert dict(launch.kernel.constants)["VECTOR"] == (4 if n >= 4 else 1)


def test_vectors_end_with_rows() -> None:
    row, column = normal(12), normal(7, 1)
    spread = [np.broadcast_to(x, (7, 12)) for x in (row, column)]
    outs = [np.zeros((7, 12), np.float32), np.zeros((7, 12), np.float32)]
    launch = assert_program(residual(), outs, [normal(7, 12), spread[0], spread[0]])
    assert dict(launch.kernel.constants)["VECTOR"] == 4
    launch = assert_program(residual(), outs, [normal(7, 12), *spread])
    assert dict(launch.kernel.constants)["VECTOR"] == 4
    odd = [np.zeros((7, 13), np.float32)[:, :11] for _ in range(2)]
    launch = assert_program(residual(), odd, [normal(7, 11), normal(7, 11), normal(7, 11)])
    assert dict(launch.kernel.constants)["VECTOR"] == 1


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_any_order_of_axes(axes: tuple[int, ...]) -> None:
    shape = (5, 6, 7)
    x = normal(*(shape[axes.index(a)] for a in range(3))).transpose(axes)
    outs = [np.zeros(x.shape, np.float32), np.zeros(x.shape, np.float32)]
    assert_program(residual(), outs, [x, normal(*x.shape), normal(*x.shape)])


def test_no_element_is_no_launch() -> None:
    n = symbol("n", lo=0)
    operand = Operand(0, StridedLayout((n, 3), (3, 1)))
    copy = ScalarProgram((F32,), (), (0,))
    launch = scalar_launch(copy, [(operand, "float")], [(operand, "float")], 64)
    (before,) = (np.ones(3, np.float32),)
    (after,) = run_launch(launch, [before], env=dict.fromkeys(n.symbols, 0))
    assert (after == before).all()


def test_numbers_are_part_of_the_text() -> None:
    text = program_function(residual())
    assert "0.1f" in text
    assert "silu" in text


def test_a_nan_of_the_other_operand_is_kept() -> None:
    x = np.array([np.nan, 1, np.nan, 2], np.float32)
    y = np.array([1, np.nan, np.nan, 3], np.float32)
    for fn in ("min", "max"):
        (got,) = results(program_of(Binary(fn), [F32, F32], F32), [x, y])
        np.testing.assert_array_equal(np.isnan(got), [True, True, True, False])


@pytest.mark.parametrize("dtype", [DType.FLOAT8E8M0, DType.FLOAT4E2M1, DType.COMPLEX64], ids=str)
def test_types_without_kernels_are_refused(dtype: DType) -> None:
    with pytest.raises(UnsupportedError, match=str(dtype)):
        storage_type(dtype)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_any_strides(shape: list[int], data: Any) -> None:
    def view() -> Array:
        gaps = [data.draw(st.integers(0, 2)) for _ in shape]
        order = data.draw(st.permutations(range(len(shape))))
        whole = normal(*(shape[a] + gaps[a] for a in order))
        turned = whole.transpose([order.index(a) for a in range(len(shape))])
        cut: Array = turned[tuple(slice(0, n) for n in shape)]
        return cut

    b = ProgramBuilder()
    total = b.apply(Binary("sub"), (b.input(F32), b.input(F32)), F32)
    assert_program(b.build([total]), [view()], [view(), view()])


def test_a_graph_of_programs_at_all_sizes() -> None:
    def build(g: Graph) -> Any:
        x, y = g.input("x", "float32", ("n", 12)), g.input("y", "float32", (12,))
        half = g.cast(x + y, F16)
        return g.gelu(x + y), g.permute(g.relu(half), (1, 0)), g.compare("lt", x, x * 2)

    run = check(build, {"n": 5}, {"n": 1}, {"n": 0}, {"n": 40})
    assert run.proof.host_steps.total() == 0
    assert run.proof.total > 0
    assert_clean([k.widened for k in run.loaded().skeleton.kernels])


def test_bfloat_rounds_to_even_and_keeps_nan() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7FC00001, 0xFF800001])
    x = bits.astype(np.uint32).view(np.float32)
    (got,) = results(program_of(Cast(BF16), [F32], BF16), [x])
    with np.errstate(all="ignore"):
        want = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), want)
