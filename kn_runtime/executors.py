"""What runs a graph on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kn_graph.bound_call import BoundCall
from kn_graph.graph import Graph
from kn_runtime.options import PrepareOptions

if TYPE_CHECKING:
    from kn_plan.plan import Plan
    from kn_plan.recent import Recent
    from kn_runtime.device import Device

__all__ = ["Executor", "Planned", "executor_for"]


class Planned(Protocol):
    """A plan, with what a device needs to carry it out."""

    @property
    def plan(self) -> Plan:
        """The steps, over symbolic sizes."""


class Executor(Protocol):
    """Runs one graph at any legal sizes; any number of threads may call it at once."""

    @property
    def plans(self) -> Recent[Any]:
        """The plan at the sizes of the last calls."""

    def eval(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Run the graph: see `PreparedGraph.eval`."""

    def bind(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> BoundCall:
        """Return a call that reads the same arrays each time: see `PreparedGraph.bind`."""

    def skeleton(self, graph: Graph | None = None) -> Planned:
        """Return the plan of the graph, or of a variant of it."""


def executor_for(graph: Graph, device: Device, options: PrepareOptions) -> Executor | None:
    """Return what runs a graph; None where that is the reference, which has no plan.

    Raises:
        DeviceUnavailableError: the GPU is gone.
        UnsupportedOperatorError: a GPU has no kernel for a node, and the host is not allowed.
    """
    makers = {"cpu": _on_cpu, "cuda": _on_cuda}
    make = makers.get(device.kind)
    return None if make is None else make(graph, device, options)


def _on_cpu(graph: Graph, device: Device, options: PrepareOptions) -> Executor | None:
    from kn_cpu.executor import CpuExecutor
    from kn_cpu.native import library

    kernels = library()
    if kernels is None:
        return None
    return CpuExecutor(
        graph,
        kernels,
        options.worker_threads,
        strict=options.strict,
        tune=options.tune,
        memory_limit=options.memory_limit,
    )


def _on_cuda(graph: Graph, device: Device, options: PrepareOptions) -> Executor:
    from kn_cuda.device import cuda_device
    from kn_cuda.executor import CudaExecutor
    from kn_cuda.options import CudaOptions

    return CudaExecutor(
        graph, cuda_device(device.index), CudaOptions(allow_host=options.allow_host)
    )
