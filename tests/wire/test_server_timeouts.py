"""What our own server takes only for so long: a call without its message, a connection without a call.

The clock jumps to the next timer when there is nothing to do, so that ten minutes take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import hpack
import pytest

from devplug.wire import deviceplugin
from devplug.wire.server_connection import IDLE_SECONDS, REQUEST_SECONDS, SPEAK_SECONDS
from devplug.wire.sockets import Listener, connected
from devplug.wire.values import PluginOptions
from tests.virtualtime import now, on_virtual_time, passes
from tests.wire.fakes import LIST, Plugin
from tests.wire.http2.made import (
    CALL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    HELLO,
    PING,
    block,
    call,
    data,
    frame,
    frames_in,
    head,
    ping,
    reset,
)

anyio_backend = on_virtual_time


LIST_AND_WATCH = deviceplugin.LIST_AND_WATCH.path
LATE = pytest.approx(0.0, abs=0.1)


class Raw:
    """A connection made by hand, and what came on it, with the times of the story."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.heard = b""

    def say(self, content: bytes) -> None:
        self._writer.write(content)

    async def status(self) -> str:
        """The status that ends the only call."""
        while True:
            decoder = hpack.Decoder()
            for one in frames_in(self.heard):
                if one.kind == HEADERS:
                    fields = {str(name): str(value) for name, value in decoder.decode(one.payload)}
                    if "grpc-status" in fields:
                        return f"{fields['grpc-status']} {fields.get('grpc-message', '')}".rstrip()
            piece = await self._reader.read(1 << 16)
            assert piece, "the connection has ended"
            self.heard += piece

    async def frame(self, kind: int) -> None:
        """Wait for a frame of this kind."""
        while not any(one.kind == kind for one in frames_in(self.heard)):
            piece = await self._reader.read(1 << 16)
            assert piece, "the connection has ended"
            self.heard += piece

    async def end(self) -> float:
        """When the connection has ended."""
        while piece := await self._reader.read(1 << 16):
            self.heard += piece
        return now()


@asynccontextmanager
async def raw(path: Path, content: bytes) -> AsyncIterator[Raw]:
    """A server, and a connection to it made by hand, on which this is said at first."""
    plugin = Plugin()
    plugin.answers.put_nowait(LIST)
    listener = Listener(path, plugin.bindings())
    await listener.bind()
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(content)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()
        await listener.close()


@pytest.mark.parametrize(
    "sent", [b"", bytes(4), b"\0\0\0\1\0" + bytes(10)], ids=["none", "4 bytes", "15 bytes"]
)
async def test_a_call_whose_message_does_not_come_is_ended_in_its_time(short_dir: Path, sent: bytes) -> None:
    async with raw(short_dir / "p.sock", HELLO + head(1) + data(1, sent, ends=False)) as connection:
        assert await connection.status() == "4 the message did not come in time"
        assert now() - REQUEST_SECONDS == LATE


async def test_bytes_that_drip_in_are_no_reason_to_wait_longer_for_a_message(short_dir: Path) -> None:
    async with raw(short_dir / "p.sock", HELLO + head(1)) as connection:
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(connection.status())
            connection.say(data(1, b"\0\0\0\1\0", ends=False))
            while not ended.done():
                connection.say(data(1, b"x", ends=False))
                await passes(1)
        assert ended.result() == "4 the message did not come in time"
        assert now() - REQUEST_SECONDS == pytest.approx(0, abs=1.1)


async def test_a_deadline_of_the_caller_ends_a_call_without_its_message_earlier(short_dir: Path) -> None:
    hurried = head(1, (*CALL, ("grpc-timeout", "7S")))
    async with raw(short_dir / "p.sock", HELLO + hurried) as connection:
        assert await connection.status() == "4 the message did not come in time"
        assert now() - 7 == LATE


async def test_a_call_that_is_being_answered_has_no_such_limit(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    async with connected(listener.path) as peer, asyncio.TaskGroup() as group:
        answer = group.create_task(peer.call(deviceplugin.ALLOCATE, [("a",)]))
        await passes(2 * IDLE_SECONDS)
        plugin.hold.set()
        assert (await answer)[0].envs == {"IDS": "a"}
    await listener.close()


async def test_a_connection_without_calls_is_left_in_its_time_with_a_word(short_dir: Path) -> None:
    async with raw(short_dir / "p.sock", HELLO) as connection:
        assert await connection.end() - IDLE_SECONDS == LATE
        assert frames_in(connection.heard)[-1].kind == GOAWAY


async def test_pings_are_no_reason_to_keep_a_connection_and_a_call_is(short_dir: Path) -> None:
    async with raw(short_dir / "p.sock", HELLO) as connection:
        await passes(IDLE_SECONDS - 100)
        connection.say(call(1))
        assert await connection.status() == "0"
        called = now()
        await passes(IDLE_SECONDS - 100)
        connection.say(ping())
        assert await connection.end() - called - IDLE_SECONDS == LATE


async def test_the_connection_with_the_kubelets_stream_is_kept_for_ever(short_dir: Path) -> None:
    fields = tuple((name, LIST_AND_WATCH if name == ":path" else value) for name, value in CALL)
    async with raw(short_dir / "p.sock", HELLO + head(1, fields) + data(1)) as connection:
        await passes(100 * IDLE_SECONDS)
        connection.say(ping())
        await connection.frame(PING)
        kinds = [one.kind for one in frames_in(connection.heard)]
        assert DATA in kinds
        assert GOAWAY not in kinds
        connection.say(reset(1))
        assert await connection.end() - 101 * IDLE_SECONDS == LATE


async def test_a_client_whose_idle_connection_was_left_calls_on_a_new_one(short_dir: Path) -> None:
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    await listener.bind()
    async with connected(listener.path) as peer:
        for _ in range(3):
            assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
            await passes(IDLE_SECONDS + 1)
    await listener.close()


async def test_a_head_that_is_not_brought_to_its_end_costs_the_connection_in_its_time(
    short_dir: Path,
) -> None:
    fields = block(*CALL)
    begun = frame(HEADERS, 0, 1, fields[:10]) + frame(CONTINUATION, 0, 1, fields[10:20])
    async with raw(short_dir / "p.sock", HELLO) as connection:
        await passes(100)
        connection.say(begun)
        assert await connection.end() - 100 - SPEAK_SECONDS == LATE


async def test_a_head_that_comes_in_pieces_within_its_time_is_whole(short_dir: Path) -> None:
    fields = block(*CALL)
    async with raw(short_dir / "p.sock", HELLO + frame(HEADERS, 0, 1, fields[:10])) as connection:
        await passes(SPEAK_SECONDS - 1)
        connection.say(frame(CONTINUATION, END_HEADERS, 1, fields[10:]) + data(1))
        assert await connection.status() == "0"
