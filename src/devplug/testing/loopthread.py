"""An event loop on a thread of its own, for code that is not async, with the kubelet's clock and changes.

Where code of it is while nobody gets an answer is what a test that hangs can show.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import asynccontextmanager
from types import AsyncGeneratorType, CoroutineType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from devplug.errors import KubeletError
from devplug.kubelet.changes import ChangeKind
from devplug.linux.threads import DaemonThreads
from devplug.plugin.callbacks import lines_in_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from devplug.kubelet.kubelet import Kubelet


# ── where code waits ──────────────────────────────────────────────────────────────────────────────


_NOT_THE_AUTHORS: Final = ("asyncio", "contextlib", "devplug", "grpc")
_FRAMES_SHOWN: Final = 4


def _thread_stack(thread_id: int) -> str:
    """Return the innermost of what a thread executes at this moment; empty if it has ended."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 -- documented, for debuggers
    return "".join(traceback.format_stack(frame)[-_FRAMES_SHOWN:]).rstrip() if frame else ""


def _waiting_code() -> list[str]:
    """Return the places at which async code of authors waits: `FILE:LINE, in NAME`."""
    return sorted(set(_places()))


def _places() -> Iterator[str]:
    # Not by way of the tasks: gRPC's, in which handlers run, do not show what they wait for.
    for waiting in gc.get_objects():
        if isinstance(waiting, CoroutineType):
            frame = waiting.cr_frame if waiting.cr_suspended else None
        elif isinstance(waiting, AsyncGeneratorType):
            frame = waiting.ag_frame
        else:
            continue
        if (
            frame is not None
            and frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_THE_AUTHORS
        ):
            yield f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_qualname}"


# ── the thread ────────────────────────────────────────────────────────────────────────────────────


Value = TypeVar("Value")

_THREADS: Final = 16
_PING_SECONDS: Final = 1.0
"""How long an idle loop may take for an answer; one that takes longer is blocked."""
_SEARCH_SECONDS: Final = 30.0

_ENDED: Final = "this kubelet does not run; use it inside its `with` block, or in the test of its fixture"


class Held(Generic[Value]):
    """An async context manager that is entered, and left by `release`; both in one task of the loop."""

    def __init__(self, thread: LoopThread, manager: AbstractAsyncContextManager[Value]) -> None:
        self.entered: concurrent.futures.Future[Value] = concurrent.futures.Future()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done when it was left; has the error that ended it, if it was one."""
        self._thread = thread
        self._manager = manager
        self._leave = asyncio.Event()

    async def run(self) -> None:
        """Enter, wait, leave. Its errors are kept and not raised: nobody awaits this."""
        try:
            async with self._manager as value:
                self.entered.set_result(value)
                await self._leave.wait()
            self.ended.set_result(None)
        except Exception as error:  # noqa: BLE001 -- told to whoever releases it
            if not self.entered.done():
                self.entered.set_exception(error)
            self.ended.set_exception(error)

    def release(self, timeout_seconds: float) -> None:
        """Leave it and wait for that; raises the error that ended it, or `TimeoutError`."""
        self._thread.soon(self._leave.set)
        self._thread.result(self.ended, timeout_seconds, "no end")


class LoopThread:
    """Runs an event loop from `start` to `stop`, on a daemon thread: a test that hangs can be ended.

    Before and after that its methods raise `KubeletError`. What takes too long is a `TimeoutError` that says
    where the code is.
    """

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name=name, daemon=True)
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    def start(self) -> None:
        """Start the thread; the loop runs when this returns."""
        self._thread.start()
        self._loop = self._started.result()

    def stop(self, timeout_seconds: float) -> None:
        """End the loop, once all that it holds is left.

        What does not end is cancelled, and a `TimeoutError`.
        """
        self.soon(self._stop.set)
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            failure = TimeoutError(f"{self._thread.name}: no end within {timeout_seconds:g} s{self._where()}")
            self.soon(self._cancel_all)
            self._thread.join(_PING_SECONDS)
            raise failure

    def soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function that does not wait."""
        try:
            self._running_loop().call_soon_threadsafe(function)
        except RuntimeError as error:
            raise KubeletError(_ENDED) from error

    def call(self, coroutine: Coroutine[object, object, Value], timeout_seconds: float) -> Value:
        """Return what a coroutine returns on the loop; raises what it raises, or `TimeoutError`."""
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        except (KubeletError, RuntimeError) as error:
            coroutine.close()
            raise KubeletError(_ENDED) from error
        try:
            return self.result(answer, timeout_seconds)
        finally:
            answer.cancel()

    def ask(self, function: Callable[[], Value], timeout_seconds: float) -> Value:
        """Return what a function that does not wait returns on the loop; raises as `call` does."""
        answer: concurrent.futures.Future[Value] = concurrent.futures.Future()

        def answered() -> None:
            try:
                answer.set_result(function())
            except Exception as error:  # noqa: BLE001 -- raised by `result`, where it was asked for
                answer.set_exception(error)

        self.soon(answered)
        return self.result(answer, timeout_seconds)

    def hold(
        self,
        manager: AbstractAsyncContextManager[Value],
        timeout_seconds: float,
    ) -> tuple[Held[Value], Value]:
        """Enter an async context manager; return how to leave it, and its value. Raises as `call` does."""
        held = Held(self, manager)
        self.soon(lambda: self._begin(held))
        return held, self.result(held.entered, timeout_seconds)

    def result(
        self,
        future: concurrent.futures.Future[Value],
        timeout_seconds: float,
        failure: str = "no answer",
    ) -> Value:
        """Return what a future of this loop comes to; raises `TimeoutError` with where the code is."""
        concurrent.futures.wait((future,), timeout_seconds)
        if future.done():
            return future.result()
        raise TimeoutError(f"{failure} within {timeout_seconds:g} s{self._where()}")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise KubeletError(_ENDED)
        return self._loop

    def _where(self) -> str:
        """Return where the code of the loop is, as the end of a sentence."""
        pong: concurrent.futures.Future[None] = concurrent.futures.Future()
        found: concurrent.futures.Future[list[str]] = concurrent.futures.Future()
        try:
            self.soon(lambda: pong.set_result(None))
            pong.result(_PING_SECONDS)
            # Not the ping itself: it looks at all objects, which takes seconds in a large process.
            self.soon(lambda: found.set_result(_waiting_code()))
            places = found.result(_SEARCH_SECONDS)
        except KubeletError:
            return ""
        except concurrent.futures.TimeoutError:
            stack = _thread_stack(self._thread.ident or 0)
            return f"; an `async def` blocks the loop, write `def` for code that blocks:\n{stack}"
        waiting = ("; async code waits at", *places) if places else ()
        blocked = ("; code in a thread is at", *lines) if (lines := lines_in_threads()) else ()
        return "\n  ".join((*waiting, *blocked))

    def _begin(self, held: Held[Value]) -> None:
        assert self._tasks is not None
        self._tasks.create_task(held.run())

    def _cancel_all(self) -> None:
        # A task group that is ending absorbs a second cancellation, so each task gets its own.
        for task in asyncio.all_tasks():
            if task is not self._main_task:
                task.cancel()

    async def _main(self) -> None:
        self._main_task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        # As under `devplug.run`: the stock pool is joined at the end, and code that blocks would hold that.
        loop.set_default_executor(DaemonThreads(_THREADS, "devplug-default"))
        async with asyncio.TaskGroup() as self._tasks:
            self._started.set_result(loop)
            await self._stop.wait()


# ── the kubelet's clock ───────────────────────────────────────────────────────────────────────────


class Clock:
    """The kubelet's clock, in seconds: it goes on by itself, and can be moved on."""

    def __init__(self, on_advance: Callable[[], None]) -> None:
        self._moved_seconds = 0.0
        self._on_advance = on_advance

    def __call__(self) -> float:
        """Return the time, from no particular beginning."""
        return time.monotonic() + self._moved_seconds

    def advance(self, seconds: float) -> None:
        """Go on by so many seconds at once; the kubelet then reports its node, as it would have by then.

        Raises `ValueError` for fewer than none: this clock never goes back.
        """
        if seconds < 0:
            raise ValueError(f"the kubelet's clock cannot go back by {-seconds:g} s")
        self._moved_seconds += seconds
        self._on_advance()


# ── the kubelet's changes ─────────────────────────────────────────────────────────────────────────


class ChangeCount:
    """Counts a kubelet's changes, on its loop, for waiters on other threads. Lives as long as the kubelet."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lists: Counter[str] = Counter()
        self.count = 0

    @asynccontextmanager
    async def counting(self, kubelet: Kubelet) -> AsyncIterator[None]:
        """Count for as long as the block lasts, and wake whoever waits."""
        with kubelet.changes() as changes:

            async def count() -> None:
                async for change in changes:
                    with self._changed:
                        self.count += 1
                        self._lists[change.resource_name] += change.kind is ChangeKind.LISTED
                        self._changed.notify_all()

            async with asyncio.TaskGroup() as group:
                counting = group.create_task(count())
                yield
                counting.cancel()

    def wait_for_next(self, seen: int, timeout_seconds: float) -> None:
        """Wait until there were more changes than `seen`, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != seen, timeout_seconds)

    def lists(self) -> Mapping[str, int]:
        """Return how many lists have come, by resource name."""
        with self._changed:
            return Counter(self._lists)

    def lists_since(self, before: Mapping[str, int]) -> set[str]:
        """Return the resource names for which lists have come since."""
        return {name for name, count in self.lists().items() if count > before.get(name, 0)}
