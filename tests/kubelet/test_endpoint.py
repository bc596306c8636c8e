"""The calls of the kubelet to a plugin: one connection, whom it names, how long it waits, preferences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from devplug.errors import NotOfferedError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.wire.values import PluginOptions, PreferenceRequest
from tests.kubelet.fakes import (
    RESOURCE,
    FakePlugin,
    Ids,
    healthy,
    pod,
    registered,
    running,
    served,
    unhealthy,
)
from tests.wire.recordings import heads

EVERY_CALL = PluginOptions(pre_start_required=True, preferred_allocation_available=True)

SECONDS = {"H": 3600, "M": 60, "S": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}


@asynccontextmanager
async def tapped(path: Path, target: Path) -> AsyncIterator[list[bytearray]]:
    """Relay connections made to `path` on to `target`; yield what callers have sent, one item for each.

    Enter it before those who connect, so that they are gone when it is left.
    """
    heard: list[bytearray] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
        with suppress(ConnectionError):
            while content := await reader.read(1 << 16):
                record += content
                writer.write(content)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(bytearray())
        there_reader, there_writer = await asyncio.open_unix_connection(target)
        async with asyncio.TaskGroup() as both:
            both.create_task(pump(reader, there_writer, heard[-1]))
            both.create_task(pump(there_reader, writer, bytearray()))

    async with asyncio.TaskGroup() as tasks:

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.create_task(relay(reader, writer))

        server = await asyncio.start_unix_server(accepted, path)
        try:
            yield heard
        finally:
            server.close()


def conversation(folder: Path) -> list[bytes]:
    """Return what a kubelet of default settings sends to a plugin that it makes every call to."""

    async def scenario() -> list[bytearray]:
        async with tapped(folder / "tap", folder / "plugins" / "p.sock") as heard:
            kubelet = Kubelet(folder / "plugins")
            plugin = FakePlugin(kubelet.plugin_dir, devices=healthy("a", "b"), options=EVERY_CALL)
            async with kubelet.running(), plugin.serving():
                await plugin.register(endpoint="../tap")
                # Register has returned, and the plugin's options are known.
                assert len(plugin.called("GetDevicePluginOptions")) == 1
                await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 2})
                await kubelet.run_pod(pod("u"))
        return heard

    return [bytes(one) for one in asyncio.run(scenario())]


def method(head: dict[str, str]) -> str:
    return head[":path"].removeprefix("/v1beta1.DevicePlugin/")


def deadlines(connection: bytes) -> dict[str, float | None]:
    """Method → the deadline in seconds that stands in its header, in what a kubelet has sent."""
    return {
        method(head): int(text[:-1]) * SECONDS[text[-1]] if (text := head.get("grpc-timeout")) else None
        for head in heads(connection)
    }


def test_one_connection_carries_every_call_to_a_plugin(short_dir: Path) -> None:
    """C09: the options are asked for once, on the connection that is used for all that follows."""
    (connection,) = conversation(short_dir)
    assert [method(head) for head in heads(connection)] == [
        "GetDevicePluginOptions",
        "ListAndWatch",
        "GetPreferredAllocation",
        "Allocate",
        "PreStartContainer",
    ]


def test_the_kubelet_calls_a_plugin_localhost(short_dir: Path) -> None:
    """C13: strict HTTP/2 servers refuse the path of a socket there."""
    (connection,) = conversation(short_dir)
    assert {head[":authority"] for head in heads(connection)} == {"localhost"}
    assert str(short_dir).encode() not in connection


def test_only_pre_start_has_a_deadline(short_dir: Path) -> None:
    """C12, C62, C66: half a minute, in whatever unit it is sent."""
    (connection,) = conversation(short_dir)
    found = deadlines(connection)
    assert len(found) == 5
    seconds = found.pop("PreStartContainer")
    assert seconds is not None
    assert 29 < seconds < 31
    assert not any(found.values())


PREFERS = PluginOptions(preferred_allocation_available=True)


async def test_the_plugin_is_not_asked_unless_it_offers_that(short_dir: Path) -> None:
    """C57."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.admit(pod("u"))
        assert plugin.called("GetPreferredAllocation") == []


async def test_the_plugin_is_asked_even_if_all_available_devices_are_needed(short_dir: Path) -> None:
    async with served(short_dir, healthy("a"), options=PREFERS) as (kubelet, plugin):
        await kubelet.admit(pod("u"))
        assert [call.method for call in plugin.calls[2:]] == ["GetPreferredAllocation", "Allocate"]


async def test_the_preferred_devices_are_allocated(short_dir: Path) -> None:
    """C59."""

    async def last(request: PreferenceRequest) -> Sequence[Ids]:
        return [("ghost", *sorted(request.available)[-request.size :])]

    async with served(short_dir, healthy(*"abc"), options=PREFERS) as (kubelet, plugin):
        plugin.on_prefer = last
        await kubelet.admit(pod("u", 2))
        assert plugin.called("Allocate") == [("b", "c")]


async def test_the_plugin_is_told_all_that_it_needs_to_choose(short_dir: Path) -> None:
    """C58: the app wants three, and must have what its init container had."""
    init, app = Container("i", {RESOURCE: 1}), Container("c", {RESOURCE: 3})

    async with served(short_dir, healthy(*"abcd") + unhealthy("e"), options=PREFERS) as (kubelet, plugin):
        await kubelet.admit(Pod("u", "u", init_containers=(init,), containers=(app,)))
        assert [call.request for call in plugin.calls if call.request is not None] == [
            PreferenceRequest(("a", "b", "c", "d"), (), 1),
            PreferenceRequest(("a", "b", "c", "d"), ("a",), 3),
        ]


async def test_an_answer_without_containers_is_no_preference(short_dir: Path) -> None:
    """C59."""

    async def nothing(_: PreferenceRequest) -> Sequence[Ids]:
        return []

    async with served(short_dir, healthy("a"), options=PREFERS) as (kubelet, plugin):
        plugin.on_prefer = nothing
        assert (await kubelet.admit(pod("u"))).phase is PodPhase.PENDING


async def test_an_error_refuses_the_pod(short_dir: Path) -> None:
    """C60."""

    async def fail(_: PreferenceRequest) -> Sequence[Ids]:
        raise NotOfferedError("not here")

    async with served(short_dir, healthy("a"), options=PREFERS) as (kubelet, plugin):
        plugin.on_prefer = fail
        message = (await kubelet.admit(pod("u"))).message
        assert message == (
            "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed "
            "with err: rpc error: code = Unimplemented desc = not here, which is unexpected"
        )
        assert plugin.called("Allocate") == []
