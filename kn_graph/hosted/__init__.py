"""Functions that only run on the host: sequences, optionals, strings, maps, image files.

They take or give values that no device has, so `HostCall` names them in a fixed table.
"""

from kn_graph.hosted import image as _image
from kn_graph.hosted import ml as _ml
from kn_graph.hosted import sequence as _sequence
from kn_graph.hosted import text as _text
from kn_graph.hosted.function import HostFunction

__all__ = ["FUNCTIONS", "HostFunction"]

FUNCTIONS: dict[str, HostFunction] = {
    **_sequence.FUNCTIONS,
    **_text.FUNCTIONS,
    **_ml.FUNCTIONS,
    **_image.FUNCTIONS,
}
