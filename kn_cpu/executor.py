"""Runs planned graphs on native kernels; what has none runs on the reference, counted and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from kn_cpu.bound import BoundStage, bind_stage
from kn_cpu.direct import DirectCall, is_direct
from kn_cpu.evaluation import SMALL, Evaluation, memory_limit
from kn_cpu.memory import BlockPool, dense
from kn_cpu.native import NativeLibrary
from kn_cpu.program import Skeleton
from kn_cpu.ready import Ready
from kn_cpu.target import CpuTarget
from kn_graph.bound_call import BoundCall, check_stays, repeated
from kn_graph.dim import Symbol
from kn_graph.errors import OutOfMemoryError
from kn_graph.graph import Graph
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import check_constraints
from kn_graph.variants import check_guards, open_call
from kn_plan.bound_bodies import BoundBodies
from kn_plan.bound_stages import BoundStages
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan
from kn_plan.planner import plan_graph
from kn_plan.recent import Recent

__all__ = ["CpuExecutor"]

Array = np.ndarray[Any, Any]


def check_memory(plan: Plan, bound: BoundStage, most: int | None = None) -> None:
    """Refuse a stage that does not fit into memory, before anything runs.

    Args:
        plan: of the graph.
        bound: the stage.
        most: bytes that it may take; by default, what there is.

    Raises:
        OutOfMemoryError: names the step that would make the largest result.
    """
    outputs = bound.numbers[bound.stage.output_bytes]
    total = bound.memory.nbytes + int(outputs.sum())
    if total <= (SMALL if most is None else min(most, SMALL)):
        return
    limit = memory_limit(most)
    if total > limit:
        members = (*bound.stage.memory.arena.members, *bound.stage.outputs)
        sizes = [*bound.memory.allocation.sizes.tolist(), *outputs.tolist()]
        # of several, the one that is made first
        nbytes, birth, largest = max(
            (n, -plan.births[m], m) for n, m in zip(sizes, members, strict=True)
        )
        step = plan.steps[-birth]
        raise OutOfMemoryError(
            f"node {step.label} ({step.kind}) would make {plan.buffers[largest].name} with "
            f"{nbytes:,} bytes, and {total:,} would be in use; {limit:,} are "
            f"{'available' if limit != most else 'allowed by memory_limit'}"
        )


class CpuExecutor:
    """Runs one graph at any legal sizes; any number of threads may call it at once.

    Attributes:
        graph: what runs.
        threads: how many threads work on one call.
        strict: whether kernels that are less exact than a sum of products are left out.
        tune: whether kernels are chosen by timing, where sizes are known.
        memory_limit: bytes that a call may take beside weights and inputs; None for all there are.
        library: the kernels.
        stages: plans bound to sizes.
        blocks: memory for runs.
    """

    def __init__(
        self,
        graph: Graph,
        library: NativeLibrary,
        threads: int = 1,
        options: PlanOptions | None = None,
        *,
        strict: bool = False,
        tune: bool = False,
        memory_limit: int | None = None,
    ) -> None:
        self.graph, self.threads, self.memory_limit = graph, threads, memory_limit
        self.strict, self.tune = strict, tune
        self.library, self._options = library, options or PlanOptions()
        self._skeletons: dict[Graph, Skeleton] = {}
        self._is_direct: dict[Skeleton, bool] = {}
        self._names = [v.name for v in graph.inputs]
        self._shapes_decide = not graph.assumed_values
        self._ready, self._bodies = Recent[Ready](), BoundBodies[Ready]()
        self.stages = BoundStages(partial(_bound, memory_limit))
        self.blocks = BlockPool()
        self._lock = Lock()
        self.skeleton(graph)

    @property
    def plans(self) -> Recent[Ready]:
        """What is bound to sizes, and how often it was found."""
        return self._ready

    def skeleton(self, graph: Graph | None = None) -> Skeleton:
        """Return the plan with kernels of the graph, or of a variant of it."""
        graph = graph or self.graph
        with self._lock:
            found = self._skeletons.get(graph)
        if found is None:
            plan = plan_graph(graph, CpuTarget(), self._options)
            tune = self.threads if self.tune else 0
            found = Skeleton(plan, self.library, self._options, strict=self.strict, tune=tune)
            with self._lock:
                self._is_direct[found] = is_direct(found)
                found = self._skeletons.setdefault(graph, found)
        return found

    def eval(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int | RandomStreams = 0,
    ) -> dict[str, Any]:
        """Run the graph: see `kn_runtime.PreparedGraph.eval`.

        Streams in place of a seed go on where earlier runs stopped.
        """
        arrays = self._in_order(inputs)
        key = _key(arrays, dims)
        ready = self._ready.get(key)
        if ready is not None:
            if ready.direct is not None:
                results = self._run(ready.direct, arrays)
                if results is not None:
                    return results
            elif ready.fits(arrays):
                return Evaluation(self, ready, RandomStreams.of(seed)).outputs(arrays)
        call = open_call(self.graph, inputs, dims)
        ready = self.ready(call.graph, call.arrays, call.env)
        if self._shapes_decide and arrays:
            self._ready.keep(key, ready)
        return self._evaluated(ready, call.arrays, RandomStreams.of(seed))

    def body(
        self, body: Graph, inputs: Sequence[Any], env: Mapping[Symbol, int], streams: RandomStreams
    ) -> list[Any]:
        """Run a control-flow body where some symbols have numbers already."""
        passed = self._bodies.passed(body, inputs)
        if passed is not None:
            return passed
        ready = self.body_ready(body, inputs, env)
        return list(self._evaluated(ready, inputs, streams).values())

    def body_ready(self, body: Graph, inputs: Sequence[Any], env: Mapping[Symbol, int]) -> Ready:
        """Return a control-flow body for its inputs, where some symbols have numbers already."""
        return self._bodies.at(body, inputs, env, lambda known: self.ready(body, inputs, known))

    def ready(self, graph: Graph, arrays: Sequence[Any], env: Mapping[Symbol, int]) -> Ready:
        """Return a graph for numbers of the symbols that its inputs show.

        Args:
            graph: the executor's, a variant of it, or a body.
            arrays: its inputs.
            env: the numbers.
        """
        skeleton = self.skeleton(graph)
        check_guards(graph, env)
        pending = check_constraints(graph.constraints, env)
        skeleton.plan.required.check_repeats(env)
        first, direct = self.stages.at(skeleton, 0, env), None
        if self._is_direct[skeleton]:
            shapes = [x.shape for x in arrays]
            direct = DirectCall(skeleton, first, env, shapes, self.threads)
        return Ready(skeleton, env, first, pending, direct)

    def _evaluated(
        self, ready: Ready, arrays: Sequence[Any], streams: RandomStreams
    ) -> dict[str, Any]:
        if ready.direct is None:
            return Evaluation(self, ready, streams).outputs(arrays)
        results = self._run(ready.direct, [dense(x) for x in arrays])
        assert results is not None, "these are the arrays it is made for"
        return results

    def _in_order(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
        """Return the inputs in the graph's order; none if they are not all there, or others."""
        if not isinstance(inputs, (dict, list)) or len(inputs) != len(self._names):
            return []
        if isinstance(inputs, list):
            return inputs
        try:
            return [inputs[n] for n in self._names]
        except KeyError:
            return []

    def _run(self, direct: DirectCall, arrays: list[Any]) -> dict[str, Any] | None:
        block = self.blocks.take(direct.nbytes)
        try:
            return direct(arrays, block)
        finally:
            self.blocks.give(block)

    def bind(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> BoundCall:
        """Return a call on arrays that stay: see `kn_runtime.PreparedGraph.bind`."""
        call, streams = open_call(self.graph, inputs, dims), RandomStreams(seed)
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
        check_stays(call.graph.inputs, call.arrays, given)
        if not self._shapes_decide:  # what is in an array may ask for another graph
            return repeated(lambda: self.eval(inputs, dims, seed=streams))
        ready = self.ready(call.graph, call.arrays, call.env)
        if ready.direct is None:
            return repeated(lambda: Evaluation(self, ready, streams).outputs(call.arrays))
        bound = ready.direct.bind(call.arrays)
        assert bound is not None, "these are the arrays it is made for"
        return bound


def _bound(
    most: int | None, skeleton: Skeleton, index: int, env: Mapping[Symbol, int]
) -> BoundStage:
    """Return a stage that fits into memory, of which it may take so many bytes."""
    found = bind_stage(skeleton, skeleton.stages[index], env)
    check_memory(skeleton.plan, found, most)
    return found


def _key(arrays: Sequence[Any], dims: Mapping[str, int] | None) -> tuple[Any, ...]:
    """Return what a binding is found by; what is no array has no shape, and fits none."""
    shapes = tuple([getattr(x, "shape", None) for x in arrays])
    return (*shapes, *sorted(dims.items())) if dims else shapes
