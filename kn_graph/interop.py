"""Arrays of other libraries as NumPy's: on the same memory where that is possible.

No other library is imported; one whose arrays are given is imported already.
"""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["as_array"]

Array = np.ndarray[Any, Any]

BARE: dict[str, tuple[str, Any]] = {
    "torch.bfloat16": ("int16", ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "torch.float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "torch.float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "torch.float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}
"""Element types that DLPack does not hand to NumPy: what PyTorch shows their bits as, and ours."""

HOST_KINDS = (1, 3, 11)
"""DLPack's numbers of memory that the processor reads: ordinary, and pinned for CUDA or ROCm."""


def as_array(x: Any) -> Array:
    """Return anything that holds numbers or texts as a plain array, a view where possible.

    Args:
        x: a NumPy array, a number or a nested list, or what has DLPack (PyTorch, CuPy, JAX) or
            NumPy's array interface (a PIL image: [height, width, channels] of bytes).

    Raises:
        BufferError, RuntimeError, ValueError: it cannot be one; the text says what to do.
    """
    if isinstance(x, (np.ndarray, np.generic)) or not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    if getattr(x, "requires_grad", False):
        x = x.detach()
    _check_host(x)
    bare = BARE.get(str(getattr(x, "dtype", "")))
    if bare is None:
        return np.from_dlpack(x)
    bits, dtype = bare
    return np.from_dlpack(x.view(getattr(sys.modules["torch"], bits))).view(dtype)


def _check_host(x: Any) -> None:
    kind, index = x.__dlpack_device__()
    if int(kind) not in HOST_KINDS:
        name = type(x).__module__.partition(".")[0]
        how = {"torch": "x.cpu()", "cupy": "x.get()"}.get(name, "a copy on the host")
        raise BufferError(
            f"the array lies on another device (DLPack kind {int(kind)}, number {index}); "
            f"nothing is copied silently; give {how}"
        )
