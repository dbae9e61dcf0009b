"""Tables that fit the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from kn_runtime.cli.table import Column, Table, nested_rows, shortened

COLUMNS = (
    Column("node", least=8),
    Column("us", right=True),
    Column("by", rank=1),
    Column("rate", right=True, rank=2),
)
ROWS = [("encoder/layer.0/attention/query", "1.5", "gemm_f32", "12 G"), ("add", "100.25", "", "")]


def printed(width: int, columns: Sequence[Column] = COLUMNS) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(Table(columns, ROWS))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_where_there_is_room_nothing_is_cut() -> None:
    assert printed(80) == [
        "node                                 us  by        rate",
        "encoder/layer.0/attention/query     1.5  gemm_f32  12 G",
        "add                              100.25",
    ]


def test_long_texts_lose_their_middle_first() -> None:
    lines = printed(40)
    assert lines[1] == "encoder…on/query     1.5  gemm_f32  12 G"
    assert len(lines) == len(ROWS) + 1


@pytest.mark.parametrize(
    ("width", "gone"), [(31, "rate"), (26, "rate"), (20, "by, rate"), (16, "by, rate")]
)
def test_then_columns_go_that_matter_least_and_it_says_which(width: int, gone: str) -> None:
    lines = printed(width)
    said = " ".join(" ".join(lines[len(ROWS) + 1 :]).split())
    assert said == f"(wider, or as --json: {gone})"
    assert not any(title in lines[0].split() for title in gone.split(", "))
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", range(16, 60))
def test_every_row_is_one_line_of_at_most_the_width(width: int) -> None:
    lines = [line for line in printed(width) if not line.startswith("(")]
    assert max(map(len, lines)) <= width
    assert any("100.25" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [("abcdefghij", 10, "abcdefghij"), ("abcdefghij", 5, "ab…ij"), ("abcdefghij", 6, "ab…hij"),
     ("abcdefghij", 2, "ab")],
)  # fmt: skip
def test_a_text_is_cut_in_the_middle(text: str, width: int, short: str) -> None:
    assert shortened(Text(text), width).plain == short


@dataclass(frozen=True)
class Step:
    number: int


def test_steps_of_bodies_come_behind_their_step() -> None:
    steps = [("", Step(0)), ("", Step(10)), ("", Step(11))]
    steps += [("10.then", Step(0)), ("10.then.0.body", Step(0)), ("10.else", Step(0))]
    titles = {p: ("", p) for p in ("10.then", "10.then.0.body", "10.else")}
    rows = nested_rows(steps, titles, lambda s, number: (number, "step"), 2)
    assert [(str(a), str(b)) for a, b in rows] == [
        ("0", "step"),
        ("10", "step"),
        ("", "10.then"),
        ("  0", "step"),
        ("", "  10.then.0.body"),
        ("    0", "step"),
        ("", "10.else"),
        ("  0", "step"),
        ("11", "step"),
    ]
