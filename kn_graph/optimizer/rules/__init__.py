"""All rules, in the order in which they are tried at a node.

Each module of this package named in `MODULES` has a tuple `RULES`. Those in `QUANTIZED` also have a
tuple `FIRST`: what has to see a graph as it was loaded, since folding makes floats of the integers
that weights are stored as.
"""

from importlib import import_module
from typing import Any

from kn_graph.optimizer.rule import Rule

__all__ = ["FIRST", "MODULES", "QUANTIZED", "RULES"]

MODULES = (
    "broadcast",
    "fold",
    "control",
    "layout",
    "concat",
    "gather",
    "gather_early",
    "positions",
    "pad",
    "transpose",
    "identity",
    "power",
    "cast",
    "select",
    "reduce",
    "clamp",
    "affine",
    "affine_input",
    "affine_cast",
    "linear",
    "sibling",
    "last_row",
    "activation",
    "gate",
    "slope",
    "piecewise",
    "norm",
    "norm_axes",
    "softmax",
    "attention",
    "quantized_product",
    "quantized",
    "quantized_sum",
)

QUANTIZED = ("quantized_product", "quantized", "quantized_sum")

RULES: tuple[Rule[Any], ...] = tuple(
    rule for name in MODULES for rule in import_module(f"{__name__}.{name}").RULES
)

FIRST: tuple[Rule[Any], ...] = tuple(
    rule for name in QUANTIZED for rule in import_module(f"{__name__}.{name}").FIRST
)
