"""Writers of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.recurrent import Recurrent
from kn_graph.scalar import scalar_function

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []

ACTIVATIONS = {
    "affine": "Affine", "elu": "Elu", "hard_sigmoid": "HardSigmoid", "leaky_relu": "LeakyRelu",
    "relu": "Relu", "scaled_tanh": "ScaledTanh", "sigmoid": "Sigmoid", "softplus": "Softplus",
    "softsign": "Softsign", "tanh": "Tanh", "thresholded_relu": "ThresholdedRelu",
}  # fmt: skip
PLACES = {"bias": 3, "lengths": 4, "initial_h": 5, "initial_c": 6, "peepholes": 7}


@writer(Recurrent)
def recurrent(ctx: NodeWriter, op: Recurrent) -> Sequence[str]:
    """RNN, GRU or LSTM."""
    if op.quantize_hidden:
        refuse("a recurrent layer that quantizes its states")
    if not isinstance(op.hidden_size, int):
        refuse("a recurrent layer of symbolic size")
    inputs = [*ctx.inputs[:3], *[""] * 5]
    for name, given in zip(op.optional, ctx.inputs[3:], strict=True):
        inputs[PLACES[name]] = given
    while not inputs[-1]:
        inputs.pop()
    attributes: dict[str, Any] = {
        "hidden_size": op.hidden_size,
        "direction": None if op.direction == "forward" else op.direction,
        "clip": op.clip,
        "linear_before_reset": 1 if op.linear_before_reset else None,
        "input_forget": 1 if op.input_forget else None,
        **_activations(op),
    }
    outputs = 3 if op.kind == "lstm" else 2
    return ctx.emit_all(op.kind.upper(), *inputs, outputs=outputs, **attributes)


def _activations(op: Recurrent) -> dict[str, Any]:
    """Return names, and the parameters of those that have some, one list for each."""
    every = [a for functions in op.activations for a in functions]
    for name, _ in every:
        if name not in ACTIVATIONS:
            refuse(f"a recurrent layer with the activation {name}")
    given: dict[str, Any] = {"activations": [ACTIVATIONS[name] for name, _ in every]}
    bound = [(scalar_function(name).params, dict(params)) for name, params in every]
    if any(params for _, params in bound):
        for p in ("alpha", "beta"):
            numbers = [params.get(p, known[p]) for known, params in bound if p in known]
            if numbers:
                given[f"activation_{p}"] = [float(n) for n in numbers]
    return given
