"""Options of the CUDA executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CudaOptions", "Math"]

Math = Literal["fp32", "tf32", "fp16", "bf16"]


@dataclass(frozen=True)
class CudaOptions:
    """How graphs run on a GPU.

    Attributes:
        math: what operands of float32 products are rounded to, before they are multiplied and added
            up in float32: not at all (fp32), or to the type named.
        allow_host: run what has no kernel on the host, counted and named; else it is an error.
        threads: of a block, where a kernel leaves it open; a multiple of 32.
    """

    math: Math = "fp32"
    allow_host: bool = False
    threads: int = 256
