"""`serve` for programs: the set of plugins, its errors, and its folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from devplug import Device, DevicePlugin, PluginError, run, serve
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from tests.kubelet.fakes import pod
from tests.plugin.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Fed,
    Listed,
    Steered,
    allocatable,
    ended,
    our_threads,
    plugin_sockets,
    registered,
    start,
    waiting,
)
from tests.waiting import until

# ── a set of plugins that changes ──


async def test_a_removed_name_can_be_added_again(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (kubelet, serving):
        await serving.remove(RESOURCE)
        serving.add(Fed("a", "b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 2)


async def test_serving_may_begin_with_no_plugin_at_all(short_dir: Path) -> None:
    async with Kubelet(short_dir).running() as kubelet, serve(plugin_dir=short_dir) as serving:
        await serving.wait_registered()
        serving.add(Fed("a"))
        await kubelet.wait(lambda: allocatable(kubelet) == 1)


async def test_a_name_that_is_served_already_is_refused_and_the_first_serves_on(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (kubelet, serving):
        taken = 'resource name "example.com/a" is served already; one plugin per name'
        with pytest.raises(PluginError, match=taken):
            serving.add(Fed("b"))
        assert len(serving.plugins) == 1
        await kubelet.wait(lambda: allocatable(kubelet) == 1)


async def test_a_plugin_with_faults_is_not_added(short_dir: Path) -> None:
    async with registered(short_dir, Fed("a")) as (_, serving):
        with pytest.raises(PluginError, match="has no resource_name"):
            serving.add(DevicePlugin())
        assert len(serving.plugins) == 1


async def test_an_unknown_name_is_removed_without_a_word(short_dir: Path) -> None:
    async with serve(plugin_dir=short_dir) as serving:
        await serving.remove("example.com/none")


async def test_removing_the_one_that_could_not_register_ends_the_wait_for_all(short_dir: Path) -> None:
    silent = Fed(resource_name=OTHER_RESOURCE)
    silent.feed = type(silent.feed)()
    async with registered(short_dir, Fed("a")) as (_, serving), asyncio.TaskGroup() as group:
        serving.add(silent)
        waiting = group.create_task(serving.wait_registered())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        await serving.remove(OTHER_RESOURCE)
        await waiting


async def test_removing_a_plugin_waits_for_its_call_in_flight(short_dir: Path) -> None:
    go = asyncio.Event()
    plugin = Steered(waiting(go))
    async with registered(short_dir, plugin) as (kubelet, serving), asyncio.TaskGroup() as group:
        admission = group.create_task(kubelet.admit(pod("p")))
        await plugin.entered.wait()
        removal = group.create_task(serving.remove(RESOURCE))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not removal.done()
        go.set()
        await removal
        assert (await admission).phase is PodPhase.PENDING


async def test_leaving_the_block_leaves_no_task_and_no_thread(short_dir: Path) -> None:
    class Threaded(Fed):
        def allocate(self, devices: Sequence[Device], /) -> Any:
            return super().allocate(devices)

    async with Kubelet(short_dir).running() as kubelet:
        before = asyncio.all_tasks()
        async with serve(Threaded("a"), plugin_dir=short_dir) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            await kubelet.admit(pod("p"))
        assert {task for task in asyncio.all_tasks() - before if "devplug" in repr(task)} == set()
        await until(lambda: not our_threads())


# ── errors ──


async def test_an_error_in_the_block_comes_out_as_it_is(short_dir: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with registered(short_dir, Fed("a")):
            raise LookupError("mine")
    assert plugin_sockets(short_dir) == []


async def test_one_plugin_that_fails_at_the_start_ends_all_of_them_cleanly(short_dir: Path) -> None:
    class Broken(Listed):
        resource_name = OTHER_RESOURCE

        def devices(self) -> Any:
            raise OSError(19, "no such bus")

    async def serve_and_add() -> None:
        async with serve(Fed("a"), plugin_dir=short_dir) as serving:
            await serving.wait_registered()
            serving.add(Broken())
            await asyncio.Event().wait()

    async with Kubelet(short_dir).running() as kubelet:
        with pytest.raises(PluginError, match=f"{OTHER_RESOURCE}: devices\\(\\) failed"):
            await serve_and_add()
        assert plugin_sockets(short_dir) == []
        assert not (short_dir / ".devplug").exists()
        async with serve(Fed("a"), plugin_dir=short_dir) as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)


@pytest.mark.parametrize("how", ["run", "serve"])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"listen": "9100"}, 'listen: "9100" has no port'),
        ({"registration": "sockets"}, 'registration: "sockets" is none of "socket", "watcher" and "auto"'),
    ],
)
def test_what_is_unknown_is_refused_by_name(
    short_dir: Path, how: str, given: dict[str, Any], text: str
) -> None:
    async def served() -> None:
        async with serve(Listed(), plugin_dir=short_dir, **given):
            raise AssertionError

    with pytest.raises(SystemExit if how == "run" else PluginError, match=text):
        run(Listed(), plugin_dir=short_dir, **given) if how == "run" else asyncio.run(served())


@pytest.mark.parametrize("registration", ["socket", "auto"])
async def test_a_plugin_calls_the_kubelet_unless_it_is_told_to_be_found(
    short_dir: Path, registration: Any
) -> None:
    async with (
        Kubelet(short_dir).running() as kubelet,
        serve(Fed("a"), plugin_dir=short_dir, registration=registration) as serving,
    ):
        await serving.wait_registered()
        assert kubelet.registrations(RESOURCE) == 1


async def test_a_folder_without_right_that_once_worked_is_waited_for(short_dir: Path) -> None:
    """`KubeletError` is for the start only: later it may pass, so that no program ends because of a node."""
    folder = short_dir / "device-plugins"
    async with registered(folder, Fed("a")) as (kubelet, _):
        aside = short_dir / "aside"
        folder.rename(aside)
        folder.touch()  # nothing can be made in it now
        for _ in range(50):
            await asyncio.sleep(0)
        folder.unlink()
        await kubelet.restart()
        await kubelet.wait(lambda: allocatable(kubelet) == 1)


# ── which folder ──


@pytest.mark.parametrize("how", ["argument", "variable"])
async def test_a_script_finds_its_folder(short_dir: Path, how: str) -> None:
    async with Kubelet(short_dir).running() as kubelet:
        if how == "argument":
            script = start(f"run(P(), plugin_dir={str(short_dir)!r})", short_dir / "not-this-one")
        else:
            script = start("run(P())", short_dir)
        try:
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            script.terminate()
        finally:
            assert ended(script)[0] == 0


def test_without_either_it_is_the_folder_of_the_kubelet() -> None:
    from devplug.kubelet_dir import KUBELET_PLUGIN_DIR

    assert KUBELET_PLUGIN_DIR == "/var/lib/kubelet/device-plugins"
    if os.path.exists(KUBELET_PLUGIN_DIR):  # noqa: PTH110 -- a plain question
        pytest.skip("this machine has a kubelet, which shall not get a plugin of ours")
    script = start("run(P())")
    assert script.stderr is not None
    said = next((line for line in script.stderr if "no kubelet here, waiting for its folder" in line), "")
    script.terminate()
    assert ended(script)[0] == 0
    assert f"folder={KUBELET_PLUGIN_DIR}" in said


@pytest.mark.parametrize(
    ("device_id", "told"),
    [
        ("", "InvalidArgument allocate: a device ID is empty"),
        ("y" * 64, "is 64 characters long; at most 63 fit"),
        ("a ", 'NotFound allocate: device "a " is not known to example.com/a'),
        ("\u2028", "is not known to example.com/a"),
    ],
)
async def test_an_id_that_no_device_can_have_is_refused_in_words(
    short_dir: Path, device_id: str, told: str
) -> None:
    async with serve(Fed("a"), plugin_dir=short_dir):
        await until(lambda: list(short_dir.glob("devplug-*.sock")))
        (socket,) = short_dir.glob("devplug-*.sock")
        async with connected(socket) as peer:
            with pytest.raises(RemoteError) as refused:
                await peer.call(ALLOCATE, [("a", device_id)])
    assert told in f"{refused.value.status} {refused.value.text}"
