r"""Regular expressions in the syntax of RE2, run by Python's `re`.

Both agree on nearly everything. What only RE2 has is translated, what only Python has is refused:
look-around, backreferences, possessive quantifiers, atomic groups. Classes such as `\d` and `\w`
are ASCII in RE2.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from kn_graph.errors import UnsupportedModelError

__all__ = ["compile_re2", "longest_matches"]

POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\\x00-\\x7F", "blank": "\\t ",
    "cntrl": "\\x00-\\x1F\\x7F", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": "!-/:-@\\[-`{-~", "space": "\\t\\n\\v\\f\\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<quoted> \\Q (?: (?!\\E) . )* (?: \\E )? )
      | (?P<code> \\x \{ (?P<hex> [0-9A-Fa-f]+ ) \} )
      | (?P<name> \\[pP] )
      | (?P<backreference> \\[1-9] )
      | (?P<escape> \\ . )
      | (?P<posix> \[: (?P<not> \^? ) (?P<class> [a-z]+ ) :\] )
      | (?P<look> \( \? (?: [=!>] | <[=!] | P= | P> | \( | \# ) )
      | (?P<possessive> [*+?}] \+ )
      | (?P<other> . )""",
    re.DOTALL | re.VERBOSE,
)

_ESCAPES = {
    "\\z": r"\Z", "\\C": None, "\\d": "[0-9]", "\\D": "[^0-9]", "\\w": "[0-9A-Za-z_]",
    "\\W": "[^0-9A-Za-z_]", "\\s": r"[\t\n\f\r ]", "\\S": r"[^\t\n\f\r ]",
}  # fmt: skip
"""Escapes outside of brackets that mean something else to Python, or nothing."""

_IN_BRACKETS = {"\\d": "0-9", "\\w": "0-9A-Za-z_", "\\s": r"\t\n\f\r "}


@lru_cache(maxsize=64)
def compile_re2(pattern: str) -> re.Pattern[str]:
    """Return a pattern that matches as RE2 would.

    Raises:
        UnsupportedModelError: it is not RE2 syntax, or not supported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "[[" means what it means in RE2
            return re.compile(_translated(pattern))
    except re.error as error:
        raise UnsupportedModelError(f"pattern {pattern!r}: {error}") from None


def longest_matches(pattern: str, text: str) -> list[str]:
    """Return the matches in a text, the first ones first and the longest at each place.

    Empty ones are left out. Python takes the first alternative that matches, so where there are
    several the longest is searched for.
    """
    compiled, found, start = compile_re2(pattern), [], 0
    while start < len(text) and (match := compiled.search(text, start)) is not None:
        end = match.end()
        if _CHOOSES.search(pattern):
            ends = range(len(text), end, -1)
            end = next((e for e in ends if compiled.fullmatch(text, match.start(), e)), end)
        if end > match.start():
            found.append(text[match.start() : end])
        start = max(end, match.start() + 1)
    return found


_CHOOSES = re.compile(r"[|]|[*+?}][?]")
"""Alternatives and quantifiers that take as little as they can."""


def _translated(pattern: str) -> str:
    out: list[str] = []
    opened = -1  # where a bracket expression began
    for token in _TOKEN.finditer(pattern):
        text, kind = token[0], token.lastgroup
        inside = opened >= 0
        if kind == "quoted":
            text = re.escape(text[2:].removesuffix("\\E"))
        elif kind == "code":
            text = re.escape(chr(int(token["hex"], 16)))
        elif kind == "posix" and inside:
            text = _posix(pattern, token)
        elif kind == "escape":
            text = _escaped(pattern, text, inside)
        elif kind in ("name", "backreference") or (kind in ("look", "possessive") and not inside):
            raise UnsupportedModelError(f"pattern {pattern!r}: {text!r} is not supported")
        elif kind == "other" and text == "[" and not inside:
            opened = token.end()
        elif text == "]" and inside and pattern[opened : token.start()] not in ("", "^"):
            opened = -1
        elif kind == "other" and text == "$" and not inside:
            text = r"(?:$(?!\n))" if not _multiline(pattern) else text
        out.append(text)
    return "".join(out)


def _multiline(pattern: str) -> bool:
    return re.match(r"\(\?[a-zA-Z]*m", pattern) is not None


def _posix(pattern: str, token: re.Match[str]) -> str:
    chars = POSIX.get(token["class"])
    if chars is None or token["not"]:
        raise UnsupportedModelError(f"pattern {pattern!r}: {token[0]!r} is not supported")
    return chars


def _escaped(pattern: str, text: str, inside: bool) -> str:
    known = _IN_BRACKETS if inside else _ESCAPES
    result = known.get(text, text)
    if result is None or (inside and text in ("\\D", "\\W", "\\S")):
        raise UnsupportedModelError(f"pattern {pattern!r}: {text!r} is not supported here")
    return result
