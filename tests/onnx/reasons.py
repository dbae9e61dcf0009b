"""Lists of cases that differ, each with a reason."""

from __future__ import annotations

from pathlib import Path

__all__ = ["listed"]


def listed(path: Path) -> dict[str, str]:
    """Return {case name: reason} of lines `name  # reason`."""
    lines = (line.split("#", 1) for line in path.read_text().splitlines() if line.strip())
    return {name.strip(): reason.strip() for name, reason in lines if name.strip()}
