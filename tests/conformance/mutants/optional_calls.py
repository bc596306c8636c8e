"""Mutants of the optional calls, GetPreferredAllocation and PreStartContainer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from devplug.errors import InvalidRequestError, UnhealthyDeviceError
from devplug.wire.values import PluginOptions, PreferenceRequest
from tests.conformance.mutants import Mutant
from tests.conformance.right import Ids


class PrefersOneTooMany(Mutant):
    """Returns one device more than asked for, where there is one."""

    fails = ("PRE01",)

    def preferred(self, request: PreferenceRequest) -> Ids:
        wanted = dict.fromkeys((*request.must_include, *sorted(request.available)))
        return tuple(wanted)[: request.size + 1]


class ForgetsWhatMustBeIncluded(Mutant):
    """Chooses the first of the available devices."""

    fails = ("PRE02",)

    def preferred(self, request: PreferenceRequest) -> Ids:
        return tuple(sorted(request.available))[: request.size]


class PrefersWhatIsTaken(Mutant):
    """Chooses among all devices that it has."""

    fails = ("PRE03",)

    def preferred(self, request: PreferenceRequest) -> Ids:
        own = [device.id for device in self.devices() if device.health == "Healthy"]
        return tuple(dict.fromkeys((*request.must_include, *own)))[: request.size]


class PrefersOneTwice(Mutant):
    """Fills up with its favourite."""

    fails = ("PRE04",)

    def preferred(self, request: PreferenceRequest) -> Ids:
        favourite = min(request.available)
        return (*request.must_include, *([favourite] * request.size))[: request.size]


class RefusesToComplete(Mutant):
    """Cannot choose beside devices that are chosen already."""

    fails = ("PRE05",)

    def preferred(self, request: PreferenceRequest) -> Ids:
        if request.must_include:
            raise InvalidRequestError("no choice can be made")
        return super().preferred(request)


class PrefersSlowly(Mutant):
    """Thinks long where it has the choice of everything."""

    fails = ("PRE06",)
    times: ClassVar = {"preference_limit_seconds": 1.0}

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        if len(requests[0].available) == 4 and requests[0].size == 1:
            await asyncio.sleep(1.2)
        return await super().prefer(requests)


class PrefersForOneContainer(Mutant):
    """Answers the first container request of a call."""

    fails = ("PRE07",)

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        return await super().prefer(requests[:1])


class PrefersInTheOrderOfTheRequest(Mutant):
    """Takes the devices as they are named, which is at random."""

    fails = ("PRE08",)

    def preferred(self, request: PreferenceRequest) -> Ids:
        return tuple(dict.fromkeys((*request.must_include, *request.available)))[: request.size]


class LeavesPreferenceHanging(Mutant):
    """Does not announce preferred allocation, and never answers it."""

    fails = ("PRE09",)
    times: ClassVar = {"answer_seconds": 20.0}
    options = PluginOptions(pre_start_required=True)

    async def prefer(self, requests: Sequence[PreferenceRequest]) -> Sequence[Ids]:
        await asyncio.Event().wait()
        return await super().prefer(requests)


class RefusesToStart(Mutant):
    """Finds every device that it gave out out of order."""

    fails = ("PST01",)

    async def pre_start(self, ids: Ids) -> None:
        await super().pre_start(ids)
        raise UnhealthyDeviceError(f"{ids[0]} cannot be reset")


class HangsBeforeAStart(Mutant):
    """Never comes back from its second reset."""

    fails = ("PST02",)
    times: ClassVar = {"answer_seconds": 20.0}

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(folder, work)
        self.resets = 0

    async def pre_start(self, ids: Ids) -> None:
        self.resets += 1
        if self.resets == 2:
            await asyncio.Event().wait()
        await super().pre_start(ids)


class StartsOnlyOnce(Mutant):
    """Takes the allocation of a device for used up by the first start."""

    fails = ("PST03",)

    async def pre_start(self, ids: Ids) -> None:
        await super().pre_start(ids)
        if not self.handed_out.issuperset(ids):
            raise UnhealthyDeviceError(f"{ids[0]} is not allocated")
        self.handed_out.difference_update(ids)


class StartsAnything(Mutant):
    """Does not look at the IDs before a start."""

    fails = ("PST04",)

    async def pre_start(self, ids: Ids) -> None:
        pass


class LeavesPreStartHanging(Mutant):
    """Does not announce pre-start, and never answers it."""

    fails = ("PST05",)
    times: ClassVar = {"answer_seconds": 20.0}
    options = PluginOptions(preferred_allocation_available=True)

    async def pre_start(self, ids: Ids) -> None:
        await asyncio.Event().wait()
