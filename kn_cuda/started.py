"""Runs that the device has been asked for, and that nobody has waited for yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_cuda.evaluation import Evaluation
from kn_cuda.staging import Staged
from kn_cuda.steady import placed_outputs
from kn_graph.random_bits import RandomStreams

if TYPE_CHECKING:
    from kn_cuda.executor import CudaExecutor, Ready

__all__ = ["StartedRun"]

Array = np.ndarray[Any, Any]


class _Starting(Evaluation):
    """A run that waits for nothing: what it uploads is read from pinned memory, later."""

    def __init__(self, executor: CudaExecutor, ready: Ready, streams: RandomStreams) -> None:
        super().__init__(executor, ready, streams)
        self.pinned: list[Array] = []

    def _write(self, address: int, array: Array) -> None:
        pinned = self.backend.pinned(array.nbytes)
        pinned[...] = array.reshape(-1).view(np.uint8)
        self.pinned.append(pinned)
        super()._write(address, pinned)


class StartedRun:
    """A run of a plan that is steady: inputs are read, all is asked for, results are on their way.

    Its block may be lent at once to later runs, since the device does one thing after another.
    """

    def __init__(
        self, executor: CudaExecutor, ready: Ready, inputs: Sequence[Any], streams: RandomStreams
    ) -> None:
        """Start.

        Args:
            executor: what runs.
            ready: its plan, which is steady.
            inputs: arrays of the host or of the device.
            streams: random numbers of the run.
        """
        self._places, self._env = ready.first.memory, ready.env
        self._backend = executor.backend
        self._run = run = _Starting(executor, ready, streams)
        run.take(inputs)
        block = executor.blocks.take(self._places.nbytes)
        try:
            self._results = Staged(executor, placed_outputs(executor, run))
            run.enqueue(ready.first, block)
            self._told = self._backend.pinned(self._places.status_bytes)
            if self._places.statuses:
                self._backend.fetch(block.address + self._places.status, self._told)
                executor.proof.downloads += self._told.nbytes
            self._results.begin()
            self._end = self._backend.mark()
        finally:
            executor.blocks.give(block)

    def finish(self) -> dict[str, Array]:
        """Wait, and return the outputs by name, which the caller owns.

        Raises:
            KnError: a kernel found something wrong in the data.
        """
        self._backend.wait(self._end)
        self._places.check_status(self._told, self._env)
        return {name: x.copy() for name, x in self._results.views.items()}
