"""Which element of a result a thread computes, for kernels that treat some axes specially."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_cuda.builder import KernelBuilder
from kn_graph.types import Shape

__all__ = ["add_places"]


def add_places(
    b: KernelBuilder,
    sizes: Shape,
    order: Sequence[int],
    special: Mapping[int, int],
    *strides: Shape,
) -> None:
    """Give a kernel the function `place(n, i, at, o)`.

    It adds to at[k] the distance, in the strides of operand k, that the i-th result has along the
    other axes, and sets o[j] to its place along special ones.

    Args:
        b: the kernel.
        sizes: of the result.
        order: the axes as i counts them, the last one fastest.
        special: j for each axis whose place is wanted.
        strides: of each operand.
    """
    b.numbers("place_sizes", tuple(sizes[a] for a in order) or (1,))
    b.rows("place_strides", [tuple(row[a] for a in order) or (0,) for row in strides])
    lines = ["Index rest = i;"] if order else []
    for k, axis in reversed(list(enumerate(order))):
        place = f"const Index a{k} = rest"
        if k:
            lines.append(f"const Index outer{k} = rest / n.place_sizes[{k}];")
            place += f" - outer{k} * n.place_sizes[{k}]"
        lines.append(f"{place};")
        if axis in special:
            lines.append(f"o[{special[axis]}] = a{k};")
        else:
            lines += [f"at[{j}] += a{k} * n.place_strides[{j}][{k}];" for j in range(len(strides))]
        if k:
            lines.append(f"rest = outer{k};")
    body = "".join(f"    {line}\n" for line in lines)
    b.code(
        "template <int M> KN_DEVICE static void place(\n"
        f"    const Numbers& n, Index i, Index (&at)[{len(strides)}], Index (&o)[M]) {{\n{body}}}\n"
    )
