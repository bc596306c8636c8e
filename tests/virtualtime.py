"""A loop whose clock jumps to the next timer when there is nothing to do: an hour of waiting takes no time.

What the kernel tells is read as it comes, so a story with real devices happens at exact times. The clock
stands while a thread or a child process is waited for, so nobody is late for having been slow; but not for
tests marked `in_no_time`, whose threads block until they are given up.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest

Outcome = TypeVar("Outcome")
"""What a story comes to."""


PIDFD = "anon_inode:[pidfd]"


class _Selector(selectors.DefaultSelector):
    """Says at once that nothing happened, and for how long the loop would have waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.awaited_threads: list[asyncio.Future[Any]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.awaited_threads = [one for one in self.awaited_threads if not one.done()]
        if timeout is None or (timeout > 0 and (self.awaited_threads or self._awaits_a_child())):
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.seconds += timeout
        return ready

    def _awaits_a_child(self) -> bool:
        """Whether a process is waited for: its pidfd (pidfd_open(2)) is among what is listened to."""
        return any(os.readlink(f"/proc/self/fd/{fd}") == PIDFD for fd in self.get_map())  # noqa: PTH115 -- often


class _Loop(asyncio.SelectorEventLoop):
    """The clock stands for nobody but child processes."""

    def __init__(self) -> None:
        self._waited = _Selector()
        super().__init__(self._waited)

    def time(self) -> float:
        return self._waited.seconds


class _LoopThatAwaitsThreads(_Loop):
    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._waited.awaited_threads.append(future)
        return future


BACKEND: Final = ("asyncio", {"loop_factory": _LoopThatAwaitsThreads})


@pytest.fixture(scope="module")
def on_virtual_time() -> object:
    """The `anyio_backend` of a module whose tests run on such a loop: `anyio_backend = on_virtual_time`."""
    return BACKEND


in_virtual_time = pytest.mark.parametrize("anyio_backend", [BACKEND], ids=["virtual time"])
"""Marks a single test on such a loop."""

in_no_time = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": _Loop})], ids=["in no time"]
)
"""Marks a test on a loop whose clock stands for no thread, as a thread of it blocks until it is given up."""


def play(story: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run `story` on a clock that starts at 0 and moves only while everybody waits."""
    with asyncio.Runner(loop_factory=_LoopThatAwaitsThreads) as runner:
        return runner.run(story)


def now() -> float:
    """The time of the story in seconds."""
    return asyncio.get_running_loop().time()


async def passes(seconds: float) -> None:
    """Let so much time go by."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


@asynccontextmanager
async def still() -> AsyncIterator[None]:
    """Let no time go by meanwhile, so that other threads have all that they need."""

    async def keep_turning() -> None:
        while True:  # noqa: ASYNC110 -- it waits for nothing
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        turning = group.create_task(keep_turning())
        yield
        turning.cancel()
