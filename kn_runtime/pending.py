"""Evaluations that go on while the caller does something else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

__all__ = ["PendingEval", "Pool", "begun"]

Outputs = dict[str, Any]


class PendingEval(Future[Outputs]):
    """Outputs that are on their way: a `concurrent.futures.Future`, and awaitable."""

    def __await__(self) -> Generator[Any, None, Outputs]:
        """Wait in an event loop: `outputs = await prepared.eval_async(inputs)`."""
        import asyncio  # here, since it takes longer to import than all of this library

        return asyncio.wrap_future(self).__await__()


def begun(start: Callable[[], Callable[[], Outputs]]) -> Callable[[], Outputs]:
    """Begin an evaluation; return what waits for it, or raises what went wrong."""
    try:
        return start()
    except Exception as error:
        raised = error

    def fail() -> Outputs:
        raise raised

    return fail


class Pool:
    """Threads that evaluate, started at the first call.

    Args:
        threads: how many evaluations go on at once; others wait, in order.
    """

    def __init__(self, threads: int) -> None:
        self._threads, self._lock = threads, Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, evaluate: Callable[[], Outputs]) -> PendingEval:
        """Evaluate in one of the threads."""
        pending = PendingEval()

        def work() -> None:
            if not pending.set_running_or_notify_cancel():
                return
            try:
                outputs = evaluate()
            except BaseException as error:
                pending.set_exception(error)
            else:
                pending.set_result(outputs)

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "kn_runtime")
            self._pool.submit(work)
        return pending

    def close(self) -> None:
        """Let what has begun go on to its end; what waits ends with the error of a closed graph."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)
