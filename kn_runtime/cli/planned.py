"""What `kn plan` and `kn check` share: the device a plan is for, and the graph at some sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kn_graph.errors import UsageError

if TYPE_CHECKING:
    from kn_graph.dim import Symbol
    from kn_graph.graph import Graph
    from kn_plan.bodies import BodyReport
    from kn_plan.device_spec import DeviceSpec
    from kn_plan.options import PlanOptions
    from kn_plan.plan import Plan
    from kn_plan.report import PlanReport
    from kn_plan.target import Target

__all__ = ["AtSizes", "PlanDevice", "at_sizes", "plan_device"]


@dataclass(frozen=True)
class PlanDevice:
    """What a plan is made for.

    Attributes:
        name: as it was asked for.
        target: what the planner asks.
        spec: what bounds are for.
        reasons: says why the host runs steps of a plan, by their numbers.
        note: what the reader should know.
        arch: of a GPU; None for other devices.
    """

    name: str
    target: Target
    spec: DeviceSpec
    reasons: Callable[[Plan], Mapping[int, str]]
    note: str
    arch: str | None = None

    def plan(self, graph: Graph, options: PlanOptions | None = None) -> Plan:
        """Return the plan of a graph."""
        from kn_plan.options import PlanOptions
        from kn_plan.planner import plan_graph

        return plan_graph(graph, self.target, options or PlanOptions())

    def report(
        self, plan: Plan, env: Mapping[Symbol, int], options: PlanOptions | None = None
    ) -> PlanReport:
        """Return a plan as data, with the reasons of host steps."""
        from kn_plan.options import PlanOptions
        from kn_plan.report import plan_report

        host = self.reasons(plan)
        return plan_report(plan, env, self.spec, options or PlanOptions(), host=host)

    def bodies(self, plan: Plan, env: Mapping[Symbol, int]) -> list[BodyReport]:
        """Return the plans of all control-flow bodies."""
        from kn_plan.bodies import body_reports

        return body_reports(plan, env, self.plan, self.report)


def plan_device(name: str) -> PlanDevice:
    """Return what `--device` of a verb that plans means.

    Raises:
        UsageError: the name is unknown.
    """
    from kn_plan.device_spec import CUDA_SPECS

    if name in ("cpu", "neutral"):
        return _cpu(name)
    kind, _, arch = name.partition(":")
    if kind == "cuda" and arch in CUDA_SPECS:
        return _cuda(name, arch)
    if kind == "cuda":
        known = ", ".join(CUDA_SPECS)
        raise UsageError(
            f"--device {name}: a GPU is described by its architecture, such as cuda:sm_90; "
            f"known are {known}"
        )
    raise UsageError(
        f"unknown device {name!r}; expected cpu, neutral or cuda:ARCH, such as cuda:sm_90"
    )


def _cuda(name: str, arch: str) -> PlanDevice:
    from kn_cuda.inspection import host_reasons
    from kn_cuda.target import CudaTarget
    from kn_plan.device_spec import CUDA_SPECS

    def reasons(plan: Plan) -> Mapping[int, str]:
        return host_reasons(plan, arch)

    note = "a device that is described, not asked"
    return PlanDevice(name, CudaTarget(arch), CUDA_SPECS[arch], reasons, note, arch)


def _cpu(name: str) -> PlanDevice:
    from kn_cpu.explain import host_reasons
    from kn_cpu.native import library, unavailable_reason
    from kn_cpu.target import CpuTarget
    from kn_plan.device_spec import cpu_spec
    from kn_plan.target import NeutralTarget
    from kn_runtime.options import PrepareOptions

    kernels = library()
    spec = cpu_spec(kernels.isa if kernels else "base", PrepareOptions().worker_threads)
    if name == "neutral":
        note = "planned for a neutral device"
        return PlanDevice(name, NeutralTarget(), spec, _no_reasons, note)
    if kernels is None:
        note = f"host steps are not known: {unavailable_reason()}"
        return PlanDevice(name, CpuTarget(), spec, _no_reasons, note)
    found = kernels
    return PlanDevice(name, CpuTarget(), spec, lambda plan: host_reasons(plan, found), "")


def _no_reasons(plan: Plan) -> Mapping[int, str]:
    return {}


@dataclass(frozen=True)
class AtSizes:
    """A graph with numbers for its sizes.

    Attributes:
        graph: the variant that holds for them.
        dims: the numbers, by name.
        assumed: those that nobody gave.
    """

    graph: Graph
    dims: dict[str, int]
    assumed: dict[str, int]


def at_sizes(graph: Graph, given: Mapping[str, int]) -> AtSizes:
    """Return a graph at the sizes given, the others assumed.

    Raises:
        SymbolError: a name is unknown, or no sizes are legal.
    """
    from kn_graph.variants import symbols_by_name
    from kn_runtime.assume import assumed_sizes

    known = {s.name: n for s, n in symbols_by_name(graph, given).items()}
    assumed = assumed_sizes(graph, known)
    sizes = {**known, **assumed}
    variant = graph.variant(symbols_by_name(graph, sizes))
    return AtSizes(variant, {n: k for n, k in sizes.items() if n in variant.symbols}, assumed)
