"""The registration of a plugin in `plugins_registry`: what it is asked, what it answers, what it is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug.errors import KubeletError
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.kubelet.fakes import Clock, FakePlugin, healthy
from tests.kubelet.watched import (
    ACCEPTED,
    DESIRED,
    INFO,
    WatchedPlugin,
    failures,
    in_state,
    listed,
    refused,
    registry,
    watching,
)
from tests.virtualtime import now, on_virtual_time, play
from tests.wire.recordings import heads

anyio_backend = on_virtual_time


def answer_to(short_dir: Path, info: PluginInfo) -> RegistrationStatus:
    """How the first attempt to register a plugin with this information ends."""

    async def scenario() -> RegistrationStatus:
        async with (
            watching(short_dir, dial_timeout_seconds=5) as kubelet,
            WatchedPlugin(registry(short_dir), info=info).serving() as plugin,
        ):
            status = await plugin.told()
            if not status.plugin_registered:
                assert kubelet.capacity() == {}
                await kubelet.wait(lambda: not in_state(kubelet, plugin.socket_path))
                assert in_state(kubelet, plugin.socket_path, DESIRED)
            return status

    return play(scenario())


@pytest.mark.parametrize(
    ("versions", "shown"), [((), "[]"), (("v1",), "[v1]"), (("v1alpha", "V1BETA1"), "[v1alpha V1BETA1]")]
)
def test_a_plugin_without_our_version_is_refused_with_its_versions(
    short_dir: Path, versions: tuple[str, ...], shown: str
) -> None:
    """C25; the version comes before the name."""
    assert answer_to(short_dir, PluginInfo("DevicePlugin", "gpu", "", versions)) == refused(
        "plugin validation failed with err: manager version, v1beta1, is not among plugin supported versions "
        f"{shown}"
    )


def test_any_one_of_several_versions_will_do(short_dir: Path) -> None:
    info = replace(INFO, supported_versions=("v1", "v1beta1", "v2"))
    assert answer_to(short_dir, info) == ACCEPTED


@pytest.mark.parametrize("name", ["gpu", "", "a.kubernetes.io/x"])
def test_a_plugin_whose_name_is_no_resource_is_refused(short_dir: Path, name: str) -> None:
    """C25."""
    assert answer_to(short_dir, replace(INFO, name=name)) == refused(
        "plugin validation failed with err: invalid name of device plugin socket: "
        f'the ResourceName "{name}" is invalid'
    )


@pytest.mark.parametrize("kind", ["CSIPlugin", "DRA", "deviceplugin", ""])
def test_a_type_that_nobody_handles_is_refused_with_its_socket(short_dir: Path, kind: str) -> None:
    """C31; before anything else is looked at."""
    assert answer_to(short_dir, PluginInfo(kind, "gpu", "", ())) == refused(
        f"no handler registered for plugin type: {kind} at socket {short_dir}/plugins_registry/p.sock"
    )


def test_an_endpoint_that_nobody_serves_is_refused_after_the_dial(short_dir: Path) -> None:
    info = replace(INFO, endpoint=f"{short_dir}/nothing.sock")
    assert answer_to(short_dir, info) == refused(
        "plugin registration failed with err: failed to dial device plugin: context deadline exceeded"
    )


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_the_endpoint_is_an_absolute_path_or_the_socket_itself(short_dir: Path, where: str) -> None:
    """C27."""
    async with (
        watching(short_dir) as kubelet,
        FakePlugin(short_dir / "far", devices=healthy("x", "y")).serving() as far,
    ):
        endpoint = "" if where == "here" else str(far.socket_path)
        info = replace(INFO, endpoint=endpoint)
        async with WatchedPlugin(registry(short_dir), info=info).serving() as plugin:
            assert await plugin.told() == ACCEPTED
            await listed(kubelet, 1 if where == "here" else 2)
            assert (plugin.open_streams, far.open_streams) == ((1, 0) if where == "here" else (0, 1))


async def test_an_answer_that_takes_longer_than_a_second_fails_the_attempt(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C24; the plugin is not told, and asked again."""
    clock, begun = Clock(), []

    async def hang() -> None:
        begun.append(now())
        if len(begun) == 1:
            await asyncio.Event().wait()

    async with watching(short_dir, clock=clock) as kubelet:
        plugin = WatchedPlugin(registry(short_dir), on_info=hang)
        async with plugin.serving():
            await kubelet.wait(lambda: failures(caplog))
            assert now() - begun[0] == pytest.approx(1)
            assert plugin.statuses == []
            clock.seconds += 0.6
            assert await plugin.told() == ACCEPTED
    (failure,) = [record for record in caplog.records if record.message == "cannot register a plugin"]
    path = f"{short_dir}/plugins_registry/p.sock"
    assert vars(failure)["reason"] == (
        f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {path}, err: "
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    )


async def test_a_dead_socket_is_dialled_until_the_time_is_up(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = registry(short_dir) / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with watching(short_dir, dial_timeout_seconds=5) as kubelet:
        await kubelet.wait(lambda: caplog.records)
        assert in_state(kubelet, path, DESIRED)
        assert not in_state(kubelet, path)
    assert vars(caplog.records[0])["reason"] == (
        f"RegisterPlugin error -- dial failed at socket {path}, err: failed to dial socket {path}, err: "
        "context deadline exceeded"
    )


async def test_a_socket_whose_path_go_cannot_parse_is_not_dialled(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        watching(short_dir) as kubelet,
        WatchedPlugin(registry(short_dir), socket_name="a%zz.sock").serving() as plugin,
    ):
        await kubelet.wait(lambda: caplog.records)
        assert plugin.calls == []
    path = f"{short_dir}/plugins_registry/a%zz.sock"
    assert vars(caplog.records[0])["reason"].endswith(
        f'err: failed to dial socket {path}, err: parse "passthrough:///{path}": invalid URL escape "%zz"'
    )


async def test_a_name_that_is_no_text_is_shown_as_far_as_it_can_be(short_dir: Path) -> None:
    kind = PluginInfo("X", "", "", ())
    async with (
        watching(short_dir) as kubelet,
        WatchedPlugin(registry(short_dir), socket_name="\udcff.sock", info=kind).serving() as plugin,
    ):
        path = f"{short_dir}/plugins_registry/\ufffd.sock"
        assert await plugin.told() == refused(f"no handler registered for plugin type: X at socket {path}")
        assert path in kubelet.metrics.exposition()


async def test_a_plugin_that_cannot_be_told_of_its_success_is_unregistered_again(short_dir: Path) -> None:
    clock = Clock()

    async def fail_once(_: RegistrationStatus) -> None:
        if len(plugin.statuses) == 1:
            await plugin.streams(1)
            raise KubeletError("boom")

    plugin = WatchedPlugin(registry(short_dir), on_status=fail_once)
    async with watching(short_dir, clock=clock) as kubelet, plugin.serving():
        await plugin.told()
        await plugin.streams(0)
        await kubelet.wait(lambda: not in_state(kubelet, plugin.socket_path))
        clock.seconds += 0.6
        await plugin.told(2)
        await plugin.streams(1)
        assert in_state(kubelet, plugin.socket_path)


async def test_a_refusal_that_cannot_be_told_is_a_failure_too(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: RegistrationStatus) -> None:
        raise KubeletError("boom")

    plugin = WatchedPlugin(registry(short_dir), info=PluginInfo("X", "", "", ()), on_status=fail)
    async with watching(short_dir) as kubelet, plugin.serving():
        await kubelet.wait(lambda: caplog.records)
    assert vars(caplog.records[0])["reason"].endswith(
        "RegisterPlugin error -- no handler registered for plugin type: X at socket "
        f"{short_dir}/plugins_registry/p.sock: rpc error: code = Unknown desc = boom"
    )


@asynccontextmanager
async def overheard(path: Path, behind: Path) -> AsyncIterator[list[bytearray]]:
    """A socket at `path` that passes all on to the one `behind` it; what each connection has brought."""
    connections: list[bytearray] = []

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = bytearray()
        connections.append(seen)
        back_reader, back_writer = await asyncio.open_unix_connection(str(behind))
        async with asyncio.TaskGroup() as group:
            group.create_task(copied(reader, back_writer, seen))
            group.create_task(copied(back_reader, writer, bytearray()))

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray) -> None:
        try:
            while content := await reader.read(65536):
                seen += content
                writer.write(content)
        except OSError:
            return
        finally:
            writer.close()

    server = await asyncio.start_unix_server(passed_on, str(path))
    try:
        yield connections
    finally:
        server.close()


async def test_the_plugin_is_asked_under_the_path_of_its_socket_and_called_under_localhost(
    short_dir: Path,
) -> None:
    async with WatchedPlugin(short_dir / "behind").serving() as plugin:
        path = registry(short_dir) / "p.sock"
        async with overheard(path, plugin.socket_path) as connections:
            async with watching(short_dir) as kubelet:
                await plugin.told()
                await listed(kubelet)
            asked, called = (bytes(connection) for connection in connections)
    assert {head[":authority"] for head in heads(asked)} == {str(path).replace("/", "%2F")}
    assert {head[":authority"] for head in heads(called)} == {"localhost"}
