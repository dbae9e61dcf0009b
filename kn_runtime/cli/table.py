"""Tables that fit the terminal: a row is one line at any width.

Where all columns do not fit, long texts are shortened in the middle first, since names of nodes
differ at their ends; then the columns go that matter least, and a line says which. What is not a
terminal gets everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

__all__ = ["Column", "Table", "nested_rows", "shortened"]

GAP = 2
"""Spaces between columns."""

ELLIPSIS = "…"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: its heading.
        right: aligned right, as numbers are.
        least: how many characters its texts may be shortened to; None for not at all.
        rank: columns of a higher one go first where there is no room; 0 for never.
        style: of its texts.
    """

    title: str
    right: bool = False
    least: int | None = None
    rank: int = 0
    style: str = ""


class Table:
    """Rows in columns, a `rich` renderable."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        self.columns = tuple(columns)
        self.rows = [[c if isinstance(c, Text) else Text(str(c)) for c in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out for the width there is."""
        places = [i for i, c in enumerate(self.columns) if self._used(i)]
        widths = {i: self._widest(i) for i in places}
        dropped: list[str] = []
        while not self._shrink(widths, options.max_width) and len(widths) > 1:
            place = max(widths, key=lambda i: (self.columns[i].rank, i))
            if not self.columns[place].rank:
                break
            dropped.append(self.columns[place].title)
            del widths[place]
            widths = {i: self._widest(i) for i in widths}
        if any(self.columns[i].title for i in widths):
            yield self._line([Text(self.columns[i].title, "bold") for i in widths], widths)
        for row in self.rows:
            yield self._line([row[i] for i in widths], widths)
        if dropped:
            names = ", ".join(reversed(dropped))
            yield Text(f"(wider, or as --json: {names})", "dim", overflow="fold")

    def _used(self, place: int) -> bool:
        return any(row[place].plain for row in self.rows) or not self.rows

    def _widest(self, place: int) -> int:
        texts = [row[place].plain for row in self.rows]
        return max(map(cell_len, [self.columns[place].title, *texts]))

    def _shrink(self, widths: dict[int, int], room: int) -> bool:
        """Narrow what may be narrowed, the widest first; return whether the table fits."""
        excess = sum(widths.values()) + GAP * (len(widths) - 1) - room
        while excess > 0:
            able = [i for i in widths if widths[i] > self._least(i)]
            if not able:
                return False
            widest = max(able, key=widths.__getitem__)
            widths[widest] -= 1
            excess -= 1
        return True

    def _least(self, place: int) -> int:
        column = self.columns[place]
        if column.least is None:
            return self._widest(place)
        return max(column.least, cell_len(column.title))

    def _line(self, cells: Sequence[Text], widths: dict[int, int]) -> Text:
        line = Text(no_wrap=True, overflow="ignore")
        for number, (cell, place) in enumerate(zip(cells, widths, strict=True)):
            column, width = self.columns[place], widths[place]
            cell = shortened(cell, width)
            padding = " " * (width - cell.cell_len)
            line.append(" " * GAP if number else "")
            if column.right:
                line.append(padding)
            start = len(line)
            line.append_text(cell)
            line.stylize(column.style, start)
            if not column.right:
                line.append(padding)
        line.rstrip()
        return line


class _Numbered(Protocol):
    @property
    def number(self) -> int: ...


S = TypeVar("S", bound=_Numbered)


def nested_rows(
    steps: Iterable[tuple[str, S]],
    titles: Mapping[str, Sequence[object]],
    row: Callable[[S, str], Sequence[object]],
    columns: int = 8,
) -> list[Sequence[object]]:
    """Return rows of steps, those of control-flow bodies behind the step that runs them.

    Args:
        steps: with the path of the body that each is in; '' outside of all. A path is that of a
            step and a name: `3.then_body`, `3.then_body.0.body`.
        titles: the first cells of the row above each body, by path, outer bodies first.
        row: makes a row of a step and of its number as text, indented.
        columns: of the table.
    """
    keys: dict[str, tuple[int, ...]] = {"": ()}
    for order, path in enumerate(titles):
        around, step, _ = ("." + path).rsplit(".", 2)
        keys[path] = (*keys[around.removeprefix(".")], int(step), order)
    rows: dict[tuple[int, ...], Sequence[object]] = {
        keys[path]: _padded(cells, columns, len(keys[path]) - 1) for path, cells in titles.items()
    }
    for path, entry in steps:
        indented = "  " * (len(keys[path]) // 2) + str(entry.number)
        rows[*keys[path], entry.number] = row(entry, indented)
    return [rows[key] for key in sorted(rows)]


def _padded(cells: Sequence[object], columns: int, depth: int) -> Sequence[object]:
    number, text, *rest = cells
    filled = [number, Text("  " * (depth // 2) + str(text), "italic"), *rest]
    return filled + [""] * (columns - len(filled))


def shortened(text: Text, width: int) -> Text:
    """Return a text of at most some characters, cut in the middle.

    Args:
        text: which one.
        width: at least 1.
    """
    if text.cell_len <= width:
        return text
    if width < 3:
        return text[:width]
    left = (width - 1) // 2
    right = width - 1 - left
    return text[:left] + Text(ELLIPSIS, "dim") + text[len(text) - right :]
