"""How long a step took, beside the least that it could: the same report on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kn_graph.dim import Symbol, evaluate
from kn_plan.cost import step_cost
from kn_plan.device_spec import DeviceSpec
from kn_plan.plan import Plan

__all__ = ["StepProfile", "microseconds", "step_profile"]


@dataclass(frozen=True)
class StepProfile:
    """One step.

    Attributes:
        number: its place in the plan.
        label: the ONNX node that it stands for.
        kind: the operation of its anchor, or scalar, or copy.
        instructions: how many nodes of the scalar program, in it or behind the anchor.
        shape: what is computed.
        kernels: those that ran, by name; none for host and control steps.
        time_us: median over the runs, in microseconds.
        share: of the sum of all steps.
        flops: operations.
        moved_bytes: that have to be read and written at least.
        bound_us: the least time on the device that it is compared with.
        reached: the least time as a part of the measured one.
        limit: what the least time is due to: compute, memory, launch, nothing.
        host: why the host runs it; None where kernels do.
    """

    number: int
    label: str
    kind: str
    instructions: int
    shape: list[int]
    kernels: list[str]
    time_us: float
    share: float
    flops: int
    moved_bytes: int
    bound_us: float
    reached: float
    limit: str
    host: str | None


def step_profile(
    plan: Plan,
    number: int,
    env: Mapping[Symbol, int],
    *,
    seconds: float,
    total: float,
    spec: Callable[[int], DeviceSpec],
    kernels: Sequence[str],
    host: str | None,
) -> StepProfile:
    """Return what there is to say of a step that was timed.

    Args:
        plan: whose step it is.
        number: of the step.
        env: numbers of the symbols.
        seconds: that it took.
        total: seconds that shares are of.
        spec: the device that it is compared with, for the bytes that the step moves.
        kernels: those that ran.
        host: why the host ran it.
    """
    step = plan.steps[number]
    cost = step_cost(plan, step).at(env)
    moved = evaluate(cost.moved, {})
    bound = cost.bound(spec(moved))
    return StepProfile(
        number=number,
        label=step.label,
        kind=step.kind,
        instructions=len(step.program.instructions) if step.program else 0,
        shape=[evaluate(n, env) for n in step.shape],
        kernels=list(kernels),
        time_us=microseconds(seconds),
        share=round(seconds / total, 4) if total else 0.0,
        flops=evaluate(cost.flops, {}),
        moved_bytes=moved,
        bound_us=microseconds(bound.seconds),
        reached=round(bound.seconds / seconds, 4) if seconds else 0.0,
        limit=bound.limit,
        host=host,
    )


def microseconds(seconds: float) -> float:
    """Return a time as reports have it."""
    return round(seconds * 1e6, 3)
