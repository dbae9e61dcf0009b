"""Convolutions by cuDNN: as one graph with what is behind, or alone with a launch behind.

What cuDNN accepts says `kn_cuda.verdict`. Of all ways that it accepts the one of the fewest
launches is taken: it may be worth a copy to have the channels side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kn_cuda.calls import LibraryCall
from kn_cuda.conv_end import ConvEnd, conv_end
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.verdict import refusal
from kn_graph.dim import Size
from kn_graph.dim_facts import provably_ge
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.types import Shape
from kn_plan.calls import Pointer
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["library_conv"]

LEAST_RANK = 2
"""Spatial axes that cuDNN has; a missing one is put in front."""


@dataclass(frozen=True)
class _Way:
    """A way to have cuDNN convolve.

    Attributes:
        graph: what it is asked for.
        end: what it computes behind; None for nothing.
        turned: whether x is copied.
        direct: whether it writes where the result is to be, or the launch behind reads it.
    """

    graph: ConvGraph
    end: ConvEnd | None
    turned: bool
    direct: bool

    @property
    def launches(self) -> int:
        """How many there are."""
        return 1 + self.turned + (not self.direct)


def library_conv(low: Lowering, step: Step, op: Conv | ConvTranspose) -> Calls | None:
    """Return the calls of a convolution by cuDNN; None where it does not accept it."""
    if not _fits(step, op):
        return None
    choices = ((fused, last) for fused in (True, False) for last in (True, False))
    ways = [w for c in choices if (w := _way(low, step, op, *c)) is not None]
    return _calls(low, step, op, min(ways, key=lambda w: w.launches)) if ways else None


def _fits(step: Step, op: Conv | ConvTranspose) -> bool:
    """Return whether there is something to do at all sizes, of a kind that cuDNN does well."""
    x, w = (o.layout.sizes for o in step.reads)
    if x[1] == op.groups and isinstance(op, Conv) and op.groups > 1:
        return False  # our kernel reads every element once, and has the program behind it
    known = all(isinstance(n, int) and n > 0 for n in (x[1], *w))
    filled = all(provably_ge(n, 1) for n in x[2:])
    return known and filled and _is_gradient(op)


def _is_gradient(op: Conv | ConvTranspose) -> bool:
    """Return whether a transpose is the gradient of a convolution: nothing lies behind it."""
    if isinstance(op, Conv):
        return True
    pairs = zip(op.output_padding, op.strides, strict=True)
    return all(isinstance(more, int) and more < step for more, step in pairs)


def _way(
    low: Lowering, step: Step, op: Conv | ConvTranspose, fused: bool, last: bool
) -> _Way | None:
    """Return a way that cuDNN accepts."""
    end = conv_end(step) if fused else None
    if fused and (end is None or not _can_add(low, step, end, last)):
        return None
    assert step.node is not None
    fill = LEAST_RANK - len(op.strides)
    graph = ConvGraph(
        low.dtype(step.reads[0]), step.node.results[0].dtype,
        (*(1,) * fill, *op.strides), (*(1,) * fill, *op.dilations), op.groups,
        channels_last=last, transposed=isinstance(op, ConvTranspose), math=low.options.math,
    )  # fmt: skip
    if end is not None:
        graph = replace(
            graph, bias=bool(end.biases), residual=end.residual is not None,
            activation=end.activation,
        )  # fmt: skip
    mixed = low.dtype(step.reads[1]) is not graph.dtype
    if mixed or refusal(graph, low.arch) is not None:
        return None
    turned = not _is_dense(step.reads[0].layout, last)
    behind = end is None and step.program is not None
    direct = not behind and _is_dense(step.writes[0].layout, last)
    return _Way(graph, end, turned, direct)


def _can_add(low: Lowering, step: Step, end: ConvEnd, last: bool) -> bool:
    """Return whether what is added lies as cuDNN needs it, and is of the type of the result."""
    assert step.node is not None
    dtype = step.node.results[0].dtype
    added = (*end.biases, *([end.residual] if end.residual else []), *step.writes)
    if any(low.dtype(o) is not dtype for o in added):
        return False
    if end.residual is not None and not _is_dense(end.residual.layout, last):
        return False
    constant = all(low.constant(_along_channels(o)) is not None for o in end.biases)
    one = len(end.biases) == 1 and end.biases[0].layout.strides[1] == 1
    return constant or one


def _is_dense(layout: StridedLayout, last: bool) -> bool:
    return (layout.permute(_order(layout.rank)) if last else layout).is_contiguous


def _order(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _along_channels(o: Operand) -> Operand:
    """Return the numbers of the channels of a bias, as an operand of one axis."""
    x = o.layout
    return Operand(o.buffer, StridedLayout(x.sizes[1:2], x.strides[1:2], x.offset))


# ---- calls ----------------------------------------------------------------------------------


def _calls(low: Lowering, step: Step, op: Conv | ConvTranspose, way: _Way) -> Calls:
    x, w = step.reads
    graph, last = way.graph, way.graph.channels_last
    calls: Calls = []
    if way.turned:
        made = _temporary(low, x, x.layout.sizes, last)
        calls.append(low.copy(made, x))
        x = made
    weights = _weights(low, w, last, calls)
    assert step.node is not None
    out = step.writes[0]
    if not way.direct:
        out = _temporary(low, step.reads[0], step.shape, last)
    bias = _bias(low, way.end.biases) if way.end and way.end.biases else None
    residual = way.end.residual if way.end else None
    numbers = _numbers(x.layout.sizes, w.layout.sizes, step.shape, op)
    pointers = (x, weights, out, bias, residual)
    calls.append(LibraryCall(graph, pointers, numbers, step.writes[0].layout.numel))
    if way.end is None and step.program is not None:
        return [*calls, *low.behind(step, out)]
    return calls if way.direct else [*calls, low.copy(step.writes[0], out)]


def _numbers(
    x: Shape, w: Shape, out: Shape, op: Conv | ConvTranspose
) -> tuple[Size, ...]:  # fmt: skip
    """Return the numbers of a call; see `ConvGraph`."""
    fill = max(0, LEAST_RANK - len(op.strides))
    before, after = (tuple(p[i] for p in op.pads) for i in (0, 1))
    rows = ((x[2:], 1), (w[2:], 1), (out[2:], 1), (before, 0), (after, 0))
    spatial = (n for row, missing in rows for n in (*(missing,) * fill, *row))
    return (x[0], x[1], out[1], *spatial)


def _temporary(low: Lowering, like: Operand, shape: Shape, last: bool) -> Operand:
    """Return memory of an operand's type in an order of axes."""
    if not last:
        return low.temporary(low.dtype(like), shape)
    rank = len(shape)
    made = low.temporary(low.dtype(like), tuple(shape[a] for a in _order(rank)))
    return Operand(made.buffer, made.layout.permute((0, rank - 1, *range(1, rank - 1))))


def _weights(low: Lowering, w: Operand, last: bool, calls: Calls) -> Pointer:
    """Return weights in an order of axes, turned once where they are a constant."""
    if _is_dense(w.layout, last):
        return w
    array = low.constant(w)
    if array is not None:
        turned = array.transpose(_order(array.ndim)) if last else array
        return low.kept((w, "conv", last), turned)
    made = _temporary(low, w, w.layout.sizes, last)
    calls.append(low.copy(made, w))
    return made


def _bias(low: Lowering, biases: tuple[Operand, ...]) -> Pointer:
    """Return the sum of biases."""
    arrays = [low.constant(_along_channels(o)) for o in biases]
    known = [a for a in arrays if a is not None]
    if len(known) < len(biases):
        return _along_channels(biases[0])
    dtype = low.dtype(biases[0]).numpy
    total = sum(a.astype(np.float64) for a in known)
    return low.kept(("bias", *biases), np.asarray(total).astype(dtype))
