"""A profile as a timeline: JSON for ui.perfetto.dev and chrome://tracing.

Steps lie one behind another, each as long as its median; that is how they run, less what lies
between them. Steps of a control-flow body lie within the step that runs them, all calls of a run in
one: a loop's step is as long as all its iterations. Where timing them one by one took longer than
the whole step does, they are drawn smaller; their true times are among their arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kn_cpu.profile import Profile
    from kn_plan.step_profile import StepProfile

__all__ = ["placed_steps", "trace_text"]

PROCESS = 1

CALL, OUTER = 1, 2
"""Rows: the whole call, then steps; bodies have rows below, one for each depth."""


def trace_text(measured: Profile, model: str) -> str:
    """Return the timeline.

    Args:
        measured: the profile.
        model: name of what ran.
    """
    placed = list(placed_steps(measured))
    depths = sorted({depth for depth, *_ in placed})
    names = {CALL: "whole call"} | {OUTER + d: "steps" if d == 0 else f"bodies {d}" for d in depths}
    events = [_named("process_name", 0, f"{model} on {measured.peak.name}")]
    events += [_named("thread_name", row, name) for row, name in names.items()]
    events.append(_event("call", CALL, 0.0, measured.call_us, {"runs": measured.runs}))
    for depth, start, length, step in placed:
        events.append(_event(step.label, OUTER + depth, start, length, _arguments(step)))
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, indent=0) + "\n"


def placed_steps(measured: Profile) -> Iterator[tuple[int, float, float, StepProfile]]:
    """Yield depth, start, length (both in microseconds) and the step, outer ones first."""
    inside: dict[str, list[Sequence[StepProfile]]] = {}
    for body in measured.bodies:
        inside.setdefault(body.path.rpartition(".")[0], []).append(body.steps)
    paths = {
        id(body.steps): body.path for body in measured.bodies
    }  # a list of steps belongs to one body
    pending: list[tuple[Sequence[StepProfile], str, int, float, float]] = [
        (measured.steps, "", 0, 0.0, 1.0)
    ]
    while pending:
        steps, path, depth, start, scale = pending.pop()
        for step in steps:
            length = step.time_us * scale
            yield depth, start, length, step
            bodies = inside.get(f"{path}{step.number}", [])
            total = sum(s.time_us for steps in bodies for s in steps)
            within, at = min(length / total, scale) if total else scale, start
            for inner in bodies:
                pending.append((inner, f"{paths[id(inner)]}.", depth + 1, at, within))
                at += sum(s.time_us for s in inner) * within
            start += length


def _event(
    name: str, row: int, start: float, length: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name, "ph": "X", "pid": PROCESS, "tid": row,
        "ts": round(start, 3), "dur": round(length, 3), "args": arguments,
    }  # fmt: skip


def _named(what: str, row: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PROCESS, "tid": row, "args": {"name": name}}


def _arguments(step: StepProfile) -> dict[str, Any]:
    return {
        "step": step.number,
        "kind": step.kind,
        "computes": "x".join(map(str, step.shape)),
        "us": step.time_us,
        "flops": step.flops,
        "moved_bytes": step.moved_bytes,
        "reached": step.reached,
        "by": f"host: {step.host}" if step.host else ", ".join(step.kernels),
    }
