"""Runs planned graphs on a device."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import prod
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from kn_cuda.array import DeviceArray
from kn_cuda.backend import Backend, Memory
from kn_cuda.bound import BoundStage, bind_stage
from kn_cuda.evaluation import Evaluation
from kn_cuda.options import CudaOptions
from kn_cuda.program import Skeleton
from kn_cuda.proof import Proof
from kn_cuda.repeated import RepeatedCall, has_objects
from kn_cuda.started import StartedRun
from kn_cuda.steady import is_steady
from kn_cuda.target import CudaTarget
from kn_graph.bound_call import BoundCall, check_stays, repeated
from kn_graph.dim import Symbol
from kn_graph.dim_facts import Constraint
from kn_graph.dtype import DType
from kn_graph.errors import OutOfMemoryError, UsageError
from kn_graph.graph import Graph
from kn_graph.interop import as_array
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import check_constraints
from kn_graph.variants import Call, check_guards, open_call
from kn_plan.arena import round_up
from kn_plan.bound_bodies import BoundBodies
from kn_plan.bound_stages import BoundStages
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from kn_plan.recent import Recent

__all__ = ["BlockPool", "CudaExecutor", "Loaded", "Ready"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

KEPT_BLOCKS = 4
"""How many blocks are kept for the next runs."""


class BlockPool:
    """Lends memory to runs; safe among threads, since lists are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free: list[Memory] = []
        self.allocations = 0

    def take(self, nbytes: int) -> Memory:
        """Return a block with room for some bytes; one that is too small is given up for it."""
        block = self._free.pop() if self._free else None
        if block is None or block.nbytes < nbytes:
            self.allocations += 1
            block = self._backend.allocate(round_up(nbytes))
        return block

    def give(self, block: Memory) -> None:
        """Take a block back."""
        if len(self._free) < KEPT_BLOCKS:
            self._free.append(block)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A plan whose constants are on the device and whose kernels are loaded.

    Attributes:
        skeleton: the plan.
        addresses: where constants begin, in the list of addresses; 0 for all else.
        objects: constants that are no tensors of numbers.
        memory: what keeps the constants.
    """

    skeleton: Skeleton
    addresses: Ints
    objects: Mapping[int, Any]
    memory: tuple[Memory, ...]


@dataclass(frozen=True)
class Ready:
    """A plan for numbers of the symbols that inputs show.

    Attributes:
        loaded: the plan.
        env: the numbers.
        first: its first stage.
        pending: what the graph requires of sizes that only show while it runs.
    """

    loaded: Loaded
    env: Mapping[Symbol, int]
    first: BoundStage
    pending: Sequence[Constraint]


class CudaExecutor:
    """Runs one graph at any legal sizes; any number of threads may call it at once.

    Attributes:
        graph: what runs.
        backend: the device, or the host in its place.
        options: how it runs.
        proof: what happened on the device so far.
        blocks: memory for runs.
        stages: plans bound to sizes.
    """

    evaluation: ClassVar[type[Evaluation]] = Evaluation
    """What carries a plan out."""

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        options: CudaOptions | None = None,
        plan_options: PlanOptions | None = None,
    ) -> None:
        self.graph, self.backend = graph, backend
        self.options = options or CudaOptions()
        self.proof = Proof()
        self.blocks = BlockPool(backend)
        self._plan_options = plan_options or PlanOptions()
        self._loaded: dict[Graph, Loaded] = {}
        self._bodies = BoundBodies[Ready]()
        self.stages = BoundStages(partial(_bound, backend))
        self._lock = Lock()
        self.loaded(graph)

    @property
    def plans(self) -> Recent[BoundStage]:
        """What is bound to sizes, and how often it was found."""
        return self.stages

    def loaded(self, graph: Graph | None = None) -> Loaded:
        """Return the plan with kernels and constants of the graph, or of a variant of it."""
        graph = graph or self.graph
        with self._lock:
            found = self._loaded.get(graph)
            if found is None:
                target = CudaTarget(self.backend.arch, self.options)
                plan = plan_graph(graph, target, self._plan_options)
                skeleton = Skeleton(plan, self.options, self._plan_options, target.arch)
                found = self._loaded[graph] = self._load(skeleton)
        return found

    def _load(self, skeleton: Skeleton) -> Loaded:
        """Compile kernels and upload constants."""
        plan, lowering = skeleton.plan, skeleton.lowering
        self.backend.prepare(skeleton.kernels)
        addresses = np.zeros(skeleton.addresses, np.int64)
        arrays = {
            **{skeleton.address_of_buffer(n): plan.constants[n] for n in skeleton.unpacked},
            **{1 + len(skeleton.roots) + i: array for i, array in enumerate(lowering.kept_arrays)},
        }
        memory = []
        for place, array in arrays.items():
            made = self.backend.allocate(array.nbytes)
            if array.nbytes:
                self.backend.write(made.address, np.ascontiguousarray(array))
            self.proof.uploads += array.nbytes
            addresses[place] = made.address
            memory.append(made)
        objects = {n: plan.constants[n] for n in plan.constants if plan.buffers[n].dtype is None}
        return Loaded(skeleton, addresses, objects, tuple(memory))

    def eval(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int | RandomStreams = 0,
        on_device: bool = False,
    ) -> dict[str, Any]:
        """Run the graph: see `kn_runtime.PreparedGraph.eval`.

        Streams in place of a seed go on where earlier runs stopped.
        """
        call = self.open(inputs, dims)
        stay = range(len(self.graph.outputs)) if on_device else ()
        ready = self.ready(call.graph, call.env)
        return self.evaluation(self, ready, RandomStreams.of(seed)).outputs(call.arrays, stay)

    def start(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> Callable[[], dict[str, Any]]:
        """Ask the device for a run, and return what waits for its outputs.

        Where the host takes part, nothing is begun before that.
        """
        call = self.open(inputs, dims)
        ready = self.ready(call.graph, call.env)
        if has_objects(ready.loaded.skeleton.plan) or not is_steady(ready):
            return lambda: self.eval(inputs, dims, seed=seed)
        return StartedRun(self, ready, call.arrays, RandomStreams(seed)).finish

    def open(
        self, inputs: Mapping[str, Any] | Sequence[Any], dims: Mapping[str, int] | None
    ) -> Call:
        """Check inputs as `open_call` does; what is on the device stays there.

        Args:
            inputs: arrays of the host, and what `Backend.adopt` takes.
            dims: numbers of symbolic sizes that no input shows.
        """
        if isinstance(inputs, Mapping):
            named = dict(inputs)
        else:
            if len(inputs) != len(self.graph.inputs):
                return open_call(self.graph, inputs, dims)  # which says what is wrong
            named = dict(zip((v.name for v in self.graph.inputs), inputs, strict=True))
        adopted = {name: self.backend.adopt(x) for name, x in named.items()}
        found = {name: x for name, x in adopted.items() if x is not None}
        if not found:
            return open_call(self.graph, inputs, dims)
        # the structure of some graphs depends on what is in small integer inputs
        shown = {
            name: x.numpy() if self.graph.assumed_values and x.dtype.is_int else x.stand_in()
            for name, x in found.items()
        }
        call = open_call(self.graph, {**named, **shown}, dims)
        arrays = [found.get(v.name, x) for v, x in zip(call.graph.inputs, call.arrays, strict=True)]
        return replace(call, arrays=arrays)

    def bind(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
        state: Mapping[str, str] | None = None,
        on_device: bool = False,
    ) -> BoundCall:
        """Return a call that reads the same arrays each time: see `PreparedGraph.bind`."""
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
        call, streams = self.open(inputs, dims), RandomStreams(seed)
        of_host = [(v, x) for v, x in zip(call.graph.inputs, call.arrays, strict=True)
                   if not isinstance(x, DeviceArray)]  # fmt: skip
        check_stays([v for v, _ in of_host], [x for _, x in of_host], given)
        if self.graph.assumed_values or has_objects(self.loaded(call.graph).skeleton.plan):
            if state or on_device:
                raise UsageError("state and on_device need inputs and outputs that are tensors")
            return repeated(lambda: self.eval(inputs, dims, seed=streams))
        found = RepeatedCall(self, call, state or {}, streams)
        if on_device:
            return BoundCall(found.outputs, found.run)
        return BoundCall(found.fetched(), found.run_and_fetch)

    def arrays(self, kinds: Mapping[str, tuple[DType, tuple[int, ...]]]) -> dict[str, DeviceArray]:
        """Return arrays for element types and shapes by name, in one piece of memory."""
        sizes = {n: prod(shape) * d.numpy.itemsize for n, (d, shape) in kinds.items()}
        starts = [0, *accumulate(round_up(n) for n in sizes.values())]
        block = self.backend.allocate(starts[-1])
        return {
            name: DeviceArray(
                Memory(block.address + start, sizes[name], block), *kind, self.backend
            )
            for start, (name, kind) in zip(starts, kinds.items(), strict=False)
        }

    def copied(self, x: Any) -> DeviceArray:
        """Return a copy of an array of the host or of the device, in memory of its own."""
        there = self.backend.adopt(x)
        source = as_array(x) if there is None else there
        dtype = DType.from_numpy(source.dtype) if there is None else there.dtype
        made = self.arrays({"x": (dtype, source.shape)})["x"]
        if there is not None:
            self.backend.copy(made.memory.address, there.memory.address, there.nbytes)
        elif made.nbytes:
            self.backend.write(made.memory.address, np.ascontiguousarray(source))
            self.proof.uploads += made.nbytes
        return made

    def skeleton(self, graph: Graph | None = None) -> Skeleton:
        """Return the plan with kernels of the graph, or of a variant of it."""
        return self.loaded(graph).skeleton

    def body(
        self,
        body: Graph,
        inputs: Sequence[Any],
        env: Mapping[Symbol, int],
        streams: RandomStreams,
        stay: Container[int] = (),
    ) -> list[Any]:
        """Run a control-flow body where some symbols have numbers already.

        Args:
            body: what runs.
            inputs: arrays of the host or of the device.
            env: the numbers.
            streams: random numbers of the run.
            stay: numbers of the outputs that stay on the device.
        """
        passed = self._bodies.passed(body, inputs)
        if passed is not None:
            return [x if i in stay else self._fetched(x) for i, x in enumerate(passed)]
        ready = self._bodies.at(body, inputs, env, lambda known: self.ready(body, known))
        return list(self.evaluation(self, ready, streams).outputs(inputs, stay).values())

    def _fetched(self, x: Any) -> Any:
        """Return an array of the host."""
        if not isinstance(x, DeviceArray):
            return x
        self.proof.downloads += x.nbytes
        return x.numpy()

    def ready(self, graph: Graph, env: Mapping[Symbol, int]) -> Ready:
        """Return a graph for numbers of the symbols that its inputs show.

        Args:
            graph: the executor's, a variant of it, or a body.
            env: the numbers.
        """
        loaded = self.loaded(graph)
        check_guards(graph, env)
        pending = check_constraints(graph.constraints, env)
        loaded.skeleton.plan.required.check_repeats(env)
        return Ready(loaded, env, self.stages.at(loaded.skeleton, 0, env), pending)


def _bound(
    backend: Backend, skeleton: Skeleton, index: int, env: Mapping[Symbol, int]
) -> BoundStage:
    """Return a stage that fits into the memory of a device."""
    found = bind_stage(skeleton, skeleton.stages[index], env, backend)
    nbytes, available = found.memory.nbytes, backend.available_bytes()
    if nbytes > available:
        raise OutOfMemoryError(
            f"a run needs {nbytes:,} bytes of {backend.name}, of which {available:,} are available"
        )
    return found
