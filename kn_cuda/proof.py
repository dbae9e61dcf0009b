"""What really happened on a device, counted at the one place where it happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Proof"]


@dataclass
class Proof:
    """Counts of one run, or of several.

    Attributes:
        launches: kernels launched, libraries' included, by the kind of the step.
        kernels: launches and calls of libraries, by the name of the kernel or of what is asked.
        host_steps: steps that the host computed, by kind.
        control_steps: steps that ran other plans, by kind.
        read_backs: sizes that were read back, by kind.
        uploads: bytes copied to the device.
        downloads: bytes copied from it.
        replays: runs of bound calls that were one request.
    """

    launches: Counter[str] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)
    host_steps: Counter[str] = field(default_factory=Counter)
    control_steps: Counter[str] = field(default_factory=Counter)
    read_backs: Counter[str] = field(default_factory=Counter)
    uploads: int = 0
    downloads: int = 0
    replays: int = 0

    def add(self, other: Proof) -> None:
        """Count the launches of another run as well."""
        self.launches += other.launches
        self.kernels += other.kernels

    @property
    def total(self) -> int:
        """How many kernels were launched."""
        return self.launches.total()
