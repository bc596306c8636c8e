"""The work queue of a controller: keys to look at, and the loop that takes them.

Nothing in it knows what a key stands for, or what a look does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from devplug.backoff import backoff_seconds
from devplug.k8s.objects import Object, text
from devplug.linux.notifier import within
from devplug.sandbox.api.errors import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

logger = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 60.0


def key_of(one: Object) -> str:
    """Return `namespace/name` of an object, with nothing before the slash for what has no namespace."""
    return f"{text(one, 'metadata', 'namespace')}/{text(one, 'metadata', 'name')}"


def split_key(key: str) -> tuple[str, str]:
    """Return the namespace and the name that `key_of` wrote."""
    namespace, _, name = key.partition("/")
    return namespace, name


class KeyIndex:
    """An index of who names whom, by key; lives as long as its controller, and forgets who names nobody."""

    def __init__(self) -> None:
        self._named: dict[str, frozenset[str]] = {}
        self._naming: dict[str, set[str]] = {}

    def put(self, key: str, named: Iterable[str]) -> frozenset[str]:
        """Replace what `key` names; return what it named before or names now."""
        before, after = self._named.pop(key, frozenset()), frozenset(named)
        for one in before - after:
            self._naming[one].discard(key)
            if not self._naming[one]:
                del self._naming[one]
        for one in after - before:
            self._naming.setdefault(one, set()).add(key)
        if after:
            self._named[key] = after
        return before | after

    def naming(self, key: str) -> Collection[str]:
        """Return who names `key`."""
        return sorted(self._naming.get(key, ()))


class WorkQueue:
    """The keys to sync, each once, with its time; lives as long as its controller.

    After client-go's work queues (util/workqueue), for one loop that looks at one key after the other.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._due_seconds: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: str, after_seconds: float = 0.0) -> None:
        """Put a key on the list; if it is there, the earlier time counts."""
        due = self._seconds() + after_seconds
        if key not in self._due_seconds or due < self._due_seconds[key]:
            self._due_seconds[key] = due
            heappush(self._heap, (due, key))
            self._changed.set()

    def fail(self, key: str) -> None:
        """Put a key on the list whose look failed: again in 0.1 s, doubled each time, at most 60 s."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add(key, backoff_seconds(failures, _FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS))

    def succeed(self, key: str) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    async def next(self) -> str:
        """Take the key that is due first off the list; waits until there is one."""
        while True:
            self._changed.clear()
            while self._heap and self._due_seconds.get(self._heap[0][1]) != self._heap[0][0]:
                heappop(self._heap)
            wait = self._heap[0][0] - self._seconds() if self._heap else None
            if wait is not None and wait <= 0:
                _, key = heappop(self._heap)
                del self._due_seconds[key]
                return key
            await within(wait, self._changed.wait())


async def follow(registry: Registry, resource: Resource, note: Callable[[WatchEvent], None]) -> None:
    """Call `note` with every object of a kind, and then with every change, until cancelled.

    An object that `note` cannot take is logged, and the next one follows.
    """
    async with aclosing(registry.follow(resource)) as events:
        async for event in events:
            try:
                note(event)
            except Exception:
                facts = {"kind": resource.kind, "object": key_of(event.object)}
                logger.exception("a controller failed at an object because of a bug", extra=facts)


async def run_loop(
    registry: Registry,
    notes: Mapping[Resource, Callable[[WatchEvent], None]],
    work: WorkQueue,
    look: Callable[[str], None],
) -> None:
    """Look at what is on the list, for ever; what is noted of each kind puts it there.

    A look that fails is tried again later, and holds up no other. Between two looks, everybody else has a
    turn.
    """
    async with asyncio.TaskGroup() as tasks:
        for resource, note in notes.items():
            tasks.create_task(follow(registry, resource, note))
        while True:
            key = await work.next()
            try:
                look(key)
            except StatusError:
                work.fail(key)
            except Exception:
                logger.exception("a controller failed because of a bug; tried again", extra={"key": key})
                work.fail(key)
            else:
                work.succeed(key)
            await asyncio.sleep(0)
