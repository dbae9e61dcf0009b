"""Permutations move through elementwise operations to where they cancel.

Exporters that convert between channels-last and channels-first leave pairs of permutations with
activations, sums, pads and concatenations in between. A connected region of such operations can be
computed with its axes in another order: a permutation at an entry or at an exit is then dropped,
composed with another one, or new. The region is turned if fewer permutations are left. So their
number only ever falls, and nothing is moved without need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kn_graph.op import Op
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.elementwise import Binary, Cast, Compare, Select, Unary
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, Permute, Slice
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.reduce import Reduce
from kn_graph.ops.source import Constant
from kn_graph.optimizer.axes import inverse, same_order
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "TurnRegion"]

Axes = tuple[int, ...]

MAX_REGION = 128
"""Larger regions are cut there: what lies beyond keeps its order of axes."""


# ---- operations that do not care about the order of axes ------------------------------------


def _same(op: Op, axes: Axes) -> Op:
    return op


def _moved_axis(op: Any, axes: Axes) -> Op:
    moved: Op = replace(op, axis=inverse(axes)[op.axis])
    return moved


def _moved_axes(op: Any, axes: Axes) -> Op:
    back = inverse(axes)
    moved: Op = replace(op, axes=tuple(sorted(back[a] for a in op.axes)))
    return moved


def _moved_shape(op: Any, axes: Axes) -> Op:
    return Broadcast(tuple(op.shape[a] for a in axes))


def _moved_pads(op: Any, axes: Axes) -> Op:
    moved: Op = replace(op, pads=tuple(op.pads[a] for a in axes))
    return moved


CARRIERS: dict[type[Op], Callable[[Op, Axes], Op]] = {
    **dict.fromkeys((Unary, Binary, Compare, Select, Cast), _same),
    **dict.fromkeys((Softmax, Concat, Slice, Flip, Cumulative), _moved_axis),
    Norm: _moved_axes,
    Broadcast: _moved_shape,
    Pad: _moved_pads,
}
"""How an operation changes when the axes of all operands of its rank are permuted."""


def _turned_operands(edit: Editor, node: Node) -> list[Value]:
    """Return the operands whose axes correspond to those of the result."""
    operands = list(edit.operands(node))
    return operands[:1] if isinstance(node.op, Pad) else operands


# ---- regions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Region:
    """Nodes whose results are computed with their axes permuted.

    Attributes:
        axes: the permutation that the results get.
        nodes: in no order.
        root: what is to be replaced: a permutation of a result, or one of the nodes.
    """

    axes: Axes
    nodes: frozenset[Node]
    root: Node


class TurnRegion(Rule[Region]):
    """See the module."""

    name = "turn_region"
    roots: ClassVar[tuple[type[Op], ...]] = (Permute, *CARRIERS)
    looks_far = True

    def match(self, edit: Editor, node: Node, settings: OptimizerSettings) -> Region | None:
        """Try what leads up to a permutation, or from one on; then everything around it."""
        operands = _turned_operands(edit, node)
        if isinstance(node.op, Permute):
            axes, start = node.op.axes, operands[0].node
            if not _carries(edit, start):
                return None
        else:
            permutes = [v.node.op.axes for v in operands if isinstance(v.node.op, Permute)]
            if not permutes:
                return None
            axes, start = inverse(permutes[0]), node
        for down in (False, True):
            region = Region(axes, _grown(edit, start, down=down), node)
            if _gain(edit, region) > 0:
                return region
        return None

    def rewrite(self, edit: Editor, found: Region) -> Value:
        """Build the region with other axes; give everybody around what they expect."""
        return _Turned(edit, found).build()


def _grown(edit: Editor, start: Node, *, down: bool) -> frozenset[Node]:
    """Collect operations from one on: what it needs, and what reads what is collected.

    Without `down` only operations are taken whose readers are all in the region already, or
    permutations: those can be turned for nothing else.
    """
    nodes = {start}
    stack = [start]
    rank = start.results[0].rank
    while stack and len(nodes) < MAX_REGION:
        current = stack.pop()
        near = [v.node for v in _turned_operands(edit, current)]
        if down:
            near += edit.users(current.results[0])
        for n in near:
            if n in nodes or not _carries(edit, n) or n.results[0].rank != rank:
                continue
            if down or _serves_only(edit, n, nodes):
                nodes.add(n)
                stack.append(n)
    return frozenset(nodes)


def _carries(edit: Editor, node: Node) -> bool:
    """Whether a node may be part of a region; repeated constants would connect everything."""
    if isinstance(node.op, Broadcast):
        return edit.operands(node)[0].constant is None
    return type(node.op) in CARRIERS


def _serves_only(edit: Editor, node: Node, nodes: set[Node]) -> bool:
    v = node.results[0]
    users = edit.users(v)
    return not edit.is_output(v) and all(u in nodes or isinstance(u.op, Permute) for u in users)


def _entries(edit: Editor, region: Region) -> list[Value]:
    """Return the values that go into a region, each once."""
    found = {
        v: None
        for node in region.nodes
        for v in _turned_operands(edit, node)
        if v.node not in region.nodes
    }
    return list(found)


def _gain(edit: Editor, region: Region) -> int:
    """Return how many permutations fewer there are when a region is turned.

    Those of axes of size 1 do not count: they are views.
    """
    entries = _entries(edit, region)
    if any(_leads_back(edit, v, region) for v in entries):
        return 0
    gain = sum(_entry_gain(edit, v, region) for v in entries)
    return gain + sum(_exit_gain(edit, n.results[0], region) for n in region.nodes)


def _leads_back(edit: Editor, v: Value, region: Region) -> bool:
    """Whether a permutation goes from the region into it.

    It would be counted twice, as saved where it leaves and where it enters, although turning gives
    it back with other axes: the region could be turned without end.
    """
    return isinstance(v.node.op, Permute) and edit.operands(v.node)[0].node in region.nodes


def _entry_gain(edit: Editor, v: Value, region: Region) -> int:
    op = v.node.op
    if isinstance(op, Constant) or same_order(v.shape, region.axes):
        return 0
    if isinstance(op, Broadcast):
        (x,) = edit.operands(v.node)
        return 0 if x.constant is not None or same_order(x.shape, region.axes) else -1
    if not isinstance(op, Permute):
        return -1
    (x,) = edit.operands(v.node)
    composed = tuple(op.axes[a] for a in region.axes)
    dies = not edit.is_output(v) and all(
        u in region.nodes or isinstance(u.op, Permute) for u in edit.users(v)
    )
    return (dies and not same_order(x.shape, op.axes)) - (not same_order(x.shape, composed))


def _exit_gain(edit: Editor, v: Value, region: Region) -> int:
    """Return how many permutations of a result are saved, less the one back for other readers."""
    gain, back = 0, edit.is_output(v)
    free = same_order(v.shape, region.axes)
    for user in edit.users(v):
        if user in region.nodes:
            continue
        if isinstance(user.op, Permute):
            gain += user.op.axes == region.axes and not free
        elif not (isinstance(user.op, Reduce) and _reduced(user.op, region.axes) is not None):
            back = True
    return gain - (back and not free)


def _reduced(op: Reduce, axes: Axes) -> Reduce | None:
    """Return the reduction of a turned value that gives the same, if there is one."""
    kept = [a for a in axes if a not in op.axes]
    if kept != sorted(kept):
        return None
    moved = _moved_axes(op, axes)
    assert isinstance(moved, Reduce)
    return moved


class _Turned:
    """Builds a region with other axes."""

    def __init__(self, edit: Editor, region: Region) -> None:
        self.edit, self.region = edit, region
        self.back = inverse(region.axes)
        self.values: dict[Value, Value] = {}

    def build(self) -> Value:
        """Build all nodes and replace what reads them; return what the root becomes."""
        edit, root = self.edit, self.region.root
        permuted = edit.operands(root)[0] if isinstance(root.op, Permute) else None
        nodes = self._ordered()
        for node in nodes:
            self._turn(node)
        inside = {*nodes, root}
        results = [n.results[0] for n in nodes]
        readers = [(x, u) for x in results for u in edit.users(x) if u not in inside]
        for v, user in readers:
            new = self._served(v, user)
            if new is not None and edit.resolve(user.results[0]) is not edit.resolve(new):
                edit.replace(user.results[0], new)
        for v in results:
            outside = edit.is_output(v) or any(u not in inside for u in edit.users(v))
            if outside and v.node is not root:
                edit.replace(v, edit.graph.permute(self.values[v], self.back))
        if permuted is not None:
            return self.values[permuted]
        return edit.graph.permute(self.values[root.results[0]], self.back)

    def _ordered(self) -> list[Node]:
        done: dict[Node, None] = {}
        stack = [(n, False) for n in sorted(self.region.nodes, key=lambda n: -n.index)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            if ready:
                done[node] = None
                continue
            stack.append((node, True))
            before = (v.node for v in _turned_operands(self.edit, node))
            stack += [(n, False) for n in before if n in self.region.nodes and n not in done]
        return list(done)

    def _turn(self, node: Node) -> None:
        g, axes = self.edit.graph, self.region.axes
        turned = _turned_operands(self.edit, node)
        operands = [self._entered(v) for v in turned]
        rest = self.edit.operands(node)[len(turned) :]
        op = CARRIERS[type(node.op)](node.op, axes)
        self.values[node.results[0]] = g.push(op, *operands, *rest)

    def _entered(self, v: Value) -> Value:
        known = self.values.get(v)
        if known is not None:
            return known
        g, axes, x, op = self.edit.graph, self.region.axes, v, v.node.op
        if isinstance(op, Broadcast):
            (x,) = self.edit.operands(v.node)
            entered = g.push(_moved_shape(op, axes), g.permute(x, axes))
        elif isinstance(op, Permute):
            (x,) = self.edit.operands(v.node)
            entered = g.permute(x, [op.axes[a] for a in axes])
        else:
            entered = g.permute(v, axes)
        self.values[v] = entered
        return entered

    def _served(self, v: Value, user: Node) -> Value | None:
        """Return what a permutation or reduction outside becomes on what is turned."""
        g, x = self.edit.graph, self.values[v]
        if isinstance(user.op, Permute):
            return g.permute(x, [self.back[a] for a in user.op.axes])
        op = _reduced(user.op, self.region.axes) if isinstance(user.op, Reduce) else None
        return None if op is None else g.push(op, x)


RULES = (TurnRegion(),)
