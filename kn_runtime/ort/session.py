"""InferenceSession: a model on a device, called as onnxruntime's is."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kn_graph.errors import KnError, KnWarning
from kn_runtime.ort.binding import IOBinding
from kn_runtime.ort.errors import Fail, InvalidArgument, StatusError, run_error, status
from kn_runtime.ort.feeds import check_feeds, check_names
from kn_runtime.ort.metadata import ModelMetadata, NodeArg
from kn_runtime.ort.model import Model
from kn_runtime.ort.options import RunOptions, SessionOptions
from kn_runtime.ort.providers import device_of, log, log_level, next_seed, resolve
from kn_runtime.ort.reporting import Reporting
from kn_runtime.ort.trace import Trace
from kn_runtime.ort.values import OrtValue
from kn_runtime.prepared import PreparedGraph

__all__ = ["InferenceSession"]

KNOWN_ARGUMENTS = frozenset({"disabled_optimizers", "enable_fallback", "read_config_from_model"})
"""Keyword arguments that onnxruntime takes besides, and that change nothing here."""

TEXTS = frozenset(np.dtype(kind).num for kind in "OSU")
"""Numbers of NumPy's types whose elements have to be looked at each time."""

KEPT = 64
"""How many sets of input shapes are remembered as having passed all checks."""


class InferenceSession(Reporting):
    """A model that is ready to run. Any number of threads may call `run` at once."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Load a model.

        Args:
            path_or_bytes: where the file is, or what is in it.
            sess_options: see `SessionOptions`.
            providers: names of devices, the preferred first; `CPUExecutionProvider` by default.
            provider_options: options of each, such as `{"device_id": 1}`.
            kwargs: what else onnxruntime takes; unknown ones are ignored with a warning.

        Raises:
            NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented, Fail: the model cannot be
                used; the text says why.
            TypeError: an argument is of another type.
        """
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(
                "incompatible constructor arguments: sess_options is a SessionOptions, got "
                f"{sess_options!r}"
            )
        for name in kwargs.keys() - KNOWN_ARGUMENTS:
            text = f"InferenceSession: argument {name!r} is unknown and changes nothing"
            warnings.warn(text, KnWarning, stacklevel=2)
        options = SessionOptions() if sess_options is None else sess_options
        if options.log_severity_level >= 0:
            log.setLevel(log_level(options.log_severity_level))
        self._options = options
        self._providers = resolve(providers or options._providers, provider_options)
        self._started_ns = time.monotonic_ns() if options.enable_profiling else 0
        self._trace = Trace(options.profile_file_prefix) if options.enable_profiling else None
        self._load(path_or_bytes)
        self._passed: dict[tuple[Any, ...], PreparedGraph] = {}
        self._pool: ThreadPoolExecutor | None = None

    def _load(self, source: Any) -> None:
        start = time.perf_counter_ns()
        self._model = Model(source, self._options, device_of(self._providers))
        self._input_names = [d.name for d in self._model.inputs]
        self._output_names = [d.name for d in self._model.outputs]
        self._feedable = {d.name: d for d in (*self._model.inputs, *self._model.overridable)}
        if self._trace is not None:
            self._trace.add("session_initialization", start)

    # ---- facts ------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that have to be fed, in order."""
        return [d.arg for d in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, in order."""
        return list(self._model.results)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the weights that may be fed instead of what the file has."""
        return [d.arg for d in self._model.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the facts of the file."""
        return self._model.metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options that it was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the names of the devices, the one that runs the model first."""
        return [name for name, _ in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider; the CPU has none."""
        return {n: {} if n.startswith("CPU") else dict(o) for n, o in self._providers}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Name other providers of the same device.

        Raises:
            Fail: the device differs; a new session is needed for it.
        """
        wanted = resolve(providers, provider_options)
        if device_of(wanted) != device_of(self._providers):
            raise status(Fail, "set_providers: make a new session to change its device")
        self._providers = wanted

    def enable_fallback(self) -> None:
        """Accept; there is no fallback: what cannot run is an error."""

    def disable_fallback(self) -> None:
        """Accept; there is no fallback: what cannot run is an error."""

    # ---- running ----------------------------------------------------------------------------

    def run(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: which results to return, in this order; all if there are none.
            input_feed: values by name: arrays, lists of numbers or texts, OrtValues; lists for
                sequences, dicts for maps, None for an empty optional.
            run_options: see `RunOptions`.

        Returns:
            Arrays that the caller owns, lists for sequences, dicts for maps, None for an empty
            optional.

        Raises:
            ValueError: an input is missing.
            InvalidArgument: a name is unknown; a type, rank or size is wrong.
            Fail: an operator refuses a value.
            RuntimeException: there is not enough memory.
        """
        names = self._wanted(output_names)
        _check_options(run_options)
        trace = self._trace
        if trace is None:
            results = self._results(input_feed)
        else:
            start = time.perf_counter_ns()
            results = self._results(input_feed)
            trace.add("model_run", start)
        return [results[n] for n in names]

    def _results(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Return all outputs by name; what passed the checks once is not checked again."""
        key = self._key(feed)
        prepared = self._passed.get(key)
        try:
            if prepared is not None:
                return prepared.eval(feed, seed=next_seed())
            check_names(self._model.inputs, feed.keys())
            values = check_feeds(self._feedable, feed)
            prepared, results = self._model.eval(values, next_seed())
        except KnError as error:
            raise run_error(error) from error
        if self._trace is not None:
            self._trace.last = (prepared, values)
        if key and len(self._passed) < KEPT:
            self._passed[key] = prepared
        return results

    def _key(self, feed: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what decides whether arrays pass; nothing, where something else is fed."""
        if not isinstance(feed, dict) or len(feed) != len(self._input_names):
            return ()
        key: list[Any] = []
        for name in self._input_names:
            x = feed.get(name)
            if type(x) is not np.ndarray or (number := x.dtype.num) in TEXTS:
                return ()
            key += (number, x.shape)
        return tuple(key)

    def _wanted(self, output_names: Iterable[str] | None) -> list[str]:
        if isinstance(output_names, str):
            raise TypeError(
                "run(): incompatible function arguments: output_names is a list of names, got the "
                f"text {output_names!r}; write [{output_names!r}]"
            )
        if not output_names:
            return self._output_names
        names = list(output_names)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(
                    "run(): incompatible function arguments: an output name is a text, got "
                    f"{name!r}"
                )
            if name not in self._output_names:
                known = ", ".join(map(repr, self._output_names))
                text = f"Invalid output name:{name}; the model's outputs are {known}"
                raise status(InvalidArgument, text)
        return names

    def run_async(
        self,
        output_names: Iterable[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run the model in another thread, which then calls `callback(results, user_data, error)`.

        `error` is the text of what went wrong, or empty.

        Raises:
            ValueError: an input is missing.
        """
        check_names(self._model.inputs, input_feed.keys())
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "kn_runtime.ort")

        def work() -> None:
            results, error = [], ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as failure:
                error = _bare(failure)
            callback(results, user_data, error)

        self._pool.submit(work)

    def run_with_ort_values(
        self,
        output_names: Iterable[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on OrtValues, and return OrtValues; see `run`."""
        for name, value in input_dict_ort_values.items():
            if not isinstance(value, OrtValue):
                raise AttributeError(
                    f"input {name!r} is a {type(value).__name__}, not an OrtValue "
                    "(OrtValue.ortvalue_from_numpy makes one)"
                )
        results = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(x) for x in results]

    def io_binding(self) -> IOBinding:
        """Return a set of inputs and outputs to run on."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run the model on what is bound.

        Raises:
            RuntimeError: no output is bound, or what `run` refuses.
        """
        try:
            iobinding._run(run_options)
        except (StatusError, ValueError) as error:
            raise RuntimeError(f"Error in execution: {_bare(error)}") from error

    # ---- profiling --------------------------------------------------------------------------

    def get_profiling_start_time_ns(self) -> int:
        """Return when profiling began, on the monotonic clock; 0 without profiling."""
        return self._started_ns

    def end_profiling(self) -> str:
        """Write what was measured, for a viewer of Chrome traces, and return the file's name.

        Empty where `enable_profiling` was not set, or this was called before.
        """
        trace, self._trace = self._trace, None
        return "" if trace is None else trace.write()


def _check_options(run_options: RunOptions | None) -> None:
    if run_options is None:
        return
    if not isinstance(run_options, RunOptions):
        raise TypeError(
            "run(): incompatible function arguments: run_options is a RunOptions, got "
            f"{run_options!r}"
        )
    if run_options.terminate:
        raise status(Fail, "Exiting due to terminate flag being set to true.")


def _bare(error: Exception) -> str:
    """Return the text of an error without the status in front."""
    text = str(error)
    return text.split(" : ", 3)[-1] if isinstance(error, StatusError) else text
