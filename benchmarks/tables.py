"""Tables of texts: in Markdown for pages, and for a terminal with a verdict behind each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

__all__ = ["markdown", "verdict_table"]


def markdown(
    head: Sequence[str], rows: Iterable[Sequence[str]], texts: Iterable[int] = (0,)
) -> str:
    """Return a table in Markdown.

    Args:
        head: titles of columns.
        rows: their texts.
        texts: which columns begin at the left, -1 the last; numbers end at the right.
    """
    left = {i % len(head) for i in texts}
    rule = ["---" if i in left else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def verdict_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], styles: Mapping[str, str]
) -> Table:
    """Return a table whose last column is coloured.

    Args:
        title: above it.
        head: titles of columns.
        rows: their texts, a verdict last.
        styles: by verdict; others are red.
    """
    table = Table(*head, title=title)
    for *cells, verdict in rows:
        table.add_row(*cells, f"[{styles.get(verdict, 'red')}]{verdict}[/]")
    return table
