"""Execution providers: onnxruntime's name for devices."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from kn_runtime.device import Device
from kn_runtime.ort.errors import loading
from kn_runtime.ort.reporting import API_VERSION

__all__ = [
    "Provider",
    "device_of",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "log_level",
    "next_seed",
    "resolve",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"

Provider = tuple[str, dict[str, str]]
"""A name and options."""

LEVELS = (5, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Levels of `logging` for severities 0 (verbose) to 4 (fatal)."""

log = logging.getLogger("kn_runtime.ort")

_seeds = [count()]


def get_all_providers() -> list[str]:
    """Return the names of all providers that there may be, the fastest first."""
    return [CUDA, CPU]


def get_available_providers() -> list[str]:
    """Return the names of those whose device is here."""
    kinds = {device.kind for device in Device.available()}
    return [CUDA, CPU] if "cuda" in kinds else [CPU]


def get_device() -> str:
    """Return `GPU` where one can be used, else `CPU`."""
    return "GPU" if CUDA in get_available_providers() else "CPU"


def get_build_info() -> str:
    """Return what this is."""
    from kn_runtime import __version__

    return f"kn-engine {__version__}, Python API of onnxruntime {API_VERSION}"


def get_version_string() -> str:
    """Return the version of onnxruntime whose API this is."""
    return API_VERSION


def has_collective_ops() -> bool:
    """Return False: nothing is distributed."""
    return False


def set_seed(seed: int) -> None:
    """Set where random operators begin; each run takes the next number."""
    _seeds[0] = count(int(seed))


def next_seed() -> int:
    """Return the seed of the next run."""
    return next(_seeds[0])


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger `kn_runtime.ort`: 0 verbose to 4 fatal.

    Raises:
        RuntimeError: the number is another.
    """
    log.setLevel(log_level(severity))


def log_level(severity: int) -> int:
    """Return the level of `logging` for a severity.

    Raises:
        RuntimeError: there is no such severity.
    """
    if severity not in range(len(LEVELS)):
        raise RuntimeError(
            f"Invalid logging severity: {severity}; it is 0 (verbose), 1 (info), 2 (warning), "
            "3 (error) or 4 (fatal)"
        )
    return LEVELS[severity]


def set_default_logger_verbosity(level: int) -> None:
    """Accept the level of debug output, of which there is none."""


def enable_telemetry_events() -> None:
    """Accept: nothing is ever sent."""


def disable_telemetry_events() -> None:
    """Accept: nothing is ever sent."""


def resolve(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> list[Provider]:
    """Return the providers to use, in order; the CPU is always the last.

    One that is not here is left out with a warning, as onnxruntime does.

    Raises:
        ValueError: names and options do not belong together.
    """
    wanted: list[Any] = [providers] if isinstance(providers, str) else list(providers or [])
    if provider_options is not None and wanted:
        if len(provider_options) != len(wanted):
            raise ValueError(
                "'providers' and 'provider_options' should be the same length if both are given: "
                f"got {len(wanted)} and {len(provider_options)}."
            )
        if not all(isinstance(p, str) for p in wanted):
            raise ValueError(
                "Only string values for 'providers' are supported if 'provider_options' is given."
            )
        wanted = list(zip(wanted, provider_options, strict=True))
    available = get_available_providers()
    found: dict[str, dict[str, str]] = {}
    for entry in wanted:
        name, options = (entry, {}) if isinstance(entry, str) else entry
        if name not in available:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(available)}'",
                UserWarning,
                stacklevel=3,
            )
        elif name in found:
            warnings.warn(
                f"Duplicate provider '{name}' encountered, ignoring.", UserWarning, stacklevel=3
            )
        else:
            found[name] = {str(k): str(v) for k, v in options.items()}
    found.setdefault(CPU, {})
    return list(found.items())


def device_of(providers: Sequence[Provider]) -> Device:
    """Return the device of the first provider.

    Raises:
        EPFail: it does not exist.
    """
    name, options = providers[0]
    with loading():
        return Device.cuda(int(options.get("device_id", 0))) if name == CUDA else Device.cpu()
