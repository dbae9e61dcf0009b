"""Small models of what others fell into, each with the value that the ONNX text demands."""

from tests.onnx.traps.graphs import GRAPHS, INDICES
from tests.onnx.traps.numbers import LIMITS, NUMBERS, ROWS
from tests.onnx.traps.shapes import AXES, EDGES, EMPTY
from tests.onnx.traps.trap import Trap
from tests.onnx.traps.windows import RESIZED, WINDOWS

__all__ = ["TRAPS", "Trap"]

TRAPS = [*LIMITS, *ROWS, *WINDOWS, *RESIZED, *EDGES, *INDICES, *AXES, *EMPTY, *NUMBERS, *GRAPHS]
