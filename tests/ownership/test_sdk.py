"""Plugins in code keep to the same rules: hardware that a container has belongs to that container."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devplug import ContainerResponse, Device, DeviceNode, DevicePlugin, Health, Serving
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase, PodStatus
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.plugin.serving import served
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from tests.daemon.hosts import char_node, needs_mknod
from tests.virtualtime import on_virtual_time, passes

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
QUIET_SECONDS = 45.0


class Plugin(DevicePlugin):
    """A plugin with a list that tests change."""

    resource_name = ANY

    def __init__(self, devices: Iterable[Device], resource_name: str = ANY) -> None:
        self.resource_name = resource_name
        self.changed = asyncio.Event()
        self.listed = list(devices)
        self.allocated: list[list[str]] = []

    async def devices(self) -> AsyncIterator[list[Device]]:
        while True:
            yield self.listed
            await self.changed.wait()
            self.changed.clear()

    def list(self, *devices: Device) -> None:
        """List other devices from now on."""
        self.listed = [*devices]
        self.changed.set()

    async def allocate(self, devices: Iterable[Device], /) -> ContainerResponse:
        self.allocated.append([device.id for device in devices])
        return ContainerResponse.of(devices)


class CleaningPlugin(Plugin):
    """A plugin that cleans up; `fault` is what keeps it from that."""

    def __init__(self, devices: Iterable[Device], resource_name: str = ANY) -> None:
        super().__init__(devices, resource_name)
        self.cleaned: list[str] = []
        self.fault = ""

    async def clean_up(self, device: Device, /) -> None:
        if self.fault:
            raise RuntimeError(self.fault)
        self.cleaned.append(device.id)


@dataclass
class Node:
    """A kubelet, and a program with plugins that comes and goes."""

    folder: Path
    kubelet: Kubelet
    tasks: asyncio.TaskGroup
    serving: Serving | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _life: asyncio.Task[None] | None = None

    async def start(self, *plugins: DevicePlugin) -> None:
        self._stop = asyncio.Event()
        self._life = self.tasks.create_task(self._serve(plugins))
        await passes(QUIET_SECONDS)

    async def _serve(self, plugins: tuple[DevicePlugin, ...]) -> None:
        socket = self.folder / "pod-resources" / "kubelet.sock"
        async with served(*plugins, plugin_dir=self.kubelet.plugin_dir, pod_resources=socket) as self.serving:
            await self._stop.wait()

    async def stop(self) -> None:
        self._stop.set()
        if self._life is not None:
            await asyncio.wait({self._life})
            self._life = None

    async def restart(self, *plugins: DevicePlugin) -> None:
        await self.stop()
        await self.start(*plugins)

    async def admit(self, name: str, resource: str = ANY) -> PodStatus:
        """Run a pod, and let no time go by."""
        pod = Pod(f"uid-{name}", name, containers=(Container("main", {resource: 1}),))
        return await self.kubelet.run_pod(pod)

    async def run(self, name: str, resource: str = ANY) -> PodStatus:
        status = await self.admit(name, resource)
        await passes(5)
        return status

    async def must_run(self, name: str, resource: str = ANY) -> tuple[str, ...]:
        """Run a pod; return the host paths that it was given."""
        status = await self.run(name, resource)
        assert status.phase is PodPhase.RUNNING, status.message
        options = status.containers[0].options
        return () if options is None else tuple(node.host_path for node in options.device_nodes)

    async def end(self, name: str) -> None:
        self.kubelet.remove_pod(f"uid-{name}")
        await passes(QUIET_SECONDS)

    def health(self, resource: str = ANY) -> dict[str, str]:
        """Return the health of the listed devices, by ID."""
        return {device.id: device.health for device in self.kubelet.devices(resource)}


@asynccontextmanager
async def node(folder: Path) -> AsyncIterator[Node]:
    """A node with a running kubelet, on virtual time."""
    kubelet = Kubelet.under(folder, KubeletSettings(clock=asyncio.get_running_loop().time))
    async with kubelet.running(), asyncio.TaskGroup() as tasks:
        made = Node(folder, kubelet, tasks)
        try:
            yield made
        finally:
            await made.stop()


def stick(folder: Path, id_: str, minor: int) -> Device:
    """Return a device with a node of its own."""
    path = folder / f"dev-{minor}"
    if not path.exists():
        char_node(path, minor)
    return Device(id_, device_nodes=[path])


async def test_held_device_that_is_unlisted_leaves_when_its_pod_ends(short_dir: Path) -> None:
    plugin = Plugin([Device("a"), Device("b")])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        plugin.list(Device("b"))
        await passes(QUIET_SECONDS)
        assert here.health() == {"a": "Unhealthy", "b": "Healthy"}
        await here.end("p")
        assert here.health() == {"b": "Healthy"}


async def test_held_device_stays_listed_over_a_restart(short_dir: Path) -> None:
    async with node(short_dir) as here:
        await here.start(Plugin([Device("a"), Device("b")]))
        await here.must_run("p")
        await here.restart(Plugin([Device("b")]))
        assert here.health() == {"a": "Unhealthy", "b": "Healthy"}
        await here.end("p")
        assert here.health() == {"b": "Healthy"}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_held_hardware_keeps_its_id_until_it_is_released(
    short_dir: Path, *, is_restarted: bool
) -> None:
    plugin = Plugin([stick(short_dir, "old", 1)])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        if is_restarted:
            plugin = Plugin([stick(short_dir, "new", 1)])
            await here.restart(plugin)
        else:
            plugin.list(stick(short_dir, "new", 1))
            await passes(QUIET_SECONDS)
        assert here.health() == {"old": "Healthy"}
        await here.end("p")
        assert here.health() == {"new": "Healthy"}
        await here.must_run("q")
        assert plugin.allocated[-1] == ["new"]


async def test_plugin_is_asked_for_the_id_that_it_lists(short_dir: Path) -> None:
    """The kubelet may admit a pod with the ID of before until it has the new list."""
    plugin = Plugin([stick(short_dir, "old", 1)])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        plugin.list(stick(short_dir, "new", 1))
        await passes(QUIET_SECONDS)
        here.kubelet.remove_pod("uid-p")
        await here.must_run("q")
        assert plugin.allocated[-1] == ["new"]


async def test_second_id_for_held_hardware_is_not_offered(short_dir: Path) -> None:
    plugin = Plugin([stick(short_dir, "a", 1)])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        # The first stick is pulled out, and another one gets its number.
        plugin.list(stick(short_dir, "b", 1), stick(short_dir, "a", 2))
        await passes(QUIET_SECONDS)
        assert "b" not in here.health()
        await here.end("p")
        assert here.health() == {"a": "Healthy", "b": "Healthy"}


async def test_two_plugins_offer_one_piece_of_hardware_once(short_dir: Path) -> None:
    first, second = Plugin([stick(short_dir, "a", 1)]), Plugin([stick(short_dir, "x", 1)], OTHER)
    async with node(short_dir) as here:
        await here.start(first, second)
        assert (here.health(), here.health(OTHER)) == ({"a": "Healthy"}, {})
        first.list()
        await passes(QUIET_SECONDS)
        assert here.health(OTHER) == {"x": "Healthy"}


async def test_node_of_the_driver_belongs_to_nobody(short_dir: Path) -> None:
    control = DeviceNode(char_node(short_dir / "control", 9), shared=True)

    def with_control(id_: str, minor: int) -> Device:
        return Device(id_, device_nodes=[*stick(short_dir, id_, minor).device_nodes, control])

    first, second = Plugin([with_control("a", 1)]), Plugin([with_control("x", 2)], OTHER)
    async with node(short_dir) as here:
        await here.start(first, second)
        assert len(await here.must_run("p")) == 2
        assert len(await here.must_run("q", OTHER)) == 2


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restart"])
async def test_node_that_devices_have_in_common_belongs_to_none(short_dir: Path, *, restarts: bool) -> None:
    """Rule 2: a control node that the author has not marked as shared."""

    def both() -> Plugin:
        control = stick(short_dir, "control", 9).device_nodes
        sticks = [stick(short_dir, "a", 1), stick(short_dir, "b", 2)]
        return Plugin(Device(one.id, device_nodes=[*one.device_nodes, *control]) for one in sticks)

    async with node(short_dir) as here:
        await here.start(both())
        await here.must_run("p")
        if restarts:
            await here.stop()
            await here.start(both())
        assert here.health() == {"a": "Healthy", "b": "Healthy"}
        await here.must_run("q")


async def test_ids_of_one_node_are_given_to_as_many_pods(short_dir: Path) -> None:
    async with node(short_dir) as here:
        (shared,) = stick(short_dir, "node", 1).device_nodes
        await here.start(Plugin(Device(name, device_nodes=[shared]) for name in "ab"))
        await here.must_run("p")
        await here.must_run("q")


async def test_device_that_a_pod_holds_is_refused_with_the_pods_name(short_dir: Path) -> None:
    """A kubelet that has lost its books gives a device twice."""
    async with node(short_dir) as here:
        plugin = Plugin([Device("a")])
        await here.start(plugin)
        await here.must_run("p")
        (socket,) = here.kubelet.plugin_dir.glob("devplug-*.sock")
        async with connected(socket) as peer:
            with pytest.raises(RemoteError, match="held by default/p") as refused:
                await peer.call(ALLOCATE, [("a",)])
        assert refused.value.status == "FailedPrecondition"
        assert len(plugin.allocated) == 1


async def test_kubelet_without_its_books_is_steered_to_free_devices(short_dir: Path) -> None:
    async with node(short_dir) as here:
        plugin = Plugin([Device("a"), Device("b")])
        await here.start(plugin)
        await here.must_run("p")
        (here.kubelet.plugin_dir / CHECKPOINT_NAME).unlink()
        await here.kubelet.restart()
        await passes(QUIET_SECONDS)
        await here.must_run("q")
        assert sorted(plugin.allocated) == [["a"], ["b"]]


async def test_status_names_the_pod_that_holds_a_device(short_dir: Path) -> None:
    async with node(short_dir) as here:
        await here.start(Plugin([Device("a")]))
        await here.must_run("p")
        assert here.serving is not None
        (status,) = here.serving.statuses()
        assert [one.pod for one in status.devices[0].holders] == ["p"]


# ── clean-up ──


async def test_device_is_cleaned_up_once_when_its_pod_ends(short_dir: Path) -> None:
    plugin = CleaningPlugin([Device("a")])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        await passes(QUIET_SECONDS)
        assert plugin.cleaned == []
        await here.end("p")
        assert plugin.cleaned == ["a"]
        await here.must_run("q")
        assert plugin.cleaned == ["a"]


async def test_device_that_another_plugin_lists_now_is_cleaned_up_by_that_plugin(short_dir: Path) -> None:
    async with node(short_dir) as here:
        first, other = CleaningPlugin([]), CleaningPlugin([stick(short_dir, "x", 1)], OTHER)
        await here.start(first, other)
        await here.must_run("p", OTHER)
        other.list()
        first.list(stick(short_dir, "a", 1))
        await passes(QUIET_SECONDS)
        assert (first.cleaned, here.health()) == ([], {})
        await here.end("p")
        assert (first.cleaned, other.cleaned, here.health()) == (["a"], [], {"a": "Healthy"})


async def test_device_that_was_released_during_a_restart_is_cleaned_up(short_dir: Path) -> None:
    plugin = CleaningPlugin([Device("a")])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        await here.stop()
        here.kubelet.remove_pod("uid-p")
        plugin = CleaningPlugin([Device("a"), Device("b")])
        await here.start(plugin)
        assert plugin.cleaned == ["a"]


async def test_device_that_cannot_be_cleaned_up_is_unhealthy_and_says_why(short_dir: Path) -> None:
    plugin = CleaningPlugin([Device("a")])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        plugin.fault = "the FPGA does not answer"
        await here.end("p")
        assert here.health() == {"a": "Unhealthy"}
        assert here.serving is not None
        (status,) = here.serving.statuses()
        assert status.devices[0].reason == "clean_up: the FPGA does not answer"
        plugin.fault = ""
        await passes(60)
        assert (here.health(), plugin.cleaned) == ({"a": "Healthy"}, ["a"])


async def test_next_pod_waits_for_the_clean_up(short_dir: Path) -> None:
    plugin = CleaningPlugin([Device("a")])
    async with node(short_dir) as here:
        await here.start(plugin)
        await here.must_run("p")
        here.kubelet.remove_pod("uid-p")
        await here.must_run("q")
        assert plugin.cleaned == ["a"]


async def test_health_of_the_plugin_stays_in_effect(short_dir: Path) -> None:
    plugin = CleaningPlugin([Device("a", health=Health.unhealthy("no link"))])
    async with node(short_dir) as here:
        await here.start(plugin)
        assert here.health() == {"a": "Unhealthy"}
