"""How long each step of a plan takes: every call of a kernel runs, and is timed, by itself.

Calls follow one another as in an ordinary run, on the same memory, so that caches hold what they
hold there. What is added is waking the helper threads for each call, some microseconds; the report
has the time of whole calls beside the sum of the steps. Steps of control-flow bodies are timed in
runs of their own, so that the time of the step around them is that of an ordinary run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from kn_cpu.bound import BoundRun
from kn_cpu.evaluation import Evaluation
from kn_cpu.executor import CpuExecutor
from kn_cpu.memory import Block, dense
from kn_cpu.native import BoundSteps
from kn_cpu.peak import MachinePeak
from kn_cpu.program import NativeRun, Skeleton
from kn_cpu.ready import Ready
from kn_graph.dim import Symbol
from kn_graph.errors import SymbolError
from kn_graph.graph import Graph
from kn_graph.random_bits import RandomStreams
from kn_graph.variants import open_call
from kn_plan.bodies import named_bodies
from kn_plan.bound_bodies import passed_inputs
from kn_plan.numbers import all_numbers
from kn_plan.plan import Plan, Step
from kn_plan.step_profile import StepProfile, microseconds, step_profile

__all__ = ["BodyProfile", "Profile", "profile"]

WARM_UP = 2

NANO = 1e-9


@dataclass(frozen=True)
class BodyProfile:
    """One control-flow body.

    Attributes:
        path: steps and bodies around it: `3.then_body.0.body`.
        step: number of the control step, in the plan around it.
        name: of the body: then_body, else_body, body.
        calls: how often it ran in one run of the graph; 0 where another branch did.
        time_us: the sum of its steps, of all calls of one run.
        steps: in order; times and shares are of all calls of one run.
    """

    path: str
    step: int
    name: str
    calls: int
    time_us: float
    steps: list[StepProfile]


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
        bodies: of control flow, each behind the one it is in.
    """

    sizes: dict[str, int]
    threads: int
    runs: int
    call_us: float
    steps_us: float
    bound_us: float
    peak: MachinePeak
    steps: list[StepProfile]
    bodies: list[BodyProfile]


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
    times, aside = _Times(ready.skeleton), _Times(ready.skeleton)
    has_bodies = any(named_bodies(s.node) for s in ready.skeleton.plan.steps)
    bodies = _Bodies()
    whole: list[float] = []
    env: dict[Symbol, int] = {}
    for turn in range(WARM_UP + runs):
        start = time.perf_counter()
        executor.eval(inputs, dims)
        seconds = time.perf_counter() - start
        run = _TimedEvaluation(executor, ready, times)
        run.outputs(call.arrays)
        times.finish()
        if has_bodies:
            _TimedEvaluation(executor, ready, aside, bodies).outputs(call.arrays)
            bodies.finish()
        if turn < WARM_UP:
            times.clear()
            bodies.clear()
        else:
            whole.append(seconds)
        env = run.env
    steps, total = _steps(ready.skeleton, times, env, peak)
    return Profile(
        sizes={s.name: n for s, n in env.items()},
        threads=executor.threads,
        runs=len(whole),
        call_us=microseconds(statistics.median(whole)),
        steps_us=microseconds(total),
        bound_us=round(sum(s.bound_us for s in steps), 3),
        peak=peak,
        steps=steps,
        bodies=[_body(b, peak, total) for b in bodies.in_order()],
    )


@dataclass
class _Body:
    """What is noted of one body."""

    path: str
    step: int
    name: str
    times: _Times | None = None
    skeleton: Skeleton | None = None
    env: Mapping[Symbol, int] = field(default_factory=dict)
    calls: int = 0
    calls_now: int = 0


class _Bodies:
    """All bodies that a run may come to, by path."""

    def __init__(self) -> None:
        self._found: dict[str, _Body] = {}

    def expect(self, path: str, plan: Plan) -> None:
        """Note the bodies of a plan, at the path of the plan."""
        for number, step in enumerate(plan.steps):
            for name, _ in named_bodies(step.node):
                whole = f"{path}{number}.{name}"
                self._found.setdefault(whole, _Body(whole, number, name))

    def entered(self, path: str, ready: Ready) -> _Times:
        """Note a call, and return where its times go."""
        found = self._found[path]
        if found.times is None or found.skeleton is not ready.skeleton:
            found.times, found.skeleton = _Times(ready.skeleton), ready.skeleton
        found.env = ready.env
        found.calls_now += 1
        return found.times

    def finish(self) -> None:
        """End a run of the graph."""
        for b in self._found.values():
            if b.times is not None:
                b.times.finish()
            b.calls, b.calls_now = b.calls_now, 0

    def clear(self) -> None:
        """Forget what was measured."""
        for b in self._found.values():
            if b.times is not None:
                b.times.clear()

    def in_order(self) -> list[_Body]:
        """Return the bodies, each behind the one it is in."""
        return sorted(self._found.values(), key=lambda b: [_part(p) for p in b.path.split(".")])


def _part(text: str) -> tuple[int, str]:
    """Return what parts of paths are ordered by; then comes before else."""
    return (int(text), "") if text.isdigit() else (0, {"then_body": ""}.get(text, text))


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

    def __init__(
        self,
        executor: CpuExecutor,
        ready: Ready,
        times: _Times,
        bodies: _Bodies | None = None,
        path: str = "",
        streams: RandomStreams | None = None,
    ) -> None:
        super().__init__(executor, ready, streams or RandomStreams(0))
        self.times, self.bodies, self.path = times, bodies, path
        self._at: Step | None = None
        if bodies is not None:
            bodies.expect(path, self.plan)

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
        self._at = step
        self.times.add(step, _timed(partial(super()._host, step)))

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a body, its steps timed if this is a run for that."""
        assert self._at is not None
        if self.bodies is None or passed_inputs(body) is not None:
            return super().run(body, inputs)
        number = next(i for i, s in enumerate(self.plan.steps) if s is self._at)
        name = next(n for n, b in named_bodies(self._at.node) if b is body)
        path = f"{self.path}{number}.{name}"
        ready = self.executor.body_ready(body, inputs, self.env)
        times = self.bodies.entered(path, ready)
        inner = _TimedEvaluation(self.executor, ready, times, self.bodies, f"{path}.", self.streams)
        return list(inner.outputs([dense(x) for x in inputs]).values())


def _timed(action: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    action()
    return time.perf_counter_ns() - start


# ---- report ---------------------------------------------------------------------------------


def _steps(
    skeleton: Skeleton,
    times: _Times,
    env: Mapping[Symbol, int],
    peak: MachinePeak,
    whole: float | None = None,
) -> tuple[list[StepProfile], float]:
    """Return the steps, and the seconds of all; shares are of these, or of the `whole` given."""
    plan = skeleton.plan
    seconds = [times.median(step) for step in plan.steps]
    reasons = {id(h.step): h.reason for h in skeleton.host_steps}
    total = sum(seconds)
    of = total if whole is None else whole
    steps = [
        step_profile(
            plan,
            number,
            env,
            seconds=seconds[number],
            total=of,
            spec=peak.spec,
            kernels=times.kernels.get(id(step), []),
            host=reasons.get(id(step)),
        )
        for number, step in enumerate(plan.steps)
    ]
    return steps, total


def _body(b: _Body, peak: MachinePeak, whole: float) -> BodyProfile:
    if b.skeleton is None or b.times is None:
        return BodyProfile(b.path, b.step, b.name, 0, 0.0, [])
    env = dict(b.env)
    with suppress(SymbolError):  # sizes that show when it runs only shape what costs are of
        env = all_numbers(b.skeleton.plan.graph, {}, env)[0]
    steps, total = _steps(b.skeleton, b.times, env, peak, whole)
    return BodyProfile(b.path, b.step, b.name, b.calls, microseconds(total), steps)
