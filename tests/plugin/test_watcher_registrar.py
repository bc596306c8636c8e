"""How a plugin that waits in `plugins_registry` gets registered and stays so, without ever calling."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from devplug import serve
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.deviceplugin import LIST_AND_WATCH
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import connected, socket_identity
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.kubelet.fakes import happened, healthy, pod
from tests.kubelet.watched import WatchedPlugin, in_state
from tests.plugin.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Fed,
    allocatable,
    devices,
    ended,
    plugin_sockets,
    start,
)
from tests.plugin.fakes import play as play_with_programs
from tests.virtualtime import BACKEND, now, passes
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from devplug import DevicePlugin, Serving
    from devplug.wire.sockets import Peer


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


BOTH = pytest.mark.parametrize("compat", [True, False])


def quick_kubelet(root: Path, *, compat: bool = True) -> Kubelet:
    """A kubelet that looks at its folder a hundred times as often as a real one."""
    clock = asyncio.get_running_loop().time
    return Kubelet.under(root, KubeletSettings(clock=clock, compat=compat, reconcile_period_seconds=0.01))


def served(root: Path, *plugins: DevicePlugin) -> AbstractAsyncContextManager[Serving]:
    return serve(*plugins, plugin_dir=root / "device-plugins", registration="watcher")


@asynccontextmanager
async def found(
    root: Path, *plugins: DevicePlugin, compat: bool = True
) -> AsyncIterator[tuple[Kubelet, Serving]]:
    """A kubelet, and the plugins that it has found and registered."""
    kubelet = quick_kubelet(root, compat=compat)
    async with kubelet.running(), served(root, *plugins) as serving:
        await serving.wait_registered()
        yield kubelet, serving


def sockets(root: Path) -> list[Path]:
    return plugin_sockets(root / "plugins_registry")


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


# ── getting registered ──


async def test_a_plugin_is_found_and_never_calls(short_dir: Path) -> None:
    async with found(short_dir, Fed("a", "b")) as (kubelet, _):
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        assert kubelet.registrations(RESOURCE) == 0
        assert len(sockets(short_dir)) == 1
        assert plugin_sockets(kubelet.plugin_dir) == []
        status = await kubelet.run_pod(pod("p", 2))
        assert status.phase is PodPhase.RUNNING
        options = status.containers[0].options
        assert options is not None
        assert {node.host_path for node in options.device_nodes} == {"/dev/a", "/dev/b"}


@pytest.mark.parametrize("missing", ["kubelet", "folder", "root"])
async def test_a_plugin_is_found_by_a_kubelet_that_comes_later(short_dir: Path, missing: str) -> None:
    root = short_dir / "root" if missing == "root" else short_dir
    if missing == "kubelet":
        (root / "plugins_registry").mkdir()
    async with served(root, Fed("a")) as serving:
        if missing == "kubelet":
            await until(lambda: sockets(root))
        async with quick_kubelet(root).running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)


async def test_nothing_is_made_in_the_folder_before_the_first_list(short_dir: Path) -> None:
    plugin = Fed()
    plugin.feed = type(plugin.feed)()
    async with quick_kubelet(short_dir).running() as kubelet, served(short_dir, plugin) as serving:
        for _ in range(50):
            await asyncio.sleep(0)
        assert sockets(short_dir) == []
        plugin.feed.put(*devices("a"))
        await serving.wait_registered()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)


async def test_all_plugins_of_a_program_are_found(short_dir: Path) -> None:
    names = [f"example.com/r{n}" for n in range(20)]
    async with found(short_dir, *(Fed("a", resource_name=name) for name in names)) as (kubelet, _):
        await kubelet.wait(lambda: all(allocatable(kubelet, name) == 1 for name in names))
        assert len(sockets(short_dir)) == 20


@pytest.mark.parametrize("plugin_dir", ["device-plugins/", "x/../device-plugins", "anything"])
async def test_the_folder_is_the_one_beside_the_plugin_folder(short_dir: Path, plugin_dir: str) -> None:
    folder = f"{short_dir}/{plugin_dir}"
    async with (
        quick_kubelet(short_dir).running(),
        serve(Fed("a"), plugin_dir=folder, registration="watcher") as serving,
    ):
        await serving.wait_registered()


async def test_a_program_that_is_given_only_the_registry_is_found_by_itself(short_dir: Path) -> None:
    kubelet = Kubelet(
        short_dir / "far",
        KubeletSettings(plugins_registry=short_dir / "plugins_registry", reconcile_period_seconds=0.01),
    )
    async with (
        kubelet.running(),
        serve(Fed("a"), plugin_dir=short_dir / "device-plugins") as serving,
    ):
        await serving.wait_registered()
        assert kubelet.registrations(RESOURCE) == 0
        assert len(sockets(short_dir)) == 1


# ── what the kubelet is told ──


@asynccontextmanager
async def asked_by_hand(root: Path, plugin: DevicePlugin) -> AsyncIterator[tuple[Serving, Peer]]:
    """A plugin without a kubelet, and the connection of somebody who asks as one does."""
    (root / "plugins_registry").mkdir()
    async with served(root, plugin) as serving:
        await until(lambda: sockets(root))
        async with connected(sockets(root)[0]) as peer:
            yield serving, peer


async def is_registered(serving: Serving) -> bool:
    """Whether the wait for the registration is over at once."""
    try:
        async with asyncio.timeout(0):
            await serving.wait_registered()
    except TimeoutError:
        return False
    return True


async def test_a_plugin_names_itself_and_leaves_the_endpoint_to_the_kubelet(short_dir: Path) -> None:
    """Its own path of the socket may be another than the kubelet's, as in a container."""
    async with asked_by_hand(short_dir, Fed("a")) as (_, peer):
        assert await peer.call(GET_INFO, None) == PluginInfo("DevicePlugin", RESOURCE, "", ("v1beta1",))


@pytest.mark.parametrize("first", ["the stream", "the word"])
async def test_a_plugin_is_registered_once_it_is_told_so_and_listened_to(short_dir: Path, first: str) -> None:
    async with asked_by_hand(short_dir, Fed("a")) as (serving, peer):
        await peer.call(GET_INFO, None)
        async with aclosing(peer.stream(LIST_AND_WATCH, None)) as lists:
            for thing in ("the stream", "the word") if first == "the stream" else ("the word", "the stream"):
                assert not await is_registered(serving)
                if thing == "the stream":
                    await anext(lists)
                else:
                    await peer.call(NOTIFY_REGISTRATION_STATUS, RegistrationStatus(True))
            assert await is_registered(serving)
        while await is_registered(serving):  # noqa: ASYNC110 -- nothing tells of that
            await asyncio.sleep(0)


async def test_a_refusal_is_logged_once_however_often_it_comes(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked_by_hand(short_dir, Fed("a")) as (serving, peer):
        for text in ("no", "no", "no", "never"):
            await peer.call(GET_INFO, None)
            await peer.call(NOTIFY_REGISTRATION_STATUS, RegistrationStatus(False, text))
        assert not await is_registered(serving)
    refusals = [record for record in caplog.records if "refused the registration" in record.message]
    assert [vars(record)["reason"] for record in refusals] == ["no", "never"]


async def test_a_refused_plugin_is_registered_when_the_kubelet_asks_again(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Here because the kubelet could not reach it the first time."""
    async with asked_by_hand(short_dir, Fed("a")) as (serving, peer):
        await peer.call(GET_INFO, None)
        await peer.call(NOTIFY_REGISTRATION_STATUS, RegistrationStatus(False, "no"))
        before = socket_identity(sockets(short_dir)[0])
        async with quick_kubelet(short_dir).running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            assert socket_identity(sockets(short_dir)[0]) == before


async def test_a_stranger_who_asks_does_not_disturb_a_registered_plugin(short_dir: Path) -> None:
    async with found(short_dir, Fed("a")) as (kubelet, serving):
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        before = socket_identity(sockets(short_dir)[0])
        async with connected(sockets(short_dir)[0]) as peer:
            await peer.call(GET_INFO, None)
            async with aclosing(peer.stream(LIST_AND_WATCH, None)) as lists:
                await anext(lists)
        assert await is_registered(serving)
        assert allocatable(kubelet) == 1
        assert socket_identity(sockets(short_dir)[0]) == before


# ── staying registered ──


@BOTH
async def test_a_plugin_is_found_by_each_kubelet_that_starts(short_dir: Path, compat: bool) -> None:
    async with found(short_dir, Fed("a", "b"), compat=compat) as (kubelet, serving):
        for _ in range(20):
            await kubelet.restart()
            await kubelet.wait(lambda: allocatable(kubelet) == 2)
            await serving.wait_registered()
            assert kubelet.registrations(RESOURCE) == 0
        assert len(sockets(short_dir)) == 1


async def test_two_restarts_in_one_breath_lose_nothing(short_dir: Path) -> None:
    async with found(short_dir, Fed("a")) as (kubelet, serving):
        for _ in range(10):
            await kubelet.restart()
            await kubelet.restart()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            await serving.wait_registered()


async def test_a_kubelet_that_stays_away_for_long_and_comes_back_finds_the_plugin(short_dir: Path) -> None:
    async def story() -> None:
        async with served(short_dir, Fed("a")):
            for _ in range(3):
                await one_kubelet()

    async def one_kubelet() -> None:
        async with quick_kubelet(short_dir).running() as kubelet:
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            (path,) = sockets(short_dir)
            before = socket_identity(path)
        await until(lambda: socket_identity(path) != before)

    await story()


@BOTH
async def test_a_lost_stream_is_followed_by_a_new_socket_after_a_quarter_of_a_second(
    short_dir: Path, compat: bool
) -> None:
    async with found(short_dir, Fed("a"), compat=compat) as (kubelet, serving):
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        (path,) = sockets(short_dir)
        before = socket_identity(path)
        with kubelet.changes() as changes:
            kubelet.drop_stream(RESOURCE)
            at = {}
            async for change in changes:
                at[change.kind] = change.at_seconds
                if change.kind is ChangeKind.REGISTERED:
                    break
        assert 0.25 <= at[ChangeKind.REGISTERED] - at[ChangeKind.DISCONNECTED] < 1
        await serving.wait_registered()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert sockets(short_dir) == [path]
        assert socket_identity(path) not in {None, before}
        assert kubelet.registrations(RESOURCE) == 0


async def test_a_stream_that_is_cut_again_and_again_is_followed_ever_more_slowly(short_dir: Path) -> None:
    async with found(short_dir, Fed("a")) as (kubelet, _):
        waits = []
        for _ in range(3):
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            cut_at = now()
            kubelet.drop_stream(RESOURCE)
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            waits.append(now() - cut_at)
        assert waits[0] >= 0.25
        assert min(waits[1:]) >= 0.5


@BOTH
@pytest.mark.parametrize("loss", ["removed", "replaced", "renamed away"])
async def test_a_lost_socket_is_made_again_and_found(short_dir: Path, compat: bool, loss: str) -> None:
    plugin = Fed("a")
    async with found(short_dir, plugin, compat=compat) as (kubelet, serving):
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        (path,) = sockets(short_dir)
        before = socket_identity(path)
        with kubelet.changes() as changes:
            path.rename(short_dir / "aside") if loss == "renamed away" else path.unlink()
            if loss == "replaced":
                path.touch()
            async for change in changes:
                if change.kind is ChangeKind.REGISTERED:
                    break
        await serving.wait_registered()
        plugin.feed.put(*devices("b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        assert sockets(short_dir) == [path]
        assert socket_identity(path) not in {None, before}


async def test_the_folder_may_be_removed_and_made_again_between_two_kubelets(short_dir: Path) -> None:
    async with found(short_dir, Fed("a")) as (kubelet, serving):
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        shutil.rmtree(short_dir / "plugins_registry")
        await kubelet.restart()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        await serving.wait_registered()


@BOTH
async def test_the_socket_of_an_older_plugin_takes_ours_down_in_1_36_and_ours_comes_back(
    short_dir: Path, compat: bool
) -> None:
    """DeRegister ignores the endpoint; so whoever serves the name is disconnected with the old plugin."""
    kubelet = quick_kubelet(short_dir, compat=compat)
    old = WatchedPlugin(short_dir / "plugins_registry", devices=healthy("x", "y"))
    async with kubelet.running(), old.serving():
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        async with served(short_dir, Fed("a")) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            (path,) = sockets(short_dir)
            before = socket_identity(path)
            old.socket_path.unlink()
            await kubelet.wait(lambda: not in_state(kubelet, old.socket_path))
            assert allocatable(kubelet) == (0 if compat else 1)
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            await serving.wait_registered()
            assert (socket_identity(path) == before) is not compat


# ── without a kubelet ──


async def test_a_socket_that_nobody_asks_at_is_made_anew_ever_more_slowly(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (short_dir / "plugins_registry").mkdir()
    async with served(short_dir, Fed("a"), Fed("a", resource_name=OTHER_RESOURCE)) as serving:
        await until(lambda: len(sockets(short_dir)) == 2)
        path, _ = sockets(short_dir)
        for patience_seconds in (15, 30, 60, 120):
            before, since = socket_identity(path), now()
            while socket_identity(path) == before:
                await passes(1)
            assert patience_seconds - 1 <= now() - since <= 1.2 * patience_seconds + 1
        assert said(caplog, "no kubelet asks at the sockets in plugins_registry") == 1
        async with quick_kubelet(short_dir).running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)


# ── ending ──


async def test_closing_removes_the_socket_and_the_lock_and_the_kubelet_learns_it(short_dir: Path) -> None:
    async with quick_kubelet(short_dir).running() as kubelet:
        async with served(short_dir, Fed("a")) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            (path,) = sockets(short_dir)
            assert (path.parent / ".devplug").is_dir()
            began = now()
        assert now() - began < 1
        assert list(path.parent.iterdir()) == []
        await kubelet.wait(lambda: allocatable(kubelet) == 0)
        await kubelet.wait(lambda: not in_state(kubelet, path))


async def test_plugins_that_come_and_go_do_not_touch_the_others(short_dir: Path) -> None:
    async with found(short_dir, Fed("a")) as (kubelet, serving):
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        with kubelet.changes() as changes:
            for _ in range(3):
                serving.add(Fed("x", "y", resource_name=OTHER_RESOURCE))
                await kubelet.wait(lambda: allocatable(kubelet, OTHER_RESOURCE) == 2)
                await serving.remove(OTHER_RESOURCE)
                await kubelet.wait(lambda: allocatable(kubelet, OTHER_RESOURCE) == 0)
            serving.add(Fed("a", resource_name="example.com/last"))
            async for change in changes:
                assert (change.kind, change.resource_name) != (ChangeKind.REGISTERED, RESOURCE)
                if (change.kind, change.resource_name) == (ChangeKind.LISTED, "example.com/last"):
                    break
        assert allocatable(kubelet) == 1


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_second_process_waits_for_the_first_and_takes_over(
    short_dir: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    async def story() -> None:
        async with quick_kubelet(short_dir).running() as kubelet:
            first = start('run(P(), registration="watcher")', kubelet.plugin_dir)
            try:
                await kubelet.wait(lambda: allocatable(kubelet) == 1)
                async with served(short_dir, Fed("b", "c")) as serving:
                    words = f"{RESOURCE} is served by process {first.pid} on this node; waiting until it ends"
                    await until(lambda: said(caplog, words))
                    first.terminate() if end == "SIGTERM" else first.kill()
                    await serving.wait_registered()
                    await kubelet.wait(lambda: allocatable(kubelet) == 2)
                    assert len(sockets(short_dir)) == 1
            finally:
                ended(first)

    play_with_programs(story())


async def test_a_script_says_when_it_is_registered_and_ends_well(short_dir: Path) -> None:
    async with quick_kubelet(short_dir).running() as kubelet:
        script = start('run(P(), registration="watcher")', kubelet.plugin_dir)
        try:
            with kubelet.changes() as changes:
                await happened(changes, ChangeKind.REGISTERED)
                await happened(changes, ChangeKind.SOCKET)  # the attempt is over: it was told
            script.terminate()
        finally:
            code, errors = ended(script)
        assert code == 0, errors
        assert "registered with the kubelet  resource_name=example.com/a devices=1" in errors
        assert "Traceback" not in errors
