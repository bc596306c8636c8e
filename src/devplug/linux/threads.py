"""Threads for code that may block: bounded in number, and never in the way of the program's end."""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from devplug.linux.exhaustion import RETRY_SECONDS, Shortage, is_exhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Params = ParamSpec("Params")
Result = TypeVar("Result")

CANNOT_START: Final = Shortage("cannot start a thread; trying again")

IDLE_SECONDS: Final = 30.0
"""How long a thread waits for its next job before it ends, if nothing else is said."""


class Job(Future[Result]):
    """The result of code that runs in a thread."""

    thread_id = 0
    """The thread that runs the code; 0 before it starts."""


class Worker(threading.Thread):
    """A thread of a `DaemonThreads`."""


class DaemonThreads(ThreadPoolExecutor):
    """An executor whose threads are daemons and are not joined at exit.

    The standard pool joins its threads when the interpreter ends: a vendor call that blocks for 8 s then
    holds a SIGTERM for 8 s. It is a `ThreadPoolExecutor` by type because asyncio accepts no other default.
    A job that blocks for ever occupies one of `limit` threads for ever; jobs over the limit wait.

    Where the system starts no thread (a pids limit), jobs wait until a thread of the pool is free, or until a
    thread can be started. With `are_short`, which says that no job blocks for long, they run in the caller's
    thread if the pool has none.
    """

    def __init__(
        self,
        limit: int,
        name: str = "devplug",
        *,
        idle_seconds: float = IDLE_SECONDS,
        are_short: bool = False,
    ) -> None:
        # Not `super().__init__`, whose parts are used by nothing here: they take 5 kB of memory.
        self._idle_seconds = idle_seconds
        self._are_short = are_short
        self._limit = limit
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Job[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        """The jobs; a thread that takes None from it ends."""
        self._lock = threading.Lock()
        self._running = 0
        self._waiting_jobs = 0
        self._idle = 0
        self._retry: asyncio.TimerHandle | None = None
        self._is_shut = False

    def submit(
        self,
        fn: Callable[Params, Result],
        /,
        *args: Params.args,
        **kwargs: Params.kwargs,
    ) -> Job[Result]:
        """Run `fn` in a thread of the pool; the future holds its result. Not after `shutdown`."""
        future: Job[Result] = Job()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("this pool of threads was shut down")
            self._waiting_jobs += 1
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
            if self._waiting_jobs > self._idle and self._running < self._limit:
                self._start_one()
            runs_here = self._are_short and not self._running
        if runs_here:
            self._run_here()
        return future

    def _start_one(self) -> bool:
        """Start a thread, or return False and try again later. Call it with the lock.

        Raises `RuntimeError` where the system starts none and there is no event loop to try again.
        """
        self._running += 1
        try:
            Worker(target=self._work, name=f"{self._name}-{self._running}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._running -= 1
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                raise error from None
            if self._retry is None and not self._are_short:
                self._retry = loop.call_later(RETRY_SECONDS, self._start_again)
            CANNOT_START.report(error, threads=self._name)
            return False
        return True

    def _start_again(self) -> None:
        with self._lock:
            self._retry = None
            for _ in range(self._waiting_jobs - self._idle):
                if self._running >= self._limit or not self._start_one():
                    return

    def _run_here(self) -> None:
        """Run all waiting jobs in this thread."""
        while True:
            with self._lock:
                try:
                    taken = self._jobs.get_nowait()
                except queue.Empty:
                    return
                if taken is None:
                    continue
                self._waiting_jobs -= 1
            _do(*taken)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Take no more jobs; each thread ends when its job has. None is waited for. Safe to repeat."""
        with self._lock:
            self._is_shut = True
            if self._retry is not None:
                self._retry.cancel()
            for _ in range(self._running):
                self._jobs.put(None)
            while not self._running and not self._jobs.empty():
                if (taken := self._jobs.get_nowait()) is not None:
                    taken[0].set_exception(RuntimeError("can't start new thread"))

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


def _do(future: Job[Any], job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    future.thread_id = threading.get_ident()
    try:
        future.set_result(job())
    except StopIteration as error:
        # asyncio's futures take none (PEP 479), and whoever waits for one would wait for ever.
        stopped = RuntimeError(f"the code raised StopIteration({error.value!r})")
        stopped.__cause__ = error
        future.set_exception(stopped)
    except BaseException as error:  # noqa: BLE001 -- the future's owner decides what becomes of it
        future.set_exception(error)


# ── the loop ──


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run an event loop until `main` ends, as `asyncio.run`.

    At its end asyncio starts a thread that waits for the default executor. Where the system starts none, the
    program ends all the same: threads of `DaemonThreads` are not waited for.
    """
    runner = asyncio.Runner()
    try:
        runner.run(main)
    finally:
        try:
            runner.close()
        except RuntimeError as error:
            if not is_exhausted(error):
                raise
