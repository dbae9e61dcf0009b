"""Building methods of the recurrent family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kn_graph.builder.base import Builder
from kn_graph.ops.recurrent import (
    CELLS,
    OPTIONAL_OPERANDS,
    Activation,
    CellKind,
    Direction,
    Recurrent,
)

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["RecurrentBuilder"]


class RecurrentBuilder(Builder):
    """See the module."""

    def recurrent(
        self,
        kind: CellKind,
        x: Value,
        w: Value,
        r: Value,
        *,
        bias: Value | None = None,
        lengths: Value | None = None,
        initial_h: Value | None = None,
        initial_c: Value | None = None,
        peepholes: Value | None = None,
        direction: Direction = "forward",
        activations: Sequence[Sequence[str | Activation]] | None = None,
        clip: float | None = None,
        linear_before_reset: bool = False,
        input_forget: bool = False,
        quantize_hidden: bool = False,
    ) -> tuple[Value, ...]:
        """Run an RNN, GRU or LSTM layer over a sequence; see `Recurrent` for shapes and formulas.

        Args:
            kind: rnn, gru or lstm.
            x: [S, B, I].
            w: input weights of all gates.
            r: recurrent weights of all gates.
            bias: both biases of all gates.
            lengths: int32 lengths of the sequences.
            initial_h: hidden state at the start; 0 by default.
            initial_c: cell state at the start of an lstm; 0 by default.
            peepholes: what the gates of an lstm see of the cell state.
            direction: forward, reverse or bidirectional.
            activations: for each direction, the scalar functions of the cell: names, or names with
                parameters. The usual ones by default.
            clip: bound of what the activations are applied to.
            linear_before_reset: apply the reset gate of a gru after its product.
            input_forget: the forget gate of an lstm is 1 - the input gate.
            quantize_hidden: round the hidden state to 8 bits before each product.

        Returns:
            All hidden states y [S, D, B, H] and the last ones y_h [D, B, H]; of an lstm also the
            last cell states y_c [D, B, H].
        """
        given = dict(
            zip(OPTIONAL_OPERANDS, (bias, lengths, initial_h, initial_c, peepholes), strict=True)
        )
        optional = {name: v for name, v in given.items() if v is not None}
        if activations is None:
            usual = CELLS[kind].activations
            activations = (usual, usual) if direction == "bidirectional" else (usual,)
        op = Recurrent(
            kind,
            r.shape[-1],
            direction,
            tuple(tuple(_activation(a) for a in functions) for functions in activations),
            tuple(optional),
            clip,
            linear_before_reset,
            input_forget,
            quantize_hidden,
        )
        return self.push_all(op, x, w, r, *optional.values())


def _activation(function: str | Activation) -> Activation:
    return (function, ()) if isinstance(function, str) else function
