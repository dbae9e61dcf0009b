"""What is known of integer vectors that are joined from parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.dim import Size
from kn_graph.ops.layout import Concat

if TYPE_CHECKING:
    from kn_graph.value import Value

__all__ = ["known_sizes"]


def known_sizes(value: Value) -> tuple[Size | None, ...]:
    """Return each element of an integer vector, None where it only shows at run time."""
    found: list[Size | None] = []
    pending = [value]
    while pending:
        part = pending.pop()
        content = part.content
        if content is not None:
            found += content.ravel().tolist()
        elif isinstance(part.node.op, Concat) and part.rank == 1:
            pending += reversed(part.node.operands)
        else:
            (count,) = part.shape
            found += [None] * (count if isinstance(count, int) else 0)
    return tuple(found)
