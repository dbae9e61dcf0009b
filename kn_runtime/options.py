"""Options of `Device.prepare`."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["PrepareOptions"]


@dataclass(frozen=True)
class PrepareOptions:
    """How a graph is prepared.

    Attributes:
        allow_host: let a device run nodes on the host that it has no kernel for; they are counted
            and named. Otherwise such nodes are an error. On the CPU they always are allowed.
        threads: how many threads work on one call; all that the process may use by default.
        strict: leave out kernels that are quicker and less exact than a plain sum of products:
            Winograd's convolutions.
    """

    allow_host: bool = False
    threads: int | None = None
    strict: bool = False

    @property
    def worker_threads(self) -> int:
        """How many threads work on one call."""
        if self.threads is not None:
            return self.threads
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
