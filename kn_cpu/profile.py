"""How long each step of a plan takes: every call of a kernel runs, and is timed, by itself.

Calls follow one another as in an ordinary run, on the same memory, so that caches hold what they
hold there. What is added is waking the helper threads for each call, some microseconds; the report
has the time of whole calls beside the sum of the steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kn_cpu.bound import BoundRun
from kn_cpu.evaluation import Evaluation
from kn_cpu.executor import CpuExecutor
from kn_cpu.memory import Block
from kn_cpu.native import BoundSteps
from kn_cpu.peak import MachinePeak
from kn_cpu.program import NativeRun, Skeleton
from kn_cpu.ready import Ready
from kn_graph.dim import Symbol, evaluate
from kn_graph.variants import open_call
from kn_plan.cost import step_cost
from kn_plan.plan import Plan, Step

__all__ = ["Profile", "StepProfile", "profile"]

WARM_UP = 2

NANO = 1e-9


@dataclass(frozen=True)
class StepProfile:
    """One step.

    Attributes:
        number: its place in the plan.
        label: the ONNX node that it stands for.
        kind: the operation of its anchor, or scalar, or copy.
        instructions: how many nodes of the scalar program, in it or behind the anchor.
        shape: what is computed.
        kernels: those that ran, family and name; none for host and control steps.
        time_us: median over the runs, in microseconds.
        share: of the sum of all steps.
        flops: operations.
        moved_bytes: that have to be read and written at least.
        bound_us: the least time on this machine.
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


@dataclass(frozen=True)
class Profile:
    """A plan with times.

    Attributes:
        sizes: of the symbols, by name.
        threads: how many worked.
        runs: over how many the medians are.
        call_us: the median time of whole calls.
        steps_us: the sum of the steps.
        bound_us: the sum of their least times.
        peak: what the machine reaches at best.
        steps: in order.
    """

    sizes: dict[str, int]
    threads: int
    runs: int
    call_us: float
    steps_us: float
    bound_us: float
    peak: MachinePeak
    steps: list[StepProfile]


def profile(
    executor: CpuExecutor,
    inputs: Mapping[str, Any] | Sequence[Any],
    peak: MachinePeak,
    dims: Mapping[str, int] | None = None,
    *,
    runs: int = 20,
) -> Profile:
    """Run a graph and time its steps.

    Args:
        executor: what runs it.
        inputs: see `CpuExecutor.eval`.
        peak: what times are compared with.
        dims: numbers of symbols that no input shows.
        runs: over how many the medians are.
    """
    call = open_call(executor.graph, inputs, dims)
    ready = executor.ready(call.graph, call.arrays, call.env)
    skeleton = ready.skeleton
    times = _Times(skeleton)
    whole: list[float] = []
    env: dict[Symbol, int] = {}
    for turn in range(WARM_UP + runs):
        start = time.perf_counter()
        executor.eval(inputs, dims)
        seconds = time.perf_counter() - start
        run = _TimedEvaluation(executor, ready, times)
        run.outputs(call.arrays)
        if turn < WARM_UP:
            times.clear()
        else:
            whole.append(seconds)
        env = run.env
    return _report(skeleton, times, env, peak, executor.threads, whole)


class _Times:
    """Nanoseconds of each step, one for each run, and what ran."""

    def __init__(self, skeleton: Skeleton) -> None:
        names: dict[int, str] = {}
        for stage in skeleton.stages:
            for segment in stage.segments:
                if isinstance(segment, NativeRun):
                    names |= {
                        address: f"{c.family}.{c.call.kernel}"
                        for address, c in zip(segment.kernels.tolist(), segment.calls, strict=True)
                    }
        self._names = names
        self._runs: dict[int, list[int]] = {}
        self.kernels: dict[int, list[str]] = {}
        self._now: dict[int, int] = {}

    def add(self, step: Step, nanoseconds: int, kernel: int | None = None) -> None:
        """Note a call of this run."""
        self._now[id(step)] = self._now.get(id(step), 0) + nanoseconds
        if kernel is not None:
            found = self.kernels.setdefault(id(step), [])
            if self._names[kernel] not in found:
                found.append(self._names[kernel])

    def finish(self) -> None:
        """End a run."""
        for step, nanoseconds in self._now.items():
            self._runs.setdefault(step, []).append(nanoseconds)
        self._now = {}

    def clear(self) -> None:
        """Forget what was measured."""
        self._runs.clear()

    def median(self, step: Step) -> float:
        """Return the seconds of a step; 0 where nothing was to do."""
        return statistics.median(self._runs.get(id(step), [0])) * NANO


class _TimedEvaluation(Evaluation):
    """One run whose calls are timed."""

    def __init__(self, executor: CpuExecutor, ready: Ready, times: _Times) -> None:
        super().__init__(executor, ready, 0)
        self.times = times

    def outputs(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Run all stages."""
        results = super().outputs(inputs)
        self.times.finish()
        return results

    def _native(self, run: BoundRun, block: Block) -> None:
        elsewhere = [self._address(b) for b in run.run.elsewhere_buffers]
        pointers = run.pointers.copy()
        pointers[run.run.arena] += block.address
        pointers[run.run.elsewhere] = run.offsets + np.array(elsewhere, np.int64)
        for place, owner in enumerate(run.run.owners):
            row = run.steps[place : place + 1]
            if row["units"][0] > 0:
                steps = BoundSteps(run.library, row, run.numbers, pointers)
                nanoseconds = _timed(partial(steps, self.executor.threads))
                self.times.add(run.run.steps[owner], nanoseconds, int(row["run"][0]))

    def _host(self, step: Step) -> None:
        self.times.add(step, _timed(partial(super()._host, step)))


def _timed(action: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    action()
    return time.perf_counter_ns() - start


# ---- report ---------------------------------------------------------------------------------


def _report(
    skeleton: Skeleton,
    times: _Times,
    env: Mapping[Symbol, int],
    peak: MachinePeak,
    threads: int,
    whole: Sequence[float],
) -> Profile:
    plan = skeleton.plan
    seconds = [times.median(step) for step in plan.steps]
    reasons = {id(h.step): h.reason for h in skeleton.host_steps}
    total = sum(seconds)
    steps = [
        _step(plan, number, env, peak, seconds[number], total, times, reasons)
        for number in range(len(plan.steps))
    ]
    return Profile(
        sizes={s.name: n for s, n in env.items()},
        threads=threads,
        runs=len(whole),
        call_us=_us(statistics.median(whole)),
        steps_us=_us(total),
        bound_us=round(sum(s.bound_us for s in steps), 3),
        peak=peak,
        steps=steps,
    )


def _step(
    plan: Plan,
    number: int,
    env: Mapping[Symbol, int],
    peak: MachinePeak,
    seconds: float,
    total: float,
    times: _Times,
    reasons: Mapping[int, str],
) -> StepProfile:
    step = plan.steps[number]
    cost = step_cost(plan, step).at(env)
    flops, moved = evaluate(cost.flops, {}), evaluate(cost.moved, {})
    bound = cost.bound(peak.spec(moved))
    return StepProfile(
        number=number,
        label=step.label,
        kind=step.kind,
        instructions=len(step.program.instructions) if step.program else 0,
        shape=[evaluate(n, env) for n in step.shape],
        kernels=times.kernels.get(id(step), []),
        time_us=_us(seconds),
        share=round(seconds / total, 4) if total else 0.0,
        flops=flops,
        moved_bytes=moved,
        bound_us=_us(bound.seconds),
        reached=round(bound.seconds / seconds, 4) if seconds else 0.0,
        limit=bound.limit,
        host=reasons.get(id(step)),
    )


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
