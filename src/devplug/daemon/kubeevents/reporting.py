"""Follow the daemon and tell the cluster: the option `--kube-events`."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from devplug.apiserver.access import ACCOUNT_FOLDER
from devplug.daemon.cluster import Retries
from devplug.daemon.kubeevents.lanes import ConditionLane, EventLane, keep_writing
from devplug.daemon.kubeevents.telling import Told, next_telling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.pulse import Pulse
    from devplug.status.values import ProcessStatus

__all__ = ["tell_cluster"]

logger = logging.getLogger(__name__)

LOOK_PAUSE_SECONDS: Final = 1.0
"""Shortest time between two looks: what comes and goes within it is no news to a cluster."""

LONGEST_RETRY_SECONDS: Final = 300.0


async def tell_cluster(
    status: Callable[[], ProcessStatus],
    pulse: Pulse,
    node_name: str,
    *,
    account: Path = ACCOUNT_FOLDER,
    retries: Retries | None = None,
    look_pause_seconds: float = LOOK_PAUSE_SECONDS,
    clock: Callable[[], float] = time.time,
) -> None:
    """Write Events and the condition of this machine's Node, for as long as it is not cancelled.

    `status` says how the daemon is, `pulse` beats when that may have changed. Raises nothing, and waits for
    the API server only here: what is wrong is logged once, and tried again.
    """
    events, condition = EventLane(node_name, clock), ConditionLane(node_name)
    retries = retries or Retries(most_seconds=LONGEST_RETRY_SECONDS)
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_writing(events, account, retries))
        group.create_task(keep_writing(condition, account, retries))
        group.create_task(_follow(status, pulse, events, condition, look_pause_seconds, clock))


async def _follow(
    status: Callable[[], ProcessStatus],
    pulse: Pulse,
    events: EventLane,
    condition: ConditionLane,
    look_pause_seconds: float,
    clock: Callable[[], float],
) -> None:
    told, before = Told(), None
    while True:
        await asyncio.sleep(look_pause_seconds)
        beat = pulse.next
        try:
            after = status()
            telling = next_telling(told, before, after, clock())
        except Exception:
            logger.exception("a look for the cluster failed")
            await beat.wait()
            continue
        told, before = telling.told, after
        for event in telling.events:
            events.put(event)
        if telling.condition is not None:
            condition.put(telling.condition)
        try:
            async with asyncio.timeout(telling.again_seconds):
                await beat.wait()
        except TimeoutError:
            continue
