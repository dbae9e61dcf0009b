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
        tune: choose between kernels by timing them, where sizes are known, instead of by an
            estimate. Preparing takes longer, and results may differ in their last digits from one
            preparation to the next.
    """

    allow_host: bool = False
    threads: int | None = None
    strict: bool = False
    tune: bool = False

    @property
    def worker_threads(self) -> int:
        """How many threads work on one call."""
        if self.threads is not None:
            return self.threads
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
