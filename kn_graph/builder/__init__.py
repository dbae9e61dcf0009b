"""Building methods of `Graph`, one class a family of operations."""

from kn_graph.builder.control import ControlBuilder
from kn_graph.builder.elementwise import ElementwiseBuilder
from kn_graph.builder.image import ImageBuilder
from kn_graph.builder.index import IndexBuilder
from kn_graph.builder.layout import LayoutBuilder
from kn_graph.builder.nn import NnBuilder
from kn_graph.builder.quantize import QuantizeBuilder
from kn_graph.builder.recurrent import RecurrentBuilder
from kn_graph.builder.signal import SignalBuilder

__all__ = [
    "ControlBuilder",
    "ElementwiseBuilder",
    "ImageBuilder",
    "IndexBuilder",
    "LayoutBuilder",
    "NnBuilder",
    "QuantizeBuilder",
    "RecurrentBuilder",
    "SignalBuilder",
]
