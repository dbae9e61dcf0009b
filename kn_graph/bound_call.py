"""Calls on arrays that stay: what runs again and again on changing contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.errors import ExecutionError, InputDTypeError
from kn_graph.value import Value

__all__ = ["BoundCall", "check_stays", "repeated"]


@dataclass(frozen=True)
class BoundCall:
    """A call on arrays that stay; not for several threads at once.

    Attributes:
        outputs: by name; each run writes into these arrays.
        run: runs on what is in the input arrays now; keeps all that it needs for that.
    """

    outputs: Mapping[str, Any]
    run: Callable[[], None]


def check_stays(inputs: Sequence[Value], arrays: Sequence[Any], given: Sequence[Any]) -> None:
    """Check that a call can run on the arrays of the caller themselves.

    Args:
        inputs: of the graph.
        arrays: what `kn_graph.binding.check_inputs` made of what was given.
        given: by the caller.

    Raises:
        InputDTypeError: an array would have to be copied.
    """
    for v, x in zip(inputs, arrays, strict=True):
        itself = any(x is g for g in given)
        if not itself or not (x.flags.c_contiguous and x.flags.aligned):
            raise InputDTypeError(
                f"input {v.name!r}: what is bound must be a NumPy array in row-major order, "
                "so that it need not be copied; np.ascontiguousarray makes one",
                name=v.name,
            )


def repeated(evaluate: Callable[[], Mapping[str, Any]]) -> BoundCall:
    """Return a call that evaluates, and copies results to where they were the first time.

    Args:
        evaluate: returns results by name.
    """
    outputs = evaluate()

    def run() -> None:
        for name, x in evaluate().items():
            if np.shape(x) != np.shape(outputs[name]):
                raise ExecutionError(
                    f"output {name!r} has shape {list(np.shape(x))} now, and had "
                    f"{list(np.shape(outputs[name]))} when the call was bound; use eval"
                )
            outputs[name][...] = x

    return BoundCall(outputs, run)
