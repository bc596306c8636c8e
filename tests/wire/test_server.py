"""What our own server does that grpcio cannot, or that no right client makes it do."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from pathlib import Path

import pytest

from devplug.devices import ContainerResponse
from devplug.linux.unix_sockets import may_call
from devplug.wire import deviceplugin
from devplug.wire.http2.headers import header_block
from devplug.wire.limits import CONNECTIONS_LIMIT
from devplug.wire.sockets import Listener, connected
from devplug.wire.values import AdvertisedDevice, PluginOptions
from tests.waiting import until
from tests.wire.fakes import LIST, Plugin, open_descriptors, served
from tests.wire.http2.made import DATA, END_HEADERS, HEADERS, HELLO, PING, frame, ping, reset
from tests.wire.recordings import whole_frames

ALLOCATE = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/v1beta1.DevicePlugin/Allocate"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


def call(*more: tuple[bytes, bytes], path: bytes | None = None, size: int = 0) -> bytes:
    fields = [(name, path if name == b":path" and path else value) for name, value in ALLOCATE]
    block = header_block([*fields, *more])
    message = b"\0" + size.to_bytes(4, "big") + bytes(size)
    return frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, 1, 1, message)


async def said(path: Path, content: bytes) -> dict[str, str]:
    """The fields that end the only call of a connection."""
    import hpack

    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(HELLO + content)
    heard = bytearray()
    found: dict[str, str] = {}
    while "grpc-status" not in found:
        piece = await reader.read(1 << 16)
        assert piece
        heard += piece
        decoder = hpack.Decoder()
        for one in whole_frames(bytes(heard))[0]:
            if one.kind == HEADERS:
                found |= {str(name): str(value) for name, value in decoder.decode(one.payload)}
    writer.close()
    return found


# ── who may ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("uid", "own", "may"), [(0, 1000, True), (1000, 1000, True), (1001, 1000, False), (1, 0, False)]
)
def test_root_and_our_own_user_may_call_and_nobody_else(uid: int, own: int, *, may: bool) -> None:
    assert may_call(uid, own) is may


async def test_the_file_is_for_its_owner_alone(short_dir: Path) -> None:
    async with served(short_dir / "p.sock", Plugin()):
        assert (short_dir / "p.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_another_user_is_let_in_by_no_mode(short_dir: Path) -> None:
    program = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
        "s.connect(sys.argv[1]); print(s.recv(9))"
    )

    short_dir.chmod(0o777)
    async with served(short_dir / "p.sock", Plugin()):
        (short_dir / "p.sock").chmod(0o666)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(short_dir / "p.sock"), stdout=subprocess.PIPE
        )
        heard, _ = await process.communicate()
    assert heard == b"b''\n"


# ── how many ──────────────────────────────────────────────────────────────────────────────────────


async def test_silent_connections_make_room_for_others_and_the_stream_of_the_kubelet_stays(
    short_dir: Path,
) -> None:
    plugin = Plugin()
    plugin.answers.put_nowait(LIST)
    async with served(short_dir / "p.sock", plugin) as kubelet, AsyncExitStack() as stack:
        lists = await stack.enter_async_context(aclosing(kubelet.stream(deviceplugin.LIST_AND_WATCH, None)))
        await anext(lists)
        for _ in range(2 * CONNECTIONS_LIMIT):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(str(short_dir / "p.sock"))
            await asyncio.sleep(0)
        async with connected(short_dir / "p.sock", ready_within_seconds=30) as new:
            assert await new.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        plugin.answers.put_nowait(())
        assert await anext(lists) == ()


async def test_connections_without_a_call_make_room_for_others(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.answers.put_nowait(LIST)
    async with served(short_dir / "p.sock", plugin) as kubelet, AsyncExitStack() as stack:
        lists = await stack.enter_async_context(aclosing(kubelet.stream(deviceplugin.LIST_AND_WATCH, None)))
        await anext(lists)
        for _ in range(2 * CONNECTIONS_LIMIT):
            peer = await stack.enter_async_context(connected(short_dir / "p.sock"))
            assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        plugin.answers.put_nowait(())
        assert await anext(lists) == ()


async def test_five_hundred_calls_at_once_are_answered_and_the_stream_goes_on(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin) as peer, asyncio.TaskGroup() as group:
        lists = peer.stream(deviceplugin.LIST_AND_WATCH, None)
        calls = [group.create_task(peer.call(deviceplugin.ALLOCATE, [(f"{n}",)])) for n in range(500)]
        plugin.answers.put_nowait(LIST)
        assert await anext(lists) == LIST
        plugin.hold.set()
        for number, one in enumerate(calls):
            assert (await one)[0].envs == {"IDS": f"{number}"}
        plugin.answers.put_nowait(())
        assert await anext(lists) == ()
        await lists.aclose()


class Counted(Plugin):
    """Counts the handlers of Allocate that have begun."""

    begun = 0

    async def allocate(self, containers: Sequence[tuple[str, ...]]) -> Sequence[ContainerResponse]:
        self.begun += 1
        return await super().allocate(containers)


async def test_calls_that_come_at_once_begin_in_many_turns_of_the_loop(short_dir: Path) -> None:
    """Or a list would wait for the last of them: each step of its way takes a turn."""
    plugin, steps = Counted(), []
    async with served(short_dir / "p.sock", plugin) as peer, asyncio.TaskGroup() as group:
        await peer.call(deviceplugin.GET_OPTIONS, None)
        for number in range(100):
            group.create_task(peer.call(deviceplugin.ALLOCATE, [(f"{number}",)]))
        while plugin.begun < 100:
            before = plugin.begun
            await asyncio.sleep(0)
            steps.append(plugin.begun - before)
    assert max(steps) <= 2


async def test_a_call_that_is_over_before_its_turn_never_begins(short_dir: Path) -> None:
    plugin = Counted()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin) as peer:
        await peer.call(deviceplugin.GET_OPTIONS, None)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(peer.call(deviceplugin.ALLOCATE, [(f"{n}",)])) for n in range(100)]
            await plugin.entered.wait()
            for one in calls:
                one.cancel()
        await peer.call(deviceplugin.GET_OPTIONS, None)
        begun = plugin.begun
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        assert plugin.begun == begun < 100


async def test_a_stream_that_nobody_reads_asks_for_no_list_but_the_latest(short_dir: Path) -> None:
    made = 0

    class Endless(Plugin):
        async def list_and_watch(self, _: None) -> AsyncIterator[list[AdvertisedDevice]]:
            nonlocal made
            while True:
                made += 1
                yield [AdvertisedDevice(f"{number:0200}", "Healthy") for number in range(2000)]

    async with served(short_dir / "p.sock", Endless()) as peer:
        async with aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as lists:
            await anext(lists)
            for _ in range(200):
                await asyncio.sleep(0)
            assert made < 8
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


# ── what is not a call, or not a right one ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (call(path=b"/\xff\xfe"), {":status": "200", "grpc-status": "12"}),
        (call(path=b"*"), {":status": "200", "grpc-status": "12"}),
        (call((b"grpc-timeout", b"soon")), {":status": "200", "grpc-status": "13"}),
        (call((b"grpc-timeout", b"123456789S")), {":status": "200", "grpc-status": "13"}),
        (call(*[(b"x", b"y" * 10)] * 500), {":status": "200", "grpc-status": "8"}),
        (call().replace(b"application/grpc", b"application/json"), {":status": "415"}),
        (call().replace(b"\x83", b"\x82", 1), {":status": "405"}),
        (call()[:-5] + b"\2\0\0\0\0", {"grpc-status": "13"}),
        (call()[:-5] + b"\1\0\0\0\0", {"grpc-status": "13"}),
        (call()[: -5 - 9] + frame(DATA, 1, 1, b""), {"grpc-status": "13"}),
        (call()[: -5 - 9] + frame(DATA, 1, 1, b"\0\0"), {"grpc-status": "13"}),
    ],
)
async def test_what_is_no_right_call_is_refused_and_hurts_nobody(
    short_dir: Path, content: bytes, fields: dict[str, str]
) -> None:
    async with served(short_dir / "p.sock", Plugin()) as peer:
        found = await said(short_dir / "p.sock", content)
        assert fields.items() <= found.items()
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


async def test_a_deadline_that_only_the_server_watches_ends_the_call_and_its_handler(short_dir: Path) -> None:
    plugin = Plugin()
    plugin.hold.clear()
    async with served(short_dir / "p.sock", plugin):
        found = await said(short_dir / "p.sock", call((b"grpc-timeout", b"20m")))
        assert (found["grpc-status"], found["grpc-message"]) == ("4", "context deadline exceeded")


async def test_a_call_that_its_client_resets_is_cancelled(short_dir: Path) -> None:
    left = asyncio.Event()

    class Waits(Plugin):
        async def options(self, _: None) -> PluginOptions:
            self.entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            return PluginOptions()

    plugin = Waits()
    async with served(short_dir / "p.sock", plugin):
        reader, writer = await asyncio.open_unix_connection(short_dir / "p.sock")
        writer.write(HELLO + call(path=deviceplugin.GET_OPTIONS.path.encode()))
        await plugin.entered.wait()
        writer.write(reset(1) + ping(b"lastping"))
        await left.wait()
        heard = b""
        while not any(one.kind == PING for one in whole_frames(heard)[0]):
            heard += await reader.read(1 << 16)
        writer.close()


async def test_a_client_connects_anew_when_the_server_was_replaced(short_dir: Path) -> None:
    path = short_dir / "p.sock"
    first = Listener(path, Plugin().bindings())
    await first.bind()
    async with connected(path, ready_within_seconds=30) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        await first.close(keep_file=True)
        second = Listener(path, Plugin().bindings())
        await second.bind()
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
    await second.close()


@pytest.mark.parametrize("turns", range(4))
async def test_who_has_just_connected_is_let_go_when_the_server_stops(short_dir: Path, turns: int) -> None:
    """Asyncio loses the socket of one that it has accepted and not yet begun."""
    listener = Listener(short_dir / "p.sock", ())
    await listener.bind()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(listener.path))
        before = open_descriptors()
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        # The listening one is gone, and so is what was accepted.
        assert open_descriptors() == before - 1


async def test_without_descriptors_it_logs_one_line_and_serves_again(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a line for each place of the backlog at each try, as asyncio's own servers do."""
    path = short_dir / "s.sock"
    async with served(path, Plugin()):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as stack:
            late = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(50)]
            shortage = stack.enter_context(ExitStack())
            resource.setrlimit(resource.RLIMIT_NOFILE, (late[-1].fileno() + 1, hard))
            shortage.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            with suppress(OSError):
                while True:
                    shortage.callback(os.close, os.dup(late[0].fileno()))
            for one in late:
                one.connect(str(path))
            await until(lambda: bool(caplog.records))
            shortage.close()
        async with connected(path) as peer:
            assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
    assert [record.message for record in caplog.records] == ["cannot accept connections; trying again"]
