"""Mutants whose lists are wrong, or come at the wrong time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.conformance.mutants import Mutant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug.exchange import AdvertisedDevice


class SendsTheSameListAgain(Mutant):
    """Sends its list every 0.3 s, changed or not."""

    fails = ("STR07",)

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        while True:
            yield self.devices()
            await asyncio.sleep(0.3)
