"""The caller's end of a socket: its authority, deadlines, connections and cancellations."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from devplug import errors
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, authority_of, connected
from devplug.wire.transport import GRPCIO
from devplug.wire.values import PluginOptions
from tests.wire.fakes import Plugin, fields_sent, open_descriptors, refusal, refuse, served
from tests.wire.pairings import Pairing

pytestmark = pytest.mark.usefixtures("pairing")


async def bytes_of_a_call(path: Path, **options: Any) -> bytes:
    """What a server receives of a call, as far as its headers; it answers with its settings only."""
    seen = bytearray()
    closed = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\x04\0\0\0\0\0")  # SETTINGS: the client speaks when it has seen them
        while not fields_sent(bytes(seen)):
            seen.extend(await reader.read(4096))
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with await asyncio.start_unix_server(listen, path), connected(path, **options) as peer:
        assert (await refusal(peer)).status == "Unavailable"
        await closed.wait()
    return bytes(seen)


@pytest.mark.parametrize("options", [{}, {"authority": "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock"}])
async def test_calls_carry_the_authority_of_the_kubelet_or_that_which_the_caller_wants(
    short_dir: Path, options: dict[str, str]
) -> None:
    seen = await bytes_of_a_call(short_dir / "p.sock", **options)
    assert seen.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert fields_sent(seen)[":authority"] == options.get("authority", "localhost")


@pytest.mark.parametrize(
    ("path", "authority"),
    [
        ("/var/lib/kubelet/plugins_registry/x.sock", "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock"),
        ("/-_.~!$&'()*+,;=:[]@", "%2F-_.~!$&'()*+,;=:[]@"),
        ("/a b%2F?#ü", "%2Fa%20b%252F%3F%23%C3%BC"),
    ],
)
def test_the_authority_of_a_path_is_spelt_as_go_does(path: str, authority: str) -> None:
    assert authority_of(Path(path)) == authority


async def test_a_plugin_takes_calls_with_the_authority_of_its_path(short_dir: Path) -> None:
    path = short_dir / "a b%2F?#ü.sock"
    async with served(path, Plugin()), connected(path, authority=authority_of(path)) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


async def test_an_error_that_somebody_keeps_holds_no_connection_open(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.error = errors.AllocationError("no")
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    before = open_descriptors()
    async with connected(listener.path) as peer:
        kept = await refusal(peer)
    while open_descriptors() > before:  # noqa: ASYNC110 -- no event tells
        await asyncio.sleep(0)
    assert kept.text == "no"
    await listener.close()


async def test_a_call_past_its_deadline_says_so_in_the_words_of_go(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin) as peer:
        with pytest.raises(RemoteError) as caught:
            await peer.call(deviceplugin.ALLOCATE, [("a",)], timeout_seconds=0.05)
        assert str(caught.value) == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"


@pytest.mark.parametrize("stands_there", ["nothing", "a plain file", "a dead socket", "a silent server"])
async def test_waiting_for_a_server_that_never_speaks_ends_at_the_deadline(
    short_dir: Path, stands_there: str
) -> None:
    path = short_dir / "p.sock"
    with socket.socket(socket.AF_UNIX) as server:
        if stands_there == "a plain file":
            path.touch()
        elif stands_there != "nothing":
            server.bind(str(path))
        if stands_there == "a silent server":
            server.listen()
        with pytest.raises(RemoteError) as caught:
            async with connected(path, ready_within_seconds=0.1):
                pass
        assert (caught.value.status, caught.value.text) == ("DeadlineExceeded", "context deadline exceeded")


async def test_a_call_without_a_server_is_unavailable(short_dir: Path) -> None:
    async with connected(short_dir / "p.sock") as peer:
        assert (await refusal(peer)).status == "Unavailable"


async def test_a_connection_that_is_tried_once_needs_somebody_who_listens(short_dir: Path) -> None:
    with pytest.raises(RemoteError) as caught:
        async with connected(short_dir / "p.sock", connect_within_seconds=30):
            pass
    assert (caught.value.status, caught.value.is_unsent) == ("Unavailable", True)


async def test_a_connection_that_is_tried_once_ends_at_the_deadline(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "p.sock"))
        silent.listen()
        with pytest.raises(RemoteError) as caught:
            async with connected(short_dir / "p.sock", connect_within_seconds=0.1):
                pass
    assert (caught.value.status, caught.value.is_unsent) == ("DeadlineExceeded", True)


async def test_a_connection_that_is_tried_once_is_not_made_anew_to_the_next_server(
    short_dir: Path, pairing: Pairing
) -> None:
    if pairing.client is GRPCIO:
        pytest.skip("grpcio connects again by itself, whoever listens then")
    listener = Listener(short_dir / "p.sock", Plugin().bindings())
    await listener.bind()
    async with connected(listener.path, connect_within_seconds=30) as peer:
        await listener.close()
        async with served(listener.path, following := Plugin()):
            assert (await refusal(peer)).status == "Unavailable"
            assert not following.entered.is_set()


async def test_a_call_whose_server_goes_is_an_error_and_no_cancellation(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    listener = Listener(short_dir / "p.sock", plugin.bindings())
    await listener.bind()
    async with connected(listener.path) as peer, asyncio.TaskGroup() as group:
        refused = group.create_task(refusal(peer))
        await plugin.entered.wait()
        await listener.close()
    assert refused.result().status in {"Unavailable", "Canceled"}


async def test_a_cancelled_call_is_a_cancellation(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin) as peer, asyncio.TaskGroup() as group:
        call = group.create_task(peer.call(deviceplugin.ALLOCATE, [("a",)]))
        await plugin.entered.wait()
        call.cancel()
    assert call.cancelled()


async def test_an_answer_that_cannot_be_decoded_is_an_error(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin()) as peer:
        other = replace(deviceplugin.ALLOCATE, response=replace(deviceplugin.ALLOCATE.response, read=refuse))
        with pytest.raises(RemoteError) as caught:
            await peer.call(other, [("a",)])
        assert str(caught.value) == (
            "rpc error: code = Internal desc = cannot decode the answer to Allocate: malformed Answer"
        )
