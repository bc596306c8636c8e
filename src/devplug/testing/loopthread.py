"""An event loop on a thread of its own, for code that is not async."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

__all__ = ["Held", "LoopThread"]

Value = TypeVar("Value")


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
        self.ended.result(timeout_seconds)


class LoopThread:
    """Runs an event loop from `start` to `stop`, on a daemon thread: a test that hangs can be ended."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name=name, daemon=True)
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._stop = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    def start(self) -> None:
        """Start the thread; the loop runs when this returns."""
        self._thread.start()
        self._loop = self._started.result()

    def stop(self, timeout_seconds: float) -> None:
        """End the loop once all that it held is left; raises `TimeoutError` if something does not end."""
        self.soon(self._stop.set)
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._thread.name} did not end within {timeout_seconds:g} s")

    def soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function that does not wait."""
        self._loop.call_soon_threadsafe(function)

    def call(self, coroutine: Coroutine[object, object, Value], timeout_seconds: float) -> Value:
        """Return what a coroutine returns on the loop; raises what it raises, or `TimeoutError`."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def ask(self, function: Callable[[], Value]) -> Value:
        """Return what a function that does not wait returns on the loop."""

        async def asked() -> Value:
            return function()

        return self.call(asked(), 60)

    def hold(
        self,
        manager: AbstractAsyncContextManager[Value],
        timeout_seconds: float,
    ) -> tuple[Held[Value], Value]:
        """Enter an async context manager; return how to leave it, and its value."""
        held = Held(self, manager)
        self.soon(lambda: self._begin(held))
        return held, held.entered.result(timeout_seconds)

    def _begin(self, held: Held[Value]) -> None:
        assert self._tasks is not None
        self._tasks.create_task(held.run())

    async def _main(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._started.set_result(asyncio.get_running_loop())
            await self._stop.wait()
