"""Which function converts which ONNX operator, by domain and opset range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__ = ["Converter", "all_converters", "converter", "find_converter", "normal_domain"]

NEWEST = 10_000

MODULES = (
    "attention",
    "control",
    "conv",
    "elementwise",
    "gather",
    "image",
    "index",
    "loss",
    "matmul",
    "microsoft",
    "microsoft_attention",
    "microsoft_more",
    "microsoft_qlinear",
    "microsoft_quantize",
    "ml",
    "ml_linear",
    "ml_tree",
    "norm",
    "pool",
    "quantize",
    "random",
    "recurrent",
    "reduce",
    "resize",
    "scatter",
    "sequence",
    "shape",
    "signal",
    "sort",
    "text",
    "training",
)
"""Modules of this package that register converters."""

Converted = "Value | Sequence[Value | None] | None"
ConvertFunction = Callable[["NodeContext"], "Value | Sequence[Value | None] | None"]


@dataclass(frozen=True)
class Converter:
    """A conversion function and the versions it is right for.

    Attributes:
        domain: operator set; '' is ai.onnx.
        operator: the operator's name.
        since: first opset version, as the ONNX schema counts.
        until: last one.
        function: takes the node, returns one value an output (a bare value for one output).
    """

    domain: str
    operator: str
    since: int
    until: int
    function: ConvertFunction


_CONVERTERS: dict[tuple[str, str], list[Converter]] = {}
_loaded = False


def normal_domain(domain: str) -> str:
    """Return '' for ai.onnx, other domains as they are."""
    return "" if domain == "ai.onnx" else domain


def converter(
    *operators: str, since: int = 1, until: int = NEWEST, domain: str = ""
) -> Callable[[ConvertFunction], ConvertFunction]:
    """Register the decorated function for operators from opset `since` up to `until`, inclusive."""

    def register(function: ConvertFunction) -> ConvertFunction:
        for operator in operators:
            known = _CONVERTERS.setdefault((domain, operator), [])
            for other in known:
                if since <= other.until and other.since <= until:
                    raise ValueError(f"two converters for {domain}:{operator}-{since}")
            known.append(Converter(domain, operator, since, until, function))
        return function

    return register


def _load() -> None:
    global _loaded
    if not _loaded:
        for name in MODULES:
            import_module(f"kn_graph.onnx.{name}")
        _loaded = True


def find_converter(domain: str, operator: str, opset: int) -> Converter | None:
    """Return the converter for an operator at an opset version, if there is one."""
    _load()
    for found in _CONVERTERS.get((normal_domain(domain), operator), ()):
        if found.since <= opset <= found.until:
            return found
    return None


def all_converters() -> list[Converter]:
    """Return every registered converter, sorted by domain, operator and version."""
    _load()
    every = [c for group in _CONVERTERS.values() for c in group]
    return sorted(every, key=lambda c: (c.domain, c.operator, c.since))
