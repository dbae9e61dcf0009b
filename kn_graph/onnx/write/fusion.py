"""Groups of nodes that are one ONNX operator, as the loader makes them of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kn_graph.dim import Size, SymbolKind, size_prod, symbols_of
from kn_graph.dtype import DType
from kn_graph.onnx.write.conv import write_conv
from kn_graph.onnx.write.host import LABELS, label_encoder
from kn_graph.onnx.write.norm import layer_normalization
from kn_graph.onnx.write.pool import pool
from kn_graph.onnx.write.reduce import OPERATORS, write_kept
from kn_graph.onnx.write.registry import WriteFunction
from kn_graph.ops.conv import Conv
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.gather import Gather
from kn_graph.ops.host import HostCall
from kn_graph.ops.layout import View
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm
from kn_graph.ops.pool import Pool
from kn_graph.ops.reduce import ArgReduce, Reduce, ReduceTo
from kn_graph.ops.scatter import ScatterElements
from kn_graph.ops.source import ReadSizes
from kn_graph.types import Shape

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter
    from kn_graph.onnx.write.plan import Plan
    from kn_graph.value import Node, Value

__all__ = ["FUSIONS", "Group"]


@dataclass(frozen=True)
class Group:
    """Several nodes as one.

    Attributes:
        write: writes the last of them.
        reads: what the group reads.
        absorbed: the others; they are written only where somebody else reads them.
        shows: whether sizes are read off the result, so that it is written in any case.
    """

    write: WriteFunction
    reads: tuple[Value, ...]
    absorbed: tuple[Node, ...]
    shows: bool = False


Fuse = Callable[["Plan", "Node"], "Group | None"]


def _kept_axes(plan: Plan, node: Node) -> Group | None:
    """A view that puts reduced axes back as size 1: keepdims."""
    if not isinstance(node.op, View) or node.results[0] in plan.aliases:
        return None
    (reduced,) = plan.reads[node]
    inner = reduced.node
    if not isinstance(inner.op, (Reduce, ArgReduce)) or not plan.only_use(reduced):
        return None
    (x,) = plan.reads[inner]
    axes = inner.op.axes if isinstance(inner.op, Reduce) else (inner.op.axis,)
    kept = tuple(1 if a in axes else s for a, s in enumerate(x.shape))
    if node.op.shape != kept:
        return None
    op = inner.op

    def write(ctx: NodeWriter, own: object) -> str:
        return write_kept(ctx, op)

    return Group(write, (x,), (inner,))


def _stacked_matmul(plan: Plan, node: Node) -> Group | None:
    """All matrices of a stack times one: rows are merged before and split after the product."""
    if not isinstance(node.op, View):
        return None
    (product,) = plan.reads[node]
    inner = product.node
    if not isinstance(inner.op, MatMul) or inner.op.out_dtype or not plan.only_use(product):
        return None
    rows, y = plan.reads[inner]
    if not isinstance(rows.node.op, View) or y.rank != 2 or rows.rank != 2:
        return None
    (x,) = plan.reads[rows.node]
    whole: Shape = (*x.shape[:-1], y.shape[1])
    if x.rank < 3 or x.shape[-1] != rows.shape[1] or node.op.shape != whole:
        return None

    def write(ctx: NodeWriter, op: object) -> str:
        return ctx.emit("MatMul", *ctx.inputs)

    absorbed = (inner, rows.node) if plan.only_use(rows) else (inner,)
    return Group(write, (x, y), absorbed)


def _scaled_norm(plan: Plan, node: Node) -> Group | None:
    """A norm over the last axes times a scale: LayerNormalization."""
    if not isinstance(node.op, Binary) or node.op.fn != "mul":
        return None
    for normed, scale in (plan.reads[node], plan.reads[node][::-1]):
        inner = normed.node
        if not isinstance(inner.op, Norm) or not inner.op.center or not plan.only_use(normed):
            continue
        axes = inner.op.axes
        first = normed.rank - len(axes)
        if axes != tuple(range(first, normed.rank)) or scale.shape != normed.shape[first:]:
            continue
        if normed.shape != node.results[0].shape:
            continue
        epsilon = inner.op.epsilon

        def write(ctx: NodeWriter, op: object, axis: int = first, epsilon: float = epsilon) -> str:
            return layer_normalization(ctx, *ctx.inputs, axis=axis, epsilon=epsilon)

        return Group(write, (plan.reads[inner][0], scale), (inner,))
    return None


def _biased_conv(plan: Plan, node: Node) -> Group | None:
    """A convolution plus one number a channel."""
    if not isinstance(node.op, Binary) or node.op.fn != "add":
        return None
    for out, bias in (plan.reads[node], plan.reads[node][::-1]):
        inner = out.node
        if not isinstance(inner.op, Conv) or inner.op.out_dtype or not plan.only_use(out):
            continue
        if not isinstance(bias.node.op, View) or not out.dtype.is_float:
            continue
        (vector,) = plan.reads[bias.node]
        channels: Shape = (out.shape[1], *(1,) * (out.rank - 2))
        if vector.shape != channels[:1] or bias.shape != channels:
            continue
        conv = inner.op

        def write(ctx: NodeWriter, op: object, conv: Conv = conv) -> str:
            return write_conv(ctx, conv)

        return Group(write, (*plan.reads[inner], vector), (inner,))
    return None


def centered(plan: Plan, value: Value) -> tuple[Value, Value] | None:
    """Return an 8-bit tensor and its zero point, where a value is their difference in 16 bits."""
    op = value.node.op
    if not isinstance(op, Binary) or op.fn != "sub" or value.dtype is not DType.INT16:
        return None
    x, zero = plan.reads[value.node]
    for v in (x, zero):
        if not isinstance(v.node.op, Cast) or plan.reads[v.node][0].dtype.bits != 8:
            return None
    bare = plan.reads[x.node][0], plan.reads[zero.node][0]
    return bare if bare[0].dtype is bare[1].dtype else None


def _integer_product(plan: Plan, node: Node) -> Group | None:
    """A product in int32 of 8-bit tensors less their zero points."""
    if not isinstance(node.op, (MatMul, Conv)) or node.op.out_dtype is not DType.INT32:
        return None
    x, w = plan.reads[node]
    centred = centered(plan, w)
    if centred is None or x.dtype.bits != 8:
        return None
    w8, zero = centred
    op = node.op
    if isinstance(op, MatMul) and not (zero.rank == 0 or zero.shape == w8.shape[-1:]):
        return None
    if isinstance(op, Conv) and zero.rank:
        if not isinstance(zero.node.op, View) or zero.shape[1:] != (1,) * (w.rank - 1):
            return None
        (zero,) = plan.reads[zero.node]
        if zero.shape != w8.shape[:1]:
            return None

    def write(ctx: NodeWriter, own: object) -> str:
        no_zero = ctx.scalar(0, ctx.x)
        if isinstance(op, Conv):
            return write_conv(ctx, op)
        return ctx.emit("MatMulInteger", ctx.x, ctx.inputs[1], no_zero, ctx.inputs[2])

    return Group(write, (x, w8, zero), (w.node,) if plan.only_use(w) else ())


def _pooled_magnitudes(plan: Plan, node: Node) -> Group | None:
    """A sum pool of magnitudes: LpPool takes them itself."""
    if not isinstance(node.op, Pool) or node.op.fn != "sum":
        return None
    (x,) = plan.reads[node]
    if not isinstance(x.node.op, Unary) or x.node.op.fn != "abs":
        return None

    def write(ctx: NodeWriter, op: Pool) -> str | Sequence[str]:
        return pool(ctx, op, magnitudes=True)

    return Group(write, plan.reads[x.node], (x.node,) if plan.only_use(x) else ())


def _looked_up(plan: Plan, node: Node) -> Group | None:
    """Elements of a table at the places of strings among keys: LabelEncoder."""
    if not isinstance(node.op, Gather) or node.op.axis != 0:
        return None
    table, places = plan.reads[node]
    op = places.node.op
    if not isinstance(op, HostCall) or op.name != "find_strings" or not plan.only_use(places):
        return None
    keys = dict(op.attributes)["keys"]
    array = table.constant
    if array is None or array.shape != (len(keys) + 1,) or table.dtype not in LABELS:
        return None
    values = array.tolist()

    def write(ctx: NodeWriter, own: object) -> str:
        return label_encoder(ctx, keys, values)

    return Group(write, plan.reads[places.node], (places.node,))


# ---- shapes and axes that are data ---------------------------------------------------------------


def _bound_together(plan: Plan, sizes: Shape) -> Node | None:
    """Return the node that binds symbols to the elements of a vector, which sizes are."""
    for size in sizes:
        symbol = None if isinstance(size, int) else size.as_symbol
        node = None if symbol is None else plan.sources.get(symbol)
        if node is None or not isinstance(node.op, ReadSizes):
            continue
        symbols = node.op.symbols
        if len(symbols) != len(sizes):
            return None
        same = (a == b for a, b in zip(symbols, sizes, strict=True))
        known = (not _is_data(s) for s in sizes)
        return node if all(a or b for a, b in zip(same, known, strict=True)) else None
    return None


def _is_data(size: Size) -> bool:
    return any(s.kind is SymbolKind.DATA for s in symbols_of(size))


def _equal_to(plan: Plan, value: Value, number: int) -> Value | None:
    """Return x, where a value is x == number."""
    if not isinstance(value.node.op, Compare) or value.node.op.fn != "eq":
        return None
    x, other = plan.reads[value.node]
    c = other.content
    return x if c is not None and all(e == number for e in c.ravel().tolist()) else None


def _data_reshape(plan: Plan, node: Node) -> Group | None:
    """A view whose shape is a tensor, 0 and -1 in it resolved by arithmetic: Reshape does that."""
    if not isinstance(node.op, View):
        return None
    reader = _bound_together(plan, node.op.shape)
    if reader is None:
        return None
    (resolved,) = plan.reads[reader]
    if not isinstance(resolved.node.op, Select):
        return None
    (x,) = plan.reads[node]
    inferred, rest, wanted = plan.reads[resolved.node]
    quotient = _quotient(plan, rest, x)
    if _equal_to(plan, inferred, -1) is not wanted or not quotient:
        return None
    absorbed = [reader, resolved.node, inferred.node, *quotient]
    zero: int | None = 1
    if isinstance(wanted.node.op, Select):
        kept, own, given = plan.reads[wanted.node]
        shape = (*x.shape, *(1,) * len(node.op.shape))[: len(node.op.shape)]
        content = own.content
        copies = content is not None and tuple(content.ravel().tolist()) == shape
        if copies and _equal_to(plan, kept, 0) is given:
            absorbed += [wanted.node, kept.node]
            wanted, zero = given, None

    def write(ctx: NodeWriter, op: object) -> str:
        return ctx.emit("Reshape", *ctx.inputs, allowzero=zero)

    return Group(write, (x, wanted), tuple(absorbed), shows=True)


def _quotient(plan: Plan, value: Value, x: Value) -> list[Node]:
    """Return the nodes of: number of elements of x over max(prod(where(.., 1, shape)), 1)."""
    op = value.node.op
    if not isinstance(op, Binary) or op.fn != "div":
        return []
    total, known = plan.reads[value.node]
    content = total.content
    if content is None or any(e != size_prod(x.shape) for e in content.ravel().tolist()):
        return []
    if not isinstance(known.node.op, Binary) or known.node.op.fn != "max":
        return []
    product = plan.reads[known.node][0]
    if not isinstance(product.node.op, Reduce) or product.node.op.fn != "prod":
        return []
    (factors,) = plan.reads[product.node]
    return [value.node, known.node, product.node, factors.node]


def _data_axes(plan: Plan, node: Node) -> Group | None:
    """A reduction to a shape in which ones were scattered: over axes that are data."""
    if not isinstance(node.op, ReduceTo):
        return None
    reader = _bound_together(plan, node.op.shape)
    if reader is None:
        return None
    (marked,) = plan.reads[reader]
    scatter = marked.node.op
    if not isinstance(scatter, ScatterElements) or scatter.reduction != "none":
        return None
    (x,) = plan.reads[node]
    sizes, axes, ones = plan.reads[marked.node]
    contents = [sizes.content, ones.content]
    if any(c is None for c in contents):
        return None
    lists = [c.ravel().tolist() for c in contents if c is not None]
    if tuple(lists[0]) != x.shape or any(e != 1 for e in lists[1]):
        return None
    fn = node.op.fn

    def write(ctx: NodeWriter, op: object) -> str:
        return ctx.emit(OPERATORS[fn], *ctx.inputs)

    return Group(write, (x, axes), (reader, marked.node), shows=True)


FUSIONS: tuple[Fuse, ...] = (
    _kept_axes,
    _stacked_matmul,
    _scaled_norm,
    _biased_conv,
    _integer_product,
    _pooled_magnitudes,
    _looked_up,
    _data_reshape,
    _data_axes,
)
