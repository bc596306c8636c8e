"""Mutants that do not get along with those who were there before them."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from devplug.conformance.restart_scenes import is_listening
from tests.conformance.mutants import Mutant

if TYPE_CHECKING:
    from devplug.exchange import AdvertisedDevice


class NamesDevicesAfterItsProcess(Mutant):
    """Makes its IDs from its process ID."""

    fails = ("RES17",)

    def devices(self) -> list[AdvertisedDevice]:
        return [replace(device, id=f"{device.id}-{os.getpid()}") for device in super().devices()]


class EndsBeforeALeftSocket(Mutant):
    """Takes a socket file on which nobody listens for one in use."""

    fails = ("RES18",)

    async def serve(self) -> None:
        path = self.folder / self.endpoint
        looks = 40  # one that is about to end still removes its own
        while path.exists() and not is_listening(path):
            if not (looks := looks - 1):
                sys.exit("address already in use")
            await asyncio.sleep(0.05)
        await super().serve()


class LeavesThePredecessorsSocket(Mutant):
    """Has a socket name for each start, and removes none but its own."""

    fails = ("RES19",)
    endpoint = f"mutant-{os.getpid()}.sock"


class EndsBesideAnother(Mutant):
    """Ends if another of its kind serves already."""

    fails = ("RES20",)

    async def serve(self) -> None:
        if is_listening(self.folder / self.endpoint):
            sys.exit("another one is running already")
        await super().serve()
