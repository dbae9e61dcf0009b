"""Recurrent layers: a product with all inputs, then a kernel that steps through the sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_cuda.axes import blocks_for, divides
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.expression import literal
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.steps.matmul import product
from kn_cuda.types import compute_type, wide
from kn_graph.dim import Size, evaluate
from kn_graph.dtype import DType
from kn_graph.ops.recurrent import CELLS, Activation, Recurrent
from kn_graph.scalar import c_statements, scalar_function
from kn_plan.calls import UnsupportedError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step
from kn_plan.statuses import lengths_status

__all__ = ["recurrent"]

THREADS = 512

KINDS = ("rnn", "gru", "lstm")
"""As the kernel numbers them."""

MOST_SHARED = 48 << 10
"""Bytes of the states and products of a block."""

VECTOR_BYTES = 16


def recurrent(low: Lowering, step: Step, op: Recurrent) -> Calls:
    """Multiply all steps with the input weights, then step through the sequences."""
    if op.quantize_hidden:
        raise UnsupportedError("there is no kernel that rounds the states of a batch together")
    layer = _Layer(low, step, op)
    if layer.hidden == 0:
        return []
    dtype = wide(low.dtype(step.reads[0]))
    shared = (layer.gates + 2) * layer.hidden * dtype.itemsize
    if shared > MOST_SHARED:
        raise UnsupportedError(f"there is no kernel for a state of {layer.hidden} units")
    calls: Calls = []
    inputs = _inputs(low, step, dtype, calls)
    return [*calls, layer.launch(inputs, dtype)]


def _inputs(low: Lowering, step: Step, dtype: DType, calls: Calls) -> Operand:
    """Return x @ w^T [steps, batch, directions * rows]; what computes it is appended."""
    x, w, *_ = step.reads
    (steps, batch, features), (directions, rows, _) = x.layout.sizes, w.layout.sizes
    matrix = _matrix(low, x, steps * batch, features, calls)
    weights = _matrix(low, w, directions * rows, features, calls)
    turned = Operand(weights.buffer, weights.layout.permute((1, 0)))
    out = low.temporary(dtype, (steps * batch, directions * rows))
    calls += product(low, matrix, turned, out)
    return out


def _matrix(low: Lowering, x: Operand, rows: Size, columns: Size, calls: Calls) -> Operand:
    """Return an operand of three axes as a matrix, copied where the first two are not one."""
    layout: StridedLayout = x.layout
    (outer, inner, _), (outer_step, step, last) = layout.sizes, layout.strides
    if outer == 1 or outer_step == inner * step:
        return Operand(x.buffer, StridedLayout((rows, columns), (step, last), layout.offset))
    if inner == 1:
        return Operand(x.buffer, StridedLayout((rows, columns), (outer_step, last), layout.offset))
    made = low.temporary(low.dtype(x), layout.sizes)
    calls.append(low.copy(made, x))
    return Operand(made.buffer, StridedLayout.contiguous((rows, columns)))


class _Layer:
    """A layer, and the kernel that steps through it.

    Attributes:
        hidden: units of a state.
        gates: of the kind of cell.
    """

    def __init__(self, low: Lowering, step: Step, op: Recurrent) -> None:
        self.low, self.step, self.op = low, step, op
        self.x, _, self.r, *rest = step.reads
        self.given: Mapping[str, Operand] = dict(zip(op.optional, rest, strict=True))
        self.hidden = evaluate(op.hidden_size, {})
        self.gates = CELLS[op.kind].gates

    def launch(self, inputs: Operand, dtype: DType) -> Launch:
        """Return the launch.

        Args:
            inputs: the products with the inputs.
            dtype: what is computed with.
        """
        low, op, given = self.low, self.op, self.given
        b = KernelBuilder("recurrent", "recurrent_steps", THREADS)
        b.type("Acc", compute_type(dtype))
        for name, number in (
            ("THREADS", THREADS), ("KIND", KINDS.index(op.kind)), ("GATES", self.gates),
            ("HIDDEN", self.hidden), ("VECTOR", self._vector()), ("BIAS", "bias" in given),
            ("LENGTHS", "lengths" in given), ("STATE", "initial_h" in given),
            ("CELL", "initial_c" in given), ("PEEPHOLES", "peepholes" in given),
            ("REVERSE", op.direction == "reverse"), ("LINEAR", op.linear_before_reset),
            ("COUPLED", op.input_forget),
        ):  # fmt: skip
            b.constant(name, number)
        steps, batch, _ = self.x.layout.sizes
        for name, size in (("steps", steps), ("batch", batch), ("directions", op.directions)):
            b.number(name, size)
        b.reads("inputs", *low.typed(inputs))
        b.reads("r", *low.typed(self.r))
        b.numbers("r", self.r.layout.strides)
        for name, operand in zip(("y", "y_h", "y_c"), self.step.writes, strict=False):
            b.writes(name, *low.typed(operand))
            b.numbers(name, operand.layout.strides)
        for name, operand in given.items():
            b.reads(name, *low.typed(operand))
            if name != "lengths":
                b.numbers(name, operand.layout.strides)
                continue
            b.number("length_step", operand.layout.strides[0])
            b.writes("status", lengths_status(steps), "int64_t")
        b.code(self._activations(dtype))
        return b.launch(blocks_for(batch * op.directions, 1))

    def _vector(self) -> int:
        """Return how many recurrent weights a thread reads at once."""
        layout = self.r.layout
        *strides, last = layout.strides
        vector = VECTOR_BYTES // self.low.itemsize(self.r) if last == 1 else 1
        while vector > 1 and not divides(vector, (layout.offset, *strides, self.hidden)):
            vector //= 2
        return vector

    def _activations(self, dtype: DType) -> str:
        """Return the functions f, g and h; directions that differ have their own."""
        texts = []
        for number, name in enumerate("fgh"[: len(self.op.activations[0])]):
            clips = not (self.op.kind == "lstm" and name == "h")
            limit = self.op.clip if clips else None
            each = [functions[number] for functions in self.op.activations]
            for direction, activation in enumerate(each):
                texts.append(_function(f"{name}{direction}", activation, limit, dtype))
            last = len(each) - 1
            head = f"KN_DEVICE static Acc {name}(Index direction, Acc x)"
            texts.append(f"{head} {{ return direction == 0 ? {name}0(x) : {name}{last}(x); }}")
        return "\n".join(texts)


def _function(name: str, activation: Activation, limit: float | None, dtype: DType) -> str:
    """Return an activation behind a bound as a C++ function."""
    function, given = activation
    row = scalar_function(function)
    lines: Sequence[str]
    lines, result = c_statements(row.expression, [dtype], ["x"], row.bind(dict(given)))
    if limit is not None:
        low, high = (literal(sign * limit, dtype) for sign in (-1, 1))
        lines = [f"x = x < {low} ? {low} : x > {high} ? {high} : x;", *lines]
    body = "".join(f"    {line}\n" for line in [*lines, f"return {result};"])
    return f"KN_DEVICE static Acc {name}(Acc x) {{\n{body}}}"
