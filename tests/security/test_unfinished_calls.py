"""Clients of a plugin's socket that begin much and finish nothing: they make room for the kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from devplug.errors import RemoteError
from devplug.linux.shares import Standing, first_to_go
from devplug.wire import deviceplugin
from devplug.wire.http2.headers import header_block
from devplug.wire.limits import CALLS_AT_ONCE_LIMIT, CONNECTIONS_LIMIT, STREAMS_LIMIT
from devplug.wire.sockets import Peer, connected
from devplug.wire.values import AdvertisedDevice, PluginOptions
from tests.waiting import until
from tests.wire.fakes import LIST, Plugin, served
from tests.wire.http2.made import DATA, END_HEADERS, HEADERS, HELLO, frame

BLOCK = header_block(
    [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", deviceplugin.ALLOCATE.path.encode()),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
)


def head(stream_id: int) -> bytes:
    """The head of an Allocate whose message never comes."""
    return frame(HEADERS, END_HEADERS, stream_id, BLOCK)


def beginning(stream_id: int, size: int) -> bytes:
    """The first bytes of a message that is one byte longer."""
    content = b"\0" + (size + 1).to_bytes(4, "big") + bytes(size)
    pieces = [content[start : start + 16384] for start in range(0, len(content), 16384)]
    return b"".join(frame(DATA, 0, stream_id, piece) for piece in pieces)


@asynccontextmanager
async def raw(path: Path) -> AsyncIterator[asyncio.StreamWriter]:
    _, writer = await asyncio.open_unix_connection(path, limit=2**24)
    try:
        yield writer
    finally:
        writer.close()


async def is_answered(path: Path) -> bool:
    async with connected(path, ready_within_seconds=60) as kubelet:
        return await kubelet.call(deviceplugin.GET_OPTIONS, None, timeout_seconds=60) == PluginOptions()


async def test_connections_with_unfinished_calls_make_room(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()), AsyncExitStack() as stack:
        for _ in range(2 * CONNECTIONS_LIMIT):
            writer = await stack.enter_async_context(raw(path))
            writer.write(HELLO + head(1))
            await writer.drain()
        assert await is_answered(path)


async def test_connections_with_finished_calls_make_room(short_dir: Path) -> None:
    path, plugin = short_dir / "p.sock", Plugin()
    plugin.hold.clear()
    async with served(path, plugin), AsyncExitStack() as stack, asyncio.TaskGroup() as group:

        async def call(peer: Peer) -> None:
            with pytest.raises(RemoteError):
                await peer.call(deviceplugin.ALLOCATE, [("a",)], timeout_seconds=60)

        for _ in range(2 * CONNECTIONS_LIMIT):
            peer = await stack.enter_async_context(connected(path, ready_within_seconds=60))
            group.create_task(call(peer))
            await asyncio.sleep(0)
        assert await is_answered(path)
        await stack.aclose()


async def test_unfinished_calls_of_one_connection_make_room(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()), raw(path) as writer:
        writer.write(HELLO + b"".join(head(2 * number + 1) for number in range(CALLS_AT_ONCE_LIMIT)))
        await writer.drain()
        assert await is_answered(path)


async def test_calls_in_progress_of_another_connection_make_room(short_dir: Path) -> None:
    path, plugin = short_dir / "p.sock", Plugin()
    plugin.hold.clear()
    ended = 0
    async with served(path, plugin) as greedy, asyncio.TaskGroup() as group:

        async def call() -> None:
            nonlocal ended
            try:
                await greedy.call(deviceplugin.ALLOCATE, [("a",)])
            except RemoteError as error:
                ended += (error.status, error.text) == ("ResourceExhausted", "too many calls at once")

        for _ in range(CALLS_AT_ONCE_LIMIT):
            group.create_task(call())
        await plugin.entered.wait()
        async with connected(path) as kubelet, asyncio.TaskGroup() as calls:
            mine = calls.create_task(kubelet.call(deviceplugin.ALLOCATE, [("b",)], timeout_seconds=60))
            await until(lambda: ended == 1)
            plugin.hold.set()
        assert mine.result()[0].envs == {"IDS": "b"}
    assert ended == 1


class Lasting(Plugin):
    """Sends one list on each stream, which stays open."""

    async def list_and_watch(self, _: None) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        yield LIST
        await asyncio.get_running_loop().create_future()


async def test_streams_of_another_connection_make_room_for_the_kubelet(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    async with served(path, Lasting()) as greedy, AsyncExitStack() as stack:
        for _ in range(STREAMS_LIMIT):
            streams = greedy.stream(deviceplugin.LIST_AND_WATCH, None)
            assert await anext(await stack.enter_async_context(aclosing(streams))) == LIST
        kubelet = await stack.enter_async_context(connected(path))
        async with aclosing(kubelet.stream(deviceplugin.LIST_AND_WATCH, None)) as lists:
            assert await anext(lists) == LIST


async def test_unfinished_messages_are_bounded_together_and_small_ones_are_taken(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    async with served(path, Plugin()), AsyncExitStack() as stack:
        for _ in range(12):  # 36 MiB, of which 16 may be held
            writer = await stack.enter_async_context(raw(path))
            writer.write(HELLO + head(1) + beginning(1, 3 * 2**20))
            await writer.drain()
        async with connected(path) as kubelet:
            ids = ("x" * 60, *(f"{number:060}" for number in range(10_000)))
            (answer,) = await kubelet.call(deviceplugin.ALLOCATE, [ids], timeout_seconds=60)
            assert answer.envs["IDS"].count(",") == 10_000


# ── the rule ──


def test_what_is_unfinished_goes_first_and_then_the_oldest() -> None:
    held = {"idle": Standing(1, 1, 0), "new": Standing(1, 0, 9), "old": Standing(1, 0, 5)}
    assert first_to_go(held, 2) == "old"


def test_a_peer_with_little_loses_nothing_while_another_holds_more() -> None:
    held = {"probe": Standing("kubelet", 0, 0), "a": Standing("x", 2, 1), "b": Standing("x", 2, 2)}
    assert first_to_go(held, "other") == "a"


def test_the_newcomer_counts_for_its_own_peer() -> None:
    held = {"a": Standing("x", 2, 1), "b": Standing("y", 0, 0)}
    assert first_to_go(held, "x") == "a"
