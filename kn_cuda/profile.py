"""How long each step of a plan takes on the device, beside the least that it could.

Marks are put between steps of an ordinary run, and read when all is done, so that nothing waits
between them. On a GPU they are events; where the host stands in for one, times are the host's and
say nothing about a GPU: `Profile.clock` tells which.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kn_cuda.bound import BoundCall
from kn_cuda.evaluation import Evaluation
from kn_cuda.executor import CudaExecutor, Ready
from kn_graph.random_bits import RandomStreams
from kn_plan.device_spec import CUDA_SPECS, DeviceSpec
from kn_plan.plan import Step
from kn_plan.step_profile import StepProfile, microseconds, step_profile

__all__ = ["DeviceStepProfile", "Profile", "profile"]

WARM_UP = 2

NEXT_BEST = "sm_90"
"""What an architecture without figures is compared with."""


@dataclass(frozen=True)
class DeviceStepProfile(StepProfile):
    """One step on a device.

    Attributes:
        launches: of kernels, in one run.
    """

    launches: int


@dataclass(frozen=True)
class Profile:
    """A plan with times.

    Attributes:
        device: where it ran.
        clock: what measured the times.
        spec: the described device that times are compared with.
        sizes: of the symbols, by name.
        runs: over how many the medians are.
        steps_us: the sum of the steps.
        bound_us: the sum of their least times.
        launches: of one run.
        steps: in order.
    """

    device: str
    clock: str
    spec: DeviceSpec
    sizes: dict[str, int]
    runs: int
    steps_us: float
    bound_us: float
    launches: int
    steps: list[DeviceStepProfile]


class _Marked(Evaluation):
    """A run with marks before and behind each step."""

    def __init__(self, executor: CudaExecutor, ready: Ready) -> None:
        super().__init__(executor, ready, RandomStreams(0))
        self.marks: list[tuple[Step, Any, Any]] = []
        self.kernels: dict[int, Counter[str]] = {}

    def _device(self, step: Step, calls: Sequence[BoundCall]) -> None:
        before, start = self.proof.kernels.copy(), self.backend.mark()
        super()._device(step, calls)
        self.marks.append((step, start, self.backend.mark()))
        self.kernels[id(step)] = self.proof.kernels - before

    def _host(self, step: Step) -> None:
        start = self.backend.mark()
        super()._host(step)
        self.marks.append((step, start, self.backend.mark()))

    def seconds(self) -> dict[int, float]:
        """Return the time of each step, by its identity."""
        self.backend.synchronize()
        return {id(step): self.backend.seconds(start, end) for step, start, end in self.marks}


def profile(
    executor: CudaExecutor,
    inputs: Mapping[str, Any] | Sequence[Any],
    dims: Mapping[str, int] | None = None,
    *,
    runs: int = 20,
) -> Profile:
    """Run a graph and time its steps.

    Args:
        executor: what runs it.
        inputs: see `CudaExecutor.eval`.
        dims: numbers of symbols that no input shows.
        runs: over how many the medians are.
    """
    call = executor.open(inputs, dims)
    ready = executor.ready(call.graph, call.env)
    times = []
    for turn in range(WARM_UP + runs):
        run = _Marked(executor, ready)
        run.outputs(call.arrays, range(len(call.graph.outputs)))
        if turn >= WARM_UP:
            times.append(run.seconds())
    medians = [statistics.median(t[id(s)] for t in times) for s in run.plan.steps]
    spec = CUDA_SPECS.get(executor.backend.arch, CUDA_SPECS[NEXT_BEST])
    steps = [_step(run, number, medians, spec) for number in range(len(medians))]
    return Profile(
        device=executor.backend.name,
        clock=executor.backend.clock,
        spec=spec,
        sizes={s.name: n for s, n in run.env.items()},
        runs=runs,
        steps_us=microseconds(sum(medians)),
        bound_us=round(sum(s.bound_us for s in steps), 3),
        launches=sum(s.launches for s in steps),
        steps=steps,
    )


def _step(
    run: _Marked, number: int, medians: Sequence[float], spec: DeviceSpec
) -> DeviceStepProfile:
    step = run.plan.steps[number]
    kernels = run.kernels.get(id(step), Counter())
    reasons = {id(h.step): h.reason for h in run.skeleton.host_steps}
    found = step_profile(
        run.plan,
        number,
        run.env,
        seconds=medians[number],
        total=sum(medians),
        spec=lambda moved: spec,
        kernels=sorted(kernels),
        host=reasons.get(id(step)),
    )
    return DeviceStepProfile(**vars(found), launches=kernels.total())
