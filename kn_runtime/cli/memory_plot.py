"""The arena of a plan over the time of a run, as an SVG: who lies where, and how much lives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kn_graph.render.markup import escaped
from kn_runtime.cli.common import human_bytes

if TYPE_CHECKING:
    from kn_plan.report import BufferReport, PlanReport

__all__ = ["memory_svg"]

WIDTH, HEIGHT = 1000.0, 520.0
LEFT, RIGHT, TOP, BOTTOM = 80.0, 20.0, 56.0, 48.0

LETTER = 6.2
"""Width of a letter of a label."""

TICKS = 5

GOLDEN = 137.5
"""Degrees between the hues of neighbours."""


def memory_svg(report: PlanReport, times_us: Sequence[float], model: str) -> str:
    """Return the picture.

    Args:
        report: the plan; its buffers in the arena are drawn.
        times_us: how long each of its steps takes; equal numbers draw steps instead of time.
        model: name of what runs.
    """
    starts = [0.0]
    for time in times_us:
        starts.append(starts[-1] + max(time, 1e-9))
    buffers = [b for b in report.buffers if b.home == "arena" and b.offset is not None and b.nbytes]
    top = max([report.memory.arena, 1])
    frame = _Frame(starts, top)
    live = [
        sum(b.nbytes for b in buffers if b.over is None and b.birth <= step <= _end(b, buffers))
        for step in range(len(times_us))
    ]
    memory = report.memory
    said = (
        f"arena {human_bytes(memory.arena)}, at least {human_bytes(memory.lower_bound)}, "
        f"{human_bytes(memory.without_reuse)} without reuse; besides "
        f"{human_bytes(memory.constants)} of weights"
    )
    body = [
        f'<text x="{LEFT}" y="22" class="title">{escaped(model)}: memory of a call</text>',
        f'<text x="{LEFT}" y="40">{escaped(said)}</text>',
        *_axes(frame),
        *(line for b in buffers for line in _box(b, report, frame)),
        _line(live, frame),
        *_bound(memory.lower_bound, frame),
    ]
    style = (
        "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}"
        ".grid{stroke:#ddd}.live{fill:none;stroke:#222;stroke-width:1.5}"
        ".bound{stroke:#c22;stroke-dasharray:5 4}rect.b{stroke:#fff;stroke-width:.7}"
        ".name{font-size:10px;pointer-events:none}.end{text-anchor:end}.mid{text-anchor:middle}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}">'
    white = f'<rect width="{WIDTH:.0f}" height="{HEIGHT:.0f}" fill="#fff"/>'
    return "\n".join([head, f"<style>{style}</style>", white, *body, "</svg>"]) + "\n"


class _Frame:
    """Where numbers are in the picture."""

    def __init__(self, starts: Sequence[float], top: int) -> None:
        self.starts, self.top = starts, top

    def x(self, step: int) -> float:
        """Return where a step begins."""
        step = min(max(step, 0), len(self.starts) - 1)
        whole = self.starts[-1] or 1.0
        return LEFT + (WIDTH - LEFT - RIGHT) * self.starts[step] / whole

    def y(self, nbytes: float) -> float:
        """Return the height of a number of bytes."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * nbytes / self.top


def _end(buffer: BufferReport, buffers: Sequence[BufferReport]) -> int:
    """Return when the memory of a buffer is free: what takes it over lives on in it."""
    death = buffer.death
    place = buffer.number
    for b in buffers:  # those that take over come later
        if b.over == place:
            death, place = max(death, b.death), b.number
    return death


def _axes(frame: _Frame) -> Iterator[str]:
    for tick in range(TICKS):
        nbytes = frame.top * tick / (TICKS - 1)
        y = frame.y(nbytes)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{human_bytes(nbytes)}</text>'
    whole = frame.starts[-1]
    unit, factor = ("ms", 1e-3) if whole >= 1000 else ("us", 1.0)
    for tick in range(TICKS):
        x = LEFT + (WIDTH - LEFT - RIGHT) * tick / (TICKS - 1)
        text = f"{whole * factor * tick / (TICKS - 1):.3g} {unit}"
        anchor = "end" if tick == TICKS - 1 else "mid"
        yield f'<text class="{anchor}" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{text}</text>'
    legend = "boxes: buffers where they lie; black: bytes that live; red: no plan needs less"
    yield f'<text x="{LEFT}" y="{HEIGHT - 10}">{legend}</text>'


def _box(b: BufferReport, report: PlanReport, frame: _Frame) -> Iterator[str]:
    assert b.offset is not None
    left, right = frame.x(b.birth), frame.x(b.death + 1)
    high, low = frame.y(b.offset + b.nbytes), frame.y(b.offset)
    width, height = max(right - left, 0.5), max(low - high, 0.5)
    steps = report.steps
    writer = steps[b.birth].label if 0 <= b.birth < len(steps) else "the caller"
    last = steps[min(b.death, len(steps) - 1)].label if steps else ""
    title = f"{b.name}: {human_bytes(b.nbytes)}, from {writer} to {last}"
    hue = b.number * GOLDEN % 360
    yield (
        f'<rect class="b" x="{left:.2f}" y="{high:.2f}" width="{width:.2f}" '
        f'height="{height:.2f}" fill="hsl({hue:.0f},60%,78%)">'
        f"<title>{escaped(title)}</title></rect>"
    )
    if height > 11 and width > LETTER * 4 + 6:
        room = int((width - 6) / LETTER)
        name = b.name if len(b.name) <= room else "…" + b.name[len(b.name) - room + 1 :]
        place = f'x="{left + 3:.1f}" y="{(high + low) / 2 + 3.5:.1f}"'
        yield f'<text class="name" {place}>{escaped(name)}</text>'


def _line(live: Sequence[int], frame: _Frame) -> str:
    """Return how many bytes live during each step."""
    if not live:
        return ""
    parts = [f"M{frame.x(0):.2f} {frame.y(live[0]):.2f}"]
    for step, nbytes in enumerate(live):
        parts.append(f"V{frame.y(nbytes):.2f}H{frame.x(step + 1):.2f}")
    return f'<path class="live" d="{"".join(parts)}"/>'


def _bound(nbytes: int, frame: _Frame) -> Iterator[str]:
    y = frame.y(nbytes)
    yield f'<path class="bound" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
