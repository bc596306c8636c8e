"""What a real kubelet and its peers said on their sockets, said to our server and to our client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from devplug.errors import RemoteError
from devplug.wire.codecs import Codec
from devplug.wire.deviceplugin import Method
from devplug.wire.sockets import Binding, Listener, Peer, connected
from devplug.wire.statuses import STATUSES
from tests.wire.http2.made import HEADERS, frame, frames_in
from tests.wire.recordings import NAMES, Conversation, Recorded, conversations, streams, whole_frames

BYTES: Codec[bytes] = Codec("bytes", lambda content: content, lambda content, _: content)
CONVERSATIONS = {
    f"{name}-{number}": one for name in NAMES for number, one in enumerate(conversations(name), 1)
}
OK = "0"


def is_stream(call: Recorded) -> bool:
    return call.path.endswith("ListAndWatch")


def method(call: Recorded) -> Method[bytes, bytes]:
    service, _, name = call.path[1:].partition("/")
    return Method(service, name, BYTES, BYTES, is_stream=is_stream(call))


def bindings(calls: list[Recorded]) -> tuple[Binding, ...]:
    """What answers each call as it was answered then; a stream stays open after what it has."""

    def answering(path: str) -> Binding:
        left = [call for call in calls if call.path == path]

        async def answer(request: bytes) -> bytes:
            call = left.pop(0)
            assert call.requests == [request]
            if call.status != OK:
                raise RemoteError(STATUSES[int(call.status)], call.text)
            return call.answers[0]

        async def answers(request: bytes) -> AsyncIterator[bytes]:
            call = left.pop(0)
            assert call.requests == [request]
            for content in call.answers:
                yield content
            await asyncio.Event().wait()

        return Binding(method(left[0]), answers if is_stream(left[0]) else answer)

    return tuple(answering(path) for path in dict.fromkeys(call.path for call in calls))


def is_answered(heard: bytes, calls: dict[int, Recorded]) -> bool:
    frames, end = whole_frames(heard)
    told = streams(heard[:end]) if frames else {}
    for stream_id, call in calls.items():
        fields, content = told.get(stream_id, ({}, b""))
        size = sum(5 + len(answer) for answer in call.answers)
        if len(content) < size or ("grpc-status" not in fields and not is_stream(call)):
            return False
    return True


@pytest.mark.parametrize("in_one_piece", [False, True])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_our_server_answers_what_was_asked_then(
    short_dir: Path, name: str, *, in_one_piece: bool
) -> None:
    conversation = CONVERSATIONS[name]
    calls = conversation.calls()

    async def story() -> bytes:
        listener = Listener(short_dir / "p.sock", bindings(list(calls.values())))
        await listener.bind()
        reader, writer = await asyncio.open_unix_connection(listener.path)
        pieces = [b"".join(conversation.client)] if in_one_piece else conversation.client
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        heard = bytearray()
        while not is_answered(bytes(heard), calls):
            heard += await reader.read(1 << 16)
        writer.close()
        await listener.close()
        return bytes(heard)

    heard = await story()
    told = Conversation(conversation.client, [heard[: whole_frames(heard)[1]]]).calls()
    for stream_id, call in calls.items():
        assert told[stream_id].answers == call.answers
        if not is_stream(call):
            assert (told[stream_id].status, told[stream_id].text) == (call.status, call.text)


async def play(
    conversation: Conversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Say what the server said, each frame as soon as the client has begun its stream."""
    heard = bytearray()
    begun = 0
    writer.write(b"")
    await reader.readexactly(24)
    for one in frames_in(b"".join(conversation.server)):
        while one.stream_id > begun:
            heard += await reader.read(1 << 16)
            frames, end = whole_frames(bytes(heard))
            begun = max([begun, *(seen.stream_id for seen in frames if seen.kind == HEADERS)])
            del heard[:end]
        writer.write(frame(one.kind, one.flags, one.stream_id, one.payload))
    await writer.drain()
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
    writer.close()


async def ask_again(peer: Peer, calls: dict[int, Recorded]) -> None:
    """Make the calls that were made then, in their order; each must be answered as it was."""
    watched = None
    for stream_id in sorted(calls):
        call = calls[stream_id]
        if is_stream(call):
            watched = peer.stream(method(call), call.requests[0])
            assert await anext(watched) == call.answers[0]
        elif call.status == OK:
            assert await peer.call(method(call), call.requests[0]) == call.answers[0]
        else:
            with pytest.raises(RemoteError) as caught:
                await peer.call(method(call), call.requests[0])
            expected = (STATUSES[int(call.status)], call.text)
            assert (caught.value.status, caught.value.text) == expected
    if watched is not None:
        # At its end, the plugin said that it goes; so it was told of its stream.
        with pytest.raises(RemoteError, match="Unavailable"):
            assert [answer async for answer in watched] == []


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_our_client_understands_what_was_answered_then(short_dir: Path, name: str) -> None:
    conversation = CONVERSATIONS[name]

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await play(conversation, reader, writer)

    path = short_dir / "p.sock"
    async with await asyncio.start_unix_server(listen, path), connected(path) as peer:
        await ask_again(peer, conversation.calls())
