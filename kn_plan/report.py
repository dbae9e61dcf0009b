"""A plan as plain data: what `kn plan` prints, and writes as JSON.

All classes here hold numbers, texts, lists and one another, so that `dataclasses.asdict` is their
JSON; `docs/planning.md` shows one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kn_graph.dim import Symbol, evaluate
from kn_graph.graph import Graph
from kn_graph.liveness import live_nodes
from kn_graph.ops.source import Constant, Input
from kn_graph.types import TensorType
from kn_graph.value import Value
from kn_plan.access import access_of, is_layout
from kn_plan.arena import ALIGNMENT, Allocation, Intervals
from kn_plan.cost import Cost, plan_costs
from kn_plan.device_spec import DeviceSpec
from kn_plan.memory import Arena, arenas
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Plan, Step

__all__ = [
    "BufferReport",
    "MemoryReport",
    "PlanReport",
    "StepReport",
    "Totals",
    "computing_nodes",
    "memory_report",
    "plan_report",
]


@dataclass(frozen=True)
class StepReport:
    """One step.

    Attributes:
        number: its place.
        label: the ONNX node that it stands for.
        kind: the operation of its anchor, or scalar, or copy.
        instructions: how many nodes of the scalar program, in it or behind the anchor.
        shape: what is computed, as text over symbols.
        sizes: the same in numbers.
        reads: buffers and layouts, as texts.
        writes: the same.
        flops: operations.
        read_bytes: that have to be read.
        written_bytes: that have to be written.
        bound_us: the least time on the device, in microseconds.
        limit: what that is due to: compute, memory, launch, nothing.
        host: why the host runs it; None where the device does.
    """

    number: int
    label: str
    kind: str
    instructions: int
    shape: str
    sizes: list[int]
    reads: list[str]
    writes: list[str]
    flops: int
    read_bytes: int
    written_bytes: int
    bound_us: float
    limit: str
    host: str | None


@dataclass(frozen=True)
class BufferReport:
    """One buffer.

    Attributes:
        number: its place.
        name: of the value.
        dtype: of the elements; None for what is no tensor of numbers.
        numel: how many there are, as text over symbols.
        home: arena, constant, input, output, late (allocated when its step has run) or object.
        nbytes: bytes.
        birth: the step that writes it first; -1 before all.
        death: the step that reads it last; the number of steps for outputs.
        over: the buffer whose memory it takes over.
        offset: in bytes, in the arena of its stage; None elsewhere.
    """

    number: int
    name: str
    dtype: str | None
    numel: str
    home: str
    nbytes: int
    birth: int
    death: int
    over: int | None
    offset: int | None


@dataclass(frozen=True)
class MemoryReport:
    """Bytes at the sizes of the report.

    Attributes:
        arena: what intermediate results take.
        lower_bound: no order of places needs less: the largest sum of what lives at one step.
        file_order: the same for the nodes of the graph one by one, without fusion.
        without_reuse: intermediate results one behind another.
        constants: weights.
        inputs: of the caller.
        outputs: that the caller gets.
    """

    arena: int
    lower_bound: int
    file_order: int
    without_reuse: int
    constants: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Totals:
    """Sums over the steps.

    Attributes:
        steps: how many there are.
        nodes: of the graph, without constants and layout operations.
        launches: steps of the device.
        host_steps: those that the host runs.
        flops: operations.
        moved_bytes: read and written.
        bound_us: of the steps one after another, in microseconds.
    """

    steps: int
    nodes: int
    launches: int
    host_steps: int
    flops: int
    moved_bytes: int
    bound_us: float


@dataclass(frozen=True)
class PlanReport:
    """See the module.

    Attributes:
        graph: its name.
        device: what bounds are for.
        device_source: where its numbers are from.
        sizes: of the symbols, by name.
        options: mechanisms of the planner, by name.
        totals: sums.
        memory: bytes.
        steps: in order.
        buffers: by number.
        outputs: buffer and layout of each, by name, as text.
    """

    graph: str
    device: str
    device_source: str
    sizes: dict[str, int]
    options: dict[str, bool]
    totals: Totals
    memory: MemoryReport
    steps: list[StepReport]
    buffers: list[BufferReport]
    outputs: dict[str, str]


def plan_report(
    plan: Plan,
    env: Mapping[Symbol, int],
    spec: DeviceSpec,
    options: PlanOptions | None = None,
    *,
    host: Mapping[int, str] | None = None,
) -> PlanReport:
    """Return a plan as data.

    Args:
        plan: which one.
        env: numbers of all its symbols.
        spec: the device that bounds are for.
        options: those that the plan was made with.
        host: why the host runs a step, by its number.
    """
    chosen, reasons = options or PlanOptions(), host or {}
    memory = arenas(plan, chosen)
    allocations = [a.allocate(plan, env) for a in memory]
    costs = [c.at(env) for c in plan_costs(plan)]
    steps = [
        _step(number, step, cost, env, spec, reasons.get(number))
        for number, (step, cost) in enumerate(zip(plan.steps, costs, strict=True))
    ]
    return PlanReport(
        graph=plan.graph.name,
        device=spec.name,
        device_source=spec.source,
        sizes={s.name: n for s, n in env.items()},
        options=dict(vars(chosen)),
        totals=_totals(plan, steps),
        memory=memory_report(plan, env, allocations),
        steps=steps,
        buffers=_buffers(plan, env, memory, allocations),
        outputs={name: str(o) for name, o in plan.outputs.items()},
    )


def _step(
    number: int,
    step: Step,
    cost: Cost,
    env: Mapping[Symbol, int],
    spec: DeviceSpec,
    reason: str | None,
) -> StepReport:
    bound = cost.bound(spec)
    flops, read, written = (evaluate(n, {}) for n in (cost.flops, cost.read, cost.written))
    return StepReport(
        number=number,
        label=step.label,
        kind=step.kind,
        instructions=len(step.program.instructions) if step.program else 0,
        shape=f"[{', '.join(map(str, step.shape))}]",
        sizes=[evaluate(n, env) for n in step.shape],
        reads=list(map(str, step.inputs)),
        writes=list(map(str, step.writes)),
        flops=flops,
        read_bytes=read,
        written_bytes=written,
        bound_us=round(bound.seconds * 1e6, 4),
        limit=bound.limit,
        host=reason,
    )


def _totals(plan: Plan, steps: Sequence[StepReport]) -> Totals:
    on_host = sum(s.host is not None for s in steps)
    return Totals(
        steps=len(steps),
        nodes=computing_nodes(plan.graph),
        launches=len(steps) - on_host,
        host_steps=on_host,
        flops=sum(s.flops for s in steps),
        moved_bytes=sum(s.read_bytes + s.written_bytes for s in steps),
        bound_us=round(sum(s.bound_us for s in steps), 4),
    )


def computing_nodes(graph: Graph) -> int:
    """Return how many nodes compute something: no constants, inputs or layout operations."""
    nodes = live_nodes(graph, graph.outputs.values())
    return sum(not (is_layout(n) or isinstance(n.op, (Constant, Input))) for n in nodes)


# ---- memory ---------------------------------------------------------------------------------


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def memory_report(
    plan: Plan, env: Mapping[Symbol, int], allocations: Sequence[Allocation] | None = None
) -> MemoryReport:
    """Return the bytes of a plan.

    Args:
        plan: which one.
        env: numbers of all its symbols.
        allocations: where buffers lie, one a stage; where the allocator puts them by default.
    """
    if allocations is None:
        allocations = [a.allocate(plan, env) for a in arenas(plan, PlanOptions())]

    def total(*homes: Home) -> int:
        return sum(evaluate(b.nbytes, env) for b in plan.buffers if b.home in homes)

    arena = [b for b in plan.buffers if b.home is Home.ARENA]
    return MemoryReport(
        arena=sum(a.total for a in allocations),
        lower_bound=sum(a.lower_bound for a in allocations),
        file_order=_file_order(plan.graph, env),
        without_reuse=sum(_rounded(evaluate(b.nbytes, env)) for b in arena),
        constants=total(Home.CONSTANT),
        inputs=total(Home.INPUT),
        outputs=total(Home.OUTPUT, Home.LATE),
    )


def _file_order(graph: Graph, env: Mapping[Symbol, int]) -> int:
    """Return the most bytes that live at once where each node runs by itself, in their order."""
    outputs = {access_of(v).value for v in graph.outputs.values()}
    births: dict[Value, int] = {}
    deaths: dict[Value, int] = {}
    for at, node in enumerate(live_nodes(graph, graph.outputs.values())):
        if is_layout(node) or isinstance(node.op, (Constant, Input)):
            continue
        for v in node.results:
            if isinstance(v.type, TensorType) and v not in outputs:
                births[v] = deaths[v] = at
        for v in node.operands:
            source = access_of(v).value
            if source in births:
                deaths[source] = at
    sizes = [_rounded(_nbytes(v, env)) for v in births]
    lives = Intervals.of(list(births.values()), list(deaths.values()))
    return lives.lower_bound(np.array(sizes, np.int64))


def _nbytes(v: Value, env: Mapping[Symbol, int]) -> int:
    count = v.dtype.numpy.itemsize
    for size in v.shape:
        count *= evaluate(size, env)
    return count


def _buffers(
    plan: Plan,
    env: Mapping[Symbol, int],
    memory: Sequence[Arena],
    allocations: Sequence[Allocation],
) -> list[BufferReport]:
    offsets: dict[int, int] = {}
    for arena, allocation in zip(memory, allocations, strict=True):
        offsets |= zip(arena.members, allocation.offsets.tolist(), strict=True)
    return [
        BufferReport(
            number=b.number,
            name=b.name,
            dtype=None if b.dtype is None else str(b.dtype),
            numel=str(b.numel),
            home=b.home.value,
            nbytes=evaluate(b.nbytes, env),
            birth=plan.births[b.number],
            death=plan.deaths[b.number],
            over=b.over,
            offset=offsets.get(plan.root(b.number)),
        )
        for b in plan.buffers
    ]
