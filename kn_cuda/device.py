"""GPUs of this machine: which there are, or why none can be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kn_cuda.cupy_backend import CupyBackend
from kn_cuda.nvrtc import unavailable_reason
from kn_graph.errors import DeviceUnavailableError

__all__ = ["cuda_device", "cuda_unavailable_reasons"]


def cuda_unavailable_reasons(index: int = 0) -> tuple[str, ...]:
    """Return why a GPU cannot be used, one text for each thing that was tried; none if it can."""
    try:
        import cupy
    except (ImportError, OSError) as error:
        return (f"CuPy is not installed ({error})",)
    found = [_driver_reason(cupy, index), unavailable_reason()]
    return tuple(reason for reason in found if reason is not None)


def _driver_reason(cupy: Any, index: int) -> str | None:
    count: Callable[[], int] = cupy.cuda.runtime.getDeviceCount
    try:
        there = count()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the driver has no GPU ({error})"
    return None if index < there else f"there are {there} GPUs, and {index} is not one of them"


def cuda_device(index: int = 0) -> CupyBackend:
    """Open a GPU.

    Raises:
        DeviceUnavailableError: it cannot be used; the text lists what was tried.
    """
    reasons = cuda_unavailable_reasons(index)
    if reasons:
        raise DeviceUnavailableError(
            f"device cuda:{index} is not available: {'; '.join(reasons)}. "
            "Use 'best', 'cpu' or 'reference'.",
            reasons,
        )
    return CupyBackend(index)
