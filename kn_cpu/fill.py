"""Numbers that come from sizes alone: see `native/kn_fill.h`."""

from __future__ import annotations

from collections.abc import Sequence

from kn_cpu.axes import KernelCall, units_for
from kn_graph.dim import Size

__all__ = ["iota_call", "report_call", "sizes_call"]


def sizes_call(values: Sequence[Size], itemsize: int) -> KernelCall:
    """Write sizes one after another, p = {out}."""
    return KernelCall("sizes", (itemsize, len(values), *values), 1)


def iota_call(count: Size, itemsize: int) -> KernelCall:
    """Write the numbers from 0 on one after another, p = {out}."""
    units = units_for(count)
    return KernelCall("iota", (units, itemsize, count), units)


def report_call() -> KernelCall:
    """Say that something is wrong, p = {status}: status[0] becomes 1."""
    return KernelCall("report", (), 1)
