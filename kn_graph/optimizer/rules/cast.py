"""Conversions after conversions.

cast(cast(x, wide), narrow) = cast(x, narrow) where the wide type holds every element of x exactly;
it is x itself where the narrow type is that of x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kn_graph.dtype import DType, Kind
from kn_graph.op import Op
from kn_graph.ops.elementwise import Cast
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "CastOfCast", "holds"]

BOOL = DType.BOOL

MANTISSA = {DType.FLOAT16: 11, DType.BFLOAT16: 8, DType.FLOAT32: 24, DType.FLOAT64: 53}
"""Bits of an integer that is exact in a float."""

WIDER = {
    DType.FLOAT16: {DType.FLOAT32, DType.FLOAT64},
    DType.BFLOAT16: {DType.FLOAT32, DType.FLOAT64},
    DType.FLOAT32: {DType.FLOAT64},
}


def holds(wide: DType, narrow: DType) -> bool:
    """Return whether a type has every number of another one."""
    if narrow is BOOL:
        return wide.is_int or wide in MANTISSA
    if narrow.is_float:
        return wide in WIDER.get(narrow, ())
    if not narrow.is_int:
        return False
    signed = narrow.kind is Kind.INT
    if wide.is_float:
        return narrow.bits - signed <= MANTISSA.get(wide, 0)
    if wide.kind is Kind.INT:
        return wide.bits >= narrow.bits + (not signed)
    return wide.kind is Kind.UINT and not signed and wide.bits >= narrow.bits


@dataclass(frozen=True)
class Direct:
    """The conversion that is left, if any."""

    x: Value
    op: Cast | None


class CastOfCast(Rule[Direct]):
    """See the module."""

    name = "cast_of_cast"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Direct | None:
        """Find a conversion that loses nothing under one that starts from the same numbers."""
        op, (v,) = node.op, edit.operands(node)
        inner = v.node.op
        assert isinstance(op, Cast)
        if not isinstance(inner, Cast):
            return None
        (x,) = edit.operands(v.node)
        first, through, last = x.dtype, inner.dtype, op.dtype
        if not holds(through, first) or not (last.is_int or last in MANTISSA or last is BOOL):
            return None
        if last is first:
            return Direct(x, None)
        # numbers out of range are treated by the kind of what is converted
        alike = (
            first is BOOL
            or last is BOOL
            or (first.is_float and through.is_float and last in MANTISSA)
            or (first.is_int and through.is_int and last.is_int)
        )
        return Direct(x, op) if alike else None

    def rewrite(self, edit: Editor, found: Direct) -> Value:
        """Convert once, or not at all."""
        return found.x if found.op is None else edit.graph.push(found.op, found.x)


RULES = (CastOfCast(),)
