"""What a plan shows without being carried out: lifetimes, types, when sizes are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kn_graph.dim import Size, Symbol, SymbolKind, evaluate, symbols_of
from kn_graph.ops.source import Input
from kn_plan.fault import Fault
from kn_plan.plan import Home, Operand, Plan, Step

__all__ = ["structure_faults"]

RULE = "structure"

GIVEN = (Home.INPUT, Home.CONSTANT)


def structure_faults(plan: Plan, env: Mapping[Symbol, int]) -> list[Fault]:
    """Return what is wrong about lifetimes, types and the order in which sizes become known.

    Args:
        plan: what to look at.
        env: numbers of all symbols.
    """
    numbers = range(len(plan.buffers))
    operands = [*plan.outputs.values(), *(o for s in plan.steps for o in (*s.inputs, *s.writes))]
    if any(o.buffer not in numbers for o in operands):
        return [Fault(RULE, None, "", "a step names a buffer that there is not")]
    checks = (_read_only, _ends, _lifetimes, _steps, _sizes)
    return [*(f for check in checks for f in check(plan)), *_memory(plan, env)]


def _fault(text: str) -> Fault:
    return Fault(RULE, None, "", text)


def _read_only(plan: Plan) -> Iterator[Fault]:
    """Check that nothing is written that belongs to the caller."""
    for index, step in enumerate(plan.steps):
        for o in step.writes:
            if plan.buffers[o.buffer].home in GIVEN:
                text = f"it writes {o}, which belongs to the caller"
                yield Fault("read-only", index, step.label, text)


def _ends(plan: Plan) -> Iterator[Fault]:
    """Check that inputs and outputs are those of the graph."""
    if list(plan.outputs) != list(plan.graph.outputs):
        yield _fault(f"the outputs are {list(plan.outputs)}, not {list(plan.graph.outputs)}")
    if len(plan.inputs) != len(plan.graph.inputs):
        yield _fault(f"there are {len(plan.inputs)} inputs, not {len(plan.graph.inputs)}")
    for b in plan.buffers:
        if (b.home is Home.INPUT) != (b.number in plan.inputs):
            yield _fault(f"b{b.number} is not where an input is")
        if (b.home is Home.CONSTANT) != (b.number in plan.constants):
            yield _fault(f"b{b.number} is not where a constant is")


def _lifetimes(plan: Plan) -> Iterator[Fault]:
    """Check that each buffer lives from its first write to its last use, at least."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, step in enumerate(plan.steps):
        for o in step.writes:
            first.setdefault(o.buffer, index)
        for o in (*step.writes, *step.inputs):
            last[o.buffer] = index
    for o in plan.outputs.values():
        last[o.buffer] = len(plan.steps)
    for b in plan.buffers:
        n = b.number
        born = -1 if b.home in GIVEN else first.get(n)
        if born is not None and plan.births[n] != born:
            yield _fault(f"b{n} is born at step {plan.births[n]}, but written first at {born}")
        if n in last and plan.deaths[n] < last[n]:
            yield _fault(f"b{n} dies at step {plan.deaths[n]}, but is needed at {last[n]}")


def _memory(plan: Plan, env: Mapping[Symbol, int]) -> Iterator[Fault]:
    """Check sizes of buffers, and those that take over memory of others."""
    taken: dict[int, int] = {}
    for b in plan.buffers:
        if evaluate(b.numel, env) < 0:
            yield _fault(f"b{b.number} has {evaluate(b.numel, env)} elements")
        if b.over is None:
            continue
        if b.over not in range(len(plan.buffers)):
            yield _fault(f"b{b.number} takes over b{b.over}, which there is not")
            continue
        other = plan.buffers[b.over]
        if b.home is not Home.ARENA or other.home is not Home.ARENA:
            yield _fault(f"b{b.number} takes over b{b.over}; one of them is not in the arena")
        elif (
            plan.births[b.number] < plan.deaths[b.over]
            or plan.births[b.over] >= plan.births[b.number]
        ):
            yield _fault(f"b{b.number} takes over b{b.over}, which is needed afterwards")
        elif taken.setdefault(b.over, b.number) != b.number:
            yield _fault(f"b{b.number} and b{taken[b.over]} take over b{b.over}")
        elif evaluate(b.nbytes, env) > evaluate(other.nbytes, env):
            yield _fault(f"b{b.number} takes over b{b.over}, which is smaller")


# ---- steps ----------------------------------------------------------------------------------


def _steps(plan: Plan) -> Iterator[Fault]:
    for index, step in enumerate(plan.steps):
        for text in _step_faults(plan, step):
            yield Fault(RULE, index, step.label, text)


def _step_faults(plan: Plan, step: Step) -> Iterator[str]:
    """Check numbers and types of operands."""
    node, program = step.node, step.program
    if node is None and program is None:
        yield "it computes nothing"
        return
    if node is not None:
        if node.graph is not plan.graph:
            yield "its node is of another graph"
        if len(step.reads) != len(node.operands):
            yield f"it reads {len(step.reads)} operands, its node has {len(node.operands)}"
    elif step.reads:
        yield "it has operands of a node, but none"
    if program is None:
        assert node is not None
        if step.extras or len(step.writes) != len(node.results):
            yield "it reads or writes more or less than its node"
        return
    given = 0 if node is None else 1
    if len(program.inputs) != given + len(step.extras):
        yield f"its program has {len(program.inputs)} inputs"
    elif len(program.outputs) != len(step.writes):
        yield f"its program has {len(program.outputs)} outputs"
    else:
        inputs = [plan.buffers[o.buffer].dtype for o in step.extras]
        outputs = [plan.buffers[o.buffer].dtype for o in step.writes]
        if inputs != list(program.inputs[given:]):
            yield f"its program reads {list(map(str, program.inputs[given:]))}"
        if outputs != [program.dtype(r) for r in program.outputs]:
            yield f"its program writes {[str(program.dtype(r)) for r in program.outputs]}"


# ---- sizes ----------------------------------------------------------------------------------


def _sizes(plan: Plan) -> Iterator[Fault]:
    """Check that sizes are known before a stage begins that needs them."""
    sources = plan.graph.size_sources
    # inputs, and what surrounds a body, are there before it runs
    own = {s for s, n in sources.items() if not isinstance(n.op, Input)}
    known = set[Symbol]()
    for stage in plan.stages:
        for index in stage:
            step = plan.steps[index]
            late = {s for s in step.binds if sources.get(s) is not step.node}
            if late:
                yield Fault(RULE, index, step.label, f"it does not find {_names(late)}")
            unknown = {
                s
                for n in _needed(plan, step)
                for s in _found_while_running(n)
                if s in own and s not in known
            }
            if unknown:
                text = f"{_names(unknown)} is used before it is known"
                yield Fault(RULE, index, step.label, text)
        known.update(s for i in stage for s in plan.steps[i].binds)


def _needed(plan: Plan, step: Step) -> Iterator[Size]:
    """Return the numbers of a step that are computed when its stage begins."""
    late = [plan.buffers[o.buffer].home is Home.LATE for o in step.writes]
    for operand in step.inputs:
        yield from operand.layout.numbers
    for operand, is_late in zip(step.writes, late, strict=True):
        if not is_late:
            yield from _of_result(plan, operand)


def _of_result(plan: Plan, operand: Operand) -> Iterator[Size]:
    yield from operand.layout.numbers
    yield plan.buffers[operand.buffer].numel


def _found_while_running(size: Size) -> set[Symbol]:
    return {s for s in symbols_of(size) if s.kind is SymbolKind.DATA}


def _names(symbols: set[Symbol]) -> str:
    return ", ".join(sorted(repr(s.name) for s in symbols))
