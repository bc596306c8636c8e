"""The end of events: they are forgotten an hour after they were last told (kube-apiserver --event-ttl)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.objects import text
from devplug.sandbox.api.times import moment
from devplug.sandbox.controllers.loops import key_of, place_of
from devplug.sandbox.registry import EVENTS

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.registry import Registry

__all__ = ["EVENT_LIFE", "Expiry", "is_expired"]

EVENT_LIFE: Final = timedelta(hours=1)

_TOLD: Final = (
    ("lastTimestamp",),
    ("eventTime",),
    ("series", "lastObservedTime"),
    ("metadata", "creationTimestamp"),
)


def is_expired(event: Object, now: datetime) -> bool:
    """Whether an event was last told longer ago than events live; one without any time is not."""
    times = [told for path in _TOLD if (told := moment(text(event, *path)))]
    return bool(times) and now - max(times) > EVENT_LIFE


class Expiry:
    """What clears old events away; lives as long as `run`."""

    def __init__(self, registry: Registry, *, every_seconds: float = 60.0) -> None:
        self._registry = registry
        self._every_seconds = every_seconds

    async def run(self) -> None:
        """Delete old events, now and every minute, until cancelled."""
        while True:
            now = self._registry.now
            for key in [key_of(one) for one in self._registry.all(EVENTS) if is_expired(one, now)]:
                place = place_of(key)
                # Others had a turn: it may be gone, or have been told again.
                if (one := self._registry.find(EVENTS, *place)) and is_expired(one, now):
                    self._registry.delete(EVENTS, *place)
                await asyncio.sleep(0)
            await asyncio.sleep(self._every_seconds)
