"""Run an author's code: `async def` on the loop, `def` in a thread, and what must not overlap in turn."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from devplug.plugin.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from concurrent.futures import Future

__all__ = ["Hooks"]

THREADS_BESIDE: Final = 8
"""Threads for hooks that may overlap; a call that never returns occupies one for ever."""


class Hooks:
    """The threads for one plugin's hooks, and whose turn it is; lives until `close`."""

    def __init__(self, resource_name: str) -> None:
        self._turn = asyncio.Lock()
        self._in_turn: Future[Any] | None = None
        self._turn_thread = DaemonThreads(1, f"allocate-{resource_name}")
        self._threads_beside = DaemonThreads(THREADS_BESIDE, f"pre-start-{resource_name}")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold back until no other turn runs code, a thread that missed its deadline included."""
        async with self._turn:
            if self._in_turn is not None and not self._in_turn.done():
                with suppress(Exception):
                    await asyncio.wrap_future(self._in_turn)
            yield

    async def call(self, hook: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 -- the author's
        """Return what a hook gives whose turn it is."""
        if inspect.iscoroutinefunction(hook):
            return await hook(*arguments)
        self._in_turn = self._turn_thread.submit(hook, *arguments)
        return await _result(self._in_turn)

    async def call_for_list(self, hook: Callable[..., Any], *arguments: object) -> list[Any]:
        """Return the items that a hook gives whose turn it is; a `def` may yield them, in its thread."""
        if inspect.iscoroutinefunction(hook):
            return list(await hook(*arguments))

        def listed() -> object:
            result = hook(*arguments)
            return result if inspect.isawaitable(result) else list(result)

        return list(await self.call(listed))

    async def call_beside(self, hook: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 -- as above
        """Return what a hook gives that may overlap with all others."""
        if inspect.iscoroutinefunction(hook):
            return await hook(*arguments)
        return await _result(self._threads_beside.submit(hook, *arguments))

    def close(self) -> None:
        """Give the threads back; one that an author's code blocks ends when that returns."""
        self._turn_thread.shutdown()
        self._threads_beside.shutdown()


async def _result(running: Future[Any]) -> Any:  # noqa: ANN401 -- the author's
    """Return what code in a thread returned; an awaitable is awaited here."""
    result = await asyncio.wrap_future(running)
    return await result if inspect.isawaitable(result) else result
