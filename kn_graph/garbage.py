"""The collection of cyclic garbage, put off while much is built that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Put off collections until the end; also a decorator of functions.

    A graph is many small objects that all stay. The collector would look at them again and again,
    and at everything else in the process, which takes longer than to load a small model.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
