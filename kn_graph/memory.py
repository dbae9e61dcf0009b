"""How much memory a run may take."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from kn_graph.dim import Symbol, evaluate
from kn_graph.errors import OutOfMemoryError
from kn_graph.ops.layout import Broadcast, Flip, Permute, Slice, View
from kn_graph.ops.source import Constant, Input
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Node, Value

__all__ = ["available_bytes", "check_fits", "check_peak"]

UNKNOWN = 1 << 40
"""Where the system does not say."""


def available_bytes() -> int:
    """Return how much memory this process can get: of the machine, and of its control group.

    It is measured at most once a second, since evaluating a small graph takes less than asking.
    """
    return _measured(int(time.monotonic()))


@lru_cache(maxsize=1)
def _measured(second: int) -> int:
    return min(_free_of_machine(), *_limits_of_group())


def _free_of_machine() -> int:
    """Return what is free or can be freed, swap space included; all there is if that is unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            kib = {k: int(v.split()[0]) for k, _, v in (line.partition(":") for line in lines)}
        return 1024 * (kib["MemAvailable"] + kib.get("SwapFree", 0))
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return UNKNOWN


def _limits_of_group() -> list[int]:
    """Return the limits of the control group (versions 2 and 1) that a container sets."""
    root = Path("/sys/fs/cgroup")
    limits = [UNKNOWN]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((root / name).read_text()))
        except (OSError, ValueError):  # absent, or 'max'
            continue
    return limits


VIEWS = (Broadcast, Flip, Permute, Slice, View)
"""Operations whose results share the memory of their operand, as a rule."""


def _bytes(t: ValueType, env: Mapping[Symbol, int]) -> int | None:
    """Return the size of a tensor, None where it is not known yet."""
    if not isinstance(t, TensorType):
        return None
    count = t.dtype.itemsize
    for s in t.shape:
        if isinstance(s, int):
            count *= s
        elif s.symbols <= env.keys():
            count *= evaluate(s, env)
        else:
            return None
    return count


def check_fits(node: Node, env: Mapping[Symbol, int], limit: int) -> bool:
    """Check the results of one node, and return whether the sizes of all are known.

    Raises:
        OutOfMemoryError: one alone is larger than the limit.
    """
    known = True
    for v in node.results:
        count = _bytes(v.type, env)
        if count is not None and count > limit:
            raise OutOfMemoryError(
                f"node {node.label} ({node.op.title}) would make {v.name}: {v.type} with "
                f"{count:,} bytes; {limit:,} are available"
            )
        known = known and (count is not None or not isinstance(v.type, TensorType))
    return known


def check_peak(
    nodes: Sequence[Node],
    frees: Mapping[Node, Sequence[Value]],
    env: Mapping[Symbol, int],
    limit: int,
) -> set[Node]:
    """Check, before anything runs, that what is alive at the same time fits into memory.

    Args:
        nodes: in the order in which they run.
        frees: what is no longer needed after each.
        env: numbers of the symbols known so far.
        limit: bytes that may be used.

    Returns:
        The nodes with results whose sizes are not known yet, to be checked when they are.

    Raises:
        OutOfMemoryError: more than the limit would be needed.
    """
    held: dict[Value, int] = {}
    total = 0
    late = set()
    for node in nodes:
        if not check_fits(node, env, limit):
            late.add(node)
        if not isinstance(node.op, (Input, Constant, *VIEWS)):
            for v in node.results:
                held[v] = _bytes(v.type, env) or 0
                total += held[v]
        if total > limit:
            raise OutOfMemoryError(
                f"at node {node.label} ({node.op.title}), {total:,} bytes would be in use; "
                f"{limit:,} are available"
            )
        total -= sum(held.pop(v, 0) for v in frees.get(node, ()))
    return late
