"""Which steps of a plan have no kernel, and why."""

from __future__ import annotations

from kn_cpu.lower import lower_step
from kn_cpu.lowering import Lowering
from kn_cpu.native import NativeLibrary
from kn_graph.ops.control import ControlOp
from kn_plan.calls import Refusal
from kn_plan.plan import Plan

__all__ = ["host_reasons"]


def host_reasons(plan: Plan, library: NativeLibrary) -> dict[int, str]:
    """Return why the host runs a step, by its number; control flow is not among them.

    Args:
        plan: for `kn_cpu.target.CpuTarget`.
        library: the kernels.
    """
    lowering = Lowering(plan, library)
    found = {}
    for number, step in enumerate(plan.steps):
        calls = lower_step(lowering, step)
        if isinstance(calls, Refusal) and not isinstance(step.op, ControlOp):
            found[number] = calls.reason
    return found
