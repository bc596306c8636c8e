"""Mutants whose lists come at the wrong time, or not on every stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant, fails
from tests.conformance.mutants.restarts import beside


@fails("STR01", first_list_limit_seconds=1.0)
class ListsLate(Mutant):
    """Takes 1.3 s until its first stream gets a list."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.streams_opened == 1:
            await asyncio.sleep(1.3)
        async for devices in super().lists():
            yield devices


@fails("STR02")
class ListsNothingAtFirst(Mutant):
    """Sends an empty list, and its devices when it has found them."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.streams_opened == 1:
            yield []
        async for devices in super().lists():
            yield devices


@fails("STR07", silence_seconds=4.0)
class SendsTheSameListAgain(Mutant):
    """Sends its list every 0.3 s, changed or not."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        while True:
            yield self.devices()
            await asyncio.sleep(0.3)


@fails("STR07", silence_seconds=4.0)
class SendsTheSameListInAnotherOrder(Mutant):
    """Lists its devices forwards and backwards in turn."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        while True:
            yield self.devices()
            await asyncio.sleep(0.3)
            yield self.devices()[::-1]
            await asyncio.sleep(0.3)


@fails("STR11", first_list_limit_seconds=10.0)
class ServesOneStreamAtATime(Mutant):
    """Lets a second stream wait until the first has ended."""

    turn = asyncio.Lock()

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        async with self.turn:
            async for devices in super().lists():
                yield devices


@fails("STR11", settle_seconds=3.0)
class KeepsTwoStreams(Mutant):
    """Ends the oldest of three streams."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        number = self.streams_opened
        await asyncio.sleep(self.poll_seconds)  # the oldest ends before the newest gets its list
        sent = None
        while self.streams <= 2 or number > self.streams_opened - 2:
            if self.devices() != sent:
                sent = self.devices()
                yield sent
            await asyncio.sleep(self.poll_seconds)


@fails("STR13")
class EndsAllStreamsWithOne(Mutant):
    """Takes the cancellation of one stream of several for the end of all."""

    streams_ended = 0

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        ended = self.streams_ended
        sent = None
        try:
            while ended == self.streams_ended:
                if self.devices() != sent:
                    sent = self.devices()
                    yield sent
                await asyncio.sleep(self.poll_seconds)
        finally:
            self.streams_ended += self.streams > 2


@fails("STR13", skips=("HOS09",))
class MakesItsServerAnewWhenAStreamEnds(Mutant):
    """Takes the end of any stream for the end of the kubelet: closes its socket, binds again, registers."""

    is_over = False
    is_new = False

    async def list_and_watch(self, _: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        try:
            async for devices in super().list_and_watch(None):
                yield devices
        finally:
            self.is_over = True

    async def live(self) -> None:
        await beside(super().live, self.renew)

    async def renew(self) -> None:
        while True:
            await asyncio.sleep(4 * self.poll_seconds)
            if self.is_over:
                lost, self.listener = self.listener, self.make_listener()
                await lost.close()
                self.is_over = False  # also of the streams that it has ended just now
                self.is_new = True

    def is_wanting(self, is_same_kubelet: bool, opened: int) -> bool:
        return self.is_new or super().is_wanting(is_same_kubelet, opened)

    async def register(self) -> None:
        self.is_new = False
        await super().register()


@fails("STR14", silence_seconds=4.0)
class EndsItsStream(Mutant):
    """Ends a stream after a second without news, if it is the only one."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        sent = None
        idle_seconds = 0.0
        while idle_seconds < 1.0 or self.streams > 1:
            if self.devices() != sent:
                sent = self.devices()
                yield sent
                idle_seconds = 0.0
            await asyncio.sleep(self.poll_seconds)
            idle_seconds += self.poll_seconds


@fails("STR17")
class FloodsTheKubelet(Mutant):
    """Sends a list with every flicker of a broken device's link."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        while True:
            for numa_nodes in ((0,), None):
                yield [*self.devices(), AdvertisedDevice("dev-flicker", "Unhealthy", numa_nodes)]
                await asyncio.sleep(0.01)


@fails("STR18", silence_seconds=4.0)
class ForgetsADeviceNowAndThen(Mutant):
    """Leaves out a device when a look for it fails, every second time."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        while True:
            yield self.devices()
            await asyncio.sleep(0.3)
            yield self.devices()[:-1]
            await asyncio.sleep(0.3)
