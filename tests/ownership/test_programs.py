"""Programs of one node keep to each other's holds: what a pod has of one, no other gives away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from devplug import ContainerResponse, Device
from devplug.daemon.service import serve_config
from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.prepared_claims import STATE_NAME, state_text
from devplug.holds.hardware import Use
from devplug.holds.ledger_store import resource_mark
from devplug.kubelet.pods import PodPhase
from devplug.linux.boot import boot_id
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from tests.daemon.hosts import UNUSED_MAJOR, config, needs_mknod
from tests.ownership.test_sdk import OTHER, QUIET_SECONDS, CleaningPlugin, Node, Plugin, node, stick
from tests.virtualtime import on_virtual_time, passes, still

anyio_backend = on_virtual_time
pytestmark = needs_mknod


def second(here: Node) -> Node:
    """Return the same node, for another program on it."""
    return Node(here.folder, here.kubelet, here.tasks)


async def test_hardware_that_a_pod_has_is_not_offered_by_another_program(short_dir: Path) -> None:
    async with node(short_dir) as here:
        there = second(here)
        await here.start(Plugin([stick(short_dir, "a", 1)]))
        await there.start(Plugin([stick(short_dir, "x", 1), stick(short_dir, "y", 2)], OTHER))
        await here.must_run("p")
        await passes(QUIET_SECONDS)
        assert here.health(OTHER) == {"y": "Healthy"}
        await here.end("p")
        assert here.health(OTHER) == {"x": "Healthy", "y": "Healthy"}
        await there.stop()


async def test_hardware_that_was_given_a_moment_ago_is_refused_by_another_program(short_dir: Path) -> None:
    async with node(short_dir) as here:
        there = second(here)
        await here.start(Plugin([stick(short_dir, "a", 1)]))
        await there.start(Plugin([stick(short_dir, "x", 1)], OTHER))
        async with still():
            first = await here.admit("p")
            refused = await here.admit("q", OTHER)
        assert (first.phase, refused.phase) == (PodPhase.RUNNING, PodPhase.FAILED)
        await there.stop()


async def test_pods_at_the_same_time_get_hardware_of_two_programs_once(short_dir: Path) -> None:
    async with node(short_dir) as here:
        there = second(here)
        await here.start(Plugin([stick(short_dir, "a", 1)]))
        await there.start(Plugin([stick(short_dir, "x", 1)], OTHER))
        async with still(), asyncio.TaskGroup() as group:
            pods = [group.create_task(here.admit("p")), group.create_task(here.admit("q", OTHER))]
        assert sorted(pod.result().phase for pod in pods) == [PodPhase.FAILED, PodPhase.RUNNING]
        await there.stop()


class SlowPlugin(Plugin):
    """A plugin with an Allocate that lasts until a test lets it go on."""

    def __init__(self, devices: Iterable[Device]) -> None:
        super().__init__(devices)
        self.has_begun, self.go = asyncio.Event(), asyncio.Event()

    async def allocate(self, devices: Iterable[Device], /) -> ContainerResponse:
        self.has_begun.set()
        await self.go.wait()
        return await super().allocate(devices)


async def test_hardware_that_another_program_gives_meanwhile_is_refused(short_dir: Path) -> None:
    plugin = SlowPlugin([stick(short_dir, "a", 1)])
    async with node(short_dir) as here:
        there = second(here)
        await here.start(plugin)
        await there.start(Plugin([stick(short_dir, "x", 1)], OTHER))
        (socket,) = here.kubelet.plugin_dir.glob(f"devplug-{resource_mark(OTHER)}-*.sock")
        async with still(), asyncio.TaskGroup() as group:
            admitted = group.create_task(here.admit("p"))
            await plugin.has_begun.wait()
            async with connected(socket) as peer:
                await peer.call(ALLOCATE, [("x",)])
            plugin.go.set()
        assert "held as example.com/other x" in admitted.result().message
        await there.stop()


async def test_hardware_that_a_claim_of_another_driver_uses_is_not_offered(short_dir: Path) -> None:
    device = stick(short_dir, "a", 1)
    use = Use("x", None, (f"char {UNUSED_MAJOR}:1",), (device.device_nodes[0].host_path,), boot_id())
    claim = ClaimUse("default", "mine", "uid", (DeviceUse("r", "x", OTHER, "x", use=use),))
    state = short_dir / "plugins" / "other.example.com" / STATE_NAME
    state.parent.mkdir(parents=True)
    state.write_text(state_text({"uid": claim}))
    async with node(short_dir) as here:
        await here.start(Plugin([device, stick(short_dir, "b", 2)]))
        assert here.health() == {"b": "Healthy"}
        state.write_text(state_text({}))
        await passes(QUIET_SECONDS)
        assert here.health() == {"a": "Healthy", "b": "Healthy"}


@pytest.mark.parametrize("is_ended", [False, True], ids=["its pod runs", "its pod has ended"])
async def test_holds_of_a_program_that_has_ended_are_judged_by_the_others(
    short_dir: Path, *, is_ended: bool
) -> None:
    async with node(short_dir) as here:
        there = second(here)
        await here.start(Plugin([stick(short_dir, "a", 1)]))
        await there.start(Plugin([stick(short_dir, "x", 1)], OTHER))
        await here.must_run("p")
        await here.stop()
        await passes(QUIET_SECONDS)
        if is_ended:
            await here.end("p")
        assert here.health(OTHER) == ({"x": "Healthy"} if is_ended else {})
        await there.stop()


async def test_hardware_that_an_ended_program_left_is_cleaned_by_the_next(short_dir: Path) -> None:
    async with node(short_dir) as here:
        there, second_plugin = second(here), CleaningPlugin([stick(short_dir, "x", 1)], OTHER)
        await here.start(CleaningPlugin([stick(short_dir, "a", 1)]))
        await there.start(second_plugin)
        await here.must_run("p")
        await here.stop()
        await here.end("p")
        assert (second_plugin.cleaned, here.health(OTHER)) == (["x"], {"x": "Healthy"})
        await here.must_run("q", OTHER)
        first_again = CleaningPlugin([stick(short_dir, "a", 1)])
        await here.start(first_again)
        assert first_again.cleaned == []  # q has it
        await there.stop()


async def test_program_that_waits_for_its_turn_knows_what_the_one_before_gave(short_dir: Path) -> None:
    """As in a rollout where the new pod starts before the old one has ended."""
    async with node(short_dir) as here:
        there = second(here)
        await here.start(Plugin([stick(short_dir, "old", 1)]))
        await there.start(Plugin([stick(short_dir, "new", 1)]))
        await here.must_run("p")
        await passes(QUIET_SECONDS)
        await here.stop()
        await passes(QUIET_SECONDS)
        assert here.health() == {"old": "Healthy"}
        await here.end("p")
        assert here.health() == {"new": "Healthy"}
        await there.stop()


async def test_daemon_leaves_the_resource_of_a_plugin_in_code_to_its_program(short_dir: Path) -> None:
    """A daemon keeps what another daemon has served; a program may only be starting again."""
    async with node(short_dir) as here:
        sticks = [stick(short_dir, "a", 1), stick(short_dir, "b", 2)]
        await here.start(Plugin(sticks))
        await here.must_run("p")
        await here.stop()
        async with serve_config(
            config("- {name: example.com/none, discover: {static: {ids: [n]}}}"),
            plugin_dir=here.kubelet.plugin_dir,
            pod_resources=short_dir / "pod-resources" / "kubelet.sock",
        ):
            await passes(QUIET_SECONDS)
            await here.start(Plugin(sticks))
            await here.must_run("q")
