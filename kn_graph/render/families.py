"""Colours of operations, by family: what a reader of a picture wants to tell apart at a glance."""

from __future__ import annotations

from kn_graph.op import Op

__all__ = ["FAMILIES", "HEAVY", "OTHER", "SOURCE", "colour_of", "family_of"]

SOURCE, OTHER = "input, output", "other"

FAMILIES: dict[str, tuple[str, frozenset[str]]] = {
    SOURCE: ("#dcdcdc", frozenset({"source"})),
    "product": ("#ffc9b5", frozenset({"matmul", "conv", "deform", "attention"})),
    "scalar": ("#cfe6ff", frozenset({"elementwise"})),
    "norm": ("#ddd0ff", frozenset({"norm"})),
    "reduce": ("#c5ecce", frozenset({"reduce", "pool", "cumulative"})),
    "layout": ("#fff1b8", frozenset({"layout"})),
    "index": ("#ffd6ea", frozenset({"gather", "scatter", "sort", "nonzero", "nms", "index"})),
    "image, signal": ("#c4eeee", frozenset({"resize", "roi", "sample", "signal"})),
    "recurrent": ("#ffd596", frozenset({"recurrent"})),
    "control": ("#ff9f9f", frozenset({"control", "host"})),
    OTHER: ("#f4f4f4", frozenset()),
}
"""{family: (fill colour, modules of `kn_graph.ops`)}; modules that are in none are `other`."""

HEAVY = ("control", "recurrent", "product", "norm", "reduce", "image, signal", "index", "scalar")
"""What colours a folded block: the first of these that it contains."""

FAMILY_OF_MODULE = {stem: name for name, (_, stems) in FAMILIES.items() for stem in stems}


def family_of(op: Op) -> str:
    """Return the family of an operation."""
    return FAMILY_OF_MODULE.get(type(op).__module__.rpartition(".")[2], OTHER)


def colour_of(family: str) -> str:
    """Return the fill colour of a family."""
    return FAMILIES[family][0]
