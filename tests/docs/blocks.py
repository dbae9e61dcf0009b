"""Fenced blocks of Markdown pages.

A block of `python`, `console` or `bash` is run. A comment above one says why it is not, or why what
it prints is not compared:

    <!-- not run: it takes ten minutes -->
    <!-- output varies: times -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LANGUAGES", "Block", "Command", "blocks_of", "commands_of", "differences"]

LANGUAGES = ("python", "console", "bash")

FENCE = re.compile(r"^( *)```(\w*)\s*$")

NOTE = re.compile(r"^<!-- (not run|output varies): (.+) -->$")

NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?%?")


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        page: the file.
        line: of its first fence, from 1.
        language: behind the fence.
        text: what is between the fences.
        not_run: why it is not run; '' if it is.
        output_varies: why its output is not compared; '' if it is.
    """

    page: Path
    line: int
    language: str
    text: str
    not_run: str = ""
    output_varies: str = ""

    def __str__(self) -> str:
        """Return where it is."""
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line behind a `$`, and the lines under it."""

    words: str
    output: Sequence[str]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        indent, language = len(fence[1]), fence[2]
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
        text = "\n".join(line[indent:] for line in lines[at + 1 : end])
        yield Block(page, at + 1, language, text, **_notes(lines[:at]))
        at = end + 1


def _notes(above: Sequence[str]) -> dict[str, str]:
    """Return what the comments right above a block say."""
    found = {}
    for line in reversed(above):
        note = NOTE.match(line.strip())
        if note is None and line.strip():
            break
        if note is not None:
            found[note[1].replace(" ", "_")] = note[2]
    return found


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block of a shell."""
    if block.language == "bash":
        return [Command(line, ()) for line in _joined(block.text) if _said(line)]
    found: list[tuple[str, list[str]]] = []
    for line in _joined(block.text):
        if line.startswith("$ "):
            found.append((_said(line[2:]), []))
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"{block}: a console block begins with '$ '")
    return [Command(words, output) for words, output in found]


def _joined(text: str) -> list[str]:
    return text.replace("\\\n", " ").split("\n")


def _said(line: str) -> str:
    """Return a command without its comment."""
    return re.split(r"(?:^|\s)# ", line, maxsplit=1)[0].strip()


def differences(shown: Sequence[str], printed: str) -> list[str]:
    """Return the lines shown that are not printed, in this order; numbers and spaces may differ."""
    actual = iter([_plain(line) for line in printed.splitlines()])
    wanted = [line for line in shown if line.strip() and line.strip() != "..."]
    return [
        line for line in wanted if _plain(line.removesuffix("...")) not in _starts(line, actual)
    ]


def _starts(line: str, actual: Iterator[str]) -> Iterator[str]:
    """Yield what is printed next, cut where the line that is shown is cut."""
    cut = line.endswith("...")
    length = len(_plain(line.removesuffix("...")))
    for text in actual:
        yield text[:length] if cut else text


def _plain(line: str) -> str:
    words = NUMBER.sub("#", line.replace("█", "")).split()
    return " ".join(words)
