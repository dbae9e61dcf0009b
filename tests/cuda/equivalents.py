"""Mutants that change nothing, each with a proof; `mutants.py` counts them apart."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EQUIVALENTS", "Equivalent"]


@dataclass(frozen=True)
class Equivalent:
    """A change of a kernel that no test can notice.

    Attributes:
        family: the file.
        before: a line of it.
        after: the line, changed.
        reason: why all results stay what they are.
    """

    family: str
    before: str
    after: str
    reason: str


EQUIVALENTS: tuple[Equivalent, ...] = ()
