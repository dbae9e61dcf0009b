"""Names of tensors and nodes: those of the file that a graph came from, and invented ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

__all__ = ["Names"]

_INVENTED = re.compile(r"kn_\w+_\d+")


class Names:
    """The names of one model; none is given twice.

    Invented names say nothing about the model, so they are invented anew each time a graph is
    written: that makes writing what was loaded from a written file give the same file.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = {"", *reserved}
        self._counts: Counter[str] = Counter()

    def prefer(self, wanted: Iterable[str]) -> str | None:
        """Take the first name that is free and was not invented."""
        for name in wanted:
            if name not in self._taken and not self.is_invented(name):
                self._taken.add(name)
                return name
        return None

    @staticmethod
    def is_invented(name: str) -> bool:
        """Return whether a name is of the form that invented ones have."""
        return _INVENTED.fullmatch(name) is not None

    def invent(self, hint: str) -> str:
        """Take a new name, numbered for each hint."""
        while True:
            name = f"kn_{hint}_{self._counts[hint]}"
            self._counts[hint] += 1
            if name not in self._taken:
                self._taken.add(name)
                return name
