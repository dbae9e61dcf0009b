"""Our kernels of recurrent layers: see `kernels/recurrent.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_cuda.axes import blocks_for, divides
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_cuda.expression import literal
from kn_cuda.lowering import Lowering
from kn_cuda.types import compute_type, wide
from kn_graph.dim import Size, evaluate, size_min, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.recurrent import CELLS, Activation, Recurrent
from kn_graph.scalar import c_statements, scalar_function
from kn_plan.plan import Operand, Step
from kn_plan.statuses import lengths_status

__all__ = ["Layer"]

THREADS = 512
"""Of a block that steps through a sequence, or rounds the states of all."""

KINDS = ("rnn", "gru", "lstm")
"""As the kernel numbers them."""

VECTOR_BYTES = 16


class Layer:
    """A layer, and the kernels that step through it.

    Attributes:
        low: what finds its calls.
        op: what is computed.
        dtype: what is computed with.
        x: the inputs of all steps.
        r: the recurrent weights.
        given: the operands that there may be, by name.
        hidden: units of a state.
        gates: of the kind of cell.
    """

    def __init__(self, low: Lowering, step: Step, op: Recurrent) -> None:
        self.low, self.step, self.op = low, step, op
        self.x, _, self.r, *rest = step.reads
        self.given: Mapping[str, Operand] = dict(zip(op.optional, rest, strict=True))
        self.hidden = evaluate(op.hidden_size, {})
        self.gates = CELLS[op.kind].gates
        self.dtype = wide(low.dtype(self.x))

    @property
    def batch(self) -> Size:
        """How many sequences there are."""
        return self.x.layout.sizes[1]

    def in_blocks(self, inputs: Operand) -> Launch:
        """Return a launch in which a block steps through a sequence in one direction.

        Args:
            inputs: the products with the inputs.
        """
        b = self._cells("recurrent_steps", THREADS)
        b.constant("VECTOR", self._vector())
        b.constant("ROUNDED", self.op.quantize_hidden)
        b.reads("inputs", *self.low.typed(inputs))
        b.reads("r", *self.low.typed(self.r))
        b.numbers("r", self.r.layout.strides)
        for name, operand in zip(("y", "y_h", "y_c"), self.step.writes, strict=False):
            b.writes(name, *self.low.typed(operand))
            b.numbers(name, operand.layout.strides)
        for name in ("initial_h", "initial_c"):
            if name in self.given:
                b.reads(name, *self.low.typed(self.given[name]))
                b.numbers(name, self.given[name].layout.strides)
        return b.launch(blocks_for(self.batch * self.op.directions, 1))

    def cell(self, inputs: Operand, products: Operand, states: Sequence[Operand]) -> Launch:
        """Return a launch in which all sequences go a step, a thread for each unit.

        Args:
            inputs: the products with the inputs.
            products: those with the states.
            states: [direction, row, unit], of an lstm those of the cells too; they are changed.
        """
        b = self._cells("recurrent_cell", self.low.threads)
        y = self.step.writes[0]
        b.writes("y", *self.low.typed(y))
        b.numbers("y", y.layout.strides)
        for name, operand in zip(("state", "cell"), states, strict=False):
            b.writes(name, *self.low.typed(operand))
        return self._of_units(b, inputs, products)

    def reset(self, inputs: Operand, products: Operand, state: Operand, reset: Operand) -> Launch:
        """Return a launch that resets the states of a gru, before they are multiplied.

        Args:
            inputs: the products with the inputs.
            products: those of the first two gates with the states.
            state: [direction, row, unit].
            reset: where what is left of it goes.
        """
        b = self._cells("recurrent_reset", self.low.threads)
        b.reads("state", *self.low.typed(state))
        b.writes("reset", *self.low.typed(reset))
        return self._of_units(b, inputs, products)

    def rounded(self, state: Operand, out: Operand) -> Launch:
        """Return a launch that rounds states to 8 bits, those of a direction together.

        Args:
            state: [direction, row, unit].
            out: where what is left of them goes.
        """
        b = self._kernel("recurrent_rounded", THREADS)
        b.reads("state", *self.low.typed(state))
        b.writes("rounded", *self.low.typed(out))
        b.number("round", 0)
        return b.launch(self.op.directions * size_min(1, self.batch))

    def _of_units(self, b: KernelBuilder, inputs: Operand, products: Operand) -> Launch:
        b.reads("inputs", *self.low.typed(inputs))
        b.reads("products", *self.low.typed(products))
        b.number("round", 0)
        units = size_prod((self.op.directions, self.batch, self.hidden))
        return b.launch(blocks_for(units, self.low.threads))

    def _kernel(self, entry: str, threads: int) -> KernelBuilder:
        """Return what all kernels have."""
        b = KernelBuilder("recurrent", entry, threads)
        b.type("Acc", compute_type(self.dtype))
        b.constant("THREADS", threads)
        b.constant("HIDDEN", self.hidden)
        b.constant("LENGTHS", "lengths" in self.given)
        steps, batch, _ = self.x.layout.sizes
        for name, size in (("steps", steps), ("batch", batch), ("directions", self.op.directions)):
            b.number(name, size)
        if "lengths" in self.given:
            lengths = self.given["lengths"]
            b.reads("lengths", *self.low.typed(lengths))
            b.number("length_step", lengths.layout.strides[0])
            b.writes("status", lengths_status(steps), "int64_t")
        return b

    def _cells(self, entry: str, threads: int) -> KernelBuilder:
        """Return what the kernels have that compute gates."""
        b, op, given = self._kernel(entry, threads), self.op, self.given
        for name, number in (
            ("KIND", KINDS.index(op.kind)), ("GATES", self.gates), ("BIAS", "bias" in given),
            ("STATE", "initial_h" in given), ("CELL", "initial_c" in given),
            ("PEEPHOLES", "peepholes" in given), ("REVERSE", op.direction == "reverse"),
            ("LINEAR", op.linear_before_reset), ("COUPLED", op.input_forget),
        ):  # fmt: skip
            b.constant(name, number)
        for name in ("bias", "peepholes"):
            if name in given:
                b.reads(name, *self.low.typed(given[name]))
                b.numbers(name, given[name].layout.strides)
        b.code(self._activations())
        return b

    def _vector(self) -> int:
        """Return how many recurrent weights a thread reads at once."""
        layout = self.r.layout
        *strides, last = layout.strides
        vector = VECTOR_BYTES // self.low.itemsize(self.r) if last == 1 else 1
        while vector > 1 and not divides(vector, (layout.offset, *strides, self.hidden)):
            vector //= 2
        return vector

    def _activations(self) -> str:
        """Return the functions f, g and h; directions that differ have their own."""
        texts = []
        for number, name in enumerate("fgh"[: len(self.op.activations[0])]):
            clips = not (self.op.kind == "lstm" and name == "h")
            limit = self.op.clip if clips else None
            each = [functions[number] for functions in self.op.activations]
            for direction, activation in enumerate(each):
                texts.append(_function(f"{name}{direction}", activation, limit, self.dtype))
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
