"""The streams of a judged plugin: those that the kubelet holds, and further ones that a check opens."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from devplug.conformance.kubeletend import Client
from devplug.conformance.verdicts import SkippedError
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug.conformance.stage import Stage

__all__ = ["another_stream", "clients_of", "healthy_ids", "ids_of", "last_client"]


def clients_of(stage: Stage) -> Sequence[Client]:
    """Return every connection that the kubelet has, or had, to the judged plugin; the newest last."""
    held = [attempt.client for attempt in stage.kubelet.attempts_since(0.0)]
    return [client for client in dict.fromkeys([*held, stage.kubelet.client]) if client is not None]


def last_client(stage: Stage) -> Client:
    """Return the newest connection, whether it is still open or not. Raises `SkippedError` without any."""
    clients = clients_of(stage)
    if not clients:
        raise SkippedError("the plugin was never registered, so no stream was opened (REG01)")
    return clients[-1]


def ids_of(client: Client) -> frozenset[str]:
    """Return the IDs in the last list of a stream."""
    return frozenset(device.id for device in client.devices)


def healthy_ids(client: Client | None) -> frozenset[str]:
    """Return the devices that a kubelet could give out: none where there is no stream any more."""
    if client is None or client.has_ended:
        return frozenset()
    return frozenset(client.healthy_ids)


@asynccontextmanager
async def another_stream(stage: Stage, first: Client) -> AsyncIterator[Client]:
    """Open one more stream where `first` is, over a connection of its own, and wait for its first list.

    None may have come: see `lists`. The stream is cancelled when the block is left, then the connection
    closed.
    """
    kubelet = stage.kubelet
    tasks: asyncio.TaskGroup = stage.tasks
    async with connected(first.path) as peer:
        other = Client(first.resource_name, first.path, peer, first.options)

        async def follow() -> None:
            await kubelet.watch(other)
            await kubelet.notify()

        task = tasks.create_task(follow())
        try:
            await kubelet.until(
                lambda: bool(other.lists) or other.has_ended, stage.times.first_list_limit_seconds
            )
            yield other
        finally:
            task.cancel()
            await asyncio.wait([task])
