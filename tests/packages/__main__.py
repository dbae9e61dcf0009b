"""`python -m tests.packages`: runs all packages and prints the table of docs/onnxruntime.md."""

from __future__ import annotations

import sys

from tests.packages.rows import PACKAGES, Package
from tests.packages.running import differences, run

TURNS = 3
"""How often each runtime has its turn; the least time counts."""


def row(package: Package) -> tuple[str, bool]:
    """Return a row of the table, and whether answers are the same."""
    turns = [run(package) for _ in range(TURNS)]
    found = [
        difference
        for turn in turns
        for difference in differences(turn.theirs["answer"], turn.ours["answer"], package.tolerance)
    ]
    theirs, ours = (
        min(t[side]["seconds"] for t in map(vars, turns)) for side in ("theirs", "ours")
    )
    cells = (
        f"{package.name} {turns[0].ours['version']}",
        package.does,
        found[0] if found else f"equal to {package.tolerance:g}",
        _text(theirs),
        _text(ours),
    )
    return f"| {' | '.join(cells)} |", not found


def _text(seconds: float) -> str:
    """Return a time with as many digits as mean something."""
    ms = seconds * 1e3
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def main() -> int:
    """Print the table, and return 1 if answers differ."""
    lines = ["| package | what it does | answers | onnxruntime | kn-engine |", "|-|-|-|-|-|"]
    rows = [row(package) for package in PACKAGES]
    sys.stdout.write("\n".join([*lines, *[text for text, _ in rows]]) + "\n")
    return 0 if all(same for _, same in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
