"""Mutants of the optional calls, GetPreferredAllocation and PreStartContainer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from devplug.errors import InvalidRequestError, UnhealthyDeviceError
from devplug.wire.values import PluginOptions, PreferenceRequest
from tests.conformance.mutants import Mutant, fails
from tests.conformance.right import Ids


@fails("PRE01")
class PrefersOneTooMany(Mutant):
    """Returns one device more than asked for, where there is one."""

    def preferred(self, request: PreferenceRequest) -> Ids:
        wanted = dict.fromkeys((*request.must_include, *sorted(request.available)))
        return tuple(wanted)[: request.size + 1]


@fails("PRE02")
class ForgetsWhatMustBeIncluded(Mutant):
    """Chooses the first of the available devices."""

    def preferred(self, request: PreferenceRequest) -> Ids:
        return tuple(sorted(request.available))[: request.size]


@fails("PRE03")
class PrefersWhatIsTaken(Mutant):
    """Chooses among all devices that it has."""

    def preferred(self, request: PreferenceRequest) -> Ids:
        own = [device.id for device in self.devices() if device.health == "Healthy"]
        return tuple(dict.fromkeys((*request.must_include, *own)))[: request.size]


@fails("PRE04")
class PrefersOneTwice(Mutant):
    """Fills up with its favourite."""

    def preferred(self, request: PreferenceRequest) -> Ids:
        favourite = min(request.available)
        return (*request.must_include, *([favourite] * request.size))[: request.size]


@fails("PRE05")
class RefusesToComplete(Mutant):
    """Cannot choose beside devices that are chosen already."""

    def preferred(self, request: PreferenceRequest) -> Ids:
        if request.must_include:
            raise InvalidRequestError("no choice can be made")
        return super().preferred(request)


@fails("PRE06", preference_limit_seconds=1.0)
class PrefersSlowly(Mutant):
    """Thinks long where it has the choice of everything."""

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        if len(requests[0].available) == 4 and requests[0].size == 1:
            await asyncio.sleep(1.2)
        return await super().prefer(requests)


@fails("PRE07")
class PrefersForOneContainer(Mutant):
    """Answers the first container request of a call."""

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        return await super().prefer(requests[:1])


@fails("PRE08")
class PrefersInTheOrderOfTheRequest(Mutant):
    """Takes the devices as they are named, which is at random."""

    def preferred(self, request: PreferenceRequest) -> Ids:
        return tuple(dict.fromkeys((*request.must_include, *request.available)))[: request.size]


@fails("PRE09", answer_seconds=20.0)
class LeavesPreferenceHanging(Mutant):
    """Does not announce preferred allocation, and never answers it."""

    options = PluginOptions(pre_start_required=True)

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        await asyncio.Event().wait()
        return await super().prefer(requests)


@fails("PST01")
class RefusesToStart(Mutant):
    """Finds every device that it gave out out of order."""

    async def pre_start(self, ids: Ids) -> None:
        await super().pre_start(ids)
        raise UnhealthyDeviceError(f"{ids[0]} cannot be reset")


@fails("PST02", answer_seconds=20.0)
class HangsBeforeAStart(Mutant):
    """Never comes back from its second reset."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.resets = 0

    async def pre_start(self, ids: Ids) -> None:
        self.resets += 1
        if self.resets == 2:
            await asyncio.Event().wait()
        await super().pre_start(ids)


@fails("PST03")
class StartsOnlyOnce(Mutant):
    """Takes the allocation of a device for used up by the first start."""

    async def pre_start(self, ids: Ids) -> None:
        await super().pre_start(ids)
        if not self.handed_out.issuperset(ids):
            raise UnhealthyDeviceError(f"{ids[0]} is not allocated")
        self.handed_out.difference_update(ids)


@fails("PST04")
class StartsAnything(Mutant):
    """Does not look at the IDs before a start."""

    async def pre_start(self, ids: Ids) -> None:
        pass


@fails("PST05", answer_seconds=20.0)
class LeavesPreStartHanging(Mutant):
    """Does not announce pre-start, and never answers it."""

    options = PluginOptions(preferred_allocation_available=True)

    async def pre_start(self, ids: Ids) -> None:
        await asyncio.Event().wait()
