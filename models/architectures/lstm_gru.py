"""A bidirectional LSTM followed by a GRU, both with initial states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from models.architectures.layers import linear
from models.architectures.sketch import Architecture, Array, Sketch, normal

__all__ = ["LSTM_GRU"]

FEATURES, LSTM_HIDDEN, GRU_HIDDEN, CLASSES = 16, 12, 10, 6


def _recurrent_weights(
    s: Sketch, gates: int, directions: int, hidden: int, width: int
) -> tuple[str, str, str]:
    """Add the input weights, recurrent weights and biases of a recurrent operator."""
    rows = gates * hidden
    return (
        s.random("W", directions, rows, width, fan_in=width),
        s.random("R", directions, rows, hidden, fan_in=hidden),
        s.random("B", directions, 2 * rows, fan_in=20),
    )


def _lstm(s: Sketch, x: str, h0: str, c0: str) -> list[str]:
    """Add the LSTM; its sequence `[seq, batch, 2 * hidden]` and its last states."""
    weights = _recurrent_weights(s, 4, 2, LSTM_HIDDEN, FEATURES)
    options: dict[str, int | str] = {"direction": "bidirectional", "hidden_size": LSTM_HIDDEN}
    y, h, c = s.nodes("LSTM", x, *weights, "", h0, c0, results=3, **options)
    y = s.node("Transpose", y, perm=[0, 2, 1, 3])
    return [s.node("Reshape", y, s.ints(0, 0, -1)), h, c]


def _gru(s: Sketch, x: str, h0: str) -> list[str]:
    """Add the GRU; its sequence `[seq, batch, hidden]` and its last state."""
    weights = _recurrent_weights(s, 3, 1, GRU_HIDDEN, 2 * LSTM_HIDDEN)
    options = {"hidden_size": GRU_HIDDEN, "linear_before_reset": 1}
    y, h = s.nodes("GRU", x, *weights, "", h0, results=2, **options)
    return [s.node("Squeeze", y, s.ints(1)), h]


def _build() -> onnx.ModelProto:
    s = Sketch("lstm_gru", "Bidirectional LSTM, then GRU, then a classifier", opset=17, seed=106)
    x = s.float_input("features", "seq", "batch", FEATURES)
    h0 = s.float_input("lstm_h0", 2, "batch", LSTM_HIDDEN)
    c0 = s.float_input("lstm_c0", 2, "batch", LSTM_HIDDEN)
    g0 = s.float_input("gru_h0", 1, "batch", GRU_HIDDEN)
    with s.scope("lstm"):
        x, h, c = _lstm(s, x, h0, c0)
    with s.scope("gru"):
        x, g = _gru(s, x, g0)
    with s.scope("classifier"):
        x = s.node("LogSoftmax", linear(s, x, (GRU_HIDDEN, CLASSES)), axis=-1)
    s.float_output(x, "log_probabilities", "seq", "batch", CLASSES)
    s.float_output(h, "lstm_h", 2, "batch", LSTM_HIDDEN)
    s.float_output(c, "lstm_c", 2, "batch", LSTM_HIDDEN)
    s.float_output(g, "gru_h", 1, "batch", GRU_HIDDEN)
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    seq, batch = dims["seq"], dims["batch"]
    return {
        "features": normal(rng, seq, batch, FEATURES),
        "lstm_h0": normal(rng, 2, batch, LSTM_HIDDEN),
        "lstm_c0": normal(rng, 2, batch, LSTM_HIDDEN),
        "gru_h0": normal(rng, 1, batch, GRU_HIDDEN),
    }


LSTM_GRU = Architecture("lstm_gru", {"seq": 5, "batch": 3}, _build, _feeds)
