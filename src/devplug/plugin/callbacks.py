"""The callbacks of an author: `async def` on the loop, `def` in a bounded number of threads."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devplug.linux.threads import DaemonThreads, Worker
from devplug.plugin.contract import offers, options_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future
    from types import FrameType

    from devplug.linux.threads import Job
    from devplug.plugin.contract import DevicePlugin


# ── callbacks ──

THREADS_BESIDE: Final = 8
"""Threads for hooks that may overlap; a call that never returns occupies one for ever."""


class _Turn:
    """The turn of one call: a block in which no other runs, not even in a thread that missed its deadline."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.running: Job[Any] | None = None
        """What the last call in turn does in a thread."""

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        if self.running is not None and not self.running.done():
            try:
                with suppress(Exception):
                    await asyncio.wrap_future(self.running)
            except BaseException:
                self._lock.release()
                raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class Hooks:
    """The threads for one plugin's hooks, and whose turn it is; lives until `close`."""

    def __init__(self, resource_name: str) -> None:
        self.turn = _Turn()
        self._hanging: set[Future[Any]] = set()
        """Calls in threads whose callers have stopped waiting for them."""
        self._turn_thread = DaemonThreads(1, f"allocate-{resource_name}")
        self._threads_beside = DaemonThreads(THREADS_BESIDE, f"pre-start-{resource_name}")

    @property
    def fault(self) -> str:
        """What keeps calls from being answered: code that hangs in threads; empty if nothing does."""
        if not self._hanging:
            return ""
        self._hanging = {one for one in self._hanging if not one.done()}
        if self.turn.running in self._hanging:
            return "the plugin's code hangs in a call; every other Allocate waits for it"
        if len(self._hanging) >= THREADS_BESIDE:
            return f"the plugin's pre_start hangs in all {THREADS_BESIDE} threads; further calls wait"
        return ""

    async def call(self, hook: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 -- the author's
        """Return the result of a hook; call it inside `turn`."""
        with OnlyErrors():
            if inspect.iscoroutinefunction(hook):
                return await hook(*arguments)
            self.turn.running = self._turn_thread.submit(hook, *arguments)
            return await self._result(self.turn.running)

    async def call_for_list(self, hook: Callable[..., Any], *arguments: object) -> list[Any]:
        """Return the items that a hook returns or yields; call it inside `turn`."""
        if inspect.iscoroutinefunction(hook):
            return list(await self.call(hook, *arguments))

        def listed() -> object:
            result = hook(*arguments)
            return result if inspect.isawaitable(result) else list(result)

        return list(await self.call(listed))

    async def call_beside(self, hook: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 -- as above
        """Return the result of a hook that may overlap with all others."""
        with OnlyErrors():
            if inspect.iscoroutinefunction(hook):
                return await hook(*arguments)
            return await self._result(self._threads_beside.submit(hook, *arguments))

    def close(self) -> None:
        """Give the threads back; one that an author's code blocks ends when that returns."""
        self._turn_thread.shutdown()
        self._threads_beside.shutdown()
        self.turn.running = None
        self._hanging.clear()

    async def _result(self, running: Job[Any]) -> Any:  # noqa: ANN401 -- the author's
        """Return what code in a thread returned; an awaitable is awaited here."""
        try:
            result = await asyncio.wrap_future(running)
        except asyncio.CancelledError as error:
            if not running.done():
                self._hanging.add(running)
                if frame := sys._current_frames().get(running.thread_id):  # noqa: SLF001 -- the only way
                    error.add_note(f"{_HANGS_AT}{_author_line(traceback.walk_stack(frame))}")
            raise
        return await result if inspect.isawaitable(result) else result


class PluginCode:
    """The code of one plugin with its threads; a replaced one lives until its last call has ended."""

    def __init__(self, plugin: DevicePlugin, *, is_steered: bool = False) -> None:
        self.plugin = plugin
        self.options = options_of(plugin, is_steered=is_steered)
        self.has_prepare = offers(plugin, "prepare")
        self.hooks = Hooks(plugin.resource_name)
        self.calls = 0
        """The number of calls that it is answering."""

    def longest_seconds(self) -> float:
        """Return the longest deadline of its calls, in seconds."""
        allocate_seconds = self.plugin.allocate_timeout_seconds
        if not self.options.pre_start_required:
            return allocate_seconds
        return max(allocate_seconds, self.plugin.pre_start_timeout_seconds)


# ── where it hangs ──

_HANGS_AT: Final = "the code hangs at "
_STDLIB: Final = str(Path(asyncio.__file__).parents[1])
_DEVPLUG: Final = str(Path(__file__).parents[1])


def hanging_line(error: BaseException | None) -> str:
    """Return the line of the author's code that a deadline has interrupted; empty if it is not known.

    `error` is the deadline's error. Its cause is the cancellation, with the traceback of `async def`. Code in
    a thread runs on, so the line is a note of the cancellation.
    """
    while error is not None:
        for note in getattr(error, "__notes__", ()):
            if str(note).startswith(_HANGS_AT):
                return str(note).removeprefix(_HANGS_AT)
        if isinstance(error, asyncio.CancelledError):
            return author_line(error)
        error = error.__cause__
    return ""


def lines_in_threads() -> list[str]:
    """Return the line of each thread that runs an author's `def` at this moment."""
    frames = sys._current_frames()  # noqa: SLF001 -- documented, for debuggers
    workers = [one for one in threading.enumerate() if isinstance(one, Worker)]
    found = [frame for one in workers if (frame := frames.get(one.ident or 0)) is not None]
    return sorted(line for frame in found if (line := _author_line(traceback.walk_stack(frame))))


def author_line(error: BaseException) -> str:
    """Return the innermost line of the author's code in a traceback, as FILE:LINE in NAME; empty if none."""
    return _author_line(reversed(list(traceback.walk_tb(error.__traceback__))))


def _author_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return the innermost line outside devplug and the standard library, as FILE:LINE in NAME."""
    for frame, line in frames:
        file = frame.f_code.co_filename
        is_installed = "site-packages" in file or "dist-packages" in file
        if not (file.startswith((_DEVPLUG, "<frozen")) or (file.startswith(_STDLIB) and not is_installed)):
            return f"{file}:{line} in {frame.f_code.co_qualname}"
    return ""


class OnlyErrors:
    """A block in which an author's code raises nothing but an `Exception`, or its caller's cancellation.

    gRPC never answers a call that ends in any other way, and the kubelet would wait for ever: so with code
    that awaits a task of its own which was cancelled. A `sys.exit` would end the program with all plugins.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, Exception | GeneratorExit | KeyboardInterrupt):
            return
        if not (isinstance(error, asyncio.CancelledError) and is_cancelled()):
            raise RuntimeError(f"the code raised {error!r}") from error


def is_cancelled() -> bool:
    """Whether the current task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
