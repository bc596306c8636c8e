"""Run an author's code: `async def` on the loop, `def` in a thread, and what must not overlap in turn."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from devplug.plugin.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from concurrent.futures import Future

__all__ = ["Hooks", "is_cancelled", "only_errors"]

THREADS_BESIDE: Final = 8
"""Threads for hooks that may overlap; a call that never returns occupies one for ever."""


class Hooks:
    """The threads for one plugin's hooks, and whose turn it is; lives until `close`."""

    def __init__(self, resource_name: str) -> None:
        self._turn = asyncio.Lock()
        self._in_turn: Future[Any] | None = None
        self._hanging: set[Future[Any]] = set()
        """Code in threads whose caller has given up waiting."""
        self._turn_thread = DaemonThreads(1, f"allocate-{resource_name}")
        self._threads_beside = DaemonThreads(THREADS_BESIDE, f"pre-start-{resource_name}")

    @property
    def fault(self) -> str:
        """What keeps calls from being answered: code that hangs in threads; empty if nothing does."""
        if not self._hanging:
            return ""
        self._hanging = {one for one in self._hanging if not one.done()}
        if self._in_turn in self._hanging:
            return "its code hangs in a call, and no other Allocate gets its turn"
        if len(self._hanging) >= THREADS_BESIDE:
            return f"its pre_start hangs in all of its {THREADS_BESIDE} threads"
        return ""

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
        with only_errors():
            if inspect.iscoroutinefunction(hook):
                return await hook(*arguments)
            self._in_turn = self._turn_thread.submit(hook, *arguments)
            return await self._result(self._in_turn)

    async def call_for_list(self, hook: Callable[..., Any], *arguments: object) -> list[Any]:
        """Return the items that a hook gives whose turn it is; a `def` may yield them, in its thread."""
        if inspect.iscoroutinefunction(hook):
            return list(await self.call(hook, *arguments))

        def listed() -> object:
            result = hook(*arguments)
            return result if inspect.isawaitable(result) else list(result)

        return list(await self.call(listed))

    async def call_beside(self, hook: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 -- as above
        """Return what a hook gives that may overlap with all others."""
        with only_errors():
            if inspect.iscoroutinefunction(hook):
                return await hook(*arguments)
            return await self._result(self._threads_beside.submit(hook, *arguments))

    def close(self) -> None:
        """Give the threads back; one that an author's code blocks ends when that returns."""
        self._turn_thread.shutdown()
        self._threads_beside.shutdown()
        self._in_turn = None
        self._hanging.clear()

    async def _result(self, running: Future[Any]) -> Any:  # noqa: ANN401 -- the author's
        """Return what code in a thread returned; an awaitable is awaited here."""
        try:
            result = await asyncio.wrap_future(running)
        finally:
            if not running.done():
                self._hanging.add(running)
        return await result if inspect.isawaitable(result) else result


@contextmanager
def only_errors() -> Iterator[None]:
    """Let nothing out of an author's code but an `Exception`, and the cancellation of who called it.

    gRPC never answers a call that ends in any other way, and the kubelet would wait for ever: so with code
    that awaits a task of its own which was cancelled. A `sys.exit` would end the program with all plugins.
    """
    try:
        yield
    except (Exception, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        raise RuntimeError(f"the code raised {error!r}") from error


def is_cancelled() -> bool:
    """Whether somebody has cancelled the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
