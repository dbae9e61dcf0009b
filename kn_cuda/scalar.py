"""Launches of scalar programs: alone, and as the end of other kernels."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cuda.axes import blocks_for, divides, in_order, joined
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.types import FEW_BITS, SMALL_FLOATS, compute_type, storage_type, wide
from kn_graph.dim import Size, ceildiv, size_prod
from kn_graph.dtype import DType
from kn_graph.types import Shape
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from kn_plan.program import ScalarProgram

__all__ = ["add_end", "scalar_launch", "vector_width"]

VECTOR_BYTES = 16
"""The widest load of a thread."""

Typed = tuple[Operand, str]
"""An operand, and the C++ type of its elements."""


def scalar_launch(
    program: ScalarProgram,
    writes: Sequence[Typed],
    reads: Sequence[Typed],
    threads: int,
) -> Launch:
    """Return a launch that applies a program to every element.

    Args:
        program: over one element of each operand.
        writes: its outputs, of equal sizes.
        reads: its inputs, of the same sizes.
        threads: of a block.
    """
    operands = [*writes, *reads]
    layouts = [o.layout for o, _ in operands]
    order = in_order(layouts[0].strides)
    sizes, strides = joined(
        tuple(layouts[0].sizes[a] for a in order),
        *(tuple(layout.strides[a] for a in order) for layout in layouts),
    )
    widths = [_BYTES.get(t, 8) for _, t in operands]
    vector = vector_width(sizes, strides, [x.offset for x in layouts], max(widths))
    b = KernelBuilder("scalar", "scalar_map", threads)
    b.constant("VECTOR", vector)
    b.constant("OPERANDS", len(operands))
    outputs = [f"y{i}" for i in range(len(writes))]
    inputs = [f"x{i}" for i in range(len(reads))]
    for name, (operand, type_) in zip(outputs, writes, strict=True):
        b.writes(name, operand, type_)
    for name, (operand, type_) in zip(inputs, reads, strict=True):
        b.reads(name, operand, type_)
    count = size_prod(sizes)
    b.number("count", count)
    b.numbers("sizes", sizes)
    b.rows("strides", strides)
    b.program(program)
    dense = [steps[-1] == 1 for steps in strides]
    types = [compute_type(program.dtype(r)) for r in program.outputs]
    b.code(_apply(outputs, inputs, dense, types))
    return b.launch(blocks_for(ceildiv(count, vector), threads))


_BYTES = {
    **{storage_type(d): d.itemsize for d in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)},
    **{f"{sign}int{8 * n}_t": n for sign in ("", "u") for n in (1, 2, 4)},
    **{storage_type(d): 1 for d in SMALL_FLOATS | FEW_BITS},
    "bool": 1,
}


def vector_width(
    sizes: Shape, strides: Sequence[Shape], offsets: Sequence[Size], itemsize: int
) -> int:
    """Return how many elements along the last axis a thread handles at once.

    Args:
        sizes: of joined axes.
        strides: of each operand; the first is written.
        offsets: of each operand.
        itemsize: the widest element.
    """
    vector = max(1, min(8, VECTOR_BYTES // itemsize))
    if strides[0][-1] != 1 or any(steps[-1] not in (0, 1) for steps in strides):
        return 1
    if isinstance(sizes[-1], int) and sizes[-1] < vector:
        return 1
    starts: list[Size] = []
    for steps, offset in zip(strides, offsets, strict=True):
        if steps[-1] == 1:  # where a vector begins; of others a thread reads one element
            starts += [offset, *steps[:-1]]
    rows = sizes[-1:] if len(sizes) > 1 else ()  # a single row may end anywhere
    while vector > 1 and not divides(vector, (*starts, *rows)):
        vector //= 2
    return vector


def _apply(
    outputs: Sequence[str], inputs: Sequence[str], dense: Sequence[bool], types: Sequence[str]
) -> str:
    """Return the function that loads, computes and stores some elements of each operand."""
    place = {name: i for i, name in enumerate([*outputs, *inputs])}
    lines = []
    for x in inputs:
        at = f"p.{x} + at[{place[x]}]"
        lines.append(f"const auto {x} = load<{'N' if dense[place[x]] else '1'}>({at});")
    lines += [f"Pack<{_element(y)}, N> {y};" for y in outputs]
    lines += ["KN_UNROLL", "for (int i = 0; i < N; i++) {"]
    for y, type_ in zip(outputs, types, strict=True):
        lines.append(f"    {type_} {y}_i;")
    given = [f"widened({x}.lane[{'i' if dense[place[x]] else '0'}])" for x in inputs]
    lines.append(f"    program({', '.join(['p', *given, *(f'{y}_i' for y in outputs)])});")
    lines += [f"    put({y}.lane[i], {y}_i);" for y in outputs]
    lines.append("}")
    lines += [f"store<N>(p.{y} + at[{place[y]}], {y});" for y in outputs]
    body = "".join(f"    {line}\n" for line in lines)
    head = "template <int N> KN_DEVICE static void apply("
    return f"{head}const Pointers& p, const Index (&at)[OPERANDS]) {{\n{body}}}\n"


def _element(name: str) -> str:
    """Return the C++ type of the elements of a pointer."""
    return f"Element<decltype(Pointers::{name})>"


def add_end(
    b: KernelBuilder,
    dtype: DType,
    program: ScalarProgram | None,
    writes: Sequence[Typed],
    extras: Sequence[Typed],
    order: Sequence[int] | None = None,
) -> None:
    """Give a kernel the function that stores a result, behind the program of its step.

    It is `end(p, n, i, result)`, where i is the place of the result in row-major order.

    Args:
        b: the kernel.
        dtype: of the results.
        program: what is applied to them, its first input; None for nothing.
        writes: its outputs.
        extras: its other inputs.
        order: the axes as i counts them; those of the step by default.
    """
    operands = [*writes, *extras]
    layouts = [o.layout for o, _ in operands]
    axes = range(layouts[0].rank) if order is None else order
    sizes, strides = joined(*_chosen(layouts, axes))
    b.numbers("end_sizes", sizes)
    b.rows("end_strides", strides)
    for i, (operand, type_) in enumerate(writes):
        b.writes(f"y{i}", operand, type_)
    for i, (operand, type_) in enumerate(extras):
        b.reads(f"e{i}", operand, type_)
    rounded = "result"
    if wide(dtype) is not dtype:
        rounded = f"Rounded<{storage_type(dtype)}>::of(result)"
    lines = [f"Index at[{len(operands)}] = {{}};", "locate(at, i, n.end_sizes, n.end_strides);"]
    if program is None:
        lines.append("put(p.y0[at[0]], result);")
    else:
        b.program(program)
        given = [f"widened(p.e{i}[at[{len(writes) + i}]])" for i in range(len(extras))]
        made = [f"y{i}" for i in range(len(writes))]
        for y, register in zip(made, program.outputs, strict=True):
            lines.append(f"{compute_type(program.dtype(register))} {y};")
        lines.append(f"program({', '.join(['p', rounded, *given, *made])});")
        lines += [f"put(p.{y}[at[{i}]], {y});" for i, y in enumerate(made)]
    body = "".join(f"    {line}\n" for line in lines)
    arguments = f"const Pointers& p, const Numbers& n, Index i, {compute_type(dtype)} result"
    b.code(f"KN_DEVICE static void end({arguments}) {{\n{body}}}\n")


def _chosen(layouts: Sequence[StridedLayout], axes: Sequence[int]) -> tuple[Shape, ...]:
    """Return the sizes of some axes, and the strides of each operand along them."""
    sizes = tuple(layouts[0].sizes[a] for a in axes)
    return (sizes, *(tuple(x.strides[a] for a in axes) for x in layouts))
