"""Options of `Device.prepare`."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["PrepareOptions", "usable_cpus"]


def usable_cpus() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


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
        memory_limit: how many bytes one call may take beside weights and inputs; a call that would
            take more is refused before it runs. By default, what the machine has.
    """

    allow_host: bool = False
    threads: int | None = None
    strict: bool = False
    tune: bool = False
    memory_limit: int | None = None

    @property
    def worker_threads(self) -> int:
        """How many threads work on one call."""
        return usable_cpus() if self.threads is None else self.threads
