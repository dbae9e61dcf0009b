"""What is joined and cut again.

A slice of a concatenation reads only the parts that it needs; a concatenation of concatenations
along one axis is one; adjacent slices joined are the larger slice; empty parts are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kn_graph.dim import Size
from kn_graph.dim_facts import provably_ge
from kn_graph.op import Op
from kn_graph.ops.layout import Concat, Slice
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "ConcatOfConcat", "ConcatOfSlices", "EmptyPart", "SliceOfConcat"]


@dataclass(frozen=True)
class Parts:
    """Values to join along an axis, and what to cut out of them then."""

    values: tuple[Value, ...]
    axis: int
    cut: Slice | None = None


class PartsRule(Rule[Parts]):
    """A rule that finds other parts to join."""

    def rewrite(self, edit: Editor, found: Parts) -> Value:
        """Join them."""
        joined = edit.graph.concat(found.values, found.axis)
        return joined if found.cut is None else edit.graph.push(found.cut, joined)


class SliceOfConcat(PartsRule):
    """A slice that lies in one part is a slice of it; one that is whole parts is their join."""

    name = "slice_of_concat"
    roots: ClassVar[tuple[type[Op], ...]] = (Slice,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Parts | None:
        """Find where in a concatenation along the same axis the slice lies."""
        cut = node.op
        (v,) = edit.operands(node)
        assert isinstance(cut, Slice)
        if not isinstance(v.node.op, Concat) or v.node.op.axis != cut.axis:
            return None
        parts = edit.operands(v.node)
        end = cut.start + (cut.length - 1) * cut.step + 1
        first: int | None = None
        at: Size = 0
        for i, part in enumerate(parts):
            after = at + part.shape[cut.axis]
            if provably_ge(cut.start, at) and provably_ge(after, end):
                return Parts((part,), cut.axis, replace(cut, start=cut.start - at))
            first = i if at == cut.start else first
            if first is not None and cut.step == 1 and after == end:
                return Parts(parts[first : i + 1], cut.axis)
            if provably_ge(cut.start, after) is None and first is None:
                return None
            at = after
        return None


class ConcatOfConcat(PartsRule):
    """concat(concat(a, b), c) = concat(a, b, c)."""

    name = "concat_of_concat"
    roots: ClassVar[tuple[type[Op], ...]] = (Concat,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Parts | None:
        """Find a part that is joined along the same axis, and only read here."""
        op = node.op
        assert isinstance(op, Concat)
        flat: list[Value] = []
        operands = edit.operands(node)
        for v in operands:
            inner = v.node.op == op and edit.uses(v) == 1
            flat += edit.operands(v.node) if inner else (v,)
        return Parts(tuple(flat), op.axis) if len(flat) > len(operands) else None


class EmptyPart(PartsRule):
    """concat(a, empty) = a."""

    name = "empty_part"
    roots: ClassVar[tuple[type[Op], ...]] = (Concat,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Parts | None:
        """Find a part of size 0."""
        op = node.op
        assert isinstance(op, Concat)
        operands = edit.operands(node)
        rest = [v for v in operands if v.shape[op.axis] != 0]
        return Parts(tuple(rest), op.axis) if 0 < len(rest) < len(operands) else None


@dataclass(frozen=True)
class Run:
    """Adjacent slices of one value as one slice, or another value as it is."""

    x: Value
    cut: Slice | None


@dataclass(frozen=True)
class Runs:
    """What to join along an axis."""

    runs: tuple[Run, ...]
    axis: int


class ConcatOfSlices(Rule[Runs]):
    """concat(x[a:b], x[b:c]) = x[a:c]."""

    name = "concat_of_slices"
    roots: ClassVar[tuple[type[Op], ...]] = (Concat,)

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Runs | None:
        """Find neighbours that read on where the one before ended."""
        op = node.op
        assert isinstance(op, Concat)
        operands = edit.operands(node)
        runs: list[Run] = []
        for v in operands:
            run = _as_run(edit, v, op.axis)
            last = runs[-1] if runs else None
            joined = None if last is None else _joined(last, run)
            if joined is None:
                runs.append(run)
            else:
                runs[-1] = joined
        return Runs(tuple(runs), op.axis) if len(runs) < len(operands) else None

    def rewrite(self, edit: Editor, found: Runs) -> Value:
        """Cut, and join what is left."""
        g = edit.graph
        values = [r.x if r.cut is None else g.push(r.cut, r.x) for r in found.runs]
        return g.concat(values, found.axis)


def _as_run(edit: Editor, v: Value, axis: int) -> Run:
    op = v.node.op
    if isinstance(op, Slice) and op.axis == axis and op.step == 1:
        return Run(edit.operands(v.node)[0], op)
    return Run(v, None)


def _joined(a: Run, b: Run) -> Run | None:
    if a.cut is None or b.cut is None or a.x is not b.x:
        return None
    if b.cut.start != a.cut.start + a.cut.length:
        return None
    return Run(a.x, replace(a.cut, length=a.cut.length + b.cut.length))


RULES = (SliceOfConcat(), EmptyPart(), ConcatOfConcat(), ConcatOfSlices())
