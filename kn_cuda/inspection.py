"""What a plan would have a GPU do at some sizes, found without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kn_cuda.bound import BoundCall, BoundLaunch, bound_calls
from kn_cuda.calls import Gemm
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.lower import lower_step
from kn_cuda.lowering import Lowering
from kn_cuda.nvrtc import Compiler, unavailable_reason
from kn_cuda.options import CudaOptions
from kn_cuda.program import DeviceStep, Skeleton
from kn_cuda.source import KernelSource
from kn_graph.dim import Symbol
from kn_graph.errors import CompileError
from kn_graph.ops.control import ControlOp
from kn_graph.ops.source import ReadSizes
from kn_plan.calls import HostStep, Refusal
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan, Step
from kn_plan.report import memory_report

__all__ = ["CIRCULAR_STACK", "Inspection", "host_reasons", "inspect_plan", "require_clean"]

CIRCULAR = ("sin", "cos", "tan")
CIRCULAR_STACK = 40
"""Bytes that these functions of CUDA take to reduce arguments of any size, on any architecture."""


def host_reasons(plan: Plan, arch: str) -> dict[int, str]:
    """Return why a step has no kernel, by its number; sizes read back are not among them.

    Args:
        plan: for `kn_cuda.target.CudaTarget`.
        arch: of the device.
    """
    low = Lowering(plan, CudaOptions(), arch)
    found = {}
    for number, step in enumerate(plan.steps):
        calls = lower_step(low, step)
        if isinstance(calls, Refusal) and not isinstance(step.op, (ControlOp, ReadSizes)):
            found[number] = calls.reason
    return found


@dataclass(frozen=True)
class Inspection:
    """What happens at some sizes.

    Attributes:
        steps: those of the device, with what each of them asks for.
        read_backs: how many sizes are read back from the device.
        arena: bytes of intermediate results.
        lower_bound: no order of places needs less.
        workspace: bytes behind the arena, for the step that needs most.
    """

    steps: tuple[tuple[Step, tuple[BoundCall, ...]], ...]
    read_backs: int
    arena: int
    lower_bound: int
    workspace: int

    @property
    def calls(self) -> list[BoundCall]:
        """Everything that is asked for, in order."""
        return [call for _, calls in self.steps for call in calls]

    @property
    def kernels(self) -> list[KernelSource]:
        """Our kernels, each once."""
        found = [c.kernel for c in self.calls if isinstance(c, BoundLaunch)]
        return list({k.name: k for k in found}.values())

    @property
    def launches(self) -> int:
        """How many kernels are launched, a library's call counted as one for each batch."""
        return sum(map(_launches, self.calls))

    @property
    def library_calls(self) -> int:
        """How many of them are a library's."""
        return sum(_launches(c) for c in self.calls if not isinstance(c, BoundLaunch))

    @property
    def convolutions(self) -> list[tuple[ConvGraph, tuple[int, ...]]]:
        """What cuDNN is asked for."""
        return [
            (c.request, tuple(c.numbers.tolist()))
            for c in self.calls
            if not isinstance(c, BoundLaunch) and isinstance(c.request, ConvGraph)
        ]


def _launches(call: BoundCall) -> int:
    is_gemm = not isinstance(call, BoundLaunch) and isinstance(call.request, Gemm)
    return int(call.numbers[6]) if is_gemm else 1  # the outer batch is a loop


def inspect_plan(plan: Plan, env: Mapping[Symbol, int], arch: str) -> Inspection:
    """Return what happens at some sizes; steps without a kernel are left out.

    Args:
        plan: for `kn_cuda.target.CudaTarget`.
        env: numbers of all its symbols.
        arch: of the device.
    """
    options = PlanOptions()
    skeleton = Skeleton(plan, CudaOptions(allow_host=True), options, arch)
    found: list[tuple[Step, tuple[BoundCall, ...]]] = []
    workspace = 0
    for stage in skeleton.stages:
        numbers = stage.binder(env)
        workspace = max(workspace, stage.memory.workspace(numbers))
        steps = [s for s in stage.segments if isinstance(s, DeviceStep)]
        found += [(s.step, bound_calls(s.calls, numbers)) for s in steps]
    memory = memory_report(skeleton.plan, env)
    read_backs = [s for s in skeleton.segments if isinstance(s, HostStep) and s.reads_sizes]
    return Inspection(tuple(found), len(read_backs), memory.arena, memory.lower_bound, workspace)


def require_clean(kernels: Sequence[KernelSource], arch: str) -> str:
    """Compile kernels where NVRTC is installed, and look at what they use; say what was done.

    Raises:
        CompileError: one does not compile, spills registers, or has a stack.
    """
    reason = unavailable_reason()
    if reason is not None:
        return f"not compiled: {reason}"
    if not kernels:
        return "none to compile"
    usage = Compiler(arch).compile(kernels).usage
    for k in kernels:
        used = usage[k.name]
        circular = any(f"{name}f(" in k.code or f"{name}(" in k.code for name in CIRCULAR)
        if used.spills or used.stack > (CIRCULAR_STACK if circular else 0):
            raise CompileError(
                f"kernel {k.name} spills {used.spills} bytes and has a stack of {used.stack} on "
                f"{arch}; expected none. Please report this."
            )
    most = max(u.registers for u in usage.values())
    return f"compiled for {arch} without spills, at most {most} registers"
