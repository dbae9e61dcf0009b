"""What a prepared graph is and has done, as a line, a table, and a table for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kn_runtime.prepared import PreparedGraph

__all__ = ["CacheInfo", "html_table", "line", "rows", "text_table"]

Row = tuple[str, str]


@dataclass(frozen=True)
class CacheInfo:
    """How often a call found a plan bound to its sizes.

    Attributes:
        hits: how often it did; threads that call at once may leave out some.
        misses: how often one was made.
        kept: how many there are.
        limit: how many there are at most; what was used least recently makes room.
    """

    hits: int
    misses: int
    kept: int
    limit: int

    def __str__(self) -> str:
        """Return a clause, such as `2 sizes bound, found by 8 of 10 calls`."""
        calls = self.hits + self.misses
        sizes = "1 set of sizes" if self.kept == 1 else f"{self.kept} sets of sizes"
        return f"{sizes} bound (at most {self.limit}), found by {self.hits} of {calls} calls"


def line(prepared: PreparedGraph) -> str:
    """Return what it is in a line."""
    name = f"<PreparedGraph {prepared.graph.name!r} on {prepared.device}"
    if prepared.is_closed:
        return f"{name}, closed>"
    if prepared.plan is None:
        return f"{name}>"
    return f"{name}: {len(prepared.plan.steps)} steps, {prepared.cache_info()}>"


def rows(prepared: PreparedGraph) -> list[Row]:
    """Return labels and what belongs to them."""
    graph = prepared.graph
    free = [s for s in graph.symbols if s not in prepared.dims]
    found = [
        ("graph", graph.name),
        ("device", f"{prepared.device}: {prepared.device.reason}"),
        *[(f"input {v.name}", str(v.type)) for v in graph.inputs],
        *[(f"output {name}", str(v.type)) for name, v in graph.outputs.items()],
        ("free sizes", ", ".join(free) or "none"),
        *[(f"size {name}", str(size)) for name, size in prepared.dims.items()],
    ]
    if prepared.is_closed:
        return [*found, ("state", "closed")]
    if prepared.plan is not None:
        found.append(("steps", str(len(prepared.plan.steps))))
        found.append(("threads", str(prepared.options.worker_threads)))
        found.append(("plans", str(prepared.cache_info())))
    if prepared.options.memory_limit is not None:
        found.append(("memory limit", f"{prepared.options.memory_limit:,} bytes a call"))
    return found


def text_table(found: Sequence[Row]) -> str:
    """Return rows as text."""
    width = max(len(label) for label, _ in found)
    return "\n".join(f"{label:{width}}  {text}" for label, text in found)


def html_table(found: Sequence[Row]) -> str:
    """Return rows as an HTML table."""
    lines = [f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in found]
    return "\n".join(["<table>", *lines, "</table>"])
