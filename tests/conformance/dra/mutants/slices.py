"""Mutants of the slices of a DRA driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.conformance.dra.http import StatusError
from tests.conformance.dra.mutants import Mutant, fails


@fails("DRA20", start_seconds=1.0)
class PublishesUnderAnotherName(Mutant):
    """Has another driver name in its slices than in GetInfo."""

    def specs(self) -> list[dict[str, Any]]:
        return [{**one, "driver": f"slices.{self.name}"} for one in super().specs()]


@fails("DRA21", also=("DRA24", "DRA30"))
class PublishesForAllNodes(Mutant):
    """Offers its devices to every node."""

    def specs(self) -> list[dict[str, Any]]:
        (spec,) = super().specs()
        del spec["nodeName"]
        return [{**spec, "allNodes": True}]

    def selector(self) -> str:
        return f"fieldSelector=spec.driver%3D{self.name}"


@fails("DRA22", also=("DRA27", "DRA28", "DRA29", "DRA38"), republish_limit_seconds=0.3)
class CountsItsSlicesWrong(Mutant):
    """Says that there are two slices, and writes one."""

    def specs(self) -> list[dict[str, Any]]:
        pool = {"name": self.pool(), "generation": 1, "resourceSliceCount": 2}
        return [{**one, "pool": pool} for one in super().specs()]


@fails("DRA38", republish_limit_seconds=0.4)
class PublishesAgainLate(Mutant):
    """Waits for more events before it writes slices, as upstream's helper does for 30 s."""

    async def take_event(self, event: Mapping[str, Any]) -> bool:
        await asyncio.sleep(1.0)
        return await super().take_event(event)


@fails("DRA23", also=("DRA27", "DRA28", "DRA29", "DRA70", "DRA78", "DRA79"))
class NumbersDevicesInEachSlice(Mutant):
    """Has two slices, and begins with the same name in both."""

    def specs(self) -> list[dict[str, Any]]:
        (spec,) = super().specs()
        pool = {"name": self.pool(), "generation": 1, "resourceSliceCount": 2}
        return [{**spec, "pool": pool}, {**spec, "pool": pool, "devices": spec["devices"][:1]}]


@fails("DRA24")
class OwnsItsSlicesAlone(Mutant):
    """Writes no owner reference."""

    async def owners(self) -> list[dict[str, Any]]:
        return []


@fails("DRA25", also=("DRA26", "DRA34"))
class PublishesWhatIsRefused(Mutant):
    """Has one more slice, with a device name that no DNS label is."""

    async def sync(self) -> str:
        version = await super().sync()
        (spec,) = self.specs()
        pool = {"name": "more", "generation": 1, "resourceSliceCount": 1}
        try:
            await self.create({**spec, "pool": pool, "devices": [{"name": "GPU_0"}]})
        except StatusError as error:
            self.say(str(error))
        return version


@fails("DRA26", also=("DRA34",))
class WritesAllTheTime(Mutant):
    """Writes its slice every tenth of a second, as if it had changed."""

    async def publish(self) -> None:
        while True:
            try:
                await self.sync()
                listed = await self.api.request("GET", f"{self.slices}?{self.selector()}")
                for one in listed["items"]:
                    one["metadata"]["labels"] = {"at": str(int(10 * asyncio.get_running_loop().time()))}
                    await self.api.request("PUT", f"{self.slices}/{one['metadata']['name']}", one)
            except (OSError, StatusError) as error:
                self.say(str(error))
            await asyncio.sleep(0.1)


@fails("DRA27", also=("DRA25", "DRA28", "DRA29", "DRA34", "DRA70", "DRA78", "DRA79"), slices_seconds=1.0)
class PublishesOnce(Mutant):
    """Writes its slices at the start, and takes it that they stay."""

    async def publish(self) -> None:
        await self.sync()


@fails("DRA28", slices_seconds=1.0, settle_seconds=1.5)
class LooksOnlyAtDeletions(Mutant):
    """Writes its slices again when one is deleted, and not when one is changed."""

    async def take_event(self, event: Mapping[str, Any]) -> bool:
        return event["type"] == "MODIFIED" or await super().take_event(event)


@fails("DRA29", also=("DRA35",))
class TaintsAnew(Mutant):
    """Leaves timeAdded to the API server."""

    def devices(self) -> list[dict[str, Any]]:
        return [
            {**one, "taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}
            if "taints" in one
            else one
            for one in super().devices()
        ]

    async def sync(self) -> str:
        listed = await self.api.request("GET", f"{self.slices}?{self.selector()}")
        if not listed["items"] or len(listed["items"][0]["spec"].get("devices", ())) < len(self.devices()):
            await super().sync()
        return str(listed["metadata"]["resourceVersion"])


@fails("DRA30", also=("DRA31",))
class TakesAllSlicesForItsOwn(Mutant):
    """Lists without a selector, and deletes what it does not know."""

    def selector(self) -> str:
        return "limit=500"


@fails("DRA31", also=("DRA34",), slices_seconds=1.0)
class LeavesOldSlices(Mutant):
    """Looks only at the slices of its pool."""

    async def sync(self) -> str:
        listed = await self.api.request("GET", f"{self.slices}?{self.selector()}")
        if not any(one["spec"] in self.specs() for one in listed["items"]):
            for one in listed["items"]:
                if one["spec"]["pool"]["name"] == self.pool():
                    await self.api.request("DELETE", f"{self.slices}/{one['metadata']['name']}")
            await self.create(self.specs()[0])
        return str(listed["metadata"]["resourceVersion"])


@fails("DRA32", also=("DRA33", "DRA81"))
class NumbersDevicesAnew(Mutant):
    """Gives its devices names by a number that goes up with each start."""

    def devices(self) -> list[dict[str, Any]]:
        return [{**one, "name": f"{one['name']}-{self.starts}"} for one in super().devices()]

    def load(self) -> None:
        counted = self.folder / "starts"
        self.starts = int(counted.read_text()) + 1 if counted.exists() else 1
        counted.write_text(str(self.starts))
        super().load()


@fails("DRA34")
class WritesDroppedFieldsAgain(Mutant):
    """Compares with what it wants, and not with what the server made of it."""

    async def sync(self) -> str:
        self.stored.clear()
        return await super().sync()
