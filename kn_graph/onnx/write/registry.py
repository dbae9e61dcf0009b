"""Which function writes which operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kn_graph.op import Op

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__ = ["CannotWriteError", "WriteFunction", "find_writer", "refuse", "writer"]

MODULES = (
    "attention",
    "control",
    "conv",
    "cumulative",
    "deform",
    "elementwise",
    "fold",
    "gather",
    "host",
    "index",
    "layout",
    "matmul",
    "nms",
    "nonzero",
    "norm",
    "pool",
    "random",
    "recurrent",
    "reduce",
    "resize",
    "roi",
    "sample",
    "scatter",
    "signal",
    "sort",
    "source",
    "tree",
)
"""Modules of this package that register writers, named as those of `kn_graph.ops`."""

WriteFunction = Callable[["NodeWriter", Any], "str | Sequence[str]"]
"""Takes the node and its operation, returns the name of each result."""

_WRITERS: dict[type[Op], WriteFunction] = {}
_loaded = False


class CannotWriteError(Exception):
    """ONNX has no operator for a node; collected, and reported with all others at the end."""


def refuse(reason: str) -> NoReturn:
    """Raise: the node cannot be written."""
    raise CannotWriteError(reason)


_F = TypeVar("_F", bound=WriteFunction)


def writer(op: type[Op]) -> Callable[[_F], _F]:
    """Register the decorated function for a class of operations."""

    def register(function: _F) -> _F:
        assert op not in _WRITERS, op
        _WRITERS[op] = function
        return function

    return register


def find_writer(op: type[Op]) -> WriteFunction | None:
    """Return the function for a class of operations, if there is one."""
    global _loaded
    if not _loaded:
        for name in MODULES:
            import_module(f"kn_graph.onnx.write.{name}")
        _loaded = True
    return _WRITERS.get(op)
