"""What the kubelet was last told on each stream: of devices that left the list and came back, when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.plugin.slices import slices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from devplug.devices import Device
    from devplug.plugin.slices import Slices

__all__ = ["Told"]

TAKEN_SECONDS: Final = 0.1
"""How long a kubelet may take to believe a list that was sent to it: it syncs a file after each."""

FORGET_SECONDS: Final = 60.0
"""How long after a device left the list an Allocate may come that was sent before; none takes that long."""


@dataclass(slots=True)
class _Stream:
    devices: Mapping[str, Device] = field(default_factory=dict)
    at: float | None = None
    """When they were sent; None while they are about to be."""
    coming: Mapping[str, Device] | None = None
    """Those that take the place of `devices`, until it is known which of them have left."""
    left_at: Mapping[str, float] = field(default_factory=dict)
    """When devices left the list, also of those that are back."""

    def wait_seconds(self, id_: str, now: float) -> float:
        """Return how long to wait for one device, if no list is sent meanwhile."""
        is_leaving = self.coming is not None and id_ in self.devices and id_ not in self.coming
        if not is_leaving and id_ not in self.left_at:
            return 0.0
        if self.at is None or self.coming is not None or id_ not in self.devices:
            return FORGET_SECONDS
        return self.at + TAKEN_SECONDS - now


class Told:
    """Lives as long as its service. Times are seconds on the loop's clock.

    The kubelet looks devices up when it has the answer to an Allocate, and crashes if one is not in its list
    (manager.go allocateContainerResources). A device may have been in the list when it was asked for, and be
    in ours again, while the kubelet has only got the list between the two.
    """

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._changed = asyncio.Event()

    def tell(self, number: int, devices: Mapping[str, Device], now: float) -> Slices[None]:
        """Note that a list is about to be sent on a stream; `sent` follows soon, whatever the peer does."""
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
        self._change()

    def sent(self, number: int, now: float) -> None:
        """Note that it is on its way."""
        self._streams[number].at = now
        self._change()

    def end(self, number: int) -> None:
        """Note that a stream has ended."""
        self._streams.pop(number, None)
        self._change()

    async def until_known(self, ids: Collection[str]) -> None:
        """Wait until the kubelet knows devices again that have left its list and come back, if any has."""
        loop = asyncio.get_running_loop()
        while (wait_seconds := self._wait_seconds(ids, loop.time())) > 0:
            changed = self._changed
            try:
                async with asyncio.timeout(wait_seconds):
                    await changed.wait()
            except TimeoutError:
                continue

    def _wait_seconds(self, ids: Iterable[str], now: float) -> float:
        """Return how long to wait, if no list is sent meanwhile; 0 if there is nothing to wait for."""
        ids = tuple(ids)
        return max(
            (stream.wait_seconds(id_, now) for stream in self._streams.values() for id_ in ids), default=0.0
        )

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
