"""Runs planned graphs on native kernels; what has none runs on the reference, counted and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import numpy as np

from kn_cpu.memory import aligned, as_bytes
from kn_cpu.native import NativeLibrary
from kn_cpu.program import BoundRun, BoundStage, HostStep, NativeRun, Skeleton
from kn_cpu.target import CpuTarget
from kn_graph.binding import bind_symbols
from kn_graph.dim import Size, Symbol, SymbolKind, evaluate
from kn_graph.dim_facts import Constraint
from kn_graph.errors import InternalError, KnError, OutOfMemoryError, SymbolError
from kn_graph.graph import Graph
from kn_graph.memory import available_bytes
from kn_graph.random_bits import random_bits
from kn_graph.reference import bind_size, check_constraints, owned, reference_outputs
from kn_graph.types import TensorType
from kn_graph.variants import check_guards, open_call
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
    sizes = dict(zip(bound.members, bound.allocation.sizes.tolist(), strict=True))
    for i in stage:
        for operand in plan.steps[i].writes:
            b = plan.buffers[operand.buffer]
            known = isinstance(b.nbytes, int) or b.nbytes.symbols <= env.keys()
            if b.home is Home.OUTPUT and known:
                sizes[b.number] = evaluate(b.nbytes, env)
    total = bound.allocation.total + sum(
        n for m, n in sizes.items() if plan.buffers[m].home is Home.OUTPUT
    )
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
        library: the kernels.
    """

    def __init__(
        self,
        graph: Graph,
        library: NativeLibrary,
        threads: int = 1,
        options: PlanOptions | None = None,
    ) -> None:
        self.graph, self.threads = graph, threads
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
            found = Skeleton(plan, self.library, self._options)
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
            try:
                found = skeleton.bind(stage, env)
            except OverflowError:
                raise OutOfMemoryError(
                    "the sizes of this call are too large for any memory: a tensor has more than "
                    "2^63 bytes"
                ) from None
            check_memory(skeleton.plan, found, skeleton.plan.stages[index], env)
            with self._lock:
                while len(self._bound) >= KEPT_BINDINGS:
                    del self._bound[next(iter(self._bound))]
                self._bound[key] = found
        return found

    @contextmanager
    def block(self, nbytes: int) -> Iterator[Array]:
        """Lend memory for one run; what is in it does not matter."""
        with self._lock:
            fitting = [a for a in self._blocks if a.size >= nbytes]
            found = fitting[0] if fitting else None
            if found is not None:
                self._blocks = [a for a in self._blocks if a is not found]
        lent = aligned(nbytes) if found is None else found
        try:
            yield lent
        finally:
            with self._lock:
                self._blocks = [a for a in self._blocks if a.size >= lent.size][:KEPT_BLOCKS]
                self._blocks.append(lent)


class _Evaluation:
    """One run; the context of the operations in it."""

    def __init__(
        self, executor: CpuExecutor, skeleton: Skeleton, env: Mapping[Symbol, int], seed: int
    ) -> None:
        self.executor, self.skeleton, self.plan = executor, skeleton, skeleton.plan
        self.env, self.seed = dict(env), seed
        self.memory: dict[int, Array] = {}  # of the caller, and what is as large as a step finds
        self.arenas: list[tuple[BoundStage, Array]] = []
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
            for index, stage in enumerate(self.skeleton.stages):
                bound = self.executor.bound(self.skeleton, index, self.env)
                block = stack.enter_context(self.executor.block(bound.allocation.total))
                self.arenas.append((bound, block))
                runs = iter(bound.runs)
                for segment in stage.segments:
                    if isinstance(segment, NativeRun):
                        self._native(next(runs), bound, block)
                    else:
                        self._host(segment)
            return {name: self._result(o) for name, o in self.plan.outputs.items()}

    # ---- memory -----------------------------------------------------------------------------

    def _base(self, number: int) -> tuple[Array, int]:
        """Return the memory of a buffer, and where it begins there."""
        found = self.memory.get(number)
        if found is None:
            found = self.skeleton.constants.get(number)
        if found is not None:
            return found, 0
        for bound, block in reversed(self.arenas):
            place = bound.places.get(number)
            if place is not None:
                return block, place
        return self._result_memory(number), 0

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

    def _native(self, run: BoundRun, bound: BoundStage, block: Array) -> None:
        pointers = run.pointers.copy()
        pointers[run.in_arena] += block.ctypes.data
        if run.buffers.size:
            bases = [self._address(b) for b in run.buffers.tolist()]
            pointers[run.elsewhere] += np.array(bases, np.int64)
        self.executor.library.run(run.steps, bound.numbers, pointers, self.executor.threads)

    def _address(self, number: int) -> int:
        base, start = self._base(number)
        return base.ctypes.data + start

    def _host(self, host: HostStep) -> None:
        step = host.step
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
            self._bind(step, results)
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

    def _bind(self, step: Step, results: Sequence[Any]) -> None:
        assert step.node is not None
        for v, x in zip(step.node.results, results, strict=True):
            if not isinstance(v.type, TensorType):
                continue
            for declared, actual in zip(v.type.shape, np.shape(x), strict=True):
                symbol = None if isinstance(declared, int) else declared.as_symbol
                if symbol is not None and symbol.kind is SymbolKind.DATA:
                    bind_size(self.env, symbol, actual)
        if step.binds and self.pending:
            self.pending = check_constraints(self.pending, self.env, f"node {step.label}: ")

    # ---- what operations ask ----------------------------------------------------------------

    def size(self, size: Size) -> int:
        """Return the number of a size."""
        return evaluate(size, self.env)

    def sizes(self, shape: Sequence[Size]) -> tuple[int, ...]:
        """Return the numbers of several sizes."""
        return tuple(evaluate(s, self.env) for s in shape)

    def bind(self, symbol: Symbol, number: int) -> None:
        """Give a data symbol its number."""
        bind_size(self.env, symbol, number)

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body."""
        return reference_outputs(body, inputs, bind_symbols(body.inputs, list(inputs), self.env))

    def random_bits(self, stream: int, count: int) -> Any:
        """Return random bits of this run."""
        return random_bits(self.seed, stream, count)
