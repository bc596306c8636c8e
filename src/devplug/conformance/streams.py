"""The streams of a judged plugin: those that the kubelet holds, and further ones that a check opens."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.conformance.kubeletend import Client
from devplug.conformance.stage import once_in_a_run
from devplug.conformance.verdicts import SkippedError
from devplug.errors import RemoteError
from devplug.wire.methods import GET_OPTIONS
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug.conformance.stage import Stage

__all__ = [
    "FALLS",
    "another_stream",
    "clients_of",
    "fall",
    "healthy_ids",
    "ids_of",
    "last_client",
    "require_steady",
]

FALLS: Final = MappingProxyType(
    {
        "stream": "it ends other streams with one (see STR11, STR13)",
        "connection": "it ends its streams with any connection (see STR13)",
        "for good": "it did not register again after a stream of another caller had ended (see STR13, RES04)",
    }
)
"""What a check is skipped for that would take a plugin's answer to the end of a stream for its own fault."""


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


async def fall(stage: Stage) -> str:
    """Return with what a plugin takes the kubelet's stream down, a key of `FALLS`; empty for a right one.

    It is tried once in a run. Afterwards the plugin is registered again, unless it fell for good.
    """
    return await once_in_a_run(stage, _fall)


async def require_steady(stage: Stage) -> None:
    """Raise `SkippedError` for a plugin that takes the kubelet's stream down with another."""
    if what := await fall(stage):
        raise SkippedError(FALLS[what])


async def _fall(stage: Stage) -> str:
    first = stage.client
    async with another_stream(stage, first):
        async with another_stream(stage, first):
            pass
        if not await _has_fallen(stage, first):
            return ""
    if not await _is_back(stage):
        return "for good"
    first = stage.client
    async with connected(first.path) as peer:
        with suppress(RemoteError):
            await stage.call(GET_OPTIONS, None, peer=peer)
    if not await _has_fallen(stage, first):
        return "stream"
    return "connection" if await _is_back(stage) else "for good"


async def _has_fallen(stage: Stage, client: Client) -> bool:
    await stage.kubelet.until(lambda: client.has_ended or not stage.is_alive(), stage.times.settle_seconds)
    return client.has_ended or not stage.is_alive()


async def _is_back(stage: Stage) -> bool:
    await stage.kubelet.until(lambda: stage.is_ready() or not stage.is_alive(), stage.times.return_seconds)
    return await stage.is_settled()
