"""Text of models in pictures: names may hold any character, and XML has no way to write some."""

from __future__ import annotations

import html
import re

__all__ = ["escaped", "printable"]

CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What XML cannot write, and ends of lines."""


def printable(text: str) -> str:
    """Return text with a replacement character in place of what XML cannot write."""
    return CONTROL.sub("\ufffd", text)


def escaped(text: str) -> str:
    """Return text as XML or HTML, in an element or an attribute."""
    return html.escape(printable(text))
