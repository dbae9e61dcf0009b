"""Options of `Device.prepare`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PrepareOptions"]


@dataclass(frozen=True)
class PrepareOptions:
    """How a graph is prepared.

    Attributes:
        allow_host: let a device run nodes on the host that it has no kernel for; they are counted
            and named. Otherwise such nodes are an error.
    """

    allow_host: bool = False
