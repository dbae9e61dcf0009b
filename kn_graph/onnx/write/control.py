"""Writers of control flow: bodies become subgraphs that read outer values by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kn_graph.onnx.write.registry import writer
from kn_graph.onnx.write.scope import Scope
from kn_graph.ops.control import If, Loop, Scan

if TYPE_CHECKING:
    import onnx

    from kn_graph.graph import Graph
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []


def _body(ctx: NodeWriter, body: Graph, captured: Sequence[str]) -> onnx.GraphProto:
    """Write a body; its last inputs are captured values, known here by their outer names."""
    import onnx

    model = ctx.scope.model
    scope = Scope(model, body, ctx.scope)
    own = len(body.inputs) - len(captured)
    for v, name in zip(body.inputs[own:], captured, strict=True):
        scope.names[v] = name
    proto = onnx.GraphProto(name=body.name or "body")
    for v in body.inputs[:own]:
        name = model.names.prefer(v.names) or model.names.invent("input")
        model.declare(scope, v, name)
        proto.input.append(model.value_info(name, v.type))
    for v, name in zip(body.inputs[own:], captured, strict=True):
        scope.sizes.show(v, name)
    model.write_nodes(scope)
    made = {name for node in scope.nodes for name in node.output}
    for wanted, value in body.outputs.items():
        have = scope.name(value)
        if have in made:
            made.remove(have)  # a second output of this value gets a name of its own
        else:
            (have,) = scope.append("Identity", [have], 1)
            have = model.names.prefer([wanted]) or have
            scope.nodes[-1].output[0] = have
            model.name_node(scope.nodes[-1])
        proto.output.append(model.value_info(have, value.type))
    proto.node.extend(scope.nodes)
    return proto


def _results(
    ctx: NodeWriter, operator: str, inputs: Sequence[str], bodies: dict[str, object]
) -> list[str]:
    results = ctx.node.results
    return ctx.scope.append(operator, list(inputs), len(results), "", bodies)


@writer(If)
def if_else(ctx: NodeWriter, op: If) -> list[str]:
    """If."""
    condition, *captured = ctx.inputs
    bodies = {
        "then_branch": _body(ctx, op.then_body, captured),
        "else_branch": _body(ctx, op.else_body, captured),
    }
    return _results(ctx, "If", [condition], dict(bodies))


@writer(Loop)
def loop(ctx: NodeWriter, op: Loop) -> list[str]:
    """Loop."""
    inputs = list(ctx.inputs)
    trip = condition = ""
    if op.count is not None:
        trip = ctx.scope.sizes.end(op.count)
    if op.has_trip:
        trip = inputs.pop(0)
    if op.has_condition:
        condition = inputs.pop(0)
    initial, captured = inputs[: op.carried], inputs[op.carried :]
    body = _body(ctx, op.body, captured)
    return _results(ctx, "Loop", [trip, condition, *initial], {"body": body})


@writer(Scan)
def scan(ctx: NodeWriter, op: Scan) -> list[str]:
    """Scan; of a length that is data, a scan of the first elements, filled up with zeros."""
    inputs = list(ctx.inputs)
    length = inputs.pop(0) if op.has_length else ""
    initial, rest = inputs[: op.carried], inputs[op.carried :]
    tensors, captured = rest[: op.sliced], rest[op.sliced :]
    if length:
        whole = ctx.emit("Shape", tensors[0], start=0, end=1)
        length = ctx.emit("Reshape", length, ctx.ints(1))
        length = ctx.cast(length, ctx.scope.dtype(whole) or ctx.dtype)
        tensors = [ctx.emit("Slice", x, ctx.ints(0), length, ctx.ints(0)) for x in tensors]
    attributes: dict[str, object] = {"body": _body(ctx, op.body, captured)}
    attributes["num_scan_inputs"] = op.sliced
    names = _results(ctx, "Scan", [*initial, *tensors], attributes)
    if not length:
        return names
    filled = []
    missing = ctx.emit("Sub", whole, length)
    for v, name in zip(ctx.node.results[op.carried :], names[op.carried :], strict=True):
        ctx.scope.model.dtypes[name] = v.dtype
        zeros = ctx.const(np.zeros(2 * v.rank - 1, np.int64)[: v.rank])
        behind = [ctx.const(np.zeros(v.rank - 1, np.int64))] if v.rank > 1 else []
        pads = ctx.emit("Concat", zeros, missing, *behind, axis=0)
        filled.append(ctx.emit("Pad", name, pads))
    return [*names[: op.carried], *filled]
