"""Mutants of devices that come and go."""

from __future__ import annotations

from typing import Any

from devplug.wire.dra import ClaimName
from tests.conformance.dra.mutants import Mutant, fails


@fails("DRA35", change_seconds=1.0)
class LooksForDevicesOnce(Mutant):
    """Looks for its devices at its start."""

    async def look(self) -> None:
        pass

    def is_there(self, number: int) -> bool:
        return True


@fails("DRA36", change_seconds=1.0)
class NamesWhatComesBackAnew(Mutant):
    """Takes a device that is plugged in again for another one."""

    def __init__(self, *arguments: Any) -> None:
        self.returns = 0
        self.was_there = True
        super().__init__(*arguments)

    def devices(self) -> list[dict[str, Any]]:
        devices = super().devices()
        self.returns += self.is_there(0) and not self.was_there
        self.was_there = self.is_there(0)
        if self.was_there and self.returns:
            devices[0]["name"] = f"dev-0-{self.returns}"
        return devices


@fails("DRA37")
class NeedsTheDeviceToUnprepare(Mutant):
    """Resets the device in unprepare, and fails where it is gone."""

    async def end_of(self, claim: ClaimName) -> str:
        names = {one["name"] for one in self.devices()}
        lost = [one["device"] for one in self.prepared.get(claim.uid, ()) if one["device"] not in names]
        return f"device {lost[0]} is gone" if lost else await super().end_of(claim)
