"""What a library can compute behind a convolution: sums and an activation."""

from __future__ import annotations

from dataclasses import dataclass

from kn_cuda.conv_graph import Activation
from kn_graph.ops.elementwise import Binary, Unary
from kn_plan.plan import Operand, Step
from kn_plan.program import ScalarProgram

__all__ = ["ConvEnd", "conv_end"]

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "silu": "silu",
    "gelu": "gelu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
"""By function of the scalar table."""


@dataclass(frozen=True)
class ConvEnd:
    """activation(result + biases + residual).

    Attributes:
        biases: numbers of the channels.
        residual: another tensor.
        activation: what is applied to the sum.
    """

    biases: tuple[Operand, ...] = ()
    residual: Operand | None = None
    activation: Activation = "none"


def conv_end(step: Step) -> ConvEnd | None:
    """Return what the program of a convolution is; None where it is something else."""
    program = step.program
    if program is None:
        return ConvEnd()
    if len(program.outputs) != 1 or {program.dtype(r) for r in _registers(program)} != {
        program.inputs[0]
    }:
        return None
    (last,) = program.outputs
    activation: Activation = "none"
    if last >= len(program.inputs):
        top = program.at(last)
        if isinstance(top.op, Unary) and top.op.fn in ACTIVATIONS and not top.op.params:
            activation, (last,) = ACTIVATIONS[top.op.fn], top.operands
    terms = _terms(program, last)
    if terms is None or 0 not in terms:
        return None
    operands = [step.extras[r - 1] for r in sorted(terms) if r]
    biases = tuple(o for o in operands if _is_bias(o))
    residuals = [o for o in operands if not _is_bias(o)]
    if len(residuals) > 1:
        return None
    return ConvEnd(biases, residuals[0] if residuals else None, activation)


def _registers(program: ScalarProgram) -> range:
    return range(len(program.inputs) + len(program.instructions))


def _terms(program: ScalarProgram, register: int) -> set[int] | None:
    """Return the inputs of which a register is the sum, each once; None where it is no such sum."""
    seen: set[int] = set()
    left = [register]
    while left:
        at = left.pop()
        if at in seen:  # a sum of a sum with itself has more terms than anyone wants to count
            return None
        seen.add(at)
        if at < len(program.inputs):
            continue
        step = program.at(at)
        if not isinstance(step.op, Binary) or step.op.fn != "add":
            return None
        left += step.operands
    return {r for r in seen if r < len(program.inputs)}


def _is_bias(operand: Operand) -> bool:
    """Return whether an operand is the same along all axes but that of the channels."""
    layout = operand.layout
    return all(a == 1 or layout.sizes[a] == 1 or s == 0 for a, s in enumerate(layout.strides))
