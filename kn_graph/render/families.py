"""Colours of operations, by family: what a reader of a picture wants to tell apart at a glance."""

from __future__ import annotations

from kn_graph.op import Op

__all__ = ["FAMILIES", "family_of"]

FAMILIES: dict[str, tuple[str, frozenset[str]]] = {
    "source": ("#e8e8e8", frozenset({"source"})),
    "layout": ("#fff3c4", frozenset({"layout"})),
    "scalar": ("#d7ecff", frozenset({"elementwise"})),
    "product": ("#ffd2c2", frozenset({"matmul", "conv", "deform", "attention"})),
    "norm": ("#e3d7ff", frozenset({"norm"})),
    "reduce": ("#d3f2d8", frozenset({"reduce", "pool", "cumulative"})),
    "index": ("#ffe0f0", frozenset({"gather", "scatter", "sort", "nonzero", "nms", "index"})),
    "recurrent": ("#ffdca8", frozenset({"recurrent"})),
    "control": ("#ffb3b3", frozenset({"control", "host"})),
}
"""{family: (fill colour, modules of `kn_graph.ops`)}; the rest is `other`."""

OTHER = ("other", "#f4f4f4")


def family_of(op: Op) -> tuple[str, str]:
    """Return the family of an operation and its fill colour."""
    stem = type(op).__module__.rpartition(".")[2]
    for name, (colour, stems) in FAMILIES.items():
        if stem in stems:
            return name, colour
    return OTHER
