"""What a kubelet does to plugins whose sockets it finds in `plugins_registry`."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from devplug.errors import KubeletError
from devplug.kubelet.kubelet import Kubelet
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    FakePlugin,
    healthy,
    pod,
    register,
    registered,
)
from tests.kubelet.watched import (
    ACCEPTED,
    ACTUAL,
    DESIRED,
    INFO,
    WatchedPlugin,
    in_state,
    refused,
    registry,
    watching,
)
from tests.virtualtime import BACKEND, now, play
from tests.wire.recordings import heads


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


WITNESSES = itertools.count()


async def listed(kubelet: Kubelet, count: int = 1, resource_name: str = RESOURCE) -> None:
    await kubelet.wait(lambda: kubelet.allocatable().get(resource_name, 0) == count)


# ── found ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["kubelet", "plugin"])
async def test_a_socket_is_asked_and_told_that_its_plugin_is_registered(short_dir: Path, first: str) -> None:
    """C23: a socket that was there before the kubelet is one that was made."""
    plugin = WatchedPlugin(registry(short_dir), devices=healthy("a", "b"))
    if first == "plugin":
        await plugin.listen()
    async with watching(short_dir) as kubelet:
        if first == "kubelet":
            await plugin.listen()
        assert await plugin.told() == ACCEPTED
        await listed(kubelet, 2)
        assert plugin.called("GetInfo") == [()]
        assert plugin.called("GetDevicePluginOptions") == [()]
        assert (await kubelet.run_pod(pod("u"))).containers[0].options is not None
    assert plugin.statuses == [ACCEPTED]
    await plugin.die()


async def test_the_folder_is_made_for_all_to_enter(short_dir: Path) -> None:
    async with watching(short_dir):
        assert (short_dir / "plugins_registry").stat().st_mode & 0o777 == 0o755


async def test_a_folder_that_cannot_be_made_is_logged_and_the_kubelet_runs(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (short_dir / "plugins_registry").touch()
    async with watching(short_dir) as kubelet, registered(kubelet, healthy("a")):
        assert kubelet.is_running
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "cannot watch for plugins"
    ]


async def test_registering_this_way_is_not_counted(short_dir: Path) -> None:
    """C30."""
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        assert kubelet.registrations(RESOURCE) == 0


async def test_plugins_are_registered_side_by_side(short_dir: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    folder = registry(short_dir)
    async with watching(short_dir), WatchedPlugin(folder, "slow", on_info=hang).serving() as slow:
        await slow.asked()
        info = replace(INFO, name=OTHER_RESOURCE)
        async with WatchedPlugin(folder, "q", info=info).serving() as quick:
            assert await quick.told() == ACCEPTED
        assert slow.statuses == []


# ── what is a plugin's socket ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["kubelet", "plugin"])
async def test_folders_below_are_watched_however_deep(short_dir: Path, first: str) -> None:
    """C28."""
    plugin = WatchedPlugin(registry(short_dir) / "a" / "b", socket_name="c/p.sock")
    if first == "plugin":
        await plugin.listen()
    async with watching(short_dir):
        if first == "kubelet":
            await plugin.listen()
        assert await plugin.told() == ACCEPTED
    await plugin.die()


@pytest.mark.parametrize("first", ["kubelet", "others"])
async def test_dot_files_and_what_is_no_socket_are_passed_over(short_dir: Path, first: str) -> None:
    """C28."""
    folder = registry(short_dir)
    hidden = WatchedPlugin(folder, socket_name=".p.sock")

    async def make() -> None:
        await hidden.listen()
        (folder / "file.sock").touch()
        (folder / "nowhere.sock").symlink_to("nothing")

    if first == "others":
        await make()
    async with watching(short_dir) as kubelet:
        if first == "kubelet":
            await make()
        async with WatchedPlugin(folder, "q").serving() as plugin:
            await plugin.told()
        assert hidden.calls == []
        shown = kubelet.metrics.exposition()
        assert not [line for line in shown.splitlines() if "socket_path" in line and "q.sock" not in line]
    await hidden.die()


async def test_a_folder_with_a_dot_is_looked_into_only_if_it_was_there_before(short_dir: Path) -> None:
    """Its name is looked at when it appears, and not when the folder around it is read."""
    folder = registry(short_dir)
    (folder / ".old").mkdir()
    info = replace(INFO, name=OTHER_RESOURCE)
    async with (
        watching(short_dir),
        WatchedPlugin(folder / ".new", info=info).serving() as new,
        WatchedPlugin(folder / ".old").serving() as old,
    ):
        await old.told()
        assert new.calls == []


async def test_a_link_to_a_socket_is_one(short_dir: Path) -> None:
    async with watching(short_dir), WatchedPlugin(short_dir / "elsewhere").serving() as plugin:
        (registry(short_dir) / "link.sock").symlink_to(plugin.socket_path)
        assert await plugin.told() == ACCEPTED


async def test_a_link_to_a_folder_is_watched_and_not_read(short_dir: Path) -> None:
    """Go's filepath.Walk follows no links; so only what is made later is found there."""
    far = short_dir / "far"
    later = WatchedPlugin(far, "later", info=replace(INFO, name=OTHER_RESOURCE))
    async with watching(short_dir), WatchedPlugin(far, "before").serving() as before:
        (registry(short_dir) / "link").symlink_to(far)
        await looked(short_dir)
        async with later.serving():
            assert await later.told() == ACCEPTED
        assert before.calls == []


async def test_a_socket_that_is_renamed_into_the_folder_is_found(short_dir: Path) -> None:
    async with watching(short_dir), WatchedPlugin(short_dir / "elsewhere").serving() as plugin:
        plugin.socket_path.rename(registry(short_dir) / "p.sock")
        assert await plugin.told() == ACCEPTED


async def test_a_folder_that_is_renamed_into_the_folder_is_looked_into(short_dir: Path) -> None:
    async with watching(short_dir), WatchedPlugin(short_dir / "elsewhere").serving() as plugin:
        plugin.folder.rename(registry(short_dir) / "sub")
        assert await plugin.told() == ACCEPTED


async def test_a_socket_that_is_renamed_away_stays_registered(short_dir: Path) -> None:
    """Only its removal is noticed."""
    folder = registry(short_dir)
    async with watching(short_dir) as kubelet, WatchedPlugin(folder).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        plugin.socket_path.rename(short_dir / "aside")
        info = replace(INFO, name=OTHER_RESOURCE)
        async with WatchedPlugin(folder, "q", info=info).serving() as later:
            await later.told()
        assert in_state(kubelet, plugin.socket_path, DESIRED)
        assert plugin.open_streams == 1


# ── the attempt ───────────────────────────────────────────────────────────────────────────────────


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


# ── again ─────────────────────────────────────────────────────────────────────────────────────────


async def looked(root: Path) -> None:
    """Wait until the kubelet has looked at its state once more, as the registration of a new socket shows."""
    info = replace(INFO, name="vendor.io/witness")
    async with WatchedPlugin(registry(root), f"witness{next(WITNESSES)}", info=info).serving() as witness:
        await witness.told()


def failures(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.message == "cannot register a plugin" for record in caplog.records)


async def test_a_refused_plugin_is_asked_again_ever_more_slowly(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C26; half a second and twice as long each time, on a clock that the test moves."""
    clock = Clock()
    info = replace(INFO, name="gpu")
    async with (
        watching(short_dir, clock=clock) as kubelet,
        WatchedPlugin(registry(short_dir), info=info).serving() as plugin,
    ):
        for attempt, wait_seconds in enumerate((0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122), 1):
            assert (await plugin.told(attempt)).error
            await kubelet.wait(lambda: failures(caplog) == len(plugin.statuses))
            clock.seconds += wait_seconds
            await looked(short_dir)
            assert len(plugin.statuses) == attempt
            clock.seconds += 0.01
        plugin.info = replace(info, name=RESOURCE)
        assert await plugin.told(11) == ACCEPTED
        assert len(plugin.called("GetInfo")) == 11


async def test_a_new_socket_at_the_path_of_a_failure_has_to_wait_too(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait is the path's, whoever listens there."""
    clock = Clock()
    async with watching(short_dir, clock=clock) as kubelet:
        async with WatchedPlugin(registry(short_dir), info=PluginInfo("X", "", "", ())).serving() as bad:
            await bad.told()
            await kubelet.wait(lambda: failures(caplog))
        async with WatchedPlugin(registry(short_dir)).serving() as good:
            await looked(short_dir)
            assert good.calls == []
            clock.seconds += 0.6
            assert await good.told() == ACCEPTED


async def test_a_removed_socket_disconnects_its_resource(short_dir: Path) -> None:
    """C29."""
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        assert in_state(kubelet, plugin.socket_path)
        assert in_state(kubelet, plugin.socket_path, DESIRED)
        plugin.socket_path.unlink()
        await plugin.streams(0)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 1}, {RESOURCE: 0})
        assert str(plugin.socket_path) not in kubelet.metrics.exposition()


@pytest.mark.parametrize("pause", [False, True], ids=["at once", "after it was noticed"])
async def test_a_socket_that_is_made_again_is_unregistered_and_registered(
    short_dir: Path, pause: bool
) -> None:
    """C29."""
    async with watching(short_dir) as kubelet:
        plugin, successor = (WatchedPlugin(registry(short_dir)) for _ in range(2))
        await plugin.listen()
        await plugin.told()
        await listed(kubelet)
        plugin.socket_path.unlink()
        if pause:
            await plugin.streams(0)
        successor.devices = healthy("x", "y")
        async with successor.serving():
            await plugin.streams(0)
            assert await successor.told() == ACCEPTED
            await listed(kubelet, 2)
        await plugin.die()


async def test_a_file_that_is_renamed_over_a_socket_is_the_socket_made_again(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        async with WatchedPlugin(short_dir / "far", devices=healthy("x", "y")).serving() as successor:
            successor.socket_path.rename(plugin.socket_path)
            await successor.told()
            await listed(kubelet, 2)


async def test_a_plugin_that_dies_and_leaves_its_socket_is_never_tried_again(short_dir: Path) -> None:
    """Only the end of its stream is noticed; to the watcher it stays registered."""
    clock = Clock()
    async with watching(short_dir, clock=clock) as kubelet:
        plugin = WatchedPlugin(registry(short_dir))
        await plugin.listen()
        await plugin.told()
        await listed(kubelet)
        await plugin.die(keep_file=True)
        await listed(kubelet, 0)
        clock.seconds += 1000
        await looked(short_dir)
        assert in_state(kubelet, plugin.socket_path)
        async with WatchedPlugin(registry(short_dir)).serving() as successor:
            await successor.told()
            await listed(kubelet)


async def test_a_stream_that_is_lost_is_not_followed_by_a_question(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        await plugin.told()
        await listed(kubelet)
        kubelet.drop_stream(RESOURCE)
        await plugin.streams(0)
        await looked(short_dir)
        assert len(plugin.called("GetInfo")) == 1


async def test_a_socket_that_goes_while_its_plugin_is_asked_is_unregistered_after_that(
    short_dir: Path,
) -> None:
    async def lose_the_socket(_: RegistrationStatus) -> None:
        await plugin.streams(1)
        plugin.socket_path.unlink()
        await looked(short_dir)
        assert in_state(kubelet, plugin.socket_path)

    plugin = WatchedPlugin(registry(short_dir), on_status=lose_the_socket)
    async with watching(short_dir) as kubelet, plugin.serving():
        assert await plugin.told() == ACCEPTED
        await plugin.streams(0)
        await kubelet.wait(lambda: not in_state(kubelet, plugin.socket_path))


async def test_a_kubelet_that_restarts_finds_all_sockets_again(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet, WatchedPlugin(registry(short_dir)).serving() as plugin:
        for times in range(1, 4):
            assert await plugin.told(times) == ACCEPTED
            await listed(kubelet)
            await kubelet.restart()
            assert plugin.socket_path.is_socket()
            assert kubelet.registrations(RESOURCE) == 0


async def test_a_kubelet_that_stops_breaks_its_questions_off(short_dir: Path) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with WatchedPlugin(registry(short_dir), on_info=hang).serving() as plugin:
        async with watching(short_dir):
            await plugin.asked()
        async with watching(short_dir) as kubelet:
            await plugin.asked(2)
            await kubelet.restart()
            await plugin.asked(3)
        assert plugin.statuses == []


# ── two plugins of one name ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("compat", "allocatable"), [(True, 0), (False, 2)])
async def test_removing_the_socket_of_an_old_plugin_disconnects_the_new_one_in_1_36(
    short_dir: Path, compat: bool, allocatable: int
) -> None:
    """DeRegister ignores the endpoint (kubelet.md 9, 2); mended, it looks for the client at that socket."""
    folder = registry(short_dir)
    async with watching(short_dir, compat=compat) as kubelet, WatchedPlugin(folder, "old").serving() as old:
        await old.told()
        await listed(kubelet)
        async with WatchedPlugin(folder, "new", devices=healthy("x", "y")).serving() as new:
            await new.told()
            await listed(kubelet, 2)
            old.socket_path.unlink()
            await kubelet.wait(lambda: not in_state(kubelet, old.socket_path))
            await looked(short_dir)
            assert kubelet.allocatable()[RESOURCE] == allocatable
            assert in_state(kubelet, new.socket_path)
            assert old.open_streams == 1


@pytest.mark.parametrize(("compat", "allocatable"), [(True, 0), (False, 1)])
async def test_removing_a_socket_disconnects_a_plugin_that_called_register(
    short_dir: Path, compat: bool, allocatable: int
) -> None:
    """Both ways share one table of clients."""
    async with watching(short_dir, compat=compat) as kubelet:
        plugin = WatchedPlugin(registry(short_dir))
        async with plugin.serving():
            await plugin.told()
            await listed(kubelet)
            async with FakePlugin(kubelet.plugin_dir, devices=healthy("x")).serving() as caller:
                await register(kubelet, caller)
                plugin.socket_path.unlink()
                await kubelet.wait(lambda: not in_state(kubelet, plugin.socket_path))
                await looked(short_dir)
                assert kubelet.allocatable()[RESOURCE] == allocatable


async def test_one_name_may_be_registered_over_two_sockets(short_dir: Path) -> None:
    folder = registry(short_dir)
    async with (
        watching(short_dir) as kubelet,
        WatchedPlugin(folder, "one").serving() as one,
        WatchedPlugin(folder, "two", devices=healthy("x", "y")).serving() as two,
    ):
        assert [await one.told(), await two.told()] == [ACCEPTED, ACCEPTED]
        await kubelet.wait(lambda: all(in_state(kubelet, p.socket_path, ACTUAL) for p in (one, two)))


# ── folders that go, and events that are missed ───────────────────────────────────────────────────


async def test_a_folder_below_that_is_removed_and_made_again_is_watched_again(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet:
        for _ in range(3):
            plugin = WatchedPlugin(registry(short_dir) / "sub")
            async with plugin.serving():
                await plugin.told()
                await listed(kubelet)
            plugin.folder.rmdir()
            await listed(kubelet, 0)


async def test_a_folder_below_that_is_renamed_is_watched_under_its_new_name(short_dir: Path) -> None:
    """What was in it counts as made there, and stays registered under the old name as well."""
    async with watching(short_dir) as kubelet:
        plugin = WatchedPlugin(registry(short_dir) / "old")
        await plugin.listen()
        await plugin.told()
        plugin.folder.rename(registry(short_dir) / "new")
        await plugin.told(2)
        paths = [registry(short_dir) / name / "p.sock" for name in ("old", "new")]
        await kubelet.wait(lambda: all(in_state(kubelet, path) for path in paths))
        paths[1].unlink()
        await kubelet.wait(lambda: not in_state(kubelet, paths[1]))
        assert in_state(kubelet, paths[0])
        await plugin.die()


async def test_a_kubelet_whose_folder_is_removed_is_blind_until_its_next_start(short_dir: Path) -> None:
    async with watching(short_dir) as kubelet:
        registry(short_dir).rmdir()
        async with asyncio.TaskGroup() as tasks, WatchedPlugin(registry(short_dir)).serving() as plugin:
            # Its own calls go on; nothing in the new folder is seen.
            async with registered(kubelet, healthy("x"), OTHER_RESOURCE):
                assert plugin.calls == []
            told = tasks.create_task(plugin.told())
            await kubelet.restart()
            assert await told == ACCEPTED


async def test_lost_events_cost_no_socket(short_dir: Path) -> None:
    """The real kubelet would not notice; ours looks at the whole folder."""
    with open("/proc/sys/fs/inotify/max_queued_events") as limit:  # noqa: PTH123 -- one number
        kept = int(limit.read())
    if kept > 100_000:
        pytest.skip(f"this kernel keeps {kept} events, which is too many to make here")

    def plugin(name: str) -> WatchedPlugin:
        return WatchedPlugin(registry(short_dir), name, info=replace(INFO, name=f"a.io/{name}"))

    async with watching(short_dir) as kubelet:
        plugins = gone, replaced, stays = plugin("gone"), plugin("replaced"), plugin("stays")
        for each in plugins:
            await each.listen()
            await each.told()
        for _ in range(kept // 2 + 1):
            os.close(os.open(registry(short_dir) / ".noise", os.O_CREAT))
            (registry(short_dir) / ".noise").unlink()
        gone.socket_path.unlink()
        replaced.socket_path.unlink()
        async with plugin("replaced").serving() as successor:
            await successor.told()
            await kubelet.wait(lambda: not in_state(kubelet, gone.socket_path))
            await gone.streams(0)
            assert len(stays.statuses) == 1
        for each in plugins:
            await each.die()
