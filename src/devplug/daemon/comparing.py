"""Compare what the kubelet lists under our resource names with what we list: another plugin may have a name.

What a difference means is decided in `devplug.plugin.takeover`; here is when to ask.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.holders.asking import UnansweredError, ask_allocatable
from devplug.holders.values import Allocated
from devplug.plugin.nameguard import FIRST_RENEWAL_SECONDS
from devplug.watching import shared_watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from devplug.daemon.configured import ConfiguredPlugin
    from devplug.exchange import AllocatableResources
    from devplug.holders.holders import Holders
    from devplug.plugin.nameguard import NameGuard

__all__ = ["compare_holders", "compare_lists"]

ASK_TIMEOUT_SECONDS: Final = 10.0

SETTLED_SECONDS: Final = 1.0
"""How long after an event the kubelet is asked: then it has what it was told, and much came at once."""

DOUBT_SECONDS: Final = 2.0
"""How soon it is asked again when something differs."""

QUICK_PERIOD_SECONDS: Final = 3.0
"""How often it is asked at most while there are events."""

LOST_PERIOD_SECONDS: Final = 5.0
"""How often it is asked while a name is lost: no event has to tell of the end of another plugin."""

LEVEL_SECONDS: Final = 300.0
"""How often it is asked without an event. Every list that the kubelet takes changes the plugin folder: it
writes its checkpoint anew (manager.go genericDeviceUpdateCallback); and plugins make and remove sockets."""


async def compare_lists(
    folder: Path, guards: Callable[[], Mapping[str, NameGuard]], pod_resources: Path
) -> None:
    """Ask the kubelet what it lists whenever that may have changed, and tell the guards; until cancelled."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    async with shared_watcher() as watcher:
        with watcher.subscribe(changed.set) as subscription:
            due = loop.time()
            while True:
                changed.clear()
                subscription.arm([str(folder / "*")])
                if await _ask(guards(), pod_resources):
                    due = loop.time() + QUICK_PERIOD_SECONDS
                if any(guard.is_in_doubt for guard in guards().values()):
                    await asyncio.sleep(DOUBT_SECONDS)
                    continue
                period = min(map(_period_seconds, guards().values()), default=LEVEL_SECONDS)
                await _wait(changed, period)
                await asyncio.sleep(max(SETTLED_SECONDS, due - loop.time()))


def _period_seconds(guard: NameGuard) -> float:
    if guard.fault:
        return LOST_PERIOD_SECONDS
    return FIRST_RENEWAL_SECONDS if guard.is_forgotten else LEVEL_SECONDS


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return


async def _ask(guards: Mapping[str, NameGuard], pod_resources: Path) -> bool:
    """Ask once, if there is anything to compare; return whether that was so.

    Without an answer nothing is known: `holders` tells of that.
    """
    asked_at = asyncio.get_running_loop().time()
    before = {name: listed for name, guard in guards.items() if (listed := guard.listed())}
    if not before:
        return False
    try:
        allocatable = await ask_allocatable(pod_resources, timeout_seconds=ASK_TIMEOUT_SECONDS)
    except UnansweredError:
        return True
    if allocatable is None:
        return True
    told = _by_name(allocatable)
    for name, guard in guards.items():
        if name in before:
            guard.compare(asked_at, before[name], told.get(name, frozenset()))
    return True


def _by_name(allocatable: AllocatableResources) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for devices in allocatable.devices:
        found.setdefault(devices.resource_name, set()).update(devices.device_ids)
    return {name: frozenset(ids) for name, ids in found.items()}


async def compare_holders(
    holders: Holders,
    guards: Callable[[], Mapping[str, NameGuard]],
    plugins: Callable[[], Mapping[str, ConfiguredPlugin]],
) -> None:
    """Tell the guards of devices that a container holds though we did not give them out; until cancelled."""
    with holders.differences() as differences:
        async for difference in differences:
            guard = guards().get(difference.resource_name)
            plugin = plugins().get(difference.resource_name)
            if guard is None or plugin is None:
                continue
            if not isinstance(difference, Allocated):
                guard.note_released(difference.device_id)
            elif difference.device_id not in plugin.answered:
                guard.note_given(difference.device_id)
