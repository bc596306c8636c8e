"""A loop whose clock jumps to the next timer when there is nothing to do: an hour of waiting takes no time.

What the kernel tells is read as it comes, so a story with real devices happens at exact times.
"""

from __future__ import annotations

import asyncio
import selectors
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from typing import Any

__all__ = ["BACKEND", "in_no_time", "now", "passes", "play", "still"]

Outcome = TypeVar("Outcome")
"""What a story comes to."""


class _Selector(selectors.DefaultSelector):
    """Says at once that nothing happened, and for how long the loop would have waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.seconds += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waited = _Selector()
        super().__init__(self._waited)

    def time(self) -> float:
        return self._waited.seconds


BACKEND: Final = ("asyncio", {"loop_factory": _Loop})
"""What a module's fixture `anyio_backend` returns for its tests to run on such a loop."""

in_no_time = pytest.mark.parametrize("anyio_backend", [BACKEND], ids=["in no time"])
"""Marks a test that runs on such a loop where the others of its module do not."""


def play(story: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run `story` on a clock that starts at 0 and moves only while everybody waits."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
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
