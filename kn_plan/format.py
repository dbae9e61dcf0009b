"""In which order of axes values are stored.

The order is chosen so that readers need no copy: attention writes its heads where the projection
behind it reads them as one axis, since a view of permuted axes is free if they are stored permuted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_graph.dim import Size
from kn_graph.op import Op
from kn_graph.ops.layout import Permute
from kn_graph.types import Shape, TensorType
from kn_graph.value import Value
from kn_plan.access import Access, resolved
from kn_plan.group import Group
from kn_plan.layout import StridedLayout
from kn_plan.target import Order, Target

__all__ = ["choose_orders", "stored"]


def stored(shape: Sequence[int] | Shape, order: Order) -> StridedLayout:
    """Return the layout of a tensor whose axes lie in memory in an order, the last one densest."""
    dense = StridedLayout.contiguous([shape[a] for a in order])
    if all(a == i for i, a in enumerate(order)):
        return dense
    return dense.permute([order.index(a) for a in range(len(order))])


def choose_orders(
    groups: Sequence[Group], fixed: frozenset[Value], target: Target
) -> dict[Value, Order]:
    """Return the order of axes of values that are not stored in the plain one.

    What the device wants comes first; else the order that saves most copies.

    Args:
        groups: in the order in which they run.
        fixed: values whose order is given.
        target: the device.
    """
    found = _saving(groups, fixed)
    for group in groups:
        for v in group.outputs:
            if v in fixed or not isinstance(v.type, TensorType):
                continue
            given = _given(group, v, found)
            order = target.order(group.anchor, v.rank, given)
            if order is not None and len(order) == v.rank and (not group.undo or order == given):
                found[v] = order
    return found


def _given(group: Group, v: Value, orders: Mapping[Value, Order]) -> Order | None:
    """Return the order of axes of a result in which its elements lie as those that are read."""
    computed = _read_order(group, orders)
    if not group.undo or computed is None:
        return computed
    read = orders.get(group.reads[0].value)
    for order in dict.fromkeys(o for o in (read, computed) if o is not None and len(o) == v.rank):
        layout = resolved(stored(v.shape, order), Access(v, group.undo, group.shape))
        if layout is not None and _dense_order(layout) == computed:
            return order
    return None


def _read_order(group: Group, orders: Mapping[Value, Order]) -> Order | None:
    """Return the order of axes of what is read as it lies; else of what is read first."""
    for access in group.reads:
        if not access.ops:
            return orders.get(access.value)
    first = group.reads[0] if group.reads else None
    order = None if first is None else orders.get(first.value)
    if first is None or order is None:
        return None
    layout = resolved(stored(first.value.shape, order), first)
    return None if layout is None else _dense_order(layout)


def _dense_order(layout: StridedLayout) -> Order | None:
    """Return the order of axes in which a layout has no gaps; None where it has some."""
    left = list(range(layout.rank))
    order: list[int] = []
    step: Size = 1
    while left:
        axis = next((a for a in reversed(left) if layout.strides[a] == step), None)
        if axis is None:
            return None
        left.remove(axis)
        order.insert(0, axis)
        step = step * layout.sizes[axis]
    return tuple(order)


def _saving(groups: Sequence[Group], fixed: frozenset[Value]) -> dict[Value, Order]:
    """Return the orders that save copies."""
    readers: dict[Value, list[Access]] = {}
    writers: dict[Value, Group] = {}
    for group in groups:
        for access in group.reads:
            readers.setdefault(access.value, []).append(access)
        for v in group.outputs:
            writers[v] = group
    found: dict[Value, Order] = {}
    for v, accesses in readers.items():
        if v in fixed or v not in writers or not isinstance(v.type, TensorType):
            continue
        plain = tuple(range(v.rank))
        least = _copies(v, plain, accesses, writers[v])
        wishes = map(_wish, [*(a.ops for a in accesses), writers[v].undo])
        channels_last = (0, *range(2, v.rank), 1) if v.rank > 2 else plain
        for order in dict.fromkeys([*(o for o in wishes if o is not None), channels_last]):
            if least == 0:
                break
            copies = _copies(v, order, accesses, writers[v])
            if copies < least:
                found[v], least = order, copies
    return found


def _wish(ops: tuple[Op, ...]) -> Order | None:
    """Return the order in which a permutation at the beginning is none."""
    op = ops[0] if ops else None
    return op.axes if isinstance(op, Permute) else None


def _copies(v: Value, order: Order, accesses: Sequence[Access], writer: Group) -> int:
    """Return how many readers, and the writer, need a copy."""
    layout = stored(v.shape, order)
    count = sum(resolved(layout, a) is None for a in accesses)
    written = Access(v, writer.undo, writer.shape)
    return count + (resolved(layout, written) is None)
