"""Attributes of ONNX nodes as Python values."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["attribute_kind", "node_name", "plain_attribute"]


def node_name(node: onnx.NodeProto) -> str:
    """Return the node's name, or one made of its operator and first output."""
    return node.name or f"{node.op_type}->{next(filter(None, node.output), '?')}"


def attribute_kind(attribute: onnx.AttributeProto) -> str:
    """Return the name of an attribute's kind, also for files too old to say it."""
    if attribute.type:
        return _kind_name(attribute.type)
    for name, kind in _OLD_KINDS.items():
        if attribute.HasField(name) if name in _SINGULAR else len(getattr(attribute, name)):
            return kind
    return "INTS"  # an empty list: which kind it is makes no difference


@cache
def _kind_name(code: int) -> str:
    import onnx

    return str(onnx.AttributeProto.AttributeType.Name(code))


_SINGULAR = frozenset({"f", "i", "s", "t", "g"})
_OLD_KINDS = {
    "f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH",
    "floats": "FLOATS", "ints": "INTS", "strings": "STRINGS",
}  # fmt: skip
_PLAIN: dict[str, Any] = {
    "FLOAT": lambda a: a.f,
    "INT": lambda a: a.i,
    "STRING": lambda a: a.s.decode(errors="surrogateescape"),
    "GRAPH": lambda a: a.g,
    "FLOATS": lambda a: tuple(a.floats),
    "INTS": lambda a: tuple(a.ints),
    "STRINGS": lambda a: tuple(s.decode(errors="surrogateescape") for s in a.strings),
}


def plain_attribute(attribute: onnx.AttributeProto, kind: str) -> Any:
    """Return a number, text or subgraph, or a tuple of the former, of an attribute of this kind."""
    return _PLAIN[kind](attribute)
