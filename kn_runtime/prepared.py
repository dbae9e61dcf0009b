"""Graphs that are ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from kn_graph.binding import check_inputs
from kn_graph.bound_call import BoundCall, check_stays, repeated
from kn_graph.errors import UsageError
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import cpu_eval_graph, eval_drawing
from kn_graph.variants import symbols_by_name
from kn_runtime.batching import Batcher
from kn_runtime.executors import Executor, executor_for
from kn_runtime.filling import declared_shapes, filled
from kn_runtime.options import PrepareOptions, usable_cpus
from kn_runtime.overview import CacheInfo, html_table, line, rows, text_table
from kn_runtime.pending import PendingEval, Pool, begun

if TYPE_CHECKING:
    from kn_cpu.executor import CpuExecutor
    from kn_cpu.profile import Profile
    from kn_cuda.executor import CudaExecutor
    from kn_cuda.profile import Profile as CudaProfile
    from kn_graph.graph import Graph
    from kn_plan.plan import Plan
    from kn_plan.report import MemoryReport
    from kn_runtime.device import Device
    from kn_runtime.load import Recipe

__all__ = ["PreparedGraph"]


class PreparedGraph:
    """A graph made ready for one device.

    Thread-safe: each call has state of its own.

    Attributes:
        graph: what runs.
        device: where.
        dims: numbers of symbolic sizes given when it was prepared.
        options: how it was prepared.
        recipe: how to load it again, if it came from a file: what `pickle` writes.
    """

    def __init__(
        self, graph: Graph, device: Device, dims: Mapping[str, int] | None, options: PrepareOptions
    ) -> None:
        symbols_by_name(graph, dims)  # refuses names that the graph does not have
        self.graph, self.device, self.options = graph, device, options
        self.dims = dict(dims or {})
        self.recipe: Recipe | None = None
        self._closed = False
        self._executor = executor_for(graph, device, options)
        if self._executor is None and options.memory_limit is not None:
            raise UsageError("memory_limit needs a plan, and the reference runs without one")
        self._batcher: Batcher | None = None
        self._pool = Pool(max(1, usable_cpus() // max(1, options.worker_threads)))

    def __copy__(self) -> Self:
        """Return itself: calls do not change it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Tell `pickle` to load the file again, such as in another process.

        Raises:
            UsageError: it did not come from a file.
        """
        if self.recipe is None:
            raise UsageError(
                "a prepared graph is pickled as the path of its file, and this one has none; "
                "load it by path, or in each process"
            )
        return self.recipe.load, ()

    def eval(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
        on_device: bool = False,
    ) -> dict[str, Any]:
        """Run the graph.

        Args:
            inputs: arrays by name, or a list in the graph's order. Element types must match
                exactly; strides may be any. NumPy, and anything with DLPack; a GPU takes arrays
                that lie there already where they are.
            dims: numbers of symbolic sizes that no input shows.
            seed: of random operations.
            on_device: leave outputs on the GPU, as inputs of other calls or for other libraries
                by DLPack; `numpy()` of one brings it to the host. The CPU's are there anyway.

        Returns:
            {output name: value} in output order: arrays that the caller owns (of rank 0, too),
            lists for sequences, dicts for maps, None for an empty optional.

        Raises:
            InputError: an input is missing, unknown, or has a wrong type or size.
            ExecutionError: a value breaks the rule of an operator.
            OutOfMemoryError: it would need more memory than there is.
            UsageError: the prepared graph is closed.
        """
        executor = self._executor  # before the look, since another thread may close meanwhile
        if self._closed:
            self._refuse()
        known = {**self.dims, **dims} if dims else self.dims
        cuda = self._on_cuda(executor) if on_device else None
        if cuda is not None:
            return cuda.eval(inputs, known, seed=seed, on_device=True)
        if executor is not None:
            return executor.eval(inputs, known, seed=seed)
        return cpu_eval_graph(self.graph, inputs, known, seed=seed)

    def eval_async(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> PendingEval:
        """Begin to run the graph, and do not wait for it.

        A GPU is asked for everything before this returns, so that it has the next run while one
        waits for the last; only waiting, and what the host has to do, is left to another thread.
        Other devices run in one.

        Args:
            inputs: as for `eval`; the caller leaves them alone until the outputs are there.
            dims: numbers of symbolic sizes that no input shows.
            seed: of random operations.

        Returns:
            A `concurrent.futures.Future` of what `eval` returns, or raises; `await` takes it, too.

        Raises:
            UsageError: the prepared graph is closed.
        """
        executor = self._executor
        if self._closed:
            self._refuse()
        cuda = self._on_cuda(executor)
        if cuda is None:
            return self._pool.submit(lambda: self.eval(inputs, dims, seed=seed))
        known = {**self.dims, **dims} if dims else self.dims
        return self._pool.submit(begun(lambda: cuda.start(inputs, known, seed=seed)))

    def eval_many(
        self,
        calls: Sequence[Mapping[str, Any] | Sequence[Any]],
        dims: Mapping[str, int] | None = None,
        *,
        max_batch: int | None = None,
        seed: int = 0,
    ) -> list[dict[str, Any]]:
        """Run the graph on several sets of inputs, joined along its batch axis.

        Calls whose other sizes are equal become one, which is quicker than one after another. This
        is right for models that treat rows by themselves, as nearly all do; a normalisation over
        the batch would see other rows. Results may differ from those of single calls in their last
        digits.

        Args:
            calls: for each, inputs as for `eval`, of any number of rows.
            dims: numbers of symbolic sizes that no input shows.
            max_batch: how many rows are joined at most.
            seed: of random operations.

        Returns:
            Outputs for each call, in order, as `eval` returns them.

        Raises:
            UsageError: first axes of inputs and outputs are not one symbolic size.
            InputError: as `eval`.
        """
        if self._closed:
            self._refuse()
        if self._batcher is None:
            self._batcher = Batcher(self.graph)
        return self._batcher.eval(calls, lambda x: self.eval(x, dims, seed=seed), max_batch)

    def warmup(
        self,
        *calls: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
    ) -> None:
        """Make ready for sizes, so that the first call with them takes no longer than later ones.

        ```python
        prepared.warmup({"x": (1, 3, 224, 224)}, {"x": (8, 3, 224, 224)})
        ```

        Args:
            calls: inputs as for `eval`; a tuple of numbers stands for zeros of that shape. None:
                the sizes that the graph was prepared for.
            dims: numbers of symbolic sizes that no input shows.

        Raises:
            InputError: as `eval`.
        """
        known = {**self.dims, **(dims or {})}
        for call in calls or [declared_shapes(self.graph, known)]:
            self.eval(filled(self.graph, call), dims)

    def bind(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
        state: Mapping[str, str] | None = None,
        on_device: bool = False,
    ) -> BoundCall:
        """Run the graph once, and return what runs it again on the same arrays.

        The quickest way to run a small graph many times: nothing is looked up, checked or
        allocated any more.

        ```python
        call = prepared.bind({"x": x})
        x[...] = next_one
        call.run()
        use(call.outputs["y"])
        ```

        Args:
            inputs: NumPy arrays in row-major order, by name, or a list in the graph's order; for a
                GPU also arrays that lie there.
            dims: numbers of symbolic sizes that no input shows.
            seed: of random operations, which go on drawing from run to run.
            state: the input that an output becomes for the next run, by the output's name; it
                does not leave the GPU.
            on_device: leave outputs on the GPU, in the same places for each run.

        Raises:
            InputError: as `eval`; or an array would have to be copied.
            UsageError: state does not fit; or the device is no GPU, and state is asked for.
        """
        executor = self._executor
        if self._closed:
            self._refuse()
        known = {**self.dims, **dims} if dims else self.dims
        cuda = self._on_cuda(executor)
        if cuda is not None:
            return cuda.bind(inputs, known, seed=seed, state=state, on_device=on_device)
        if state:
            raise UsageError("state of bound calls needs a GPU; copy outputs to inputs instead")
        if executor is not None:
            return executor.bind(inputs, known, seed=seed)
        arrays = list(check_inputs(self.graph, inputs).values())
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
        check_stays(self.graph.inputs, arrays, given)
        streams = RandomStreams(seed)
        return repeated(lambda: eval_drawing(self.graph, inputs, known, streams))

    @property
    def plan(self) -> Plan | None:
        """The steps that run, over symbolic sizes; None on the reference, which has none."""
        executor = self._executor
        return None if executor is None else executor.skeleton().plan

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def cache_info(self) -> CacheInfo:
        """Return how many plans are bound to sizes, and how often calls found theirs.

        Raises:
            UsageError: the reference runs, which has no plan.
        """
        from kn_plan.recent import KEPT

        plans = self._planned("cache_info").plans
        return CacheInfo(plans.hits, plans.misses, len(plans), KEPT)

    def memory(self, dims: Mapping[str, int] | None = None) -> MemoryReport:
        """Return the bytes that a run takes.

        Args:
            dims: numbers of the symbolic sizes of the inputs, by name.

        Raises:
            SymbolError: a size has no number.
            UsageError: the reference runs, which has no plan.
        """
        from kn_plan.numbers import all_numbers
        from kn_plan.report import memory_report

        executor = self._planned("memory")
        known = {**self.dims, **(dims or {})}
        graph = self.graph.variant(symbols_by_name(self.graph, known))
        env, _ = all_numbers(graph, {n: k for n, k in known.items() if n in graph.symbols})
        return memory_report(executor.skeleton(graph).plan, env)

    def profile(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        runs: int = 20,
    ) -> Profile | CudaProfile:
        """Run the graph some times, and return how long each step takes.

        Args:
            inputs: as for `eval`.
            dims: numbers of symbolic sizes that no input shows.
            runs: over how many the medians are.

        Raises:
            InputError: as `eval`.
            UsageError: the reference runs, which has no steps.
        """
        known = {**self.dims, **(dims or {})}
        cuda = self._on_cuda(self._planned("profile"))
        if cuda is not None:
            from kn_cuda.profile import profile as profile_cuda

            return profile_cuda(cuda, inputs, known, runs=runs)
        from kn_cpu.peak import measure_peak
        from kn_cpu.profile import profile

        executor = self._on_cpu("profile")
        peak = measure_peak(executor.library, executor.threads)
        return profile(executor, inputs, peak, known, runs=runs)

    def _refuse(self) -> NoReturn:
        raise UsageError(f"{self!r} is closed; prepare the graph again")

    def _planned(self, what: str) -> Executor:
        executor = self._executor
        if self._closed:
            self._refuse()
        if executor is None:
            raise UsageError(f"{self!r} has no {what}: the reference runs it, without a plan")
        return executor

    def _on_cuda(self, executor: Executor | None) -> CudaExecutor | None:
        """Return what runs it, if that is a GPU."""
        if self.device.kind != "cuda":
            return None
        from kn_cuda.executor import CudaExecutor

        return executor if isinstance(executor, CudaExecutor) else None

    def _on_cpu(self, what: str) -> CpuExecutor:
        from kn_cpu.executor import CpuExecutor

        executor = self._planned(what)
        if not isinstance(executor, CpuExecutor):
            raise UsageError(f"{self!r} has no {what}: only the cpu has it as yet")
        return executor

    def close(self) -> None:
        """Release what the device holds for this graph. Calling it twice does nothing.

        Evaluations that have begun go on to their end; those of `eval_async` that wait raise.
        """
        self._closed = True
        self._executor = None
        self._pool.close()

    def __enter__(self) -> Self:
        """Return itself; leaving the context closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Return the graph's name, the device and how many plans there are."""
        return line(self)

    def __str__(self) -> str:
        """Return a table of inputs, outputs, sizes and plans."""
        return text_table(rows(self))

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return html_table(rows(self))
