"""What several verbs share: arguments, tables, JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["add_device", "add_dims", "console", "dims_of", "emit_json", "named", "table"]


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`."""
    parser.add_argument(
        "--device",
        default="best",
        metavar="NAME",
        help="best, reference, cpu, cuda or cuda:N (default: best)",
    )


def add_dims(parser: argparse.ArgumentParser) -> None:
    """Add `--dim`."""
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a number for a symbolic size; may be repeated",
    )


def named(text: str, what: str) -> tuple[str, str]:
    """Split `NAME=VALUE`.

    Raises:
        UsageError: there is no `=`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{what} is given as NAME=VALUE, got {text!r}")
    return name, value


def dims_of(args: argparse.Namespace) -> dict[str, int]:
    """Return the sizes given by `--dim`.

    Raises:
        UsageError: one is not NAME=N with N >= 0.
    """
    dims = {}
    for text in args.dim:
        name, value = named(text, "--dim")
        if not value.isdigit():
            raise UsageError(f"--dim {name}: expected a whole number of 0 or more, got {value!r}")
        dims[name] = int(value)
    return dims


def console() -> Console:
    """Return the terminal that results are printed on."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a plain table; columns whose header starts with '#' are numbers, aligned right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for header in headers:
        right = header.startswith("#")
        out.add_column(
            header.removeprefix("#"), justify="right" if right else "left", overflow="fold"
        )
    for row in rows:
        out.add_row(*(Text(str(cell)) for cell in row))
    return out


def emit_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")
