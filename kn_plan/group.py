"""Which nodes of a graph run together.

Every value is one of three things: a view (layout operations: no work), a member of a scalar
program, or the result of an anchor (a product, a reduction, anything else). A scalar node joins the
program of its only reader, also through views; a program joins the anchor that it is applied to as
an epilogue, where the target accepts that. What several groups read is computed once and stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.op import Op
from kn_graph.ops.layout import Broadcast, View
from kn_graph.ops.source import Constant, Input, ReadSizes
from kn_graph.types import Shape, TensorType
from kn_graph.value import Node, Value
from kn_plan.access import Access, access_of, inverse, is_layout, resolved
from kn_plan.layout import StridedLayout
from kn_plan.options import PlanOptions
from kn_plan.program import SCALAR_OPS, ProgramBuilder, ScalarProgram, is_cheap, is_scalar
from kn_plan.target import Target

__all__ = ["Group", "form_groups"]


@dataclass(frozen=True)
class Group:
    """What one step computes.

    Attributes:
        anchor: the node whose kernel runs; None for a scalar program alone.
        operands: what the anchor reads.
        program: what is applied to each element; the anchor's result is its first input.
        extras: the other inputs of the program, in the shape that is computed.
        outputs: what is written: the registers that the program gives, or the anchor's results.
        undo: layout operations from the shape of the first output to the shape that is computed.
        shape: the shape that is computed.
    """

    anchor: Node | None
    operands: tuple[Access, ...]
    program: ScalarProgram | None
    extras: tuple[Access, ...]
    outputs: tuple[Value, ...]
    shape: Shape
    undo: tuple[Op, ...] = ()

    @property
    def reads(self) -> tuple[Access, ...]:
        """Everything that is read."""
        return self.operands + self.extras

    @property
    def label(self) -> str:
        """How texts call it."""
        node = self.anchor or self.outputs[0].node
        return node.label

    def __str__(self) -> str:
        """Return a line of text."""
        name = self.anchor.op.title if self.anchor else "scalar"
        steps = len(self.program.instructions) if self.program else 0
        reads = ", ".join(map(str, self.reads))
        return f"{', '.join(v.name for v in self.outputs)} = {name}[{steps}]({reads})"


@dataclass
class _Cluster:
    """A scalar program while it is formed.

    Attributes:
        root: the node that is computed last.
        outputs: its value first, then what the caller gets as well.
        members: all nodes.
    """

    root: Node
    outputs: list[Value]
    members: set[Node] = field(default_factory=set)


class _Use(NamedTuple):
    """A reader of a value, behind layout operations; None is the caller."""

    reader: Node | None
    ops: tuple[Op, ...]


def form_groups(graph: Graph, target: Target, options: PlanOptions) -> list[Group]:
    """Return the groups of a graph, in an order in which they can run."""
    return _Former(graph, target, options).run()


class _Former:
    """See `form_groups`."""

    def __init__(self, graph: Graph, target: Target, options: PlanOptions) -> None:
        self.graph, self.target, self.options = graph, target, options
        self.nodes = live_nodes(graph, graph.outputs.values())
        self.uses: dict[Value, list[_Use]] = {}
        self.accesses: dict[Value, Access] = {}
        self.clusters: dict[Node, _Cluster] = {}
        self.varying = _varying(self.nodes) if target.repeats else frozenset()
        for node in self.nodes:
            if not is_layout(node):
                for v in node.operands:
                    self._use(node, v)
        for v in graph.outputs.values():
            self._use(None, v)

    def _use(self, reader: Node | None, v: Value) -> None:
        access = self.accesses.get(v) or self.accesses.setdefault(v, access_of(v))
        self.uses.setdefault(access.value, []).append(_Use(reader, access.ops))

    def run(self) -> list[Group]:
        """Form scalar programs from the outputs up, then attach them."""
        for node in reversed(self.nodes):
            if self._is_scalar(node):
                self._join(node)
        clusters = {c.root: c for c in self.clusters.values()}
        groups: list[Group] = []
        taken: set[Node] = set()
        for node in self.nodes:
            if node in clusters:
                group, anchor = self._scalar_group(clusters[node])
                if anchor is not None:
                    taken.add(anchor)
                groups.append(group)
            elif not (
                node in self.clusters or is_layout(node) or isinstance(node.op, (Input, Constant))
            ):
                groups.append(_anchor_group(node))
        groups = [g for g in groups if g.program is not None or g.anchor not in taken]
        return groups + self._copies(groups)

    # ---- scalar programs --------------------------------------------------------------------

    def _is_scalar(self, node: Node) -> bool:
        if not isinstance(node.op, SCALAR_OPS):  # most are not; types are not looked at then
            return False
        types = [v.type for v in (*node.operands, *node.results)]
        tensors = [t for t in types if isinstance(t, TensorType)]
        return len(tensors) == len(types) and is_scalar(node.op, [t.dtype for t in tensors])

    def _join(self, node: Node) -> None:
        """Put a node into the program of its only reader, or begin one."""
        (v,) = node.results
        uses = self.uses.get(v, [])
        readers = {u.reader for u in uses if u.reader is not None}
        clusters = {id(c): c for r in readers if (c := self.clusters.get(r)) is not None}
        alone = len(clusters) == 1 and all(r in self.clusters for r in readers)
        if alone and self.options.fuse_scalars:
            (cluster,) = clusters.values()
            given = any(u.reader is None for u in uses)
            if self._fits(node, cluster, uses, given):
                cluster.members.add(node)
                self.clusters[node] = cluster
                if given:
                    cluster.outputs.append(v)
                return
        self.clusters[node] = _Cluster(node, [v], {node})

    def _fits(self, node: Node, cluster: _Cluster, uses: Sequence[_Use], given: bool) -> bool:
        if len(cluster.members) >= self.target.max_instructions:
            return False
        if given:  # stored as well: it must be computed once for each element of the result
            return node.results[0].shape == cluster.root.results[0].shape and all(
                not u.ops for u in uses
            )
        if any(isinstance(op, Broadcast) for u in uses for op in u.ops):
            return self._repeats_little(node)
        return len({u.ops for u in uses}) == 1

    def _repeats_little(self, node: Node) -> bool:
        """Return whether computing an element several times costs less than storing it."""
        if self.target.repeats and is_cheap(node.op) and node in self.varying:
            return True
        return all(v.constant is not None and v.constant.size == 1 for v in node.operands)

    def _scalar_group(self, cluster: _Cluster) -> tuple[Group, Node | None]:
        writer = _ProgramWriter(cluster, self.accesses)
        registers = [writer.register(v) for v in cluster.outputs]
        shape = cluster.root.results[0].shape
        anchor = self._anchor_for(cluster, writer) if self.options.fuse_epilogues else None
        if anchor is None:
            program = writer.builder.build(registers)
            reads = tuple(writer.inputs)
            return Group(None, (), program, reads, tuple(cluster.outputs), shape), None
        place, node, undo = anchor
        program = writer.builder.build(registers, first=place)
        wide = node.results[0].shape
        extras = tuple(a.then(undo, wide) for i, a in enumerate(writer.inputs) if i != place)
        operands = tuple(self.accesses[v] for v in node.operands)
        outputs = tuple(cluster.outputs)
        return Group(node, operands, program, extras, outputs, wide, undo), node

    def _anchor_for(
        self, cluster: _Cluster, writer: _ProgramWriter
    ) -> tuple[int, Node, tuple[Op, ...]] | None:
        """Return the input that a program is an epilogue of: the last one that the target takes."""
        best: tuple[int, Node, tuple[Op, ...]] | None = None
        for place, access in enumerate(writer.inputs):
            node = access.value.node
            if len(node.results) != 1 or not self._only_in(access.value, cluster):
                continue
            undo = inverse(access.ops, access.value.shape)
            others = [a for a in writer.inputs if a is not access]
            if undo is None or any(a.value is access.value for a in others):
                continue
            if access.ops and not _is_view(access):
                continue
            if not self.target.accepts(node, cluster.root.results[0].dtype):
                continue
            if best is None or node.index > best[1].index:
                best = place, node, undo
        return best

    def _only_in(self, v: Value, cluster: _Cluster) -> bool:
        return all(u.reader in cluster.members for u in self.uses[v])

    def _copies(self, groups: Sequence[Group]) -> list[Group]:
        """Return groups that store views which the caller gets."""
        stored = {v for g in groups for v in g.outputs}
        stored |= {v for n in self.nodes if isinstance(n.op, ReadSizes) for v in n.results}
        found: dict[Value, Group] = {}
        for v in self.graph.outputs.values():
            if v in stored or v in found or not is_layout(v.node):
                continue
            if self.options.view_outputs and self._is_whole(v, stored):
                continue
            builder = ProgramBuilder()
            program = builder.build([builder.input(v.dtype)])
            found[v] = Group(None, (), program, (access_of(v),), (v,), v.shape)
        return list(found.values())

    def _is_whole(self, v: Value, stored: set[Value]) -> bool:
        """Return whether an output is all of a stored value, which nobody else reads."""
        access = access_of(v)
        views = all(isinstance(op, View) for op in access.ops)
        return views and access.value in stored and len(self.uses[access.value]) == 1


def _varying(nodes: Sequence[Node]) -> frozenset[Node]:
    """Return the nodes that depend on more than constants: others run once, when a plan is made."""
    found: set[Node] = set()
    for node in nodes:
        fixed = isinstance(node.op, Constant) or (
            node.operands and not any(v.node in found for v in node.operands)
        )
        if not fixed:
            found.add(node)
    return frozenset(found)


def _is_view(access: Access) -> bool:
    """Return whether a value in row-major order needs no copy under an access."""
    return resolved(StridedLayout.contiguous(access.value.shape), access) is not None


def _anchor_group(node: Node) -> Group:
    first = node.results[0].type
    shape = first.shape if isinstance(first, TensorType) else ()
    return Group(node, tuple(map(access_of, node.operands)), None, (), node.results, shape)


class _ProgramWriter:
    """Writes the members of a cluster as a program.

    Attributes:
        builder: takes instructions.
        inputs: what the program reads, in the order of its inputs.
    """

    def __init__(self, cluster: _Cluster, accesses: Mapping[Value, Access]) -> None:
        self.cluster, self.accesses = cluster, accesses
        self.builder = ProgramBuilder()
        self.inputs: list[Access] = []
        self._registers: dict[Access, int] = {}

    def register(self, value: Value) -> int:
        """Return the register of a value in the shape of the program."""
        wanted = access_of(value)
        stack = [wanted]
        while stack:
            access = stack[-1]
            if access in self._registers:
                stack.pop()
                continue
            if access.value.node not in self.cluster.members:
                self._registers[access] = self._leaf(access)
                continue
            node = access.value.node
            operands = [self._below(v, access) for v in node.operands]
            missing = [a for a in operands if a not in self._registers]
            if missing:
                stack += reversed(missing)
                continue
            registers = [self._registers[a] for a in operands]
            self._registers[access] = self.builder.apply(node.op, registers, access.value.dtype)
        return self._registers[wanted]

    def _below(self, operand: Value, access: Access) -> Access:
        """Return an operand of a member, under the operations that the member is read through."""
        return self.accesses[operand].then(access.ops, access.shape, access.labels)

    def _leaf(self, access: Access) -> int:
        value = access.value
        array = value.constant
        if array is not None and array.size == 1:
            return self.builder.number(array.reshape(())[()], value.dtype)
        self.inputs.append(access)
        return self.builder.input(value.dtype)
