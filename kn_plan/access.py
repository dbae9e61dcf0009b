"""How a value is read: another one, behind operations that only arrange its elements."""

from __future__ import annotations

from dataclasses import dataclass, field

from kn_graph.dtype import Kind
from kn_graph.op import Op
from kn_graph.ops.layout import Broadcast, Flip, Permute, Slice, View
from kn_graph.types import Shape, TensorType
from kn_graph.value import Node, Value
from kn_plan.layout import StridedLayout

__all__ = ["HOST_KINDS", "Access", "access_of", "apply_layout", "inverse", "is_layout", "resolved"]

LAYOUT_OPS = (View, Permute, Broadcast, Slice, Flip)

HOST_KINDS = frozenset({Kind.STRING, Kind.COMPLEX})
"""Elements that no device computes with."""


@dataclass(frozen=True)
class Access:
    """A value under layout operations.

    Attributes:
        value: what is read; no layout operation makes it.
        ops: what is applied to it, first to last.
        shape: what comes out; empty for what is no tensor.
        labels: the ONNX nodes that the operations stand for, as far as they are known.
    """

    value: Value
    ops: tuple[Op, ...]
    shape: Shape
    labels: tuple[str, ...] = field(default=(), compare=False)

    def then(self, ops: tuple[Op, ...], shape: Shape, labels: tuple[str, ...] = ()) -> Access:
        """Apply more operations."""
        return Access(self.value, self.ops + ops, shape, self.labels + labels) if ops else self

    def __str__(self) -> str:
        """Return text such as `x.permute(1, 0)`."""
        return ".".join([self.value.name, *(op.title.lower() for op in self.ops)])


def is_layout(node: Node) -> bool:
    """Return whether a node only arranges elements that lie in memory as numbers."""
    return isinstance(node.op, LAYOUT_OPS) and node.results[0].dtype.kind not in HOST_KINDS


def access_of(value: Value) -> Access:
    """Look through the layout operations that make a value."""
    if not isinstance(value.node.op, LAYOUT_OPS):
        return Access(value, (), value.type.shape if isinstance(value.type, TensorType) else ())
    ops: list[Op] = []
    labels: list[str] = []
    base = value
    while is_layout(base.node):
        labels.append(base.node.label)
        ops.append(base.node.op)
        (base,) = base.node.operands
    shape = value.type.shape if isinstance(value.type, TensorType) else ()
    return Access(base, tuple(reversed(ops)), shape, tuple(reversed(labels)))


def apply_layout(layout: StridedLayout, op: Op) -> StridedLayout | None:
    """Return the layout behind an operation; None where elements have to be copied."""
    match op:
        case View(shape):
            return layout.view(shape).always
        case Permute(axes):
            return layout.permute(axes)
        case Broadcast(shape):
            return layout.broadcast(shape)
        case Slice(axis, start, length, step):
            return layout.slice(axis, start, length, step)
        case Flip(axis):
            return layout.flip(axis)
    raise TypeError(f"{op.title} is no layout operation")


def resolved(layout: StridedLayout, access: Access) -> StridedLayout | None:
    """Return the layout of an access to a value stored in a layout; None where it needs a copy."""
    current: StridedLayout | None = layout
    for op in access.ops:
        if current is None:
            return None
        current = apply_layout(current, op)
    return current


def inverse(ops: tuple[Op, ...], shape: Shape) -> tuple[Op, ...] | None:
    """Return the operations that undo others, which start from a shape; None where some drop."""
    undone: list[Op] = []
    for op in ops:
        match op:
            case View(after):
                undone.append(View(shape))
                shape = after
            case Permute(axes):
                undone.append(Permute(tuple(axes.index(a) for a in range(len(axes)))))
                shape = tuple(shape[a] for a in axes)
            case Flip():
                undone.append(op)
            case _:
                return None
    return tuple(reversed(undone))
