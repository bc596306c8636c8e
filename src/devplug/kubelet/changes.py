"""The changes at a kubelet with their times, for waiters and measurements."""

from __future__ import annotations

import asyncio
import enum
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from devplug.linux.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

Result = TypeVar("Result")


class ChangeKind(enum.StrEnum):
    """The kinds of change. Each is announced when its effect can be seen."""

    STARTED = "started"
    """The kubelet listens."""
    STOPPED = "stopped"
    REGISTERED = "registered"
    """A plugin was registered; its Register call is about to return."""
    LISTED = "listed"
    """A list of devices is in the table."""
    STREAM_ENDED = "stream ended"
    """One ListAndWatch stream has ended, on either side."""
    DISCONNECTED = "disconnected"
    """All devices of the resource are unhealthy: its plugin is gone."""
    EXPIRED = "expired"
    """The resource is off the node: its plugin has been gone for longer than the grace period."""
    SOCKET = "socket"
    """A socket in `plugins_registry` came or went, or an attempt to register its plugin is over."""
    DRIVER = "driver"
    """An endpoint of a DRA driver was registered or deregistered, or its connection came or went."""
    HEALTH = "health"
    """The health of a device that a pod holds has changed, so its status is written again."""
    POD = "pod"
    """A pod's status changed, or the pod is gone."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its time by the kubelet's clock, its kind and its subject."""

    at_seconds: float
    kind: ChangeKind
    resource_name: str = ""
    pod_uid: str = ""


class Changes:
    """The feed of all changes of a kubelet. Lives as long as its kubelet; nothing polls."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: set[asyncio.Queue[Change]] = set()
        self._notifier = Notifier()

    def announce(self, kind: ChangeKind, *, resource_name: str = "", pod_uid: str = "") -> None:
        """Announce a change that has just been made."""
        change = Change(self._clock(), kind, resource_name, pod_uid)
        for queue in self._queues:
            queue.put_nowait(change)
        self._notifier.notify()

    @contextmanager
    def watching(self) -> Iterator[AsyncIterator[Change]]:
        """Yield the changes from now on, as an iterator without end; none is lost until the block is left."""
        queue: asyncio.Queue[Change] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield _read(queue)
        finally:
            self._queues.discard(queue)

    async def wait(self, condition: Callable[[], Result]) -> Result:
        """Return what `condition` returns once that is true; it is asked now and after each change."""
        while not (result := condition()):
            await self._notifier.next.wait()
        return result


async def _read(queue: asyncio.Queue[Change]) -> AsyncIterator[Change]:
    while True:
        yield await queue.get()
