"""Functions that only run on the host: sequences, optionals, strings, maps, image files.

They take or give values that no device has, so `HostCall` names them in a fixed table.
"""

from kn_graph.hosted import image, ml, sequence, text
from kn_graph.hosted.function import HostFunction

__all__ = ["FUNCTIONS", "HostFunction"]

FUNCTIONS: dict[str, HostFunction] = {
    **sequence.FUNCTIONS,
    **text.FUNCTIONS,
    **ml.FUNCTIONS,
    **image.FUNCTIONS,
}
