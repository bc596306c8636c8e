"""What the judge does to a plugin that no kubelet does, beyond measure; and whether it serves afterwards."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.conformance.rawbytes import raw
from devplug.conformance.stage import once_in_a_run
from devplug.conformance.streams import fall, require_steady
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError
from devplug.wire.methods import ALLOCATE, GET_OPTIONS, LIST_AND_WATCH
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from devplug.conformance.program import Figures
    from devplug.conformance.stage import Stage
    from devplug.wire.methods import Method
    from devplug.wire.sockets import Peer

__all__ = [
    "come_and_go",
    "connection",
    "expect_served",
    "no_free_descriptors",
    "probe",
    "require_service",
    "settled",
    "silent_connections",
    "streams",
    "talk",
]


# ── whether it serves ──


async def probe(stage: Stage, peer: Peer, seconds: float) -> None:
    """Call as the kubelet does for a pod, or for the options where there is no device."""
    ids = stage.client.healthy_ids[:1]
    if ids:
        await stage.call(ALLOCATE, [tuple(ids)], seconds=seconds, peer=peer)
    else:
        await stage.call(GET_OPTIONS, None, seconds=seconds, peer=peer)


async def require_service(stage: Stage) -> None:
    """Raise `SkippedError` unless the plugin serves before anything is done to it, as `expect_served` wants.

    One that ends its streams with any connection is skipped too: what else ended them could not be told.
    """
    if trouble := await once_in_a_run(stage, _trouble):
        raise SkippedError(trouble)
    if await fall(stage) not in {"", "stream"}:
        await require_steady(stage)


async def _trouble(stage: Stage) -> str:
    """Return how it fails to give a device, and to give it again; empty if it does not."""
    try:
        for _ in range(2):
            await probe(stage, stage.client.peer, stage.times.answer_seconds)
    except RemoteError as error:
        return f"before anything is done to it, a healthy device is answered with {error} (see ALL01, ALL10)"
    return ""


async def expect_served(stage: Stage, what: str) -> None:
    """Raise `FailedError` unless it serves after `what`, over the connection that is there and a new one."""
    try:
        await stage.check_serves()
        async with connected(stage.client.path, ready_within_seconds=stage.times.answer_seconds) as peer:
            await stage.call(GET_OPTIONS, None, peer=peer)
    except (FailedError, RemoteError) as error:
        # What is still ending must not be taken for a plugin that the next check can use.
        await stage.kubelet.until(lambda: not stage.is_ready(), stage.times.settle_seconds)
        raise FailedError(f"{what}: {error}") from error


async def settled(stage: Stage, is_right: Callable[[Figures], bool]) -> Figures:
    """Return the figures of its process, as soon as they are right or when nothing more is to come."""
    end = time.monotonic() + stage.times.change_seconds
    while True:
        figures = stage.program.figures()
        if is_right(figures) or time.monotonic() > end:
            return figures
        await asyncio.sleep(stage.times.settle_seconds / 10)


# ── what strangers do ──


async def talk(stage: Stage, content: bytes) -> None:
    """Say something on a connection of its own, listen for a moment, and break off."""
    with suppress(OSError, TimeoutError):
        async with connection(stage) as (reader, writer):
            writer.write(content)
            await writer.drain()
            async with asyncio.timeout(stage.times.settle_seconds / 4):
                while await reader.read(2**16):
                    pass


@asynccontextmanager
async def connection(stage: Stage) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Hold one connection, broken off at the end of the block. Raises `OSError` where it is not taken."""
    reader, writer = await asyncio.open_unix_connection(stage.client.path)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def silent_connections(stage: Stage, count: int) -> AsyncIterator[int]:
    """Hold up to `count` connections; yield how many there were."""
    async with AsyncExitStack() as stack:
        held = 0
        with suppress(OSError):  # its queue is full, which is as good
            for _ in range(count):
                await stack.enter_async_context(connection(stage))
                held += 1
        yield held


async def come_and_go(stage: Stage, count: int) -> None:
    """Connect and break off, one time after the other."""
    for _ in range(count):
        with suppress(OSError):
            async with connection(stage):
                pass


@asynccontextmanager
async def streams(stage: Stage, peer: Peer, count: int, request: bytes) -> AsyncIterator[int]:
    """Hold up to `count` streams that have sent a list; yield how many. A plugin may have a limit of them."""
    method: Method[bytes, bytes] = raw(LIST_AND_WATCH)
    async with AsyncExitStack() as stack:
        opened = 0
        with suppress(RemoteError, TimeoutError, StopAsyncIteration):
            for _ in range(count):
                lists = await stack.enter_async_context(aclosing(peer.stream(method, request)))
                async with asyncio.timeout(stage.times.first_list_limit_seconds):
                    await anext(lists)
                opened += 1
        yield opened


@contextmanager
def no_free_descriptors(stage: Stage) -> Iterator[None]:
    """Have no process of the plugin open anything more within the block. Raises `SkippedError`."""
    limits = {}
    try:
        for pid in stage.program.pids():
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            in_use = max((int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()), default=0) + 1
            limits[pid] = (soft, hard)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, in_use), hard))
    except OSError as error:
        _restore(limits)
        raise SkippedError(f"the limit of its descriptors cannot be set: {error.strerror}") from error
    try:
        yield
    finally:
        _restore(limits)


def _restore(limits: dict[int, tuple[int, int]]) -> None:
    for pid, limit in limits.items():
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
