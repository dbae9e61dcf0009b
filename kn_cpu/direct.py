"""Calls of graphs that are one native run: nothing is left to decide, only arrays to check.

Most graphs are such. Their calls go through `kn_call`, a small module in C (see
`native/python/call.c`); where Python's headers were missing when the package was built, through
`PlainCall`, which does the same, slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np

from kn_cpu.bound import BoundRun, BoundStage, Frame
from kn_cpu.memory import Block
from kn_cpu.native import FOLDER, NativeLibrary
from kn_cpu.native.build import EXTENSION
from kn_cpu.program import NativeRun, Skeleton
from kn_cpu.trial import ThreadTrial
from kn_graph.bound_call import BoundCall
from kn_graph.dim import Symbol
from kn_graph.dtype import DType
from kn_graph.errors import OutOfMemoryError
from kn_plan.layout import StridedLayout
from kn_plan.plan import Home

__all__ = ["DirectCall", "is_direct"]

Array = np.ndarray[Any, Any]
T = TypeVar("T")


def is_direct(skeleton: Skeleton) -> bool:
    """Return whether a call is one native run that writes results into arrays of their own."""
    plan = skeleton.plan
    segments = [s for stage in skeleton.stages for s in stage.segments]
    if len(skeleton.stages) != 1 or len(segments) != 1 or not isinstance(segments[0], NativeRun):
        return False
    if skeleton.stages[0].memory.draws:  # which numbers are next is said anew each time
        return False
    uses = Counter(o.buffer for o in plan.outputs.values())
    for operand in plan.outputs.values():
        b = plan.buffers[operand.buffer]
        whole = operand.layout == StridedLayout.contiguous(operand.layout.sizes)
        alone = uses[b.number] == 1 and b.home is Home.OUTPUT and b.numel == operand.layout.numel
        if not whole or not alone:
            return False
    tensors = all(plan.buffers[b].dtype is not None for b in plan.inputs)
    return tensors and set(segments[0].elsewhere_buffers) <= {*plan.inputs, *uses}


class _Call(Protocol):
    """What `kn_call.Call` and `PlainCall` are."""

    def run(self, arrays: list[Any], block: int) -> dict[str, Array] | None:
        """Return the results by name; None if the arrays are not what this is bound for."""

    def repeat(self) -> None:
        """Run again on the same arrays, which the caller has kept."""

    def use(self, threads: int) -> None:
        """Let this many threads work from now on."""


@dataclass(frozen=True)
class _Tensor:
    """An input or a result of a call.

    Attributes:
        name: of the result.
        dtype: of the elements.
        shape: numbers.
        places: of the pointers to it.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def format(self) -> str | None:
        """How the buffer protocol names the element type; None where it has no name."""
        return _format(self.dtype)

    def fits(self, x: Any) -> bool:
        """Return whether a kernel can read an array as it is."""
        return (
            type(x) is np.ndarray
            and x.dtype == self.dtype.numpy
            and x.shape == self.shape
            and x.flags.c_contiguous
            and x.flags.aligned
        )


@cache
def _format(dtype: DType) -> str | None:
    try:
        return np.empty(0, dtype.numpy).data.format
    except (ValueError, BufferError):
        return None


class PlainCall:
    """See `_Call`."""

    def __init__(
        self,
        bound: BoundRun,
        inputs: Sequence[_Tensor],
        outputs: Sequence[_Tensor],
        threads: int,
        kept: list[Any],
    ) -> None:
        self._frame, self._threads, self._kept = Frame(bound), threads, kept
        self._inputs, self._outputs = inputs, outputs
        order = [p for t in (*inputs, *outputs) for p in t.places]
        places = bound.run.elsewhere.tolist()
        self._order = [order.index(p) for p in places]

    def run(self, arrays: list[Any], block: int) -> dict[str, Array] | None:
        """Check, allocate, run."""
        if not all(t.fits(x) for t, x in zip(self._inputs, arrays, strict=True)):
            return None
        results = {t.name: np.empty(t.shape, t.dtype.numpy) for t in self._outputs}
        tensors = zip((*self._inputs, *self._outputs), (*arrays, *results.values()), strict=True)
        addresses = [x.ctypes.data for t, x in tensors for _ in t.places]
        self._frame(block, [addresses[i] for i in self._order], self._threads)
        return results

    def repeat(self) -> None:
        """Run on the same arrays."""
        self._frame.again(self._threads)

    def use(self, threads: int) -> None:
        """Let this many threads work from now on."""
        self._threads = threads


@cache
def _extension() -> Any:
    """Return the module for quick calls, or None if it was not built or does not load."""
    path = FOLDER / EXTENSION
    if not path.exists():
        return None
    loader = ExtensionFileLoader("kn_call", str(path))
    spec = spec_from_loader("kn_call", loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return None
    return module


def _make_call(
    library: NativeLibrary,
    bound: BoundRun,
    inputs: Sequence[_Tensor],
    outputs: Sequence[_Tensor],
    threads: int,
    kept: list[Any],
) -> _Call:
    """Return a call that keeps some objects: kernels know only where they are in memory."""
    module = _extension()
    if module is None or any(t.format is None for t in inputs):
        return PlainCall(bound, inputs, outputs, threads, kept)
    pointers = bound.pointers.copy()
    addresses = [x.ctypes.data for x in (bound.steps, bound.numbers, pointers)]
    made: _Call = module.Call(
        run=library.run_address,
        steps=addresses[0],
        count=len(bound.steps),
        numbers=addresses[1],
        pointers=addresses[2],
        threads=threads,
        arena=tuple(bound.run.arena.tolist()),
        inputs=tuple((t.name, t.format, t.shape, t.dtype.numpy, t.places) for t in inputs),
        outputs=tuple((t.name, "", t.shape, t.dtype.numpy, t.places) for t in outputs),
        array_type=np.ndarray,
        empty=np.empty,
        kept=(bound, pointers, kept),
    )
    return made


class DirectCall:
    """A graph for concrete sizes; several threads may call at once.

    Attributes:
        nbytes: of the memory that a run needs.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        bound: BoundStage,
        env: Mapping[Symbol, int],
        shapes: Sequence[tuple[int, ...]],
        threads: int,
    ) -> None:
        self.nbytes = bound.memory.nbytes
        self._bound, self._env = bound, env
        self._skeleton, (self._run,) = skeleton, bound.runs
        self._checked, self._trial = bool(bound.memory.statuses), ThreadTrial(threads)
        self._calls: list[_Call] = []
        plan, places = skeleton.plan, _places(self._run.run)

        def tensor(name: str, buffer: int, shape: tuple[int, ...]) -> _Tensor:
            dtype = plan.buffers[buffer].dtype
            assert dtype is not None
            return _Tensor(name, dtype, shape, tuple(places.get(buffer, ())))

        self._inputs = [tensor("", b, shape) for b, shape in zip(plan.inputs, shapes, strict=True)]
        self._outputs = [
            tensor(name, o.buffer, tuple(bound.numbers[r.start : r.stop].tolist()))
            for (name, o), r in zip(plan.outputs.items(), bound.stage.result_sizes, strict=True)
        ]

    def __call__(self, arrays: list[Any], block: Block) -> dict[str, Array] | None:
        """Run on arrays, with memory of at least `nbytes`.

        Returns:
            The results by name; None if the arrays are not what this is bound for.

        Raises:
            KnError: a kernel found something wrong in the data.
        """
        try:
            call = self._calls.pop()
        except IndexError:
            call = self._make()
        if self._checked:
            self._bound.clear_status(block.data)
        try:
            if self._trial.open:
                results = self._timed(call, partial(call.run, arrays, block.address))
            else:
                results = call.run(arrays, block.address)
        except MemoryError as error:
            raise OutOfMemoryError(f"no memory for the results of a run: {error}") from None
        self._calls.append(call)
        if self._checked and results is not None:
            self._bound.check_status(block.data, self._env)
        return results

    def bind(self, arrays: list[Any]) -> BoundCall | None:
        """Return a call on these arrays, or None if they are not what this is bound for."""
        block, kept = Block(self.nbytes), list[Any]()
        call = self._make(kept)
        results = call.run(arrays, block.address)
        if results is None:
            return None
        while self._trial.open:
            self._timed(call, call.repeat)
        kept += [block, *arrays, *results.values()]  # the caller may keep `run` alone
        return BoundCall(results, self._checking(call, block) if self._checked else call.repeat)

    def _timed(self, call: _Call, run: Callable[[], T]) -> T:
        """Run, as a part of finding out how many threads are worth it."""
        call.use(self._trial.threads)
        start = perf_counter()
        results = run()
        self._trial.note(perf_counter() - start)
        call.use(self._trial.threads)
        return results

    def _checking(self, call: _Call, block: Block) -> Callable[[], None]:
        def run() -> None:
            self._bound.clear_status(block.data)
            call.repeat()
            self._bound.check_status(block.data, self._env)

        return run

    def _make(self, kept: list[Any] | None = None) -> _Call:
        """Return a call, which keeps the weights, and what is added to `kept`."""
        kept = [] if kept is None else kept
        kept.append(self._skeleton)
        return _make_call(
            self._skeleton.library, self._run, self._inputs, self._outputs,
            self._trial.threads, kept,
        )  # fmt: skip


def _places(run: NativeRun) -> dict[int, list[int]]:
    """Return the pointers to each buffer outside of the arena."""
    places: dict[int, list[int]] = {}
    for place, buffer in zip(run.elsewhere.tolist(), run.elsewhere_buffers, strict=True):
        places.setdefault(buffer, []).append(place)
    return places
