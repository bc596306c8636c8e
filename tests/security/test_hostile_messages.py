"""Messages that are small on the wire and large in memory, at every decoder that reads from a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from devplug.errors import RemoteError
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.openapi.protobuf import object_of_protobuf
from devplug.wire import deviceplugin, dra, pluginregistration, podresources
from devplug.wire.codecs import Codec, Encoded, MalformedMessageError, MessageTooLargeError
from devplug.wire.deviceplugin import Method
from devplug.wire.limits import ELEMENTS_LIMIT
from devplug.wire.sockets import Listener, connected, stream, unary
from devplug.wire.values import PluginOptions, PodResources
from devplug.wire.wireformat import varint
from tests.wire.fakes import Plugin, served

METHODS: Sequence[Method[Any, Any]] = [
    value
    for module in (deviceplugin, podresources, pluginregistration)
    for value in vars(module).values()
    if isinstance(value, Method)
] + [*dra.PREPARE.values(), *dra.UNPREPARE.values(), dra.WATCH_RESOURCES]

CODECS = {
    f"{method.path} {side}": getattr(method, side) for method in METHODS for side in ("request", "response")
}

LIMIT = 1000
COUNT = LIMIT + 1
GROUPS = b"\x7b" + b"\x0b\x0c" * COUNT + b"\x7c"
BOMBS = {
    "empty messages, or texts, in field 1": b"\x0a\x00" * COUNT,
    "empty messages, or texts, in field 2": b"\x12\x00" * COUNT,
    "empty messages in field 3": b"\x1a\x00" * COUNT,
    "numbers in field 2": b"\x10\x01" * COUNT,
    "unknown numbers": b"\x78\x01" * COUNT,
    "unknown texts": b"\x7a\x00" * COUNT,
    "groups": GROUPS,
    "a packed field": b"\x12" + varint(COUNT) + b"\x01" * COUNT,
    "empty messages in messages": b"\x0a" + varint(2 * COUNT) + b"\x0a\x00" * COUNT,
    "one single message, again and again": b"\x22\x00" * COUNT,
}


@pytest.mark.parametrize("name", CODECS)
def test_no_decoder_accepts_more_elements_than_its_limit(name: str) -> None:
    codec: Codec[Any] = CODECS[name]
    refused = 0
    for bomb in BOMBS.values():
        with suppress(MalformedMessageError):
            try:
                codec.decode(bomb, LIMIT)
            except MessageTooLargeError:
                refused += 1
    # Some bombs are one text or one unknown field for some messages.
    assert refused >= 7


def test_a_packed_field_counts_each_number() -> None:
    codec = podresources.GET_ALLOCATABLE_RESOURCES.response
    with pytest.raises(MessageTooLargeError):
        codec.decode(BOMBS["a packed field"], LIMIT)


def test_a_message_with_as_many_elements_as_the_limit_is_read() -> None:
    read = deviceplugin.PRE_START_CONTAINER.request.decode(b"\x0a\x01a" * 100, 100)
    assert read == ("a",) * 100


async def test_a_request_with_a_million_containers_is_refused_in_words(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin()) as peer:
        raw = Method(
            deviceplugin.ALLOCATE.service,
            deviceplugin.ALLOCATE.name,
            Codec("bytes", bytes, lambda content, _: content),
            deviceplugin.ALLOCATE.response,
        )
        with pytest.raises(RemoteError) as refused:
            await peer.call(raw, b"\x0a\x00" * 2**20, timeout_seconds=60)
        assert refused.value.status == "ResourceExhausted"
        assert refused.value.text == "AllocateRequest has more than 131072 elements, which is the limit"
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


class Answering:
    """A server whose List is answered with these bytes."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def pods(self, _: None) -> Any:
        return Encoded(self.content)

    async def lists(self, _: None) -> AsyncIterator[Encoded]:
        yield Encoded(self.content)


async def test_an_answer_with_a_million_pods_is_an_error_in_words(short_dir: Path) -> None:
    server = Answering(b"\x0a\x00" * 2**20)
    listener = Listener(short_dir / "p.sock", (unary(podresources.LIST, server.pods),))
    await listener.bind()
    try:
        async with connected(short_dir / "p.sock") as peer:
            with pytest.raises(RemoteError) as refused:
                await peer.call(podresources.LIST, None, timeout_seconds=60)
        assert refused.value.status == "ResourceExhausted"
        assert "more than 262144 elements" in refused.value.text
    finally:
        await listener.close()


async def test_a_list_with_a_million_devices_is_an_error_in_words(short_dir: Path) -> None:
    server = Answering(b"\x0a\x00" * 2**20)
    listener = Listener(short_dir / "p.sock", (stream(deviceplugin.LIST_AND_WATCH, server.lists),))
    await listener.bind()
    try:
        async with connected(short_dir / "p.sock") as peer:
            with pytest.raises(RemoteError, match="more than 262144 elements"):
                await anext(peer.stream(deviceplugin.LIST_AND_WATCH, None))
    finally:
        await listener.close()


async def test_the_loop_goes_on_while_a_large_answer_is_decoded(short_dir: Path) -> None:
    count = ELEMENTS_LIMIT // 2
    server = Answering(b"\x0a\x00" * count)
    listener = Listener(short_dir / "p.sock", (unary(podresources.LIST, server.pods),))
    await listener.bind()
    turns = 0
    try:
        async with connected(short_dir / "p.sock") as peer, asyncio.TaskGroup() as group:
            asked = group.create_task(peer.call(podresources.LIST, None))
            while not asked.done():
                turns += 1
                await asyncio.sleep(0)
        assert asked.result() == (PodResources("", ""),) * count
    finally:
        await listener.close()
    # Receiving takes some dozen turns; decoding takes at least 50 ms.
    assert turns > 500


def test_the_sandbox_refuses_an_object_with_a_million_fields() -> None:
    bomb = b"\x0a\x00" * 2**20
    with pytest.raises(StatusError, match="more than 262144 elements"):
        object_of_protobuf(b"k8s\0" + b"\x12" + varint(len(bomb)) + bomb, "v1", "Pod")
