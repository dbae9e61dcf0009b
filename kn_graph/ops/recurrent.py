"""Recurrent layers: RNN, GRU and LSTM over a whole sequence, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, GraphError, ShapeError
from kn_graph.op import EvalContext, InferContext, Op
from kn_graph.scalar import evaluate_scalar, scalar_function
from kn_graph.types import Shape, TensorType

__all__ = [
    "CELLS",
    "Activation",
    "CellKind",
    "Direction",
    "OptionalOperand",
    "Recurrent",
]

Array = np.ndarray[Any, Any]
CellKind = Literal["rnn", "gru", "lstm"]
Direction = Literal["forward", "reverse", "bidirectional"]
OptionalOperand = Literal["bias", "lengths", "initial_h", "initial_c", "peepholes"]
Activation: TypeAlias = "tuple[str, tuple[tuple[str, float], ...]]"
"""A row of the scalar table and its parameters."""

OPTIONAL_OPERANDS: tuple[OptionalOperand, ...] = (
    "bias",
    "lengths",
    "initial_h",
    "initial_c",
    "peepholes",
)
LSTM_ONLY = frozenset({"initial_c", "peepholes"})


@dataclass(frozen=True)
class Cell:
    """What tells the kinds apart: number of gates, and the usual activations."""

    gates: int
    activations: tuple[str, ...]


CELLS: Mapping[CellKind, Cell] = {
    "rnn": Cell(1, ("tanh",)),
    "gru": Cell(3, ("sigmoid", "tanh")),
    "lstm": Cell(4, ("sigmoid", "tanh", "tanh")),
}


@dataclass(frozen=True)
class Recurrent(Op):
    """One recurrent layer over a sequence; `.` is the elementwise product.

    With a(t) = x(t) W^T + Wb and f, g, h the activations, the hidden state H and the cell state C
    of step t follow from those of the step before, H' and C':

    - rnn: H = f(a + H' R^T + Rb)
    - gru, gates z r h: z, r = f(a + H' R^T + Rb); n = g(a + (r . H') R^T + Rb), or with
      `linear_before_reset` n = g(a + r . (H' R^T + Rb)); H = (1 - z) . n + z . H'
    - lstm, gates i o f c: i = f(a + H' R^T + Rb + Pi . C'); f likewise, or 1 - i with
      `input_forget`; C = f . C' + i . g(a + H' R^T + Rb); o = f(a + H' R^T + Rb + Po . C);
      H = o . h(C)

    The reverse direction reads each sequence from its last valid step to its first, and its result
    of step t stands at t. Beyond the length of a sequence y is 0 and the states stay; the final
    states are those after the last valid step, which for a sequence of length 0 (and for S = 0) are
    the initial ones. NaNs spread through the states of their row. Half precision computes in
    float32 throughout and rounds the results once.

    Shapes: x [S, B, I], w [D, G*H, I], r [D, G*H, H], then those of `optional`, in this order: bias
    [D, 2*G*H] (Wb then Rb), lengths int32 [B], initial_h [D, B, H], initial_c [D, B, H], peepholes
    [D, 3*H] (gates i o f) -> y [S, D, B, H], y_h [D, B, H], and y_c [D, B, H] of an lstm.
    D is 1, or 2 for both directions; G is 1, 3 or 4 gates.

    Attributes:
        kind: rnn, gru or lstm.
        hidden_size: H.
        direction: forward, reverse or bidirectional.
        activations: for each direction f, (f, g) or (f, g, h): rows of the scalar table.
        optional: which of the optional operands there are.
        clip: if given, what f and g are applied to is cut to [-clip, clip] first (not C).
        linear_before_reset: of a gru, see above.
        input_forget: of an lstm, see above.
        quantize_hidden: round H' to 8 bits before each product with R, as DynamicQuantizeLinear
            over the whole of H' and DequantizeLinear do; the rows of sequences that ended before
            the step before count as 0.
    """

    kind: CellKind
    hidden_size: Size
    direction: Direction
    activations: tuple[tuple[Activation, ...], ...]
    optional: tuple[OptionalOperand, ...] = ()
    clip: float | None = None
    linear_before_reset: bool = False
    input_forget: bool = False
    quantize_hidden: bool = False

    @property
    def title(self) -> str:
        """Return the kind of cell."""
        return self.kind

    @property
    def directions(self) -> int:
        """Number of directions."""
        return 2 if self.direction == "bidirectional" else 1

    # ---- types ------------------------------------------------------------------------------

    def infer(self, ctx: InferContext, *types: TensorType) -> tuple[TensorType, ...]:
        """Check every operand against the sizes of x and the hidden size."""
        self._check_attributes()
        names = ("x", "w", "r", *self.optional)
        if len(types) != len(names):
            raise GraphError(f"expected operands {', '.join(names)}, got {len(types)}")
        x = types[0]
        if x.dtype.kind.value != "float" or x.dtype.bits < 16:
            raise DTypeError(f"x must be a float of at least 16 bits, got {x.dtype}")
        if x.rank != 3:
            raise ShapeError(f"x must have the axes [sequence, batch, input], got {x}")
        steps, batch, features = x.shape
        expected = self._shapes(batch, features)
        for name, t in zip(names[1:], types[1:], strict=True):
            dtype = DType.INT32 if name == "lengths" else x.dtype
            if t.dtype is not dtype:
                raise DTypeError(f"{name} must be {dtype}, got {t.dtype}")
            _require_shape(ctx, name, t, expected[name])
        state = TensorType(x.dtype, expected["initial_h"])
        y = TensorType(x.dtype, (steps, self.directions, batch, self.hidden_size))
        return (y, state, state) if self.kind == "lstm" else (y, state)

    def _check_attributes(self) -> None:
        cell = CELLS[self.kind]
        for functions in self.activations:
            if len(functions) != len(cell.activations):
                raise GraphError(
                    f"{self.kind} takes {len(cell.activations)} activations, got {len(functions)}"
                )
            for name, _ in functions:
                if scalar_function(name).signature.pattern != "T->T":
                    raise GraphError(f"{name} is not a function of one argument")
        if len(self.activations) != self.directions:
            raise GraphError(
                f"expected activations of {self.directions} directions, got {len(self.activations)}"
            )
        if list(self.optional) != [n for n in OPTIONAL_OPERANDS if n in self.optional]:
            raise GraphError(f"optional operands {self.optional} are not in order")
        if self.clip is not None and not self.clip >= 0:
            raise GraphError(f"clip must not be negative, got {self.clip}")
        if self.kind != "lstm" and LSTM_ONLY & set(self.optional):
            raise GraphError(f"{self.kind} has no operand {min(LSTM_ONLY & set(self.optional))}")

    def _shapes(self, batch: Size, features: Size) -> dict[str, Shape]:
        directions, hidden = self.directions, self.hidden_size
        rows = CELLS[self.kind].gates * hidden
        return {
            "w": (directions, rows, features),
            "r": (directions, rows, hidden),
            "bias": (directions, 2 * rows),
            "lengths": (batch,),
            "initial_h": (directions, batch, hidden),
            "initial_c": (directions, batch, hidden),
            "peepholes": (directions, 3 * hidden),
        }

    # ---- reference --------------------------------------------------------------------------

    def eval(self, ctx: EvalContext, x: Array, w: Array, r: Array, *rest: Array) -> Any:
        """Step through the sequence, one direction after the other."""
        dtype = x.dtype
        wide = np.float64 if dtype == np.float64 else np.float32
        given: dict[str, Array] = dict(zip(self.optional, rest, strict=True))
        lengths = self._lengths(given.pop("lengths", None), x)
        operands = {n: a.astype(wide) for n, a in {"w": w, "r": r, **given}.items()}
        outputs = []
        with np.errstate(all="ignore"):
            for d in range(self.directions):
                backward = self.direction == "reverse" or d == 1
                weights = {name: a[d] for name, a in operands.items()}
                run = _Pass(self, self.activations[d], weights)
                outputs.append(run(x.astype(wide), lengths, backward))
            axes = (1, 0, 0)
            return tuple(
                np.stack(parts, axis).astype(dtype)
                for axis, parts in zip(axes, zip(*outputs, strict=True), strict=False)
            )

    def _lengths(self, lengths: Array | None, x: Array) -> Array:
        steps, batch = x.shape[:2]
        if lengths is None:
            return np.full(batch, steps)
        wrong = (lengths < 0) | (lengths > steps)
        if wrong.any():
            raise ExecutionError(
                f"sequence_lens holds {lengths[wrong][0]}; the sequences have {steps} steps"
            )
        return lengths


def _require_shape(ctx: InferContext, name: str, t: TensorType, shape: Shape) -> None:
    if t.rank != len(shape):
        raise ShapeError(f"{name} must have {len(shape)} axes, got {t}")
    for axis, (have, want) in enumerate(zip(t.shape, shape, strict=True)):
        ctx.require_eq(have, want, f"size of {name} at axis {axis}")


class _Pass:
    """One direction of one evaluation; arrays are float32 or float64, without a direction axis."""

    def __init__(
        self, op: Recurrent, activations: Sequence[Activation], weights: Mapping[str, Array]
    ) -> None:
        self.op, self.weights = op, weights
        self.f, *others = [self._function(a) for a in activations]
        self.g, self.h = [*others, self.f, self.f][:2]
        if op.kind == "lstm":
            self.h = self._function(activations[2], clips=False)
        rows = weights["w"].shape[0]
        bias = weights.get("bias", np.zeros(2 * rows, weights["w"].dtype))
        self.w_bias, self.r_bias = bias[:rows], bias[rows:]
        steps: dict[CellKind, Callable[..., tuple[Array, ...]]]
        steps = {"rnn": self._rnn, "gru": self._gru, "lstm": self._lstm}
        self.step = steps[op.kind]

    def _function(self, activation: Activation, *, clips: bool = True) -> Any:
        name, params = activation
        limit = self.op.clip if clips else None

        def apply(x: Array) -> Array:
            if limit is not None:
                x = np.clip(x, -limit, limit)
            return evaluate_scalar(name, (x,), dict(params))

        return apply

    def __call__(self, x: Array, lengths: Array, backward: bool) -> list[Array]:
        """Return y [S, B, H] and the final states [B, H]."""
        steps, batch, _ = x.shape
        hidden = self.weights["r"].shape[-1]
        order = _step_order(steps, lengths, backward)
        columns = np.arange(batch)
        x = x[order, columns]
        products = x @ self.weights["w"].T + self.w_bias
        names = ("initial_h", "initial_c") if self.op.kind == "lstm" else ("initial_h",)
        zero = np.zeros((batch, hidden), x.dtype)
        states = [self.weights.get(n, zero) for n in names]
        y = np.zeros((steps, batch, hidden), x.dtype)
        for t in range(steps):
            valid = (t < lengths)[:, None]
            before = states
            if self.op.quantize_hidden:  # states of rows that have ended do not widen the range
                before = [np.where((t <= lengths)[:, None], s, 0) for s in states]
            new = self.step(products[t], *before)
            states = [np.where(valid, a, b) for a, b in zip(new, states, strict=True)]
            y[t] = np.where(valid, new[0], 0)
        return [y[order, columns], *states]

    def _recur(self, h: Array, rows: slice = slice(None)) -> Array:
        if self.op.quantize_hidden:
            h = _to_8_bits(h)
        return h @ self.weights["r"][rows].T + self.r_bias[rows]

    def _rnn(self, a: Array, h: Array) -> tuple[Array, ...]:
        return (self.f(a + self._recur(h)),)

    def _gru(self, a: Array, h: Array) -> tuple[Array, ...]:
        n = h.shape[1]
        gates, new = slice(0, 2 * n), slice(2 * n, 3 * n)
        z, r = np.split(self.f(a[:, gates] + self._recur(h, gates)), 2, axis=1)
        if self.op.linear_before_reset:
            candidate = self.g(a[:, new] + r * self._recur(h, new))
        else:
            candidate = self.g(a[:, new] + self._recur(r * h, new))
        return ((1 - z) * candidate + z * h,)

    def _lstm(self, a: Array, h: Array, c: Array) -> tuple[Array, ...]:
        i, o, f, new = np.split(a + self._recur(h), 4, axis=1)
        i = self.f(self._peep(i, c, 0))
        f = 1 - i if self.op.input_forget else self.f(self._peep(f, c, 2))
        c = f * c + i * self.g(new)
        o = self.f(self._peep(o, c, 1))
        return o * self.h(c), c

    def _peep(self, gate: Array, c: Array, number: int) -> Array:
        if "peepholes" not in self.weights:
            return gate
        weight: Array = self.weights["peepholes"].reshape(3, -1)[number]
        seen: Array = gate + weight * c
        return seen


def _step_order(steps: int, lengths: Array, backward: bool) -> Array:
    """Return which step of each sequence comes when [S, B]: its own inverse."""
    t = np.arange(steps)[:, None]
    return np.where((t < lengths) & backward, lengths - 1 - t, t)


def _to_8_bits(x: Array) -> Array:
    """Round to the 256 numbers that DynamicQuantizeLinear chooses for an array."""
    low, high = x.min(initial=0), x.max(initial=0)
    scale = (high - low) / x.dtype.type(255) if high > low else x.dtype.type(1)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    rounded: Array = (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale
    return rounded
