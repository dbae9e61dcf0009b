"""Symbolic sizes: see `polynomial`."""

from kn_graph.dim.division import ceildiv, exact_div, floordiv
from kn_graph.dim.evaluate import UnboundSymbolError, evaluate, substitute, symbols_of
from kn_graph.dim.extremes import size_max, size_min
from kn_graph.dim.parse import parse_size
from kn_graph.dim.polynomial import (
    Atom,
    Dim,
    FloorDiv,
    Let,
    Max,
    Size,
    Symbol,
    SymbolKind,
    expand_product,
    of_atom,
    size_prod,
    size_sum,
    symbol,
)

__all__ = [
    "Atom",
    "Dim",
    "FloorDiv",
    "Let",
    "Max",
    "Size",
    "Symbol",
    "SymbolKind",
    "UnboundSymbolError",
    "ceildiv",
    "evaluate",
    "exact_div",
    "expand_product",
    "floordiv",
    "of_atom",
    "parse_size",
    "size_max",
    "size_min",
    "size_prod",
    "size_sum",
    "substitute",
    "symbol",
    "symbols_of",
]
