"""Mutants of the stream of health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from devplug.wire.dra import DeviceHealthReport
from tests.conformance.dra.mutants import Mutant, fails


@fails("DRA90")
class ReportsAnotherPool(Mutant):
    """Reports its devices, and the machine's others in a pool that no slice has."""

    def reports(self) -> list[DeviceHealthReport]:
        right = super().reports()
        return [*right, *(replace(one, pool_name="local") for one in right)]


@fails("DRA91", also=("DRA93",))
class EndsItsStream(Mutant):
    """Ends the stream when it has nothing to say."""

    async def watch_health(self, _: None) -> AsyncIterator[Sequence[DeviceHealthReport]]:
        yield self.reports()


@fails("DRA92", first_list_limit_seconds=0.5)
class TellsEachChangeOnce(Mutant):
    """Tells what has changed since it last told anybody."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[DeviceHealthReport] = []

    def reports(self) -> list[DeviceHealthReport]:
        reports = super().reports()
        told, self.told = self.told, reports
        return [one for one in reports if one not in told]


@fails("DRA93", health_seconds=0.5)
class ReportsOnce(Mutant):
    """Reports at the stream's begin, and then what changes, which is nothing."""

    async def watch_health(self, _: None) -> AsyncIterator[Sequence[DeviceHealthReport]]:
        yield self.reports()
        await asyncio.Event().wait()


@fails("DRA94")
class SaysNotWhy(Mutant):
    """Reports without messages."""

    def reports(self) -> list[DeviceHealthReport]:
        return [replace(one, message="") for one in super().reports()]
