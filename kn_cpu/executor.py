"""Runs planned graphs on native kernels; what has none runs on the reference, counted and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import numpy as np

from kn_cpu.bound import BoundRun, BoundStage, bind_stage
from kn_cpu.memory import aligned, as_bytes
from kn_cpu.native import NativeLibrary
from kn_cpu.program import NativeRun, Skeleton
from kn_cpu.target import CpuTarget
from kn_graph.binding import bind_symbols
from kn_graph.context import RunContext
from kn_graph.dim import Symbol, evaluate
from kn_graph.dim_facts import Constraint
from kn_graph.errors import InternalError, KnError, OutOfMemoryError, SymbolError
from kn_graph.graph import Graph
from kn_graph.memory import available_bytes
from kn_graph.reference import check_constraints, owned
from kn_graph.variants import check_guards, open_call
from kn_plan.arena import round_up
from kn_plan.options import PlanOptions
from kn_plan.plan import Home, Operand, Plan, Step
from kn_plan.planner import plan_graph

__all__ = ["CpuExecutor"]

Array = np.ndarray[Any, Any]

KEPT_BINDINGS = 64
"""How many sets of sizes a graph stays bound to."""

KEPT_BLOCKS = 4
"""How many arenas are kept for the next runs."""


def check_memory(plan: Plan, bound: BoundStage, stage: range, env: Mapping[Symbol, int]) -> None:
    """Refuse a stage that does not fit into memory, before anything runs.

    Raises:
        OutOfMemoryError: names the step that would make the largest result.
    """
    limit = available_bytes()
    members = bound.stage.arena.members
    sizes = dict(zip(members, bound.allocation.sizes.tolist(), strict=True))
    for i in stage:
        for operand in plan.steps[i].writes:
            b = plan.buffers[operand.buffer]
            known = isinstance(b.nbytes, int) or b.nbytes.symbols <= env.keys()
            if b.home is Home.OUTPUT and known:
                sizes[b.number] = evaluate(b.nbytes, env)
    total = bound.nbytes + sum(n for m, n in sizes.items() if plan.buffers[m].home is Home.OUTPUT)
    if total > limit:
        largest = max(sizes, key=sizes.__getitem__)
        step = plan.steps[plan.births[largest]]
        raise OutOfMemoryError(
            f"node {step.label} ({step.kind}) would make {plan.buffers[largest].name} with "
            f"{sizes[largest]:,} bytes, and {total:,} would be in use; {limit:,} are available"
        )


class CpuExecutor:
    """Runs one graph at any legal sizes; any number of threads may call it at once.

    Attributes:
        graph: what runs.
        threads: how many threads work on one call.
        strict: whether kernels that are less exact than a sum of products are left out.
        library: the kernels.
    """

    def __init__(
        self,
        graph: Graph,
        library: NativeLibrary,
        threads: int = 1,
        options: PlanOptions | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.graph, self.threads, self.strict = graph, threads, strict
        self.library, self._options = library, options or PlanOptions()
        self._skeletons: dict[Graph, Skeleton] = {}
        self._bound: dict[tuple[Any, ...], BoundStage] = {}
        self._blocks: list[Array] = []
        self._lock = Lock()
        self.skeleton(graph)

    def skeleton(self, graph: Graph | None = None) -> Skeleton:
        """Return the plan with kernels of the graph, or of a variant of it."""
        graph = graph or self.graph
        with self._lock:
            found = self._skeletons.get(graph)
        if found is None:
            plan = plan_graph(graph, CpuTarget(), self._options)
            found = Skeleton(plan, self.library, self._options, strict=self.strict)
            with self._lock:
                found = self._skeletons.setdefault(graph, found)
        return found

    def eval(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Run the graph: see `kn_runtime.PreparedGraph.eval`."""
        call = open_call(self.graph, inputs, dims)
        return _Evaluation(self, self.skeleton(call.graph), call.env, seed).outputs(call.arrays)

    def bound(self, skeleton: Skeleton, index: int, env: Mapping[Symbol, int]) -> BoundStage:
        """Return a stage for numbers of its symbols, kept for the next time."""
        stage = skeleton.stages[index]
        try:
            key = (skeleton, index, *[env[s] for s in stage.symbols])
        except KeyError as error:
            raise SymbolError(
                f"the symbolic size {error.args[0].name!r} has no number, since no input shows "
                "it; give it in dims",
                name=error.args[0].name,
            ) from None
        found = self._bound.get(key)
        if found is None:
            with self._lock:
                found = self._bind(skeleton, index, env)
                while len(self._bound) >= KEPT_BINDINGS:
                    del self._bound[next(iter(self._bound))]
                self._bound[key] = found
        return found

    def _bind(self, skeleton: Skeleton, index: int, env: Mapping[Symbol, int]) -> BoundStage:
        try:
            found = bind_stage(skeleton, skeleton.stages[index], env)
        except OverflowError:
            raise OutOfMemoryError(
                "the sizes of this call are too large for any memory: a tensor has more than "
                "2^63 bytes"
            ) from None
        check_memory(skeleton.plan, found, skeleton.plan.stages[index], env)
        return found

    @contextmanager
    def block(self, nbytes: int) -> Iterator[Array]:
        """Lend memory for one run; what is in it does not matter."""
        with self._lock:
            fitting = [a for a in self._blocks if a.size >= nbytes]
            found = fitting[0] if fitting else None
            if found is not None:
                self._blocks = [a for a in self._blocks if a is not found]
        lent = aligned(round_up(nbytes)) if found is None else found
        try:
            yield lent
        finally:
            with self._lock:
                self._blocks = [a for a in self._blocks if a.size >= lent.size][:KEPT_BLOCKS]
                self._blocks.append(lent)


class _Evaluation(RunContext):
    """One run of a plan."""

    def __init__(
        self, executor: CpuExecutor, skeleton: Skeleton, env: Mapping[Symbol, int], seed: int
    ) -> None:
        super().__init__(dict(env), seed)
        self.executor, self.skeleton, self.plan = executor, skeleton, skeleton.plan
        self.memory: dict[int, Array] = {}  # of the caller, and what is as large as a step finds
        self.stages: list[tuple[BoundStage, Array]] = []
        self.objects: dict[int, Any] = {}
        self.pending: list[Constraint] = []

    def outputs(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Run all stages and return the results by name."""
        for number, x in zip(self.plan.inputs, inputs, strict=True):
            if self.plan.buffers[number].dtype is None:
                self.objects[number] = x
            else:
                self.memory[number] = as_bytes(x)
        for number, array in self.plan.constants.items():
            if number not in self.skeleton.constants:
                self.objects[number] = array
        graph = self.plan.graph
        check_guards(graph, self.env)
        self.pending = check_constraints(graph.constraints, self.env)
        with ExitStack() as stack:
            for index in range(len(self.skeleton.stages)):
                bound = self.executor.bound(self.skeleton, index, self.env)
                block = stack.enter_context(self.executor.block(bound.nbytes))
                self.stages.append((bound, block))
                self._stage(bound, block)
            return {name: self._result(o) for name, o in self.plan.outputs.items()}

    def _stage(self, bound: BoundStage, block: Array) -> None:
        runs = iter(bound.runs)
        bound.clear_status(block)
        for segment in bound.stage.segments:
            if isinstance(segment, NativeRun):
                self._native(next(runs), block)
                bound.check_status(block, self.env)
            else:
                self._host(segment.step)

    # ---- memory -----------------------------------------------------------------------------

    def _base(self, number: int) -> tuple[Array, int]:
        """Return the memory of a buffer, and where it begins there."""
        home = self.skeleton.homes[number]
        if home >= 0:
            bound, block = self.stages[home]
            return block, int(bound.places[self.skeleton.roots[number]])
        found = self.memory.get(number)
        if found is None:
            found = self.skeleton.constants.get(number)
        return (self._result_memory(number) if found is None else found), 0

    def _result_memory(self, number: int) -> Array:
        """Return fresh memory for what the caller gets, or for what became known while it ran."""
        b = self.plan.buffers[number]
        nbytes = evaluate(b.nbytes, self.env)
        if nbytes > available_bytes():
            raise OutOfMemoryError(
                f"{b.name} would take {nbytes:,} bytes; {available_bytes():,} are available"
            )
        made = self.memory[number] = np.empty(nbytes, np.uint8)
        return made

    def _view(self, operand: Operand) -> Array:
        b = self.plan.buffers[operand.buffer]
        assert b.dtype is not None
        layout: Any = operand.layout.at(self.env)
        if 0 in layout.sizes:
            return np.empty(layout.sizes, b.dtype.numpy)
        size = b.dtype.numpy.itemsize
        strides = [s * size for s in layout.strides]
        base, start = self._base(operand.buffer)
        start += layout.offset * size
        return np.ndarray(layout.sizes, b.dtype.numpy, base.data, start, strides)

    def _read(self, operand: Operand) -> Any:
        if self.plan.buffers[operand.buffer].dtype is None:
            return self.objects[operand.buffer]
        return self._view(operand)

    def _result(self, operand: Operand) -> Any:
        x = self._read(operand)
        if operand.buffer in self.objects:
            return owned(x)
        home = self.plan.buffers[operand.buffer].home
        alone = sum(o.buffer == operand.buffer for o in self.plan.outputs.values()) == 1
        if home is Home.OUTPUT and alone and x.flags.c_contiguous and x.dtype != object:
            return x  # nobody else has it
        return np.array(x, order="C")

    # ---- steps ------------------------------------------------------------------------------

    def _native(self, run: BoundRun, block: Array) -> None:
        elsewhere = [self._address(b) for b in run.run.elsewhere_buffers]
        run(block.ctypes.data, elsewhere, self.executor.threads)

    def _address(self, number: int) -> int:
        base, start = self._base(number)
        return base.ctypes.data + start

    def _host(self, step: Step) -> None:
        try:
            results = self._computed(step)
        except KnError as error:
            error.add_context(f"node {step.label} ({step.kind})")
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"node {step.label} ({step.kind}): {error}") from error
        for operand, result in zip(step.writes, results, strict=True):
            self._write(operand, result)

    def _computed(self, step: Step) -> list[Any]:
        reads = [self._read(o) for o in step.reads]
        results: list[Any] = []
        if step.node is not None:
            out = step.node.op.eval(self, *reads)
            results = list(out) if isinstance(out, tuple) else [out]
            self._bind_results(step, results)
        if step.program is not None:
            extras = [self._read(o) for o in step.extras]
            arrays = [np.asarray(r) for r in results] + extras
            results = [np.array(r) for r in step.program.evaluate(self, arrays)]
        return results

    def _write(self, operand: Operand, result: Any) -> None:
        b = self.plan.buffers[operand.buffer]
        if b.dtype is None:
            self.objects[operand.buffer] = result
            return
        target, result = self._view(operand), np.asarray(result)
        if result.dtype != target.dtype or result.shape != target.shape:
            raise InternalError(
                f"a step gave {result.dtype}{list(result.shape)} for {b.name}, expected "
                f"{target.dtype}{list(target.shape)}. Please report this."
            )
        np.copyto(target, result)

    def _bind_results(self, step: Step, results: Sequence[Any]) -> None:
        assert step.node is not None
        self.bind_shapes(step.node, results)
        if step.binds and self.pending:
            self.pending = check_constraints(self.pending, self.env, f"node {step.label}: ")

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body on its own plan."""
        env = bind_symbols(body.inputs, list(inputs), self.env)
        run = _Evaluation(self.executor, self.executor.skeleton(body), env, self.seed)
        return list(run.outputs(inputs).values())
