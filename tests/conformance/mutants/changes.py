"""Mutants that do not notice that a device went or came back, or do not tell all of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant, fails


@fails("STR20", change_seconds=20.0)
class LooksForDevicesOnce(Mutant):
    """Lists for ever what was there at its start."""

    def is_gone(self, id_: str) -> bool:
        return False


@fails("STR21", notice_limit_seconds=1.0)
class NoticesLate(Mutant):
    """Takes a device for gone when it has been away for three seconds."""

    def is_gone(self, id_: str) -> bool:
        try:
            gone_at = (self.work / f"gone-{id_}").stat().st_mtime
        except FileNotFoundError:
            return False
        return time.time() - gone_at > 3.0


@fails("STR22")
class DropsWhatPodsHave(Mutant):
    """Lists no device that is gone, whoever has it."""

    def devices(self) -> list[AdvertisedDevice]:
        return [device for device in super().devices() if not self.is_gone(device.id)]


@fails("STR23", change_seconds=20.0)
class NeverForgivesADevice(Mutant):
    """Takes a device that was gone once for gone for ever."""

    lost: frozenset[str] = frozenset()

    def is_gone(self, id_: str) -> bool:
        self.lost |= {id_} if super().is_gone(id_) else set()
        return id_ in self.lost


@fails("STR24", change_seconds=20.0)
class LetsAbandonedStreamsTakeTheNews(Mutant):
    """Leaves the loop of a cancelled stream running until it has taken a change, and finds nobody there."""

    orphans = 0

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        told = None
        try:
            while True:
                devices = self.devices()
                if devices != told and told is not None and self.orphans:
                    self.orphans -= 1
                    told = devices
                if devices != told:
                    yield devices
                    told = devices
                await asyncio.sleep(self.poll_seconds)
        finally:
            self.orphans += 1


@fails("STR25", change_seconds=20.0)
class TellsOnlyTheFirstStream(Mutant):
    """Gives later streams the list as it was when they were opened."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        if self.streams > 1:
            yield self.devices()
            await self.stopping.wait()
        async for devices in super().lists():
            yield devices
