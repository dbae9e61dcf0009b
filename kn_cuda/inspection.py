"""What a plan would have a GPU do at some sizes, found without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kn_cuda.bound import BoundCall, BoundLaunch, bound_calls
from kn_cuda.calls import Gemm
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.lower import lower_step
from kn_cuda.lowering import Lowering
from kn_cuda.nvrtc import Compiler, Usage, unavailable_reason
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

__all__ = [
    "CIRCULAR_STACK",
    "Inspection",
    "KernelReport",
    "host_reasons",
    "inspect_plan",
    "kernel_report",
]

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
        kernels: ours, each once: those that any sizes may launch, and what these sizes do with
            indices of 64 bits.
        read_backs: how many sizes are read back from the device.
        arena: bytes of intermediate results.
        lower_bound: no order of places needs less.
        workspace: bytes behind the arena, for the step that needs most.
    """

    steps: tuple[tuple[Step, tuple[BoundCall, ...]], ...]
    kernels: tuple[KernelSource, ...]
    read_backs: int
    arena: int
    lower_bound: int
    workspace: int

    @property
    def calls(self) -> list[BoundCall]:
        """Everything that is asked for, in order."""
        return [call for _, calls in self.steps for call in calls]

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
    launched = [c.kernel for _, calls in found for c in calls if isinstance(c, BoundLaunch)]
    kernels = {k.name: k for k in (*skeleton.kernels, *launched)}
    return Inspection(
        tuple(found), tuple(kernels.values()), len(read_backs), memory.arena, memory.lower_bound,
        workspace,
    )  # fmt: skip


@dataclass(frozen=True)
class KernelReport:
    """What kernels need of a multiprocessor.

    Attributes:
        kernels: how many they are.
        registers: of the kernel that has most.
        shared: bytes of static shared memory, of the kernel that has most.
        spills: bytes, of all kernels.
        stack: bytes, of the kernel that has most.
        faults: what spills, or has a stack, each as a text.
        skipped: why nothing was compiled; empty where everything was.
    """

    kernels: int
    registers: int = 0
    shared: int = 0
    spills: int = 0
    stack: int = 0
    faults: tuple[str, ...] = ()
    skipped: str = ""

    def require(self) -> None:
        """Raise where there is a fault.

        Raises:
            CompileError: names all kernels that spill registers or have a stack.
        """
        if self.faults:
            raise CompileError(
                f"{len(self.faults)} of {self.kernels} kernels do not fit into registers: "
                f"{'; '.join(self.faults)}. Expected no spills and no stack. Please report this."
            )

    def __str__(self) -> str:
        """Return what was done, in a few words."""
        if self.skipped:
            return f"not compiled: {self.skipped}"
        spills = f"with {self.spills} bytes of spills" if self.spills else "without spills"
        return f"compiled {spills}, at most {self.registers} registers"


def kernel_report(kernels: Sequence[KernelSource], arch: str) -> KernelReport:
    """Compile kernels where NVRTC is installed, and look at what they use.

    Args:
        kernels: each once.
        arch: what they are compiled for.

    Raises:
        CompileError: one does not compile.
    """
    skipped = unavailable_reason()
    if skipped is not None or not kernels:
        return KernelReport(len(kernels), skipped=skipped or "")
    used = {name: c.usage for name, c in Compiler(arch).compile(kernels).items()}
    faults = (_fault(k, used[k.name], arch) for k in kernels)
    return KernelReport(
        len(kernels),
        max(u.registers for u in used.values()),
        max(u.shared for u in used.values()),
        sum(u.spills for u in used.values()),
        max(u.stack for u in used.values()),
        tuple(filter(None, faults)),
    )


def _fault(kernel: KernelSource, used: Usage, arch: str) -> str:
    """Return what is wrong with what a kernel uses; empty if nothing is."""
    circular = any(f"{name}f(" in kernel.code or f"{name}(" in kernel.code for name in CIRCULAR)
    if not used.spills and used.stack <= (CIRCULAR_STACK if circular else 0):
        return ""
    return f"{kernel.name} spills {used.spills} bytes and has a stack of {used.stack} on {arch}"
