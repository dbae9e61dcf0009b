"""What a host function is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Attributes", "HostFunction"]

Attributes: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class HostFunction:
    """A function of the fixed table, by its type rule and its implementation.

    Attributes:
        infer: (ctx, attributes, *types) -> the type of the result, or a tuple of several.
        eval: (attributes, *operands) -> the result, or a tuple of several. It never changes its
            operands.
        why: why it runs on the host.
    """

    infer: Callable[..., Any]
    eval: Callable[..., Any]
    why: str
