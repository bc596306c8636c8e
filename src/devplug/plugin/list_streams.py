"""The ListAndWatch streams of one plugin: the lists on them, and what was last sent on each."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.linux.notifier import Notifier, within
from devplug.plugin.inventory import in_turns
from devplug.plugin.snapshot import ListPace, Urgency, slices, urgency_of
from devplug.wire.codecs import Encoded
from devplug.wire.deviceplugin import list_pieces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping

    from devplug.devices import Device
    from devplug.plugin.counters import PluginCounters
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.snapshot import Slices, Snapshot

__all__ = ["ListStreams", "SentLists"]

TAKEN_SECONDS: Final = 0.1
"""How long a kubelet may take to apply a list that was sent to it: it syncs a file after each."""

FORGET_SECONDS: Final = 60.0
"""How long after a device left the list an Allocate for it may still arrive."""


class _Stream(Struct):
    devices: Mapping[str, Device] = field(default_factory=dict)
    at: float | None = None
    """When the list was sent; None while it is about to be."""
    coming: Mapping[str, Device] | None = None
    """The devices of the next list, until those that left are computed."""
    left_at: Mapping[str, float] = field(default_factory=dict)
    """When each device left the list, also of those that are back."""

    def wait_seconds(self, id_: str, now: float) -> float:
        """Return the seconds to wait for one device, if no list is sent meanwhile."""
        is_leaving = self.coming is not None and id_ in self.devices and id_ not in self.coming
        if not is_leaving and id_ not in self.left_at:
            return 0.0
        if self.at is None or self.coming is not None or id_ not in self.devices:
            return FORGET_SECONDS
        return self.at + TAKEN_SECONDS - now


class SentLists:
    """The lists that were sent last on each stream, and when devices left them and came back.

    Lives as long as its service. Times are seconds on the loop's clock.

    The kubelet looks devices up when it has the answer to an Allocate, and crashes if one is not in its list
    (manager.go allocateContainerResources). A device may have been in the list when it was asked for, and be
    in ours again, while the kubelet has only got the list between the two.
    """

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._changed = Notifier()

    def sending(self, number: int, devices: Mapping[str, Device], now: float) -> Slices[None]:
        """Record that a list is about to be sent on a stream; `sent` follows soon, whatever the peer does."""
        stream = self._streams.setdefault(number, _Stream())
        stream.coming = devices
        left_at: dict[str, float] = {}
        for is_later, known in slices(stream.left_at.items()):
            if is_later:
                yield
            left_at.update((id_, at) for id_, at in known if at > now - FORGET_SECONDS)
        for is_later, ids in slices(stream.devices):
            if is_later:
                yield
            left_at.update((id_, now) for id_ in ids if id_ not in devices)
        stream.left_at = left_at
        stream.devices, stream.at, stream.coming = devices, None, None
        self._changed.notify()

    def sent(self, number: int, now: float) -> None:
        """Record that the list of `sending` was sent."""
        self._streams[number].at = now
        self._changed.notify()

    def end(self, number: int) -> None:
        """Record that a stream has ended."""
        self._streams.pop(number, None)
        self._changed.notify()

    async def until_known(self, ids: Collection[str]) -> None:
        """Wait until the kubelet knows devices again that have left its list and come back, if any has."""
        loop = asyncio.get_running_loop()
        while (wait_seconds := self._wait_seconds(ids, loop.time())) > 0:
            await within(wait_seconds, self._changed.next.wait())

    def _wait_seconds(self, ids: Iterable[str], now: float) -> float:
        """Return the seconds to wait, if no list is sent meanwhile; 0 if there is nothing to wait for."""
        ids = tuple(ids)
        return max(
            (stream.wait_seconds(id_, now) for stream in self._streams.values() for id_ in ids), default=0.0
        )


class ListStreams:
    """The streams of one plugin; lives as long as its service.

    `on_change` is called whenever one opens or ends. What happens is counted in `counters`.
    """

    def __init__(self, inventory: Inventory, counters: PluginCounters, on_change: Callable[[], None]) -> None:
        self.open: set[int] = set()
        """A number for each open stream, growing in the order of their opening."""
        self.opened = 0
        self.ended = 0
        """The last stream that we ended ourselves, with those before it."""
        self._inventory = inventory
        self._counters = counters
        self._on_change = on_change
        self._sent = SentLists()

    async def list_and_watch(self, _: None) -> AsyncIterator[Encoded]:
        """Yield the list at once, then the latest one after each change; never a backlog.

        The same list is not sent twice in a row, unless `Inventory.repeat` asks for it.
        """
        self.opened += 1
        number = self.opened
        self.open.add(number)
        self._counters.streams_opened += 1
        self._on_change()
        loop = asyncio.get_running_loop()
        pace = ListPace()
        seen: float = 0
        repeats = self._inventory.repeats
        sent: Snapshot | None = None
        wait_seconds: float | None = None
        try:
            while await self._goes_on(number, seen, wait_seconds):
                seen, snapshot = self._inventory.version, self._inventory.snapshot
                asked = self._inventory.repeats
                urgency = Urgency.URGENT if sent is None else await in_turns(urgency_of(sent, snapshot))
                if urgency is Urgency.NONE and asked != repeats:
                    urgency = Urgency.NORMAL
                wait_seconds = None
                if urgency is not Urgency.NONE:
                    wait_seconds = pace.wait_seconds(urgency, loop.time()) or None
                if wait_seconds is not None:
                    if urgency is Urgency.URGENT:
                        seen = math.inf  # it waits for its time only; other lists for a change, too
                    continue
                if urgency is not Urgency.NONE:
                    await in_turns(self._sent.sending(number, snapshot.devices, loop.time()))
                    encoded = Encoded(await in_turns(_content_of(snapshot)))
                    pace.spend(loop.time())
                    repeats = asked
                    self._counters.lists_sent += 1
                    self._sent.sent(number, loop.time())
                    yield encoded
                    del encoded
                sent = snapshot
        finally:
            self._sent.end(number)
            self.open.discard(number)
            self._on_change()

    def end(self) -> None:
        """End the streams that are open now, so that the kubelet drops this endpoint."""
        self.ended = self.opened
        self._inventory.wake()

    async def until_known(self, ids: Collection[str]) -> None:
        """Wait until the kubelet knows devices again that have left its list and come back, if any has."""
        await self._sent.until_known(ids)

    async def _goes_on(self, number: int, version: float, seconds: float | None) -> bool:
        """Wait for a list newer than `version`, for so long at most; return whether the stream goes on."""
        try:
            async with asyncio.timeout(seconds):
                return await self._inventory.changed_since(version, lambda: number <= self.ended)
        except TimeoutError:
            return True


def _content_of(snapshot: Snapshot) -> Slices[bytes]:
    """Return the bytes of a list."""
    pieces: list[bytes] = []
    for piece in list_pieces(snapshot.advertised()):
        if pieces:
            yield
        pieces.append(piece)
    return b"".join(pieces)
