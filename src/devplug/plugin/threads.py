"""Threads for code that may block: bounded in number, and none of them can hold the exit of the program."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DaemonThreads"]

Params = ParamSpec("Params")
Result = TypeVar("Result")

IDLE_SECONDS: Final = 30.0
"""How long a thread waits for its next job before it ends, if nothing else is said."""


class DaemonThreads(ThreadPoolExecutor):
    """An executor whose threads are daemons and are not joined at exit.

    The standard pool joins its threads when the interpreter ends: a vendor call that blocks for 8 s then
    holds a SIGTERM for 8 s. It is a `ThreadPoolExecutor` by type because asyncio accepts no other default.
    A job that blocks for ever occupies one of `limit` threads for ever; jobs over the limit wait their turn.
    """

    def __init__(self, limit: int, name: str = "devplug", *, idle_seconds: float = IDLE_SECONDS) -> None:
        super().__init__(max_workers=limit, thread_name_prefix=name)
        self._idle_seconds = idle_seconds
        self._limit = limit
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        """None ends the thread that takes it."""
        self._lock = threading.Lock()
        self._running = 0
        self._waiting_jobs = 0
        self._idle = 0
        self._is_shut = False

    def submit(
        self,
        fn: Callable[Params, Result],
        /,
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> Future[Result]:
        """Run `fn` in a thread of the pool; the future holds its result. Not after `shutdown`."""
        future: Future[Result] = Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("this pool of threads was shut down")
            self._waiting_jobs += 1
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
            if self._waiting_jobs > self._idle and self._running < self._limit:
                self._running += 1
                name = f"{self._name}-{self._running}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Take no more jobs; each thread ends when its job has. None is waited for. Safe to repeat."""
        with self._lock:
            self._is_shut = True
            for _ in range(self._running):
                self._jobs.put(None)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                taken = self._jobs.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    self._idle -= 1
                    if self._jobs.empty():
                        self._running -= 1
                        return
                    continue
            with self._lock:
                self._idle -= 1
                if taken is None:
                    self._running -= 1
                    return
                self._waiting_jobs -= 1
            _do(*taken)
            del taken


def _do(future: Future[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except StopIteration as error:
        # asyncio's futures take none (PEP 479), and whoever waits for one would wait for ever.
        stopped = RuntimeError(f"the code raised StopIteration({error.value!r})")
        stopped.__cause__ = error
        future.set_exception(stopped)
    except BaseException as error:  # noqa: BLE001 -- the future's owner decides what becomes of it
        future.set_exception(error)
