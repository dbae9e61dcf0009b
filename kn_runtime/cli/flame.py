"""A profile as a page to look through: blocks of the model by name, as wide as they take time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kn_cpu.profile import Profile
    from kn_plan.step_profile import StepProfile

__all__ = ["Block", "blocks_of", "flame_text"]

PAGE = Path(__file__).with_name("flame.html.txt")

PLACE = "/*DATA*/"


@dataclass
class Block:
    """A part of the model.

    Attributes:
        name: the part of the path that its nodes share, or a step.
        time_us: of all its steps.
        kind: of a step; '' for what holds several.
        detail: what more is known of a step.
        inner: its parts.
    """

    name: str
    time_us: float = 0.0
    kind: str = ""
    detail: str = ""
    inner: dict[str, Block] = field(default_factory=dict)


def blocks_of(measured: Profile, name: str) -> Block:
    """Return the steps of a profile, in blocks by the paths in the names of their nodes.

    Bodies of control flow are inside their step, at most as wide as it is.
    """
    root = Block(name)
    steps_at: dict[str, Block] = {}
    _insert(root, measured.steps, "", 1.0, steps_at)
    scales = {"": 1.0}
    for body in measured.bodies:
        step, own = body.path.rpartition(".")[0], f"{body.path}."
        around = steps_at.get(step)
        if around is None or not body.steps:
            continue
        total = sum(b.time_us for b in measured.bodies if b.path.rpartition(".")[0] == step)
        scales[own] = min(around.time_us / total, 1.0) if total else 1.0
        block = around.inner.setdefault(body.name, Block(body.name))
        block.detail = f"{body.calls} calls"
        _insert(block, body.steps, own, scales[own], steps_at)
    return root


def _insert(
    root: Block,
    steps: Sequence[StepProfile],
    path: str,
    scale: float,
    steps_at: dict[str, Block],
) -> None:
    """Put steps into a block, in blocks by their names."""
    for step in steps:
        at, time_us = root, step.time_us * scale
        at.time_us += time_us
        *scopes, last = [part for part in step.label.split("/") if part] or ["step"]
        for scope in scopes:
            at = at.inner.setdefault(scope, Block(scope))
            at.time_us += time_us
        leaf = Block(last, time_us, step.kind, _detail(step))
        at.inner[f"{last} #{step.number}"] = steps_at[f"{path}{step.number}"] = leaf


def _detail(step: StepProfile) -> str:
    by = f"host: {step.host}" if step.host else ", ".join(step.kernels)
    shape = "x".join(map(str, step.shape))
    return f"{step.kind} {shape}; {by or 'control flow'}; {step.reached:.0%} of what is possible"


def flame_text(measured: Profile, model: str) -> str:
    """Return the page: one HTML file that needs no other."""
    data = {
        "model": model,
        "device": measured.peak.name,
        "call_us": measured.call_us,
        "runs": measured.runs,
        "root": _as_dict(blocks_of(measured, model)),
    }
    text = json.dumps(data).replace("<", "\\u003c")  # no text of a model ends the script
    return PAGE.read_text(encoding="utf-8").replace(PLACE, text)


def _as_dict(root: Block) -> dict[str, Any]:
    """Return blocks as plain data, without recursion: names may be deep paths."""
    made: dict[str, Any] = {}
    pending: list[tuple[Block, list[dict[str, Any]] | None]] = [(root, None)]
    while pending:
        block, beside = pending.pop()
        inner: list[dict[str, Any]] = []
        facts = {"n": block.name, "t": round(block.time_us, 3), "k": block.kind,
                 "d": block.detail, "c": inner}  # fmt: skip
        if beside is None:
            made = facts
        else:
            beside.append(facts)
        pending += [(b, inner) for b in reversed(block.inner.values())]
    return made
