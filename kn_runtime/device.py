"""Devices: where graphs run, chosen by name or as the best there is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from kn_graph.errors import DeviceUnavailableError, UsageError
from kn_graph.garbage import uncollected
from kn_runtime.options import PrepareOptions

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_runtime.prepared import PreparedGraph

__all__ = ["Device"]

Kind = Literal["reference", "cpu", "cuda"]

REFERENCE = "plain NumPy: slow, and the definition of what is right"
NO_KERNELS = "so the NumPy reference runs, which is slow"
NO_CUPY = "CuPy is not installed (pip install 'kn-engine[cuda12]', or cuda13)"


@dataclass(frozen=True)
class Device:
    """A place to run graphs.

    Two devices are equal when they are the same place, whatever led to it.

    Attributes:
        kind: reference, cpu or cuda.
        index: which one of its kind.
        reason: why it is this device, and what about it may surprise.
    """

    kind: Kind
    index: int = 0
    reason: str = field(default="", compare=False)

    @classmethod
    def best(cls) -> Device:
        """Return the fastest device of this machine; `reason` says why it is that one."""
        reasons = _cuda_reasons(0)
        if not reasons:
            return cls("cuda", 0, "the fastest device of this machine")
        return cls("cpu", 0, f"no GPU, since {' and '.join(reasons)}; {_cpu_reason()}")

    @classmethod
    def reference(cls) -> Device:
        """Return the NumPy reference: simple, slow, and the definition of what is right."""
        return cls("reference", 0, REFERENCE)

    @classmethod
    def cpu(cls) -> Device:
        """Return the CPU."""
        return cls("cpu", 0, _cpu_reason())

    @classmethod
    def cuda(cls, index: int = 0) -> Device:
        """Return an NVIDIA GPU.

        Raises:
            DeviceUnavailableError: it cannot be used; the text lists what was tried.
        """
        reasons = _cuda_reasons(index)
        if reasons:
            raise DeviceUnavailableError(
                f"device cuda:{index} is not available: {'; '.join(reasons)}. "
                "Use 'best', 'cpu' or 'reference'.",
                reasons,
            )
        return cls("cuda", index, "asked for by name")

    @classmethod
    def parse(cls, text: str) -> Device:
        """Return the device named `best`, `reference`, `cpu`, `cuda` or `cuda:N`.

        Raises:
            UsageError: the name is unknown.
            DeviceUnavailableError: the device is absent or fails.
        """
        makers = {"best": cls.best, "reference": cls.reference, "cpu": cls.cpu, "cuda": cls.cuda}
        if text in makers:
            return makers[text]()
        match = re.fullmatch(r"cuda:([0-9]{1,4})", text)
        if match is None:
            raise UsageError(
                f"unknown device {text!r}; expected best, reference, cpu, cuda or cuda:N"
            )
        return cls.cuda(int(match[1]))

    @classmethod
    def available(cls) -> list[Device]:
        """Return every device that can be used here, the best first."""
        gpus: list[Device] = []
        while not _cuda_reasons(len(gpus)):
            gpus.append(cls.cuda(len(gpus)))
        return [*gpus, cls.cpu(), cls.reference()]

    @uncollected
    def prepare(
        self,
        graph: Graph,
        dims: Mapping[str, int] | None = None,
        *,
        optimize: bool = True,
        options: PrepareOptions | None = None,
    ) -> PreparedGraph:
        """Make a graph ready to run many times.

        Args:
            graph: what to run; it is sealed by this.
            dims: numbers of symbolic sizes, by name; those that inputs show may be left out.
            optimize: improve the graph first; `False` runs it exactly as given. The reference never
                optimizes.
            options: see `PrepareOptions`.

        Returns:
            A prepared graph; any number of threads may call it at once.

        Raises:
            SymbolError: `dims` names a size that the graph does not have.
        """
        from kn_graph.ops.source import Constant
        from kn_graph.pages import trim_heap
        from kn_runtime.prepared import PreparedGraph

        graph.seal()
        if optimize and self.kind != "reference":
            from kn_graph.optimizer import optimize_graph

            graph = optimize_graph(graph)
        prepared = PreparedGraph(graph, self, dims, options or PrepareOptions())
        trim_heap(sum(n.op.array.nbytes for n in graph.nodes if isinstance(n.op, Constant)))
        return prepared

    def __str__(self) -> str:
        """Return the name that `parse` understands."""
        return f"cuda:{self.index}" if self.kind == "cuda" else self.kind


def _cuda_reasons(index: int) -> tuple[str, ...]:
    """Return why a GPU cannot be used, one text for each thing that was tried; none if it can."""
    if find_spec("cupy") is None:
        return (NO_CUPY,)  # without the time that it takes to import what needs it
    from kn_cuda.device import cuda_unavailable_reasons

    return cuda_unavailable_reasons(index)


def _cpu_reason() -> str:
    from kn_cpu.native import library, unavailable_reason

    kernels = library()
    if kernels is None:
        return f"{unavailable_reason()}, {NO_KERNELS}"
    return f"planned, with native kernels for {kernels.isa}"
