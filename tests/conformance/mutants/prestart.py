"""Mutants that stand in the way of a container's start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from devplug.errors import UnhealthyDeviceError
from devplug.exchange import PluginOptions
from tests.conformance.mutants import Mutant

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.right import Ids


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
