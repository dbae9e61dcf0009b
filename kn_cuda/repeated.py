"""Calls whose inputs, results and arena keep their places: the same launches, again and again.

The first run carries the plan out and notes what the device is asked for; the device makes one
graph of that, where it can, and later runs are one request. What the host has to do something for
between launches, or what lies elsewhere each time, is evaluated anew, on the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_cuda.array import DeviceArray
from kn_cuda.backend import DeviceCall, Memory
from kn_cuda.evaluation import Evaluation
from kn_cuda.proof import Proof
from kn_cuda.staging import Staged, Staging
from kn_cuda.steady import is_steady, placed_outputs
from kn_graph.errors import ExecutionError, UsageError
from kn_graph.random_bits import RandomStreams
from kn_plan.plan import Plan

if TYPE_CHECKING:
    from kn_cuda.executor import CudaExecutor, Ready
    from kn_graph.variants import Call

__all__ = ["RepeatedCall", "has_objects"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Recorded:
    """What one run asks of the device, in order.

    Attributes:
        replay: asks for it again.
        made: how many launches that are.
    """

    replay: DeviceCall
    made: Proof


class _Recording(Evaluation):
    """A run that notes what it asks of the device."""

    def __init__(self, executor: CudaExecutor, ready: Ready, streams: RandomStreams) -> None:
        super().__init__(executor, ready, streams)
        self.calls: list[DeviceCall] = []
        self.proof = Proof()

    def _do(self, call: DeviceCall) -> object:
        self.calls.append(call)
        return call()


class RepeatedCall:
    """A graph bound to inputs; not for several threads at once.

    Arrays of the device are read where they are. Arrays of the host are looked at in each run, and
    what has changed since the last one is uploaded, all at once. State is kept on the device: it is
    an output of one run and an input of the next.

    Attributes:
        inputs: what runs read, on the device, by name.
        outputs: what they write, on the device, by name: the same memory in each run.
        is_recorded: whether runs only repeat what the first one asked of the device.
    """

    def __init__(
        self,
        executor: CudaExecutor,
        call: Call,
        state: Mapping[str, str],
        streams: RandomStreams | None = None,
    ) -> None:
        """Run once.

        Args:
            executor: what runs.
            call: the graph and its inputs, of the host or of the device.
            state: the input that each output becomes, by the output's name.
            streams: of random operations, which go on drawing from run to run.

        Raises:
            UsageError: an output is no state of that input.
        """
        self._executor, self._streams = executor, streams or RandomStreams(0)
        self._ready = executor.ready(call.graph, call.env)
        self._bound = self._ready.first
        self._plan = self._ready.loaded.skeleton.plan
        self._block: Memory | None = None
        names = [v.name for v in call.graph.inputs]
        given = dict(zip(names, call.arrays, strict=True))
        self._feed = Staging(executor, {n: x for n, x in given.items() if _of_host(x)})
        own = {n: executor.copied(x) for n, x in given.items() if n in state.values()}
        self.inputs: dict[str, DeviceArray] = {**given, **self._feed.arrays, **own}
        self._feed.forget(own)
        self.outputs: dict[str, DeviceArray] = {}
        self._recorded = self._first()
        self.is_recorded = self._recorded is not None
        self._links = self._linked(state)
        self._results = Staged(executor, self.outputs)
        self._link()

    # ---- the first run ----------------------------------------------------------------------

    def _first(self) -> _Recorded | None:
        """Run, and note what is asked for where that is the same each time."""
        self._feed.upload()
        if not is_steady(self._ready):
            self._evaluate()
            return None
        run = _Recording(self._executor, self._ready, self._streams)
        run.take(list(self.inputs.values()))
        self._block = self._executor.blocks.take(self._bound.memory.nbytes)
        self.outputs = placed_outputs(self._executor, run)
        run.enqueue(self._bound, self._block)
        self._check()
        replay = self._executor.backend.capture(run.calls)
        calls = tuple(run.calls)
        self._kept = run  # memory that is in no block
        self._executor.proof.add(run.proof)
        return _Recorded(replay or partial(_one_by_one, calls), run.proof)

    # ---- state ------------------------------------------------------------------------------

    def _linked(self, state: Mapping[str, str]) -> list[tuple[DeviceArray, DeviceArray]]:
        links = []
        for output, name in state.items():
            source, target = self.outputs.get(output), self.inputs.get(name)
            if source is None or target is None:
                raise UsageError(f"state {output!r} -> {name!r}: there is no such output or input")
            if (source.dtype, source.shape) != (target.dtype, target.shape):
                raise UsageError(
                    f"state {output!r} -> {name!r}: {source.dtype}{list(source.shape)} is not "
                    f"{target.dtype}{list(target.shape)}; where sizes grow, give results of "
                    "eval(.., on_device=True) to the next call"
                )
            links.append((source, target))
        return links

    def _link(self) -> None:
        for source, target in self._links:
            self._executor.backend.copy(target.memory.address, source.memory.address, source.nbytes)

    # ---- later runs -------------------------------------------------------------------------

    def start(self) -> None:
        """Have the device run, and do not wait: what is wrong in the data shows in `finish`."""
        self._feed.upload()
        if self._recorded is None:
            self._evaluate()
        else:
            assert self._block is not None
            self._kept.draw(self._bound, self._block)
            self._recorded.replay()
            self._executor.proof.add(self._recorded.made)
            self._executor.proof.replays += 1
        self._link()

    def finish(self) -> None:
        """Wait for what was started.

        Raises:
            KnError: a kernel found something wrong in the data.
        """
        self._check()
        self._executor.backend.synchronize()

    def run(self) -> None:
        """Run on what is in the inputs now, and wait."""
        self.start()
        self.finish()

    def run_and_fetch(self) -> None:
        """Run, and bring the outputs to where `fetched` has them."""
        self.start()
        self.fetched()

    def fetched(self) -> dict[str, Array]:
        """Wait, and bring the outputs to the host: the same arrays each time."""
        self._check()
        return self._results.fetch()

    def write(self, name: str, x: Any) -> None:
        """Give an input other contents, such as state its first ones.

        Args:
            name: of the input.
            x: an array of its type and shape, of the host or of the device.
        """
        target = self.inputs[name]
        source = self._executor.copied(x)
        if (source.dtype, source.shape) != (target.dtype, target.shape):
            raise UsageError(
                f"input {name!r} is {target.dtype}{list(target.shape)}, got "
                f"{source.dtype}{list(source.shape)}"
            )
        self._executor.backend.copy(target.memory.address, source.memory.address, source.nbytes)

    def _check(self) -> None:
        """Look at what kernels tell, of a run that was recorded; others have done it."""
        memory = self._bound.memory
        if self._block is not None and memory.statuses:
            address, nbytes = self._block.address + memory.status, memory.status_bytes
            told = self._executor.backend.read(address, nbytes)
            self._executor.proof.downloads += nbytes
            memory.check_status(told, self._ready.env)

    def _evaluate(self) -> None:
        """Run in the ordinary way, and copy results to where they were."""
        run = Evaluation(self._executor, self._ready, self._streams)
        found = run.outputs(list(self.inputs.values()), range(len(self._plan.outputs)))
        if not self.outputs:
            kinds = {n: (x.dtype, x.shape) for n, x in found.items()}
            self.outputs = self._executor.arrays(kinds)
        for name, x in found.items():
            place = self.outputs[name]
            if x.shape != place.shape:
                raise ExecutionError(
                    f"output {name!r} has shape {list(x.shape)} now, and had "
                    f"{list(place.shape)} when the call was bound; use eval"
                )
            self._executor.backend.copy(place.memory.address, x.memory.address, x.nbytes)


def has_objects(plan: Plan) -> bool:
    """Return whether an input or output is no tensor of numbers."""
    numbers = (*plan.inputs, *(o.buffer for o in plan.outputs.values()))
    return any(plan.buffers[n].dtype is None for n in numbers)


def _of_host(x: Any) -> bool:
    return not isinstance(x, DeviceArray)


def _one_by_one(calls: Sequence[DeviceCall]) -> None:
    for call in calls:
        call()
