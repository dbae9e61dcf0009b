"""Converters of RNN, GRU and LSTM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kn_graph.onnx.registry import converter
from kn_graph.ops.recurrent import CELLS, Activation
from kn_graph.scalar import scalar_function

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["recurrent_attributes"]

ACTIVATIONS = {
    "affine": "affine", "elu": "elu", "hardsigmoid": "hard_sigmoid", "leakyrelu": "leaky_relu",
    "relu": "relu", "scaledtanh": "scaled_tanh", "sigmoid": "sigmoid", "softplus": "softplus",
    "softsign": "softsign", "tanh": "tanh", "thresholdedrelu": "thresholded_relu",
}  # fmt: skip
"""ONNX names of activations in lower case, and their rows of the scalar table."""

KINDS: dict[str, Any] = {"RNN": "rnn", "GRU": "gru", "LSTM": "lstm"}


@converter("RNN", "GRU", "LSTM")
def recurrent(ctx: NodeContext) -> list[Value]:
    """One Recurrent; with layout 1 the batch comes first everywhere."""
    if ctx.opset < 7:
        ctx.ignore("output_sequence")  # whether Y exists shows in the outputs
    kind = KINDS[ctx.op]
    batch_first = ctx.flag("layout", False) if ctx.opset >= 14 else False
    attributes = recurrent_attributes(ctx, kind)
    if kind == "gru" and ctx.opset >= 3:
        # ORT and others treat every number but 0 as true, and the ONNX text says "!= 0"
        attributes["linear_before_reset"] = ctx.integer("linear_before_reset", 0) != 0
    g, x, r = ctx.graph, ctx.input(0), ctx.input(2)
    check_hidden_size(ctx, r, 2)
    states: dict[str, Any] = {"initial_h": ctx.optional(5)}
    if kind == "lstm":
        states["initial_c"] = ctx.optional(6)
        attributes["peepholes"] = ctx.optional(7)
    if batch_first:
        x = g.permute(x, (1, 0, 2))
        states = {n: None if v is None else g.permute(v, (1, 0, 2)) for n, v in states.items()}
    results = g.recurrent(
        kind, x, ctx.input(1), r, bias=ctx.optional(3), lengths=ctx.optional(4),
        **states, **attributes,
    )  # fmt: skip
    if not batch_first:
        return list(results)
    y, *last = results
    return [g.permute(y, (2, 0, 1, 3)), *(g.permute(v, (1, 0, 2)) for v in last)]


def check_hidden_size(ctx: NodeContext, r: Value, axis: int) -> None:
    """Take the attribute hidden_size, which repeats a size of the recurrent weights."""
    hidden = ctx.integer("hidden_size", None)
    if r.rank != 3:
        ctx.fail(f"R must have 3 axes, got {r.type}")
    if hidden is not None and hidden != r.shape[axis]:
        ctx.graph.require_eq(r.shape[axis], hidden, f"hidden_size against R {r.type}")


def recurrent_attributes(ctx: NodeContext, kind: Any) -> dict[str, Any]:
    """Take the attributes that all recurrent operators share."""
    # GRU-1 spells its default direction wrongly
    direction = ctx.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    attributes = {
        "direction": direction,
        "activations": _activations(ctx, kind, 2 if direction == "bidirectional" else 1),
        "clip": ctx.real("clip", None),
    }
    if kind == "lstm":
        attributes["input_forget"] = ctx.flag("input_forget", False)
    return attributes


def _activations(
    ctx: NodeContext, kind: Any, directions: int
) -> tuple[tuple[Activation, ...], ...]:
    """Return the activations of each direction; alpha and beta go to those that have one."""
    usual = CELLS[kind].activations
    count = len(usual)
    names = ctx.texts("activations", usual * directions)
    if kind == "rnn" and directions == 1 and len(names) == 2:
        names = names[:1]  # the schema's own default has two for both directions
    if len(names) != count * directions:
        ctx.fail(f"has {len(names)} activations, expected {count * directions}")
    given = {p: list(ctx.reals(f"activation_{p}", ())) for p in ("alpha", "beta")}
    functions = [_activation(ctx, name, given) for name in names]
    return tuple(tuple(functions[i : i + count]) for i in range(0, len(functions), count))


def _activation(ctx: NodeContext, name: str, given: dict[str, list[float]]) -> Activation:
    row = ACTIVATIONS.get(name.replace("_", "").lower())
    if row is None:
        ctx.fail(f"{name!r} is no activation; there are {', '.join(ACTIVATIONS)}")
    params = [p for p in ("alpha", "beta") if p in scalar_function(row).params and given[p]]
    return row, tuple((p, given[p].pop(0)) for p in params)
