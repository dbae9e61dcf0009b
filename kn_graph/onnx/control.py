"""Converters of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dtype import DType
from kn_graph.graph import Graph
from kn_graph.onnx.carried import RankChangeError, settle
from kn_graph.onnx.registry import converter
from kn_graph.onnx.sequence import elements_of
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Value

if TYPE_CHECKING:
    import onnx

    from kn_graph.onnx.context import NodeContext
    from kn_graph.onnx.loader import Scope

__all__: list[str] = []


@converter("If")
def if_else(ctx: NodeContext) -> Sequence[Value]:
    """One branch alone where the condition is known or follows from sizes of inputs."""
    condition = ctx.input(0)
    truth = ctx.decide(condition)
    branches = ("then_branch", "else_branch")
    if truth is not None:
        ctx.ignore(branches[truth])
        return ctx.inline(branches[not truth])
    (then_body, else_body), captured = ctx.bodies(*branches)
    return ctx.graph.if_else(condition, then_body, else_body, captured)


@converter("Loop")
def loop(ctx: NodeContext) -> Sequence[Value]:
    """Types of what is carried are found by converting the body until they hold."""
    trip, condition, initial = ctx.optional(0), ctx.optional(1), ctx.inputs(2)
    proto = ctx.graph_attribute("body")
    counters = [_counter_type(proto, i, d) for i, d in enumerate((DType.INT64, DType.BOOL))]

    def convert(types: Sequence[ValueType]) -> tuple[Graph, list[Value]]:
        return ctx.body_of(proto, [*counters, *types])

    if trip is not None and _fills_a_list(ctx, proto, trip, condition, initial):
        written = _unrolled(ctx, proto, trip, condition, initial)
        if written is not None:
            return written
    guards = ctx.graph.root.body_guards
    before = list(guards)
    try:
        body, captured = settle(ctx, initial, convert, first_output=1)
    except RankChangeError:
        guards[:] = before
        written = None if trip is None else _unrolled(ctx, proto, trip, condition, initial)
        if written is None:
            raise
        return written
    return ctx.graph.loop(body, initial, trip=trip, condition=condition, captured=captured)


MAX_UNROLLED = 64
"""Iterations of a loop that is written out."""


def _fills_a_list(
    ctx: NodeContext,
    proto: onnx.GraphProto,
    trip: Value,
    condition: Value | None,
    initial: Sequence[Value],
) -> bool:
    """Return whether a loop of so many iterations appends to a list of which all is known.

    Written out, its elements are values like others. A script that cuts a tensor at constant
    positions is such a loop.
    """
    count = None if trip.content is None or trip.content.size != 1 else trip.content.item()
    counted = isinstance(count, int) and 0 < count <= MAX_UNROLLED
    listed = any(elements_of(v) is not None for v in initial)
    return counted and listed and _is_true(condition) and _goes_on(ctx, proto)


def _is_true(condition: Value | None) -> bool:
    known = None if condition is None else condition.content
    return condition is None or (known is not None and known.size == 1 and known.item() is True)


def _goes_on(ctx: NodeContext, proto: onnx.GraphProto) -> bool:
    """Return whether the body hands on the condition that it got, or a true one from outside."""
    made = {name: n for n in proto.node for name in n.output}
    name = proto.output[0].name
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    if name in made:
        return False
    return name == proto.input[1].name or _is_true(ctx.scope.lookup(name, ctx.where))


def _unrolled(
    ctx: NodeContext,
    proto: onnx.GraphProto,
    trip: Value,
    condition: Value | None,
    initial: Sequence[Value],
) -> Sequence[Value] | None:
    """Convert the body once an iteration; None where nothing says how many there are.

    Their number has to be known, or to be an input.
    """
    g, state = ctx.graph, list(initial)
    (count,) = ctx.axes(trip, "the trip count of a loop with changing ranks", guess=_twice)
    if count > MAX_UNROLLED:
        return None
    rows: list[list[Value]] = []
    going: bool | None = True if condition is None else ctx.decide(condition)
    for iteration in range(count):
        if going is None:
            return None
        if not going:
            break
        counters = [g.constant(np.array(iteration)), g.constant(np.array(True))]
        shaped = [_like_declared(g, proto, i, v) for i, v in enumerate(counters)]
        on, *out = ctx.inline_of(proto, [*shaped, *state])
        going = True if condition is None else ctx.decide(on)
        state = out[: len(initial)]
        rows.append(out[len(initial) :])
    if not rows and ctx.output_count > len(initial):
        return None  # of what there is no row, the type is not known
    return [*state, *(g.stack(row, 0) for row in zip(*rows, strict=True))]


def _twice(count: int) -> list[int]:
    return [2] * count


def _like_declared(g: Graph, proto: onnx.GraphProto, index: int, counter: Value) -> Value:
    return g.view(counter, _counter_type(proto, index, counter.dtype).shape)


def _counter_type(proto: onnx.GraphProto, index: int, dtype: DType) -> TensorType:
    """Some exporters declare iteration number and condition with shape [1]."""
    if index >= len(proto.input):
        return TensorType(dtype, ())
    rank = len(proto.input[index].type.tensor_type.shape.dim)
    return TensorType(dtype, (1,) if rank == 1 else ())


@converter("Scan", until=8)
def scan_batched(ctx: NodeContext) -> Sequence[Value]:
    """A scan over the batch (axis 0) whose body scans the sequence (axis 1)."""
    lengths = ctx.optional(0)
    inputs = ctx.inputs(1)
    count = ctx.integer("num_scan_inputs")
    initial, tensors = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    reverse = _flags(ctx, "directions", count)
    if lengths is not None and any(reverse):
        ctx.unsupported("a reverse direction together with sequence_lens")
    g = ctx.graph
    inner = Graph(f"{ctx.name} batch", parent=g)
    sliced = [*initial, *tensors, *([] if lengths is None else [lengths])]
    given = [
        inner.input_of_type(f"slice{i}", TensorType(v.dtype, v.shape[1:]))
        for i, v in enumerate(sliced)
    ]
    scope = ctx.scope.inside(inner)
    states, parts = given[: len(initial)], given[len(initial) : len(inputs)]
    turned = [inner.flip(x, 0) if back else x for x, back in zip(parts, reverse, strict=True)]
    results = _scan(ctx, scope, states, turned, None if lengths is None else given[-1])
    for i, v in enumerate(results):
        inner.output(f"result{i}", v)
    return g.scan(inner.seal(), [], sliced, captured=list(scope.captures))


@converter("Scan", since=9)
def scan(ctx: NodeContext) -> Sequence[Value]:
    """Other axes than 0 and other directions than forward are permutes and flips around it."""
    g, inputs = ctx.graph, ctx.inputs()
    count = ctx.integer("num_scan_inputs")
    initial, tensors = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    rows = ctx.output_count - len(initial)
    axes = ctx.integers("scan_input_axes", (0,) * count)
    out_axes = ctx.integers("scan_output_axes", (0,) * rows)
    reverse = _flags(ctx, "scan_input_directions", count)
    out_reverse = _flags(ctx, "scan_output_directions", rows)
    if len(axes) != count or len(out_axes) != rows:
        ctx.fail(f"has {len(axes)} input and {len(out_axes)} output axes, not {count} and {rows}")
    turned = []
    for x, axis, back in zip(tensors, axes, reverse, strict=True):
        (at,) = ctx.normal_axes((axis,), x.rank)
        front = g.permute(x, [at, *(a for a in range(x.rank) if a != at)])
        turned.append(g.flip(front, 0) if back else front)
    results = _scan(ctx, ctx.scope, initial, turned)
    states, stacked = results[: len(initial)], results[len(initial) :]
    out = []
    for x, axis, back in zip(stacked, out_axes, out_reverse, strict=True):
        (at,) = ctx.normal_axes((axis,), x.rank)
        forward = g.flip(x, 0) if back else x
        out.append(g.permute(forward, [*range(1, at + 1), 0, *range(at + 1, x.rank)]))
    return [*states, *out]


def _scan(
    ctx: NodeContext,
    scope: Scope,
    initial: Sequence[Value],
    tensors: Sequence[Value],
    length: Value | None = None,
) -> tuple[Value, ...]:
    proto = ctx.graph_attribute("body")
    slices = [TensorType(x.dtype, x.shape[1:]) for x in tensors]

    def convert(types: Sequence[ValueType]) -> tuple[Graph, list[Value]]:
        return ctx.body_of(proto, [*types, *slices], scope)

    body, captured = settle(ctx, initial, convert, first_output=0)
    return scope.graph.scan(body, initial, tensors, length=length, captured=captured)


def _flags(ctx: NodeContext, name: str, count: int) -> tuple[int, ...]:
    flags: tuple[int, ...] = ctx.integers(name, (0,) * count)
    if len(flags) != count or not set(flags) <= {0, 1}:
        ctx.fail(f"attribute {name!r} must have {count} elements of 0 or 1, got {flags}")
    return flags
