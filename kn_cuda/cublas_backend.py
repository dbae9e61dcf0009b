"""cuBLAS on a GPU by its C functions: those of CuPy refuse to be captured in graphs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import c_int, c_longlong, c_size_t, c_void_p
from typing import Any

from kn_cuda.backend import Memory
from kn_cuda.calls import Gemm
from kn_cuda.options import Math
from kn_graph.dtype import DType
from kn_graph.errors import DeviceUnavailableError, InternalError

__all__ = ["Cublas"]

NAMES = ("libcublas.so.13", "libcublas.so.12")

TYPES: Mapping[DType, int] = {
    DType.FLOAT32: 0, DType.FLOAT64: 1, DType.FLOAT16: 2, DType.BFLOAT16: 14,
}  # fmt: skip
"""`cudaDataType`."""

COMPUTE_32: Mapping[Math, int] = {"fp32": 68, "fp16": 74, "bf16": 75, "tf32": 77}
COMPUTE_64 = 70
"""`cublasComputeType_t`."""

EXACT_REDUCTION = 16
"""`CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`."""

DEFAULT_ALGORITHM = -1

WORKSPACE, NEWER_WORKSPACE = 4 << 20, 32 << 20
"""Bytes that NVIDIA advises, up to Ada and from Hopper on."""

SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetMathMode": (c_void_p, c_int),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmStridedBatchedEx": (
        c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p,
        c_void_p, c_int, c_int, c_longlong, c_void_p, c_int, c_int, c_longlong,
        c_void_p, c_void_p, c_int, c_int, c_longlong, c_int, c_int, c_int,
    ),
}  # fmt: skip


class Cublas:
    """cuBLAS for one stream; it is loaded when it is needed first. Not for several threads at once.

    Its handle and workspace stay, since graphs that were captured use them.
    """

    def __init__(self, stream: int, arch: str, allocate: Callable[[int], Memory]) -> None:
        """Remember where calls go.

        Args:
            stream: the address of the stream.
            arch: of the GPU, such as `sm_90`.
            allocate: gives memory for the workspace.
        """
        self._stream, self._allocate = stream, allocate
        self._room = NEWER_WORKSPACE if int(arch.removeprefix("sm_")) >= 90 else WORKSPACE
        self._opened: tuple[Any, c_void_p, Memory] | None = None

    def gemm(self, request: Gemm, pointers: list[int], numbers: list[int]) -> int:
        """Multiply matrices; returns how often cuBLAS is called.

        Its columns are our rows: it gets b a, turned.

        Raises:
            DeviceUnavailableError: cuBLAS is not installed.
            InternalError: it refuses the call.
        """
        library, handle, _ = self._open()
        m, n, k, a_line, b_line, c_line, *batches = numbers
        outer, *outer_steps = batches[:4]
        inner, *inner_steps = batches[4:]
        a_width, b_width = m if request.a_turned else k, k if request.b_turned else n
        lines = max(a_line, a_width), max(b_line, b_width), max(c_line, n)
        scalar = ctypes.c_double if request.dtype is DType.FLOAT64 else ctypes.c_float
        one, zero = (ctypes.byref(scalar(x)) for x in (1, 0))
        types = TYPES[request.dtype], TYPES[request.out]
        dtypes = (request.dtype, request.dtype, request.out)
        steps = [s * d.itemsize for s, d in zip(outer_steps, dtypes, strict=True)]
        for i in range(outer):
            a, b, c = (p + i * s for p, s in zip(pointers, steps, strict=True))
            status = library.cublasGemmStridedBatchedEx(
                handle, request.b_turned, request.a_turned, n, m, k, one,
                b, types[0], lines[1], inner_steps[1], a, types[0], lines[0], inner_steps[0],
                zero, c, types[1], lines[2], inner_steps[2], inner, _compute(request),
                DEFAULT_ALGORITHM,
            )  # fmt: skip
            _check(status, f"{request} of {numbers}")
        return outer

    def _open(self) -> tuple[Any, c_void_p, Memory]:
        """Return the library, a handle of our stream, and what it works in."""
        if self._opened is None:
            library, handle = _library(), c_void_p()
            _check(library.cublasCreate_v2(ctypes.byref(handle)), "a handle")
            workspace = self._allocate(self._room)
            _check(library.cublasSetStream_v2(handle, self._stream), "the stream")
            _check(library.cublasSetMathMode(handle, EXACT_REDUCTION), "exact sums")
            # or else it allocates while it is captured
            _check(
                library.cublasSetWorkspace_v2(handle, workspace.address, workspace.nbytes),
                "the workspace",
            )
            self._opened = library, handle, workspace
        return self._opened


def _compute(request: Gemm) -> int:
    if request.dtype is DType.FLOAT64:
        return COMPUTE_64
    return COMPUTE_32[request.math if request.dtype is DType.FLOAT32 else "fp32"]


def _library() -> Any:
    """Return the library that CuPy finds.

    Raises:
        DeviceUnavailableError: it finds none.
    """
    try:
        from cupy_backends.cuda.libs import cublas  # noqa: F401  loads it
    except (ImportError, OSError) as error:
        reason = f"CuPy does not find it ({error})"
        raise DeviceUnavailableError(
            f"products need cuBLAS: {reason}; install 'kn-engine[cuda12]' or 'kn-engine[cuda13]'",
            (reason,),
        ) from None
    for name in NAMES:
        try:
            library = ctypes.CDLL(name, os.RTLD_NOLOAD)
        except OSError:
            continue
        for function, arguments in SIGNATURES.items():
            getattr(library, function).argtypes = arguments
        return library
    raise InternalError(f"CuPy loads a cuBLAS that is none of {', '.join(NAMES)}")


def _check(status: int, asked: str) -> None:
    """Raise an error where cuBLAS refuses something."""
    if status:
        raise InternalError(
            f"cuBLAS refuses {asked} with status {status}, expected 0. Please report this."
        )
