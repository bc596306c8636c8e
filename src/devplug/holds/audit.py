"""The audit lines: which containers hold and release devices."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from devplug.holds.held_device import Allocated
from devplug.logs import AUDIT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from devplug.holds.held_device import Difference
    from devplug.holds.holders import Holders

__all__ = ["audit_holders"]

audit = logging.getLogger(AUDIT)


async def audit_holders(holders: Holders, names: Callable[[], Collection[str]]) -> None:
    """Log which containers hold and release devices of the resources `names`, until cancelled.

    The kubelet is asked for that only while one of them is held.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_ask_while_held(holders, names))
        # Read all the time: one answer may release the last devices of several pods at once.
        with holders.differences() as differences:
            async for difference in differences:
                if difference.resource_name in names():
                    _log_difference(difference)


async def _ask_while_held(holders: Holders, names: Callable[[], Collection[str]]) -> None:
    def is_any_held() -> bool:
        return any(holders.held_ids(name) for name in (*names(), *holders.left))

    while True:
        await holders.wait(is_any_held)
        with holders.needed():
            await holders.wait(lambda: not is_any_held())


def _log_difference(difference: Difference) -> None:
    holder = difference.holder
    facts = {
        "resource_name": difference.resource_name,
        "device_id": difference.device_id,
        "pod": f"{holder.namespace}/{holder.pod}" if holder else "",
        "container_name": holder.container if holder else "",
    }
    if isinstance(difference, Allocated):
        audit.info("device held", extra=facts)
    else:
        audit.info("device released", extra={**facts, "is_free": difference.is_free})
