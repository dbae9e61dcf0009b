"""SessionOptions and RunOptions: every field is accepted and kept, wrong types are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

from kn_runtime.ort.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from kn_runtime.ort.errors import NotImplemented, status
from kn_runtime.ort.reporting import Reporting

if TYPE_CHECKING:
    from kn_runtime.ort.values import OrtValue

__all__ = ["HONOURED", "RunOptions", "SessionOptions"]

HONOURED = frozenset(
    {
        "enable_profiling",
        "graph_optimization_level",
        "intra_op_num_threads",
        "log_severity_level",
        "optimized_model_filepath",
        "profile_file_prefix",
        "terminate",
    }
)
"""Fields that change something here."""


class _Options(Reporting):
    """Typed fields and named entries. Subclasses annotate their fields and give them defaults."""

    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        annotated = cls.__annotations__
        own = {n: x for n, x in vars(cls).items() if n in annotated}
        cls._defaults = {**cls._defaults, **own}

    def __init__(self) -> None:
        self.__dict__["_entries"] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; an unknown one is refused, and so is a value of another type."""
        if name not in self._defaults:
            self.__getattr__(name)
        default = self._defaults[name]
        self.__dict__[name] = _checked(f"{type(self).__name__}.{name}", default, value)

    def _entry(self, key: str) -> str:
        found: str | None = self._entries.get(key)
        if found is None:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return found

    def _add_entry(self, key: Any, value: Any) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"a configuration entry is two texts, got {key!r} and {value!r}; "
                "numbers are given as texts, such as '1'"
            )
        self._entries[key] = value


def _checked(name: str, default: Any, value: Any) -> Any:
    """Return a value as the type that a field has."""
    kind = type(default)
    try:
        if kind is bool or kind is int:
            return kind(index(value))
        if isinstance(value, kind):
            return value
        if kind is str and hasattr(value, "__fspath__"):
            return os.fspath(value)
    except TypeError:
        pass
    raise TypeError(
        f"{name} takes a {kind.__name__} (incompatible function arguments), got {value!r}"
    )


class RunOptions(_Options):
    """Options of one run. `terminate` ends runs that have not started yet with `Fail`."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; none changes anything here."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry.

        Raises:
            RuntimeError: there is none.
        """
        return self._entry(key)


class SessionOptions(_Options):
    """Options of a session. What is in `HONOURED` changes something, the rest is kept."""

    enable_cpu_mem_arena: bool = True  # memory is planned: there is no arena that grows
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0  # steps run one after another, each on all threads
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False  # results never depend on timing
    use_per_session_threads: bool = True

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_dims={}, _denotations={}, _initializers={}, _providers=[])

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; none changes anything here."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry.

        Raises:
            RuntimeError: there is none.
        """
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a symbolic size by its name (dim_param)."""
        self._dims[name] = index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the sizes of axes with a denotation, such as DATA_BATCH."""
        self._denotations[denotation] = index(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Use an array instead of the weight that the file has."""
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Use arrays instead of weights that the file refers to."""
        self._initializers.update(zip(names, values, strict=True))

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Ask for a provider, as by the argument `providers` of a session."""
        self._providers.append((name, dict(options)))

    def has_providers(self) -> bool:
        """Return whether `add_provider` was called."""
        return bool(self._providers)

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse: operators compiled for onnxruntime's C API cannot run here.

        Raises:
            NotImplemented: always.
        """
        raise status(
            NotImplemented,
            f"custom operators of {path!r} are compiled for onnxruntime and cannot run on "
            "kn-engine; write them as model-local functions of standard operators, or run this "
            "model on onnxruntime",
        )
