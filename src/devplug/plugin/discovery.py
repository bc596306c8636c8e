"""Ask a plugin for its devices, for ever: what `devices` returns or yields becomes the inventory's lists."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.errors import PluginError, one_line
from devplug.plugin.hooks import is_cancelled, only_errors
from devplug.plugin.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.inventory import Inventory

__all__ = ["discover"]

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 30.0
DISTRUST_AFTER_SECONDS: Final = 30.0
"""How long the last list is believed while `devices` fails."""

CLOSE_SECONDS: Final = 0.5
"""How long a plain generator gets to reach its `finally`; one that blocks longer is left to its thread."""

_END = object()


async def discover(
    plugin: DevicePlugin,
    inventory: Inventory,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Keep `inventory` up to date until cancelled, or return when `devices` returned its one and only list.

    Raises `PluginError` if `devices` fails before its first list. Later the list stands, `devices` is called
    again after 1 to 30 s, and after 30 s without a good list every device is Unhealthy and says why.
    """
    with DaemonThreads(1, f"devices-{plugin.resource_name}") as threads:
        await _discover(plugin, inventory, threads, clock, sleep)


async def _discover(
    plugin: DevicePlugin,
    inventory: Inventory,
    threads: DaemonThreads,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]],
) -> None:
    retry_seconds = FIRST_RETRY_SECONDS
    failing_since: float | None = None
    while True:
        lists_before = inventory.lists_taken
        try:
            is_final = await _ask(plugin, inventory, threads)
        except Exception as error:
            if not inventory.is_ready:
                if isinstance(error, PluginError):
                    raise
                raise PluginError(f"{plugin.resource_name}: devices failed: {error!r}") from error
            now = clock()
            inventory.note_failure(f"devices fails: {one_line(repr(error), 100)}")
            if failing_since is None or inventory.lists_taken > lists_before:
                failing_since, retry_seconds = now, FIRST_RETRY_SECONDS
            logger.warning(
                "devices failed, the last list stands",
                extra={"resource_name": plugin.resource_name, "retry_seconds": round(retry_seconds, 1)},
                exc_info=error,
            )
            if now - failing_since >= DISTRUST_AFTER_SECONDS:
                await inventory.distrust(f"devices fails: {one_line(repr(error), 100)}")
        else:
            if is_final:
                return
            if not inventory.is_ready:
                raise PluginError(f"{plugin.resource_name}: devices ended without giving a list")
            failing_since, retry_seconds = None, FIRST_RETRY_SECONDS
        await sleep(retry_seconds * random.uniform(0.8, 1.2))  # noqa: S311 -- spreads load, no secret
        retry_seconds = min(2 * retry_seconds, LAST_RETRY_SECONDS)


async def _ask(plugin: DevicePlugin, inventory: Inventory, threads: DaemonThreads) -> bool:
    """Follow `devices` once; a cancellation stays one, also where the author's clean-up raises on its way."""
    try:
        with only_errors():
            return await _follow(plugin, inventory, threads)
    except Exception as error:
        if not is_cancelled():
            raise
        extra = {"resource_name": plugin.resource_name}
        logger.warning("devices failed to clean up", extra=extra, exc_info=error)
        raise asyncio.CancelledError from error


async def _follow(plugin: DevicePlugin, inventory: Inventory, threads: DaemonThreads) -> bool:
    """Call `devices` once and take all its lists; return whether it was one list and not an iterator."""
    loop = asyncio.get_running_loop()
    if inspect.iscoroutinefunction(plugin.devices) or inspect.isasyncgenfunction(plugin.devices):
        given: object = plugin.devices()
    else:
        given = await loop.run_in_executor(threads, plugin.devices)
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, AsyncIterable):
        await _follow_async(aiter(given), inventory)
    elif isinstance(given, Iterator):
        await _follow_thread(given, inventory, threads)
    else:
        await inventory.replace(given)
        return True
    return False


async def _follow_async(lists: AsyncIterator[object], inventory: Inventory) -> None:
    try:
        async for listed in lists:
            await inventory.replace(listed)
    finally:
        if inspect.isasyncgen(lists):
            await lists.aclose()


async def _follow_thread(lists: Iterator[object], inventory: Inventory, threads: DaemonThreads) -> None:
    loop = asyncio.get_running_loop()
    try:
        while (listed := await loop.run_in_executor(threads, next, lists, _END)) is not _END:
            await inventory.replace(listed)
    finally:
        if inspect.isgenerator(lists):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await loop.run_in_executor(threads, lists.close)
