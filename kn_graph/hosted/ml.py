"""Maps, and look-ups by string."""

from __future__ import annotations

from typing import Any

from kn_graph.hosted.function import HostFunction

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, HostFunction] = {}
_: Any = None
