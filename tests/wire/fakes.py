"""A plugin and a kubelet reduced to what the tests of the sockets steer and look at."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import hpack
import pytest

from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.codecs import MalformedMessageError
from devplug.wire.grpcio import grpc, keep_poller
from devplug.wire.sockets import Binding, Listener, Peer, connected, stream, unary
from devplug.wire.values import AdvertisedDevice, PluginOptions

Containers = Sequence[tuple[str, ...]]

LIST = (AdvertisedDevice("a", "Healthy", (0,)),)


def refuse(_: bytes, __: int) -> Sequence[ContainerResponse]:
    raise MalformedMessageError("Answer")


class Plugin:
    """A device plugin reduced to what a test steers."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hold = asyncio.Event()
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.answers: asyncio.Queue[Sequence[AdvertisedDevice] | None] = asyncio.Queue()
        self.hold.set()

    def bindings(self) -> tuple[Binding, ...]:
        return (
            unary(deviceplugin.GET_OPTIONS, self.options),
            unary(deviceplugin.ALLOCATE, self.allocate),
            stream(deviceplugin.LIST_AND_WATCH, self.list_and_watch),
        )

    async def options(self, _: None) -> PluginOptions:
        return PluginOptions()

    async def allocate(self, containers: Containers) -> Sequence[ContainerResponse]:
        self.entered.set()
        if self.error is not None:
            raise self.error
        await self.hold.wait()
        # As received: a plugin of others may answer with more than a variable can have.
        nothing: dict[str, object] = {"device_nodes": (), "mounts": (), "annotations": {}, "cdi_devices": ()}
        return [ContainerResponse.as_received(envs={"IDS": ",".join(ids)}, **nothing) for ids in containers]

    async def list_and_watch(self, _: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        self.entered.set()
        try:
            while (answer := await self.answers.get()) is not None:
                yield answer
            if self.error is not None:
                raise self.error
        finally:
            self.left.set()


@asynccontextmanager
async def served(path: Path, plugin: Plugin, **limits: Any) -> AsyncIterator[Peer]:
    """A plugin that listens, and a connection to it."""
    listener = Listener(path, plugin.bindings(), **limits)
    await listener.bind()
    try:
        async with connected(path, ready_within_seconds=30) as peer:
            yield peer
    finally:
        await listener.close()


async def refusal(peer: Peer, ids: tuple[str, ...] = ("a",)) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await peer.call(deviceplugin.ALLOCATE, [ids], timeout_seconds=30)
    return caught.value


class LoopWithGrpcio(asyncio.SelectorEventLoop):
    """A loop that bears grpcio's news of loops that are closed.

    grpcio has one queue for the whole process: each loop takes from it what became of calls that earlier
    loops began, and cannot tell those (completion_queue.pyx.pxi, `_handle_events`).
    """

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "PollerCompletionQueue" not in repr(context.get("handle")):
            super().call_exception_handler(context)


with_grpcio = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": LoopWithGrpcio})], ids=["with grpcio"]
)
"""Marks a single test on such a loop."""


async def allocate_raw(
    path: Path, content: bytes, method: str = deviceplugin.ALLOCATE.path, **options: Any
) -> str:
    """Call with any bytes, as a hostile client may; returns the status and its text."""
    keep_poller()
    async with grpc.aio.insecure_channel(f"unix:{path}", **options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(method, None, None)(content, timeout=30)
        return f"{caught.value.code().name} {caught.value.details()}"


def fields_sent(seen: bytes) -> dict[str, str]:
    """The header fields of the first call in what a client has sent; empty where they are not all there."""
    content = seen[len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") :]
    while len(content) >= 9:
        size = int.from_bytes(content[:3], "big")
        if content[3] == 1 and len(content) >= 9 + size:
            return {str(name): str(value) for name, value in hpack.Decoder().decode(content[9 : 9 + size])}
        content = content[9 + size :]
    return {}


class FolderEvents:
    """What inotify tells of a folder since the `with` began, for each name: made, moved in, or removed."""

    WORDS: ClassVar = {0x80: "moved in", 0x100: "made", 0x200: "removed"}

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert libc.inotify_add_watch(self.descriptor, os.fsencode(self.folder), sum(self.WORDS)) > 0
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def of(self, name: str) -> list[str]:
        content, found = os.read(self.descriptor, 64 * 1024), []
        while content:
            _, mask, _, length = struct.unpack_from("iIII", content)
            if content[16 : 16 + length].rstrip(b"\0") == os.fsencode(name):
                found.append(self.WORDS[mask])
            content = content[16 + length :]
        return found


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def eventually(claim: Callable[[], bool]) -> bool:
    """Whether `claim` comes true in a time that only a hang outlasts; for what other threads do."""
    end = time.monotonic() + 30
    while not (found := claim()) and time.monotonic() < end:
        os.sched_yield()
    return found
