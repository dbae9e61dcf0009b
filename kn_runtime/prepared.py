"""Graphs that are ready to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kn_graph.binding import check_inputs
from kn_graph.bound_call import BoundCall, check_stays, repeated
from kn_graph.errors import UsageError
from kn_graph.reference import cpu_eval_graph
from kn_graph.variants import symbols_by_name
from kn_runtime.options import PrepareOptions

if TYPE_CHECKING:
    from kn_cpu.executor import CpuExecutor
    from kn_cpu.profile import Profile
    from kn_graph.graph import Graph
    from kn_plan.plan import Plan
    from kn_plan.report import MemoryReport
    from kn_runtime.device import Device

__all__ = ["PreparedGraph"]


def planned_executor(graph: Graph, options: PrepareOptions) -> CpuExecutor | None:
    """Return the planned CPU executor of a graph; None where there are no native kernels."""
    from kn_cpu.executor import CpuExecutor
    from kn_cpu.native import library

    kernels = library()
    if kernels is None:
        return None
    threads, strict, tune = options.worker_threads, options.strict, options.tune
    return CpuExecutor(graph, kernels, threads, strict=strict, tune=tune)


class PreparedGraph:
    """A graph made ready for one device.

    Thread-safe: each call has state of its own.

    Attributes:
        graph: what runs.
        device: where.
        dims: numbers of symbolic sizes given when it was prepared.
        options: how it was prepared.
    """

    def __init__(
        self, graph: Graph, device: Device, dims: Mapping[str, int] | None, options: PrepareOptions
    ) -> None:
        symbols_by_name(graph, dims)  # refuses names that the graph does not have
        self.graph, self.device, self.options = graph, device, options
        self.dims = dict(dims or {})
        self._closed = False
        self._executor = planned_executor(graph, options) if device.kind == "cpu" else None

    def eval(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Run the graph.

        Args:
            inputs: arrays by name, or a list in the graph's order. Element types must match
                exactly; strides may be any. NumPy, and anything with DLPack.
            dims: numbers of symbolic sizes that no input shows.
            seed: of random operations.

        Returns:
            {output name: value} in output order: arrays that the caller owns (of rank 0, too),
            lists for sequences, dicts for maps, None for an empty optional.

        Raises:
            InputError: an input is missing, unknown, or has a wrong type or size.
            ExecutionError: a value breaks the rule of an operator.
            OutOfMemoryError: it would need more memory than there is.
            UsageError: the prepared graph is closed.
        """
        if self._closed:
            raise UsageError(f"{self!r} is closed; prepare the graph again")
        known = {**self.dims, **dims} if dims else self.dims
        if self._executor is not None:
            return self._executor.eval(inputs, known, seed=seed)
        return cpu_eval_graph(self.graph, inputs, known, seed=seed)

    def bind(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        dims: Mapping[str, int] | None = None,
        *,
        seed: int = 0,
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
            inputs: NumPy arrays in row-major order, by name, or a list in the graph's order.
            dims: numbers of symbolic sizes that no input shows.
            seed: of random operations.

        Raises:
            InputError: as `eval`; or an array would have to be copied.
        """
        if self._closed:
            raise UsageError(f"{self!r} is closed; prepare the graph again")
        known = {**self.dims, **dims} if dims else self.dims
        if self._executor is not None:
            return self._executor.bind(inputs, known, seed=seed)
        arrays = list(check_inputs(self.graph, inputs).values())
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
        check_stays(self.graph.inputs, arrays, given)
        return repeated(lambda: cpu_eval_graph(self.graph, inputs, known, seed=seed))

    @property
    def plan(self) -> Plan | None:
        """The steps that run, over symbolic sizes; None on the reference, which has none."""
        return None if self._executor is None else self._executor.skeleton().plan

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
    ) -> Profile:
        """Run the graph some times, and return how long each step takes.

        Args:
            inputs: as for `eval`.
            dims: numbers of symbolic sizes that no input shows.
            runs: over how many the medians are.

        Raises:
            InputError: as `eval`.
            UsageError: the reference runs, which has no steps.
        """
        from kn_cpu.peak import measure_peak
        from kn_cpu.profile import profile

        executor = self._planned("profile")
        peak = measure_peak(executor.library, executor.threads)
        return profile(executor, inputs, peak, {**self.dims, **(dims or {})}, runs=runs)

    def _planned(self, what: str) -> CpuExecutor:
        if self._closed:
            raise UsageError(f"{self!r} is closed; prepare the graph again")
        if self._executor is None:
            raise UsageError(f"{self!r} has no {what}: the reference runs it, without a plan")
        return self._executor

    def close(self) -> None:
        """Release what the device holds for this graph. Calling it twice does nothing."""
        self._closed = True
        self._executor = None

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
        """Return the graph's name and the device."""
        return f"<PreparedGraph {self.graph.name!r} on {self.device}>"
