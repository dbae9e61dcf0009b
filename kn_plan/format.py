"""In which order of axes values are stored.

The order is chosen so that readers need no copy: attention writes its heads where the projection
behind it reads them as one axis, since a view of permuted axes is free if they are stored permuted.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        given = next((found.get(a.value) for a in group.reads if not a.ops), None)
        for v in group.outputs:
            if v in fixed or not isinstance(v.type, TensorType) or group.undo:
                continue
            order = target.order(group.anchor, v.rank, given)
            if order is not None and len(order) == v.rank:
                found[v] = order
    return found


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
        wishes = map(_wish, [*(a.ops for a in accesses), writers[v].undo])
        orders = dict.fromkeys([plain, *(o for o in wishes if o is not None)])
        best = min(orders, key=lambda o: _copies(v, o, accesses, writers[v]))
        if best != plain:
            found[v] = best
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
