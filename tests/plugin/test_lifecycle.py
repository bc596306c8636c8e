"""The registration of a plugin with the emulated kubelet: how it comes about, lasts and ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from devplug import PluginError, serve
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.kubelet.settings import KubeletSettings
from devplug.plugin.inventory import Inventory
from devplug.plugin.resource_lock import ResourceLock
from devplug.plugin.service import PluginService
from tests.kubelet.fakes import FakePlugin, happened, healthy, pod
from tests.plugin.fakes import (
    RESOURCE,
    UNPLUGGED,
    Fed,
    Listed,
    Registrar,
    Steered,
    allocatable,
    devices,
    ended,
    plugin_sockets,
    registered,
    said,
    start,
    waiting,
)
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time


# ── getting registered ──


async def test_an_empty_first_list_is_a_list(short_dir: Path) -> None:
    async with registered(short_dir, Fed()) as (kubelet, _):
        assert kubelet.registrations(RESOURCE) == 1


async def test_each_plugin_has_a_socket_of_its_own_with_a_short_name(short_dir: Path) -> None:
    long_name = f"{'d' * 60}.example.com/{'k' * 63}"
    async with registered(short_dir, Fed("a"), Fed("a", resource_name=long_name)):
        names = [path.name for path in plugin_sockets(short_dir)]
        assert len(names) == 2
        assert all(len(os.fsencode(name)) <= 40 for name in names)


async def test_a_folder_that_is_too_deep_for_sockets_is_refused_with_the_limit(short_dir: Path) -> None:
    folder = short_dir / ("x" * 70)
    folder.mkdir()
    with pytest.raises(PluginError, match="bytes; Unix sockets take 107: use a shorter folder"):
        async with serve(Fed("a"), plugin_dir=folder):
            await asyncio.Event().wait()
    assert list(folder.iterdir()) == []


# ── staying registered ──


async def test_a_plugin_is_back_soon_after_a_kubelet_restart(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (kubelet, _):
        with kubelet.changes() as changes:
            await kubelet.restart()
            started = await happened(changes, ChangeKind.STARTED)
            listed = await happened(changes, ChangeKind.LISTED)
        assert listed.at_seconds - started.at_seconds < 1


async def test_a_kubelet_that_stops_in_order_and_comes_back_is_registered_with(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (kubelet, _):
        await kubelet.restart(orderly=True)
        await kubelet.wait(lambda: allocatable(kubelet) == 1)


async def test_a_device_that_leaves_or_gets_ill_does_not_wait_behind_those_that_come(short_dir: Path) -> None:
    names = [f"{kind}{n}" for n in range(10) for kind in ("gone", "ill")]
    plugin, waits = Fed(*names), []
    async with registered(short_dir, plugin) as (kubelet, serving):
        for n in range(200):
            plugin.feed.put(*devices(f"new{n}"))
            await passes(0.05)
        assert serving.counters[RESOURCE].lists_sent <= 5 + 2 * 10 + 1
        for name in names:
            plugin.feed.put(*devices(f"beside-{name}"))
            began = now()
            if name.startswith("gone"):
                plugin.feed.remove(name)
            else:
                plugin.feed.put(devices(name)[0].with_health(UNPLUGGED))
            while name in {one.id for one in kubelet.devices(RESOURCE) if one.health == "Healthy"}:
                await passes(0.002)
            waits.append(now() - began)
            await passes(0.05)
        assert max(waits) < 0.1


async def test_a_removed_socket_is_made_again_while_the_stream_lives_without_a_registration(
    short_dir: Path,
) -> None:
    plugin = Fed("a")
    async with registered(short_dir, plugin) as (kubelet, _):
        (path,) = plugin_sockets(short_dir)
        old = path.stat()
        path.unlink()
        await until(lambda: path.exists() and path.stat() != old)
        plugin.feed.put(*devices("b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        assert (await kubelet.run_pod(pod("p", 2))).phase is PodPhase.RUNNING
        assert kubelet.registrations(RESOURCE) == 1


async def test_a_replaced_socket_is_taken_back(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (kubelet, _):
        (path,) = plugin_sockets(short_dir)
        path.unlink()
        path.touch()
        await until(path.is_socket)
        assert kubelet.registrations(RESOURCE) == 1


async def test_a_socket_that_could_not_be_made_is_made_soon_after_it_can_be(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubelet that starts sweeps a socket away that is just being made; the next try may not take long."""
    async with registered(short_dir, Fed("a")) as (kubelet, _):
        (path,) = plugin_sockets(short_dir)
        path.unlink()
        path.mkdir()
        await until(lambda: said(caplog, "cannot make a socket in the plugin folder"))
        path.rmdir()
        made_possible = now()
        await until(path.is_socket)
        assert now() - made_possible < 0.5
        assert kubelet.registrations(RESOURCE) == 1


@pytest.mark.parametrize(("compat", "registrations"), [(True, 3), (False, 2)])
async def test_the_end_of_anothers_old_stream_costs_a_registration_in_1_36_and_no_more(
    short_dir: Path, compat: bool, registrations: int
) -> None:
    """The kubelet looks its client up by resource name, and cuts the newest (kubernetes#121994)."""
    async with AsyncExitStack() as stack:
        kubelet = await stack.enter_async_context(
            Kubelet(short_dir, KubeletSettings(compat=compat)).running()
        )
        old = await stack.enter_async_context(FakePlugin(short_dir, devices=healthy("x", "y")).serving())
        await old.register()
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        serving = await stack.enter_async_context(serve(Fed("a"), plugin_dir=short_dir))
        await serving.wait_registered()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        with kubelet.changes() as changes:
            await old.die()
            await happened(changes, ChangeKind.STREAM_ENDED)
        await kubelet.wait(
            lambda: kubelet.registrations(RESOURCE) == registrations and allocatable(kubelet) == 1
        )
        await serving.wait_registered()


# ── ending ──


async def test_closing_lets_a_pod_that_is_being_admitted_have_its_answer(short_dir: Path) -> None:
    """The kubelet closes its connection as soon as the stream ends, so the stream has to end last."""
    answer = asyncio.Event()
    plugin = Steered(waiting(answer))
    async with Kubelet(short_dir).running() as kubelet, asyncio.TaskGroup() as group:
        async with serve(plugin, plugin_dir=short_dir) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            admission = group.create_task(kubelet.admit(pod("p")))
            await plugin.entered.wait()
            asyncio.get_running_loop().call_later(0.1, answer.set)
        assert (await admission).phase is PodPhase.PENDING, kubelet.pod("p").message
        assert plugin_sockets(short_dir) == []


async def test_a_call_that_never_ends_holds_the_close_up_to_its_deadline_only(short_dir: Path) -> None:
    plugin = Steered(waiting())
    plugin.allocate_timeout_seconds = 0.3
    async with Kubelet(short_dir).running() as kubelet, asyncio.TaskGroup() as group:
        async with serve(plugin, plugin_dir=short_dir) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            admission = group.create_task(kubelet.admit(pod("p")))
            await plugin.entered.wait()
            began = now()
        assert now() - began < 2
        assert "allocate: no answer in 0.3s" in (await admission).message


async def test_calls_without_end_hold_the_close_up_to_the_deadline_of_those_that_are_offered() -> None:
    """Pre-start has 20 s, but nobody makes that call of a plugin that does not announce it."""
    plugin = Fed("a")
    plugin.allocate_timeout_seconds = 0.3
    inventory = Inventory(plugin.resource_name)
    await inventory.replace(devices("a"))
    service = PluginService(plugin, inventory, lambda: None)

    async def call() -> None:
        while True:
            await service.allocate([("a",)])
            # Sooner than the time that an answer is given to arrive.
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.03)

    async with asyncio.TaskGroup() as group:
        calling = group.create_task(call())
        await asyncio.sleep(0)
        began = now()
        await service.drain()
        calling.cancel()
    assert now() - began < 5
    service.close()


async def test_closing_before_any_kubelet_came_leaves_nothing(short_dir: Path) -> None:
    async with serve(Fed("a"), plugin_dir=short_dir):
        await until(lambda: plugin_sockets(short_dir))
    assert list(short_dir.iterdir()) == []


# ── two processes, one name ──


async def test_who_has_lost_his_lock_to_another_closes_his_socket_until_it_is_free_again(
    short_dir: Path,
) -> None:
    """Of two streams for one name the kubelet believes both."""
    async with registered(short_dir, Fed("a")) as (kubelet, serving):
        other = ResourceLock(short_dir, RESOURCE)
        other.path.unlink()
        assert other.take() is None
        await kubelet.wait(lambda: allocatable(kubelet) == 0)
        await until(lambda: plugin_sockets(short_dir) == [])
        other.release()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        await serving.wait_registered()


async def test_a_folder_that_was_moved_away_and_back_is_no_reason_any_more(short_dir: Path) -> None:
    folder, elsewhere = short_dir / "plugins", short_dir / "elsewhere"
    folder.mkdir()
    async with serve(Listed(), plugin_dir=folder) as serving:

        async def faulty(words: str) -> None:
            while words not in serving.faults().get(RESOURCE, ""):
                await serving.notifier.next.wait()

        async with Kubelet(folder).running():
            await serving.wait_registered()
        await faulty("no kubelet is connected")
        folder.rename(elsewhere)
        await faulty("does not exist")
        elsewhere.rename(folder)
        await faulty("no kubelet is connected")


async def test_who_registers_anew_is_not_registered_meanwhile_and_says_so(short_dir: Path) -> None:
    """A kubelet takes the socket over while the one before still listens, and takes its time to answer."""
    async with registered(short_dir, Listed()) as (_, serving):
        (short_dir / "kubelet.sock").unlink()
        async with Registrar(short_dir, waiting()).running() as next_one:
            while serving.statuses()[0].is_registered:
                await serving.notifier.next.wait()
            assert serving.statuses()[0].registered_at is None
            await until(lambda: next_one.requests)


# ── rights and mounts ──


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only uid 0 can become another user")
@pytest.mark.parametrize(
    ("mode", "subfolder", "text"),
    [
        (0o755, ".", "no right to create a socket in {}: run as uid 0, or let this user write there"),
        (0o700, "device-plugins", "no right to look for {}: run as uid 0"),
    ],
    ids=["not writable", "below a folder for root and its group alone, as a kubelet makes them"],
)
def test_a_folder_without_the_right_to_it_is_refused_with_the_right(
    short_dir: Path, mode: int, subfolder: str, text: str
) -> None:
    folder = short_dir / subfolder
    folder.mkdir(exist_ok=True)
    short_dir.chmod(mode)
    program = "os.setgroups([]); os.setgid(65534); os.setuid(65534); import devplug; run(P())"
    code, errors = ended(start(f"import devplug.plugin.serving; {program}", folder))
    assert code == 1
    assert f"devplug: {text.format(folder)}" in errors


def _may_mount() -> bool:
    wanted = ["unshare", "--mount", "mount", "--bind", "/tmp", "/tmp"]
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(wanted, check=False, capture_output=True).returncode == 0


@pytest.mark.root
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_folder_that_is_deleted_under_its_mount_ends_the_program_and_says_what_to_do(
    short_dir: Path,
) -> None:
    """As `rm -rf` on the host under a hostPath mount: nothing can be made in the folder any more."""
    if not _may_mount():
        pytest.skip("this user may not make bind mounts of its own")
    host, inside = short_dir / "host", short_dir / "inside"
    host.mkdir()
    inside.mkdir()
    mount = ("unshare", "--mount", "sh", "-c", f'mount --bind {host} {inside} && exec "$0" "$@"')
    process = start("run(P())", inside, *mount)
    await until(lambda: plugin_sockets(host) or process.poll() is not None)
    while host.exists():
        with suppress(OSError):  # the plugin makes its socket again meanwhile
            shutil.rmtree(host)
    code, errors = ended(process)
    assert code == 1
    assert f"devplug: {inside} was deleted on the host while it was mounted here" in errors
    assert "restart this container" in errors
