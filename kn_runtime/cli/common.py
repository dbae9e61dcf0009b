"""What several verbs share: text in columns, JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = [
    "INDENT",
    "counted",
    "emit_json",
    "grid",
    "human_bytes",
    "human_count",
    "joined",
    "json_text",
    "show",
]

INDENT = 2
"""Spaces before what is under a heading."""

PIPE_WIDTH = 100_000
"""Width of what is not a terminal: one row stays one line, for grep."""

LIST_WIDTH = 80
"""Width of lists there."""


# ---- results as text ------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    fixed = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(highlight=False, emoji=False, width=None if fixed else PIPE_WIDTH)


def show(*parts: RenderableType, indent: int = 0) -> None:
    """Print results on stdout: strings (with markup), grids and lists."""
    console = _console()
    console.width = max(console.width - indent, 1)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    lines = captured.get().removesuffix("\n").split("\n")
    text = "".join((" " * indent + line).rstrip() + "\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def grid(rows: Iterable[Sequence[object]], headers: Sequence[str] = ()) -> RenderableType:
    """Return rows in columns, two spaces apart.

    Args:
        rows: cells are texts (without markup) or renderables.
        headers: of the columns; one that starts with '#' is for numbers, aligned right.
    """
    from rich.table import Table
    from rich.text import Text

    out = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=any(h.strip("#") for h in headers),
        header_style="bold",
    )
    for header in headers:
        right = header.startswith("#")
        justify: Any = "right" if right else "left"
        out.add_column(header.removeprefix("#"), justify=justify, overflow="fold")
    for row in rows:
        out.add_row(*(c if hasattr(c, "__rich_console__") else Text(str(c)) for c in row))
    return out


def joined(entries: Iterable[str]) -> RenderableType:
    """Return short texts side by side, in columns as `ls` prints them."""
    from rich.columns import Columns
    from rich.constrain import Constrain
    from rich.text import Text

    columns = Columns([Text(e) for e in entries], padding=(0, 3), column_first=True)
    return columns if _console().width < PIPE_WIDTH else Constrain(columns, LIST_WIDTH)


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number of things as text, such as `1 step` and `2 steps`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def human_bytes(count: float) -> str:
    """Return a number of bytes as text with a unit, such as `1.5 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def human_count(count: float) -> str:
    """Return a number as text with a decimal prefix, such as `1.5 G`."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000:
            return f"{count:.0f}" if not unit else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} P"


# ---- results as JSON ------------------------------------------------------------------------


def emit_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; see `json_text`."""
    sys.stdout.write(json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """Return an object as JSON.

    JSON has no numbers that are not finite: they become the texts NaN, Infinity and -Infinity.
    """
    return json.dumps(_finite(value), indent=2, default=str, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
