"""The bytes made by hand are what they are called: wrong where they should be, and right up to there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.raw_clients import (
    MALFORMED,
    UNKNOWN_METHODS,
    Malformed,
    allocate_request,
    cut_request,
    huge_headers,
    raw,
)
from devplug.errors import RemoteError
from devplug.wire.codecs import MalformedMessageError
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import Listener, connected, unary


@pytest.mark.parametrize("one", [one for one in MALFORMED if one.must_be_refused], ids=lambda one: one.name)
def test_what_must_be_refused_cannot_be_decoded(one: Malformed) -> None:
    with pytest.raises(MalformedMessageError):
        ALLOCATE.request.decode(one.content)


@given(st.text(max_size=300), st.integers(1, 200))
def test_a_request_made_by_hand_is_the_one_that_the_codec_makes(id_: str, count: int) -> None:
    content = allocate_request(id_.encode(), count=count)
    assert content == ALLOCATE.request.encode([(id_,) * count])


async def test_a_call_made_by_hand_reaches_the_plugin_once_its_rest_is_there(tmp_path: Path) -> None:
    calls: asyncio.Queue[Sequence[tuple[str, ...]]] = asyncio.Queue()

    async def allocate(containers: Sequence[tuple[str, ...]]) -> Sequence[object]:
        calls.put_nowait(containers)
        return []

    listener = Listener(tmp_path / "plugin.sock", (unary(ALLOCATE, allocate),))  # type: ignore[arg-type]
    await listener.bind()
    try:
        request = allocate_request(b"x" * 2000)
        reader, writer = await asyncio.open_unix_connection(listener.path)
        begun = cut_request(ALLOCATE, request)
        writer.write(begun)
        await writer.drain()
        assert await reader.read(9)  # its settings: it has taken the connection for HTTP/2
        assert calls.empty()
        missing = len(request) // 2 + 1
        writer.write(request[-missing:])
        # An empty frame with END_STREAM ends the request.
        writer.write(b"\x00\x00\x00\x00\x01\x00\x00\x00\x01")
        assert await calls.get() == (("x" * 2000,),)
        writer.close()
        await writer.wait_closed()
    finally:
        await listener.close()


async def test_what_is_unknown_to_the_api_is_unknown_to_a_server_of_it(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "plugin.sock", ())
    await listener.bind()
    try:
        async with connected(listener.path) as peer:
            for method in (*UNKNOWN_METHODS, raw(ALLOCATE)):
                with pytest.raises(RemoteError) as caught:
                    await peer.call(method, b"", timeout_seconds=5)
                assert caught.value.status == "Unimplemented"
    finally:
        await listener.close()


@given(st.integers(1, 100_000))
def test_huge_headers_are_whole_frames_of_which_the_last_one_says_so(size_bytes: int) -> None:
    rest = huge_headers(ALLOCATE, size_bytes)[24 + 9 :]
    flags = []
    total = 0
    while rest:
        length = int.from_bytes(rest[:3], "big")
        assert length <= 16384
        flags.append(rest[4])
        total += length
        rest = rest[9 + length :]
    assert flags == [0] * (len(flags) - 1) + [4]
    assert total > size_bytes
