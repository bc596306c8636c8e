"""How a plugin that waits in `plugins_registry` gets registered and stays so, without ever calling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from devplug import DevicePlugin, Serving, serve
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.deviceplugin import LIST_AND_WATCH
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Peer, connected, socket_identity
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.kubelet.fakes import happened, healthy, pod
from tests.kubelet.watched import WatchedPlugin, in_state
from tests.plugin.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Fed,
    Node,
    allocatable,
    devices,
    ended,
    plugin_sockets,
    start,
)
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time
BOTH = pytest.mark.parametrize("compat", [True, False])


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir, "watcher")


# ── getting registered ──


async def test_a_plugin_is_found_and_never_calls(node: Node) -> None:
    async with node.registered(Fed("a", "b")) as (kubelet, _):
        assert kubelet.registrations(RESOURCE) == 0
        assert len(node.sockets()) == 1
        assert plugin_sockets(kubelet.plugin_dir) == []
        status = await kubelet.run_pod(pod("p", 2))
        assert status.phase is PodPhase.RUNNING
        options = status.containers[0].options
        assert options is not None
        assert {node.host_path for node in options.device_nodes} == {"/dev/a", "/dev/b"}


@pytest.mark.parametrize("plugin_dir", ["device-plugins/", "x/../device-plugins", "anything"])
async def test_the_folder_is_the_one_beside_the_plugin_folder(node: Node, plugin_dir: str) -> None:
    folder = f"{node.root}/{plugin_dir}"
    async with (
        node.kubelet().running(),
        serve(Fed("a"), plugin_dir=folder, registration="watcher") as serving,
    ):
        await serving.wait_registered()


async def test_a_program_that_is_given_only_the_registry_is_found_by_itself(node: Node) -> None:
    kubelet = Kubelet(
        node.root / "far",
        KubeletSettings(plugins_registry=node.root / "plugins_registry", reconcile_period_seconds=0.01),
    )
    async with kubelet.running(), serve(Fed("a"), plugin_dir=node.root / "device-plugins") as serving:
        await serving.wait_registered()
        assert kubelet.registrations(RESOURCE) == 0
        assert len(node.sockets()) == 1


# ── what the kubelet is told ──


@asynccontextmanager
async def asked_by_hand(node: Node, plugin: DevicePlugin) -> AsyncIterator[tuple[Serving, Peer]]:
    """A plugin without a kubelet, and the connection of somebody who asks as one does."""
    node.folder.mkdir()
    async with node.serving(plugin) as serving:
        await until(node.sockets)
        async with connected(node.sockets()[0]) as peer:
            yield serving, peer


async def is_registered(serving: Serving) -> bool:
    """Whether the wait for the registration is over at once."""
    try:
        async with asyncio.timeout(0):
            await serving.wait_registered()
    except TimeoutError:
        return False
    return True


async def test_a_plugin_names_itself_and_leaves_the_endpoint_to_the_kubelet(node: Node) -> None:
    """Its own path of the socket may be another than the kubelet's, as in a container."""
    async with asked_by_hand(node, Fed("a")) as (_, peer):
        assert await peer.call(GET_INFO, None) == PluginInfo("DevicePlugin", RESOURCE, "", ("v1beta1",))


@pytest.mark.parametrize("first", ["the stream", "the word"])
async def test_a_plugin_is_registered_once_it_is_told_so_and_listened_to(node: Node, first: str) -> None:
    async with asked_by_hand(node, Fed("a")) as (serving, peer):
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
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked_by_hand(node, Fed("a")) as (serving, peer):
        for text in ("no", "no", "no", "never"):
            await peer.call(GET_INFO, None)
            await peer.call(NOTIFY_REGISTRATION_STATUS, RegistrationStatus(False, text))
        assert not await is_registered(serving)
    refusals = [record for record in caplog.records if "refused the registration" in record.message]
    assert [vars(record)["reason"] for record in refusals] == ["no", "never"]


async def test_a_refused_plugin_is_registered_when_the_kubelet_asks_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Here because the kubelet could not reach it the first time."""
    async with asked_by_hand(node, Fed("a")) as (serving, peer):
        await peer.call(GET_INFO, None)
        await peer.call(NOTIFY_REGISTRATION_STATUS, RegistrationStatus(False, "no"))
        before = socket_identity(node.sockets()[0])
        async with node.kubelet().running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            assert socket_identity(node.sockets()[0]) == before


async def test_a_stranger_who_asks_does_not_disturb_a_registered_plugin(node: Node) -> None:
    async with node.registered(Fed("a")) as (kubelet, serving):
        before = socket_identity(node.sockets()[0])
        async with connected(node.sockets()[0]) as peer:
            await peer.call(GET_INFO, None)
            async with aclosing(peer.stream(LIST_AND_WATCH, None)) as lists:
                await anext(lists)
        assert await is_registered(serving)
        assert allocatable(kubelet) == 1
        assert socket_identity(node.sockets()[0]) == before


# ── staying registered ──


@BOTH
@pytest.mark.parametrize("loss", ["removed", "replaced", "renamed away"])
async def test_a_lost_socket_is_made_again_and_found(node: Node, compat: bool, loss: str) -> None:
    plugin = Fed("a")
    async with node.registered(plugin, compat=compat) as (kubelet, serving):
        (path,) = node.sockets()
        before = socket_identity(path)
        with kubelet.changes() as changes:
            path.rename(node.root / "aside") if loss == "renamed away" else path.unlink()
            if loss == "replaced":
                path.touch()
            await happened(changes, ChangeKind.REGISTERED)
        await serving.wait_registered()
        plugin.feed.put(*devices("b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        assert node.sockets() == [path]
        assert socket_identity(path) not in {None, before}


@BOTH
async def test_the_socket_of_an_older_plugin_takes_ours_down_in_1_36_and_ours_comes_back(
    node: Node, compat: bool
) -> None:
    """DeRegister ignores the endpoint; so whoever serves the name is disconnected with the old plugin."""
    kubelet = node.kubelet(compat=compat)
    old = WatchedPlugin(node.root / "plugins_registry", devices=healthy("x", "y"))
    async with kubelet.running(), old.serving():
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        async with node.serving(Fed("a")) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            (path,) = node.sockets()
            before = socket_identity(path)
            old.socket_path.unlink()
            await kubelet.wait(lambda: not in_state(kubelet, old.socket_path))
            assert allocatable(kubelet) == (0 if compat else 1)
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            await serving.wait_registered()
            assert (socket_identity(path) == before) is not compat


# ── without a kubelet ──


async def test_a_socket_that_nobody_asks_at_is_made_anew_ever_more_slowly(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    (node.root / "plugins_registry").mkdir()
    async with node.serving(Fed("a"), Fed("a", resource_name=OTHER_RESOURCE)) as serving:
        await until(lambda: len(node.sockets()) == 2)
        path, _ = node.sockets()
        for patience_seconds in (15, 30, 60, 120):
            before, since = socket_identity(path), now()
            while socket_identity(path) == before:
                await passes(1)
            assert patience_seconds - 1 <= now() - since <= 1.2 * patience_seconds + 1
        assert caplog.text.count("no kubelet asks at the sockets in plugins_registry") == 1
        async with node.kubelet().running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)


# ── ending ──


async def test_a_script_says_when_it_is_registered_and_ends_well(node: Node) -> None:
    async with node.kubelet().running() as kubelet:
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
