"""The streams of a judged plugin: those that the kubelet holds, and further ones that a check opens."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.conformance.scripted_kubelet import Client
from devplug.conformance.testbed import once_in_a_run
from devplug.conformance.verdicts import SkippedError
from devplug.errors import RemoteError
from devplug.wire.deviceplugin import GET_OPTIONS
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug.conformance.testbed import TestBed

FALLS: Final = MappingProxyType(
    {
        "stream": "the plugin ends other streams with one (see STR11, STR13)",
        "connection": "the plugin ends its streams with any connection (see STR13)",
        "for good": "the plugin did not register after another caller's stream ended (see STR13, RES04)",
    }
)
"""What a check is skipped for that would take a plugin's answer to the end of a stream for its own fault."""


def clients_of(bed: TestBed) -> Sequence[Client]:
    """Return every connection that the kubelet has, or had, to the judged plugin; the newest last."""
    held = [attempt.client for attempt in bed.kubelet.attempts_since(0.0)]
    return [client for client in dict.fromkeys([*held, bed.kubelet.client]) if client is not None]


def last_client(bed: TestBed) -> Client:
    """Return the newest connection, whether it is still open or not. Raises `SkippedError` without any."""
    clients = clients_of(bed)
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
async def another_stream(bed: TestBed, first: Client) -> AsyncIterator[Client]:
    """Open one more stream where `first` is, over a connection of its own, and wait for its first list.

    None may have come: see `lists`. The stream is cancelled when the block is left, then the connection
    closed.
    """
    kubelet = bed.kubelet
    async with connected(first.path) as peer:
        other = Client(first.resource_name, first.path, peer, first.options, first.registered_at)

        async def follow() -> None:
            await kubelet.watch(other)
            kubelet.notify()

        task = kubelet.task_of(follow())
        try:
            await kubelet.until(
                lambda: bool(other.lists) or other.has_ended, bed.times.first_list_limit_seconds
            )
            yield other
        finally:
            task.cancel()
            await asyncio.wait([task])


async def fall(bed: TestBed) -> str:
    """Return with what a plugin takes the kubelet's stream down, a key of `FALLS`; empty for a right one.

    It is tried once in a run. Afterwards the plugin is registered again, unless it fell for good.
    """
    return await once_in_a_run(bed, _fall)


async def require_steady(bed: TestBed) -> None:
    """Raise `SkippedError` for a plugin that takes the kubelet's stream down with another."""
    if what := await fall(bed):
        raise SkippedError(FALLS[what])


async def _fall(bed: TestBed) -> str:
    first = bed.client
    async with another_stream(bed, first):
        async with another_stream(bed, first):
            pass
        if not await _has_fallen(bed, first):
            return ""
    if not await _is_back(bed):
        return "for good"
    first = bed.client
    async with connected(first.path) as peer:
        with suppress(RemoteError):
            await bed.call(GET_OPTIONS, None, peer=peer)
    if not await _has_fallen(bed, first):
        return "stream"
    return "connection" if await _is_back(bed) else "for good"


async def _has_fallen(bed: TestBed, client: Client) -> bool:
    await bed.kubelet.until(lambda: client.has_ended or not bed.is_alive(), bed.times.settle_seconds)
    return client.has_ended or not bed.is_alive()


async def _is_back(bed: TestBed) -> bool:
    await bed.kubelet.until(lambda: bed.is_ready() or not bed.is_alive(), bed.times.return_seconds)
    return await bed.is_settled()
