"""Charts as SVG text: bars on a logarithmic scale around 1, and lines on two of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Line", "bars", "lines"]

FONT = "font-family='system-ui, sans-serif' font-size='12'"
ABOVE, BELOW, OTHER = "#2f7d4f", "#b5532f", "#6b7280"
ROW, LABEL, PLOT, MARGIN = 20, 270, 420, 24


@dataclass(frozen=True)
class Bar:
    """A ratio.

    Attributes:
        label: what it is of.
        value: the ratio.
        low: the smallest of several runs.
        high: the largest.
        target: what it should reach; None for nothing.
    """

    label: str
    value: float
    low: float
    high: float
    target: float | None = None


@dataclass(frozen=True)
class Line:
    """Points that belong together.

    Attributes:
        label: what they are of.
        points: (x, y), both positive.
        color: of the line.
    """

    label: str
    points: Sequence[tuple[float, float]]
    color: str


def _document(width: float, height: float, parts: Sequence[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}' "
        f"viewBox='0 0 {width:.0f} {height:.0f}' {FONT}>"
    )
    background = f"<rect width='{width:.0f}' height='{height:.0f}' fill='white'/>"
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place} fill='#1f2937'>{escape(text)}</text>"


def _stroke(x1: float, y1: float, x2: float, y2: float, color: str, width: float = 1) -> str:
    places = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {places} stroke='{color}' stroke-width='{width}'/>"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Return a bar for each ratio: to the right above 1, its runs and its target marked."""
    powers = [math.log2(n) for r in rows for n in (r.low, r.high)]
    first, last = (
        min(-1, math.floor(min(powers, default=0))),
        max(1, math.ceil(max(powers, default=0))),
    )

    def at(value: float) -> float:
        return LABEL + PLOT * (math.log2(value) - first) / (last - first)

    top, bottom = 2 * MARGIN + 4, 2 * MARGIN + 4 + ROW * len(rows)
    parts = [_text(8, MARGIN, title)]
    for power in range(first, last + 1):
        x, scale = at(2.0**power), f"{2**power}x" if power >= 0 else f"1/{2**-power}"
        parts.append(_stroke(x, top - 4, x, bottom, "#9ca3af" if power == 0 else "#e5e7eb"))
        parts.append(_text(x, top - 8, scale, "middle"))
    for i, row in enumerate(rows):
        y = top + ROW * i
        left, right = sorted((at(1), at(row.value)))
        reached = row.value >= (1 if row.target is None else row.target)
        color = ABOVE if reached else BELOW
        box = f"x='{left:.1f}' y='{y + 3:.1f}' width='{right - left:.1f}' height='{ROW - 6}'"
        parts.append(f"<rect {box} fill='{color}'/>")
        parts.append(_stroke(at(row.low), y + ROW / 2, at(row.high), y + ROW / 2, "#111827"))
        if row.target is not None:
            parts.append(_stroke(at(row.target), y + 1, at(row.target), y + ROW - 1, "#111827", 2))
        parts.append(_text(LABEL - 8, y + ROW - 6, row.label, "end"))
        parts.append(_text(LABEL + PLOT + 8, y + ROW - 6, f"{row.value:.2f}x"))
    return _document(LABEL + PLOT + 64, bottom + MARGIN / 2, parts)


def lines(title: str, across: str, up: str, series: Sequence[Line]) -> str:
    """Return lines on logarithmic axes, each labelled at its end."""
    xs = [math.log10(x) for s in series for x, _ in s.points]
    ys = [math.log10(y) for s in series for _, y in s.points]
    left, right = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    low, high = math.floor(min(ys)), math.ceil(max(ys))
    high = max(high, low + 1)
    width, height = 420, 240

    def place(x: float, y: float) -> tuple[float, float]:
        across = 80 + width * (math.log10(x) - left) / (right - left)
        return across, 2 * MARGIN + height * (high - math.log10(y)) / (high - low)

    parts = [_text(8, MARGIN, f"{title}: {up} over {across}")]
    for power in range(low, high + 1):
        _, y = place(10**left, 10.0**power)
        parts += [
            _stroke(80, y, 80 + width, y, "#e5e7eb"),
            _text(72, y + 4, f"{10.0**power:g}", "end"),
        ]
    for x in sorted({x for s in series for x, _ in s.points}):
        parts.append(_text(place(x, 10.0**low)[0], 2 * MARGIN + height + 18, f"{x:g}", "middle"))
    for s in series:
        places = [place(*point) for point in s.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{s.color}' stroke-width='2'/>")
        parts.append(_text(places[-1][0] + 8, places[-1][1] + 4, s.label))
    return _document(80 + width + 110, 3 * MARGIN + height + 8, parts)
