"""Profiles of a session as files for a viewer of Chrome traces, named as onnxruntime names them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kn_runtime.prepared import PreparedGraph

__all__ = ["Trace"]

RUNS = 5
"""Over how many runs the medians of steps are."""


class Trace:
    """What a session did when.

    Attributes:
        last: the graph of the last run and its inputs, whose steps are timed at the end.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix, self._zero = prefix, time.perf_counter_ns()
        self._events: list[dict[str, Any]] = []
        self._lock = Lock()
        self.last: tuple[PreparedGraph, Mapping[str, Any]] | None = None

    def add(self, name: str, start_ns: int) -> None:
        """Note what began at a time of `time.perf_counter_ns` and has just ended."""
        start = (start_ns - self._zero) / 1e3
        end = (time.perf_counter_ns() - self._zero) / 1e3
        with self._lock:
            self._events.append(_event("Session", name, start, end - start, {}))

    def write(self) -> str:
        """Write the file and return its name; the steps of the last run are timed for it."""
        self._add_steps()
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")[:-3]
        path = f"{self._prefix}_{stamp}.json"
        Path(path).write_text(json.dumps(self._events, indent=1), encoding="utf-8")
        return path

    def _add_steps(self) -> None:
        if self.last is None or self.last[0].plan is None:
            return
        prepared, feed = self.last
        at = (time.perf_counter_ns() - self._zero) / 1e3
        for step in prepared.profile(feed, runs=RUNS).steps:
            facts = {
                "op_name": step.kind,
                "node_index": str(step.number),
                "provider": "CPUExecutionProvider",
                "kernels": step.kernels,
                "measured": f"median of {RUNS} further runs",
            }
            name = f"{step.label}_kernel_time"
            self._events.append(_event("Node", name, at, step.time_us, facts))
            at += step.time_us


def _event(
    category: str, name: str, start_us: float, us: float, facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "cat": category,
        "pid": os.getpid(),
        "tid": threading.get_native_id(),
        "dur": round(us),
        "ts": round(start_us),
        "ph": "X",
        "name": name,
        "args": facts,
    }
