"""What the kubelet answers to Register, and what it then does to the plugin."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.errors import KubeletError, RegistrationError, RemoteError
from devplug.k8s.resource_names import is_extended
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.registration import Registration
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.deviceplugin import REGISTER
from devplug.wire.sockets import Peer, connected
from devplug.wire.values import PluginOptions, RegisterRequest
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    FakePlugin,
    happened,
    healthy,
    pod,
    register,
    registered,
    running,
    served,
)
from tests.virtualtime import now, on_virtual_time, play

anyio_backend = on_virtual_time


def refusal(folder: Path, **request: Any) -> str:
    """Return the text that Register fails with."""

    async def scenario() -> str:
        async with running(folder), FakePlugin(folder).serving() as plugin:
            with pytest.raises(RemoteError) as caught:
                await plugin.register(**request)
            assert caught.value.status == "Unknown"
            return caught.value.text

    return play(scenario())


# ── refusals ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_hundred_programs_that_are_connected_at_once_are_all_answered(short_dir: Path) -> None:
    """None is turned away for another one: after a restart every program of the node comes at once."""
    request = RegisterRequest("v2", "x.sock", RESOURCE, PluginOptions())

    async def called(peer: Peer) -> None:
        with pytest.raises(RemoteError) as caught:
            await peer.call(REGISTER, request)
        assert caught.value.status == "Unknown"

    async with running(short_dir) as kubelet, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(kubelet.socket_path)) for _ in range(100)]
        async with asyncio.TaskGroup() as group:
            for peer in peers:
                group.create_task(called(peer))
        assert kubelet.registrations(RESOURCE) == 100


@pytest.mark.parametrize("version", ["v1alpha2", "", "v1", "V1BETA1"])
def test_register_refuses_any_version_but_v1beta1(short_dir: Path, version: str) -> None:
    """C01."""
    assert refusal(short_dir, version=version) == (
        f'requested API version "{version}" is not supported by kubelet. Supported version is ["v1beta1"]'
    )


def test_register_looks_at_the_version_before_the_name(short_dir: Path) -> None:
    """C02."""
    assert refusal(short_dir, version="v2", resource_name="gpu").startswith('requested API version "v2"')


def test_register_refuses_what_is_no_extended_resource_name(short_dir: Path) -> None:
    """C03."""
    assert refusal(short_dir, resource_name="gpu") == 'the ResourceName "gpu" is invalid'


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("a.kubernetes.io/x", False),
        ("requests.example.com/x", False),
        ("Example.com/x", False),
        ("example.com/x/y", False),
        ("foo/bar", True),
        ("example.com/X_1.y", True),
        ("a" * 244 + "/x", True),
        ("a" * 245 + "/x", False),
        ("example.com/" + "x" * 63, True),
        ("example.com/" + "x" * 64, False),
    ],
)
def test_register_uses_the_whole_rule_of_extended_resource_names(name: str, is_valid: bool) -> None:
    """C04, C05."""
    assert is_extended(name) is is_valid


async def test_register_takes_valid_names_and_no_others(short_dir: Path) -> None:
    """C04, C05, on a socket."""
    valid = ["foo/bar", "example.com/X_1.y", f"{'a' * 244}/x", f"example.com/{'x' * 63}"]
    invalid = [
        *("a.kubernetes.io/x", "requests.example.com/x", "Example.com/x", "example.com/x/y"),
        *(f"{'a' * 245}/x", f"example.com/{'x' * 64}", "", "/", "example.com/", "/gpu", "example.com/-a"),
    ]

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        for name in valid:
            await register(kubelet, plugin, name)
        for name in invalid:
            with pytest.raises(RemoteError) as caught:
                await plugin.register(name)
            assert caught.value.text == f'the ResourceName "{name}" is invalid'
        assert sorted(kubelet.capacity()) == sorted([RESOURCE, *valid])


@pytest.mark.parametrize("endpoint", ["nothing.sock", "", "%ff.sock", "%00.sock", "x" * 200, "a#b.sock"])
def test_register_fails_if_nobody_serves_the_endpoint_in_time(short_dir: Path, endpoint: str) -> None:
    """C06."""
    assert refusal(short_dir, endpoint=endpoint) == (
        "failed to dial device plugin: context deadline exceeded"
    )


async def test_register_gives_a_dead_endpoint_all_of_the_time(short_dir: Path) -> None:
    """C06: the time is the setting's, and that is 10 s if nobody sets it."""
    assert KubeletSettings().dial_timeout_seconds == 10

    async with running(short_dir, dial_timeout_seconds=20):
        with pytest.raises(RemoteError, match="failed to dial device plugin: context deadline exceeded"):
            await FakePlugin(short_dir).register()
        assert now() == pytest.approx(20)


def test_register_refuses_an_endpoint_that_go_cannot_parse(short_dir: Path) -> None:
    assert refusal(short_dir, endpoint="a%zz.sock") == (
        f'failed to dial device plugin: parse "passthrough:///{short_dir}/a%zz.sock": '
        'invalid URL escape "%zz"'
    )


def test_register_of_the_kubelets_own_socket_fails_at_the_options(short_dir: Path) -> None:
    assert refusal(short_dir, endpoint="kubelet.sock") == (
        "failed to get device plugin options: rpc error: code = Unimplemented desc = "
        "unknown service v1beta1.DevicePlugin"
    )


async def test_register_ends_with_the_callers_deadline(short_dir: Path) -> None:
    """C07."""
    async with running(short_dir, dial_timeout_seconds=60) as kubelet:
        plugin = FakePlugin(short_dir, devices=healthy("a"))
        with pytest.raises(RemoteError) as caught:
            await plugin.register(timeout_seconds=0.1)
        assert caught.value.status == "DeadlineExceeded"
        async with plugin.serving():
            await register(kubelet, plugin)


async def test_a_caller_that_is_gone_at_any_moment_of_a_registration_ends_nothing_else(
    short_dir: Path,
) -> None:
    """As one that is killed: its call is cancelled, and in the same moment nobody answers at its socket."""

    async def refused(registration: Registration) -> None:
        with pytest.raises(RegistrationError, match="failed to dial"):
            await registration.connect(RESOURCE, short_dir / "none.sock")

    async with running(short_dir, dial_timeout_seconds=0) as kubelet:
        registration = kubelet.device_manager.registration
        assert registration is not None
        for turns in range(60):
            async with asyncio.TaskGroup() as group:
                call = group.create_task(refused(registration))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()


async def test_register_waits_for_a_socket_that_appears_in_time(short_dir: Path) -> None:
    """C08: the first attempt finds somebody who hangs up, the next ones a socket that nobody serves."""
    loop = asyncio.get_running_loop()
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with running(short_dir, dial_timeout_seconds=8), asyncio.TaskGroup() as tasks:
        with socket.socket(socket.AF_UNIX) as rude:
            rude.setblocking(False)
            rude.bind(str(plugin.socket_path))
            rude.listen()
            registering = tasks.create_task(plugin.register())
            connection, _ = await loop.sock_accept(rude)
            connection.close()
        assert not registering.done()
        async with plugin.serving():
            await registering
            await plugin.streams(1)


async def test_register_fails_and_changes_nothing_if_the_options_do(short_dir: Path) -> None:
    """C11."""

    async def fail() -> None:
        raise KubeletError("boom")

    async with running(short_dir) as kubelet, FakePlugin(short_dir).serving() as plugin:
        plugin.on_options = fail
        with pytest.raises(RemoteError) as caught:
            await plugin.register()
        assert caught.value.text == (
            "failed to get device plugin options: rpc error: code = Unknown desc = boom"
        )
        assert plugin.called("ListAndWatch") == []
        assert kubelet.capacity() == {}


async def test_refused_registrations_are_counted_too(short_dir: Path) -> None:
    """C15."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        with pytest.raises(RemoteError):
            await plugin.register(version="v2")
        with pytest.raises(RemoteError):
            await plugin.register("gpu")
        assert [kubelet.registrations(name) for name in (RESOURCE, "gpu", OTHER_RESOURCE)] == [2, 1, 0]


# ── what a registration does ───────────────────────────────────────────────────────────────────────


async def test_options_are_asked_once_before_register_returns(short_dir: Path) -> None:
    """C09."""
    async with running(short_dir), FakePlugin(short_dir).serving() as plugin:
        await plugin.register()
        assert len(plugin.called("GetDevicePluginOptions")) == 1


async def test_options_in_the_request_have_no_effect(short_dir: Path) -> None:
    """C10."""
    async with running(short_dir) as kubelet, FakePlugin(short_dir).serving() as plugin:
        plugin.devices = healthy("a")
        await plugin.register(options=PluginOptions(True, True))
        await kubelet.wait(lambda: kubelet.allocatable().get(RESOURCE))
        await kubelet.run_pod(pod("u"))
        assert plugin.called("PreStartContainer") == []
        assert plugin.called("GetPreferredAllocation") == []


async def test_register_does_not_wait_for_a_list(short_dir: Path) -> None:
    """C12: the stream is opened without the plugin asking, and nothing waits for it."""
    async with running(short_dir) as kubelet, FakePlugin(short_dir, first="nothing").serving() as plugin:
        await plugin.register()
        await plugin.streams(1)
        assert kubelet.capacity() == {}


@pytest.mark.parametrize(
    "endpoint", ["sub/x.sock", "/sub/x.sock", "./sub/../sub/x.sock/", "../{}/sub/x.sock"]
)
async def test_endpoint_is_joined_to_the_plugin_folder(short_dir: Path, endpoint: str) -> None:
    """C14."""
    async with running(short_dir), FakePlugin(short_dir, socket_name="sub/x.sock").serving() as plugin:
        await plugin.register(endpoint=endpoint.format(short_dir.name))


async def test_an_endpoint_may_lead_out_of_the_plugin_folder(short_dir: Path) -> None:
    """C14."""
    plugin = FakePlugin(short_dir, "outside", healthy("a"))
    async with running(short_dir / "device-plugins") as kubelet, plugin.serving():
        await FakePlugin(kubelet.plugin_dir).register(endpoint="../outside.sock")
        await plugin.streams(1)
        assert plugin.socket_path.parent == kubelet.plugin_dir.parent


async def test_one_socket_may_serve_two_resources(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await register(kubelet, plugin, OTHER_RESOURCE)
        assert kubelet.capacity() == {RESOURCE: 2, OTHER_RESOURCE: 2}


# ── two registrations of one resource ──────────────────────────────────────────────────────────────


@asynccontextmanager
async def takeover(
    folder: Path, *, compat: bool = True
) -> AsyncIterator[tuple[Kubelet, FakePlugin, FakePlugin]]:
    """A kubelet and two plugins, of which the second registered after the first."""
    async with (
        running(folder, compat=compat) as kubelet,
        registered(kubelet, healthy("old"), name="old") as old,
        registered(kubelet, healthy("new1", "new2"), name="new") as new,
    ):
        yield kubelet, old, new


async def test_the_second_plugin_takes_over_allocate(short_dir: Path) -> None:
    """C16."""
    async with takeover(short_dir) as (kubelet, old, new):
        await kubelet.admit(pod("u"))
        assert (old.called("Allocate"), new.called("Allocate")) == ([], [("new1",)])


async def test_lists_of_the_first_plugin_still_replace_the_devices(short_dir: Path) -> None:
    """C17."""
    async with takeover(short_dir) as (kubelet, old, _):
        with kubelet.changes() as changes:
            assert old.send(healthy("x", "y", "z")) == 1
            await happened(changes, ChangeKind.LISTED)
        assert [device.id for device in kubelet.devices(RESOURCE)] == ["x", "y", "z"]


async def test_the_end_of_the_first_stream_disconnects_the_second_plugin(short_dir: Path) -> None:
    """C18: in 1.36 the client is looked up by resource name (handler.go runClient)."""
    async with takeover(short_dir) as (kubelet, old, new):
        old.end_streams()
        await new.streams(0)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 2}, {RESOURCE: 0})


async def test_the_end_of_the_first_stream_spares_the_second_plugin_where_that_is_mended(
    short_dir: Path,
) -> None:
    async with takeover(short_dir, compat=False) as (kubelet, old, new):
        with kubelet.changes() as changes:
            old.end_streams()
            await happened(changes, ChangeKind.STREAM_ENDED)
        assert (new.open_streams, kubelet.allocatable()) == (1, {RESOURCE: 2})
        assert kubelet.device_manager.endpoints[RESOURCE].stopped_at_seconds is None


@pytest.mark.parametrize(("compat", "allocatable"), [(True, 1), (False, 0)])
async def test_after_a_failed_takeover_nobody_notices_the_end_of_the_first_plugin(
    short_dir: Path, compat: bool, allocatable: int
) -> None:
    """As in 1.36: the entry of the resource is gone, so its devices stay healthy for good."""
    async with served(short_dir, healthy("a"), compat=compat) as (kubelet, plugin):
        with pytest.raises(RemoteError):
            await plugin.register(endpoint="nothing.sock")
        with kubelet.changes() as changes:
            plugin.end_streams()
            await happened(changes, ChangeKind.STREAM_ENDED)
        assert kubelet.allocatable() == {RESOURCE: allocatable}
