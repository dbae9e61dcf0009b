"""`kn doctor`: what is installed, whether it works, and what to do where it does not."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from kn_runtime.cli.common import INDENT, counted, emit_json, grid, show

if TYPE_CHECKING:
    from kn_runtime.doctor import Finding

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn doctor
  kn doctor --json > report.json

Nothing is changed. Exits with 1 where something is wrong; what is absent and optional is not.
"""

MARKS = {"ok": ("ok", "green"), "note": ("-", "yellow"), "wrong": ("no", "bold red")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def execute(args: argparse.Namespace) -> int:
    """Look, print, answer."""
    from kn_runtime.doctor import diagnose

    found = diagnose()
    wrong = [f for f in found if f.level == "wrong"]
    if args.json:
        emit_json({"ok": not wrong, "findings": [asdict(f) for f in found]})
    else:
        _print(found, wrong)
    return 1 if wrong else 0


def _print(found: list[Finding], wrong: list[Finding]) -> None:
    from rich.text import Text

    for section in dict.fromkeys(f.section for f in found):
        show(Text(section, "bold"))
        rows = [(Text(*MARKS[f.level]), f.name, f.text) for f in found if f.section == section]
        show(grid(rows), "", indent=INDENT)
    advice = [(f.name, f.advice) for f in found if f.advice]
    if advice:
        show(Text("what to do", "bold"))
        show(grid(advice), "", indent=INDENT)
    said = f"{counted(len(wrong), 'thing')} wrong" if wrong else "nothing is wrong"
    show(Text(said, "bold red" if wrong else "bold green"))
