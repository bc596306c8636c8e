"""What monitors read of pods and of the node: the answers of the PodResources API, over its socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from devplug.errors import RemoteError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.podresources import pod_devices
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.kubelet.topology import ComputeShare, NodeHardware
from devplug.wire.values import (
    AdvertisedDevice,
    ClaimResource,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    DynamicResource,
    PodResources,
)
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Devices,
    FakePlugin,
    happened,
    healthy,
    pod,
    registered,
    unhealthy,
)
from tests.kubelet.monitors import allocatable, got, held, ids, listed, listed_v1alpha1, monitored

ONE = {RESOURCE: 1}


def on(numa_nodes: tuple[int, ...] | None, *device_ids: str) -> Devices:
    """Healthy devices on these nodes."""
    return tuple(AdvertisedDevice(device_id, "Healthy", numa_nodes) for device_id in device_ids)


async def update(kubelet: Kubelet, plugin: FakePlugin, devices: Devices) -> None:
    """Send a list and wait until the kubelet has it."""
    with kubelet.changes() as changes:
        plugin.send(devices)
        await happened(changes, ChangeKind.LISTED)


# ── devices ───────────────────────────────────────────────────────────────────────────────────────


async def test_every_entry_has_one_device_and_at_most_one_numa_node(short_dir: Path) -> None:
    """C91."""
    devices = on((0, 1), "both") + on(None, "nowhere") + on((1,), "one")
    entries = (
        ContainerDevices(RESOURCE, ("both",), (0,)),
        ContainerDevices(RESOURCE, ("both",), (1,)),
        ContainerDevices(RESOURCE, ("nowhere",)),
        ContainerDevices(RESOURCE, ("one",), (1,)),
    )

    async with monitored(short_dir) as kubelet, registered(kubelet, devices):
        assert (await allocatable(kubelet)).devices == entries
        await kubelet.run_pod(pod("u", 3))
        assert (await listed(kubelet))[0].containers == (ContainerResources("c", entries),)


async def test_a_device_with_an_empty_topology_is_no_allocatable_one_but_is_listed_once_held(
    short_dir: Path,
) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, on((), "a")):
        assert (await allocatable(kubelet)).devices == ()
        await kubelet.run_pod(pod("u"))
        (container,) = (await got(kubelet, "u")).containers
        assert container.devices == (ContainerDevices(RESOURCE, ("a",)),)


async def test_v1alpha1_repeats_a_device_for_each_node_and_names_none(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, on((0, 1), "a")):
        await kubelet.run_pod(pod("u"))
        (container,) = (await listed_v1alpha1(kubelet))[0].containers
        assert container.devices == (ContainerDevices(RESOURCE, ("a",)),) * 2
        (found,) = pod_devices((pod("u"),), kubelet.device_manager.allocations)
        assert found.containers == (container,)


async def test_devices_of_several_resources_come_in_the_order_of_their_names(short_dir: Path) -> None:
    both = Pod("u", "u", containers=(Container("c", {OTHER_RESOURCE: 1, RESOURCE: 2}),))

    async with (
        monitored(short_dir) as kubelet,
        registered(kubelet, healthy("z"), OTHER_RESOURCE, "q"),
        registered(kubelet, healthy("b", "a")),
    ):
        await kubelet.run_pod(both)
        assert held(await listed(kubelet)) == {"u": [("c", ["a", "b", "z"])]}
        assert ids(await allocatable(kubelet)) == ["a", "b", "z"]


async def test_allocatable_devices_are_the_healthy_ones_whoever_holds_them(short_dir: Path) -> None:
    """C95."""
    devices = healthy("a", "b") + unhealthy("c")
    async with monitored(short_dir) as kubelet, registered(kubelet, devices) as plugin:
        await kubelet.run_pod(pod("u"))
        assert ids(await allocatable(kubelet)) == ["a", "b"]
        await update(kubelet, plugin, unhealthy("a", "b") + healthy("c"))
        assert ids(await allocatable(kubelet)) == ["c"]


async def test_a_lost_plugin_has_no_allocatable_devices(short_dir: Path) -> None:
    """C95."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        with kubelet.changes() as changes:
            plugin.end_streams()
            await happened(changes, ChangeKind.DISCONNECTED)
        assert (await allocatable(kubelet)).devices == ()


async def test_what_a_pod_holds_stays_listed_whatever_becomes_of_the_plugin(short_dir: Path) -> None:
    """C97."""
    async with monitored(short_dir) as kubelet, registered(kubelet, on((0, 1), "a", "b")) as plugin:
        await kubelet.run_pod(pod("u"))
        before = await listed(kubelet)
        assert held(before) == {"u": [("c", ["a", "a"])]}
        await update(kubelet, plugin, unhealthy("a", "b"))
        assert await listed(kubelet) == before
        await update(kubelet, plugin, healthy("z"))
        assert await listed(kubelet) == before
        with kubelet.changes() as changes:
            await plugin.die()
            await happened(changes, ChangeKind.DISCONNECTED)
        assert await listed(kubelet) == before


async def test_what_a_pod_holds_stays_listed_after_a_restart_of_the_kubelet(short_dir: Path) -> None:
    """C97; the allocatable devices have to wait for the plugin."""
    async with monitored(short_dir) as kubelet, registered(kubelet, on((0, 1), "a")):
        await kubelet.run_pod(pod("u"))
        before = await listed(kubelet)
        await kubelet.restart()
        assert await listed(kubelet) == before
        assert (await got(kubelet, "u"),) == before
        assert (await allocatable(kubelet)).devices == ()


# ── pods and containers ───────────────────────────────────────────────────────────────────────────

WHOLE = Pod(
    "u",
    "whole",
    "apps",
    init_containers=(Container("init", ONE), Container("side", ONE, "Always"), Container("second", ONE)),
    containers=(Container("b", ONE), Container("a")),
)


async def test_sidecars_come_first_then_apps_and_regular_init_containers_never(short_dir: Path) -> None:
    """C92."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2", "3")):
        await kubelet.run_pod(WHOLE)
        (found,) = await listed(kubelet)
        assert (found.name, found.namespace) == ("whole", "apps")
        assert held([found]) == {"whole": [("side", ["1"]), ("b", ["2"]), ("a", [])]}
        assert await got(kubelet, "whole", "apps") == found
        assert len(kubelet.allocations()) == 4


async def test_v1alpha1_knows_no_sidecars(short_dir: Path) -> None:
    """C92."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2", "3")):
        await kubelet.run_pod(WHOLE)
        assert held(await listed_v1alpha1(kubelet)) == {"whole": [("b", ["2"]), ("a", [])]}


async def some_ended(kubelet: Kubelet) -> None:
    """Admit a pod that goes on, two that end, and one that is refused."""
    for name in ("on", "done", "failed", "refused"):
        await kubelet.admit(pod(name))
    kubelet.end_pod("done")
    kubelet.end_pod("failed", PodPhase.FAILED)


async def test_v1_lists_no_pod_that_has_ended_and_v1alpha1_lists_them_all(short_dir: Path) -> None:
    """C93; v1alpha1 shows them without the devices that it has just had freed."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2", "3")):
        await some_ended(kubelet)
        assert kubelet.pod("refused").phase is PodPhase.FAILED
        assert held(await listed(kubelet)) == {"on": [("c", ["1"])]}
        assert held(await listed_v1alpha1(kubelet)) == {
            "done": [("c", [])],
            "failed": [("c", [])],
            "on": [("c", ["1"])],
            "refused": [("c", [])],
        }


async def test_pods_without_devices_and_not_yet_started_ones_are_listed_by_namespace_and_name(
    short_dir: Path,
) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1")):
        for uid, name, namespace in (("1", "b", "x"), ("2", "c", "a"), ("3", "a", "x")):
            await kubelet.admit(Pod(uid, name, namespace, containers=(Container("c"),)))
        assert await listed(kubelet) == tuple(
            PodResources(name, namespace, (ContainerResources("c"),))
            for namespace, name in (("a", "c"), ("x", "a"), ("x", "b"))
        )


@pytest.mark.parametrize("name", ["nobody", "done", "failed", "refused"])
async def test_get_does_not_find_a_pod_that_is_unknown_or_has_ended(short_dir: Path, name: str) -> None:
    """C94."""
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2", "3")):
        await some_ended(kubelet)
        with pytest.raises(RemoteError) as caught:
            await got(kubelet, name)
        assert (caught.value.status, caught.value.text) == (
            "Unknown",
            f"pod {name} in namespace default not found",
        )


async def test_get_looks_for_name_and_namespace_together(short_dir: Path) -> None:
    """C94."""
    async with monitored(short_dir) as kubelet:
        await kubelet.admit(pod("u"))
        with pytest.raises(RemoteError, match="pod u in namespace other not found"):
            await got(kubelet, "u", "other")


async def test_get_finds_the_last_of_several_pods_with_one_name(short_dir: Path) -> None:
    def next_one(uid: str) -> Pod:
        return Pod(uid, "web-0", containers=(Container("c", ONE),))

    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2")):
        await kubelet.run_pod(next_one("first"))
        kubelet.end_pod("first")
        await kubelet.run_pod(next_one("second"))
        (allocation,) = kubelet.allocations()
        assert allocation.pod_uid == "second"
        assert ids((await got(kubelet, "web-0")).containers[0]) == list(allocation.device_ids)


@pytest.mark.parametrize("read", [listed, listed_v1alpha1])
async def test_a_list_frees_the_devices_of_ended_pods(
    short_dir: Path, read: Callable[[Kubelet], Awaitable[object]]
) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2")):
        await kubelet.run_pod(pod("u"))
        kubelet.end_pod("u")
        await read(kubelet)
        assert kubelet.allocations() == ()


async def test_a_list_frees_nothing_until_all_sources_of_pods_are_ready(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1")):
        await kubelet.run_pod(pod("u"))
        kubelet.end_pod("u")
        kubelet.sources_ready = False
        assert held(await listed_v1alpha1(kubelet)) == {"u": [("c", ["1"])]}
        assert len(kubelet.allocations()) == 1


async def test_neither_get_nor_the_allocatable_resources_free_anything(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, registered(kubelet, healthy("1", "2")):
        await kubelet.run_pod(pod("u"))
        await kubelet.run_pod(pod("v"))
        kubelet.end_pod("u")
        await got(kubelet, "v")
        await allocatable(kubelet)
        assert [allocation.pod_uid for allocation in kubelet.allocations()] == ["u", "v"]


# ── CPUs, memory, claims ──────────────────────────────────────────────────────────────────────────

GIB = 2**30
CLAIM = DynamicResource(
    "claim",
    "apps",
    (
        ClaimResource("gpu.example.com", "pool", "gpu-0", ("example.com/gpu=0", "example.com/gpu=ctl")),
        ClaimResource("nic.example.com", "pool", "nic-0", ("example.com/nic=0",)),
        ClaimResource("gpu.example.com", "pool", "gpu-1", ("example.com/gpu=1",), share_id="half"),
    ),
)
COMPUTER = NodeHardware(
    cpu_ids=(7, 6, 5, 4, 3, 2),
    memory=(ContainerMemory("memory", 8 * GIB, (0,)), ContainerMemory("hugepages-2Mi", GIB, (0, 1))),
    shares={
        "apps/whole/side": ComputeShare(cpu_ids=(3,)),
        "apps/whole/b": ComputeShare(
            cpu_ids=(6, 4), memory=(ContainerMemory("memory", GIB, (0,)),), dynamic_resources=(CLAIM,)
        ),
        "apps/gone/b": ComputeShare(cpu_ids=(2,)),
    },
)


async def test_a_container_has_the_cpus_memory_and_claims_of_the_machines_table(short_dir: Path) -> None:
    async with monitored(short_dir, machine=COMPUTER, compat=False) as kubelet:
        await kubelet.admit(WHOLE)
        side, b, a = (await got(kubelet, "whole", "apps")).containers
        assert side == ContainerResources("side", cpu_ids=(3,))
        assert b == ContainerResources(
            "b", cpu_ids=(4, 6), memory=(ContainerMemory("memory", GIB, (0,)),), dynamic_resources=(CLAIM,)
        )
        assert a == ContainerResources("a")
        ((_, first, _),) = [found.containers for found in await listed(kubelet)]
        assert first == b


async def test_the_cdi_names_of_one_drivers_devices_pile_up(short_dir: Path) -> None:
    """As in 1.36 (container_manager_linux.go GetDynamicResources)."""
    async with monitored(short_dir, machine=COMPUTER) as kubelet:
        await kubelet.admit(WHOLE)
        (claim,) = (await got(kubelet, "whole", "apps")).containers[1].dynamic_resources
        assert [(part.device_name, part.share_id, part.cdi_devices) for part in claim.claim_resources] == [
            ("gpu-0", None, ("example.com/gpu=0", "example.com/gpu=ctl")),
            ("nic-0", None, ("example.com/nic=0",)),
            ("gpu-1", "half", ("example.com/gpu=0", "example.com/gpu=ctl", "example.com/gpu=1")),
        ]


async def test_v1alpha1_tells_of_devices_only(short_dir: Path) -> None:
    async with monitored(short_dir, machine=COMPUTER) as kubelet:
        await kubelet.admit(WHOLE)
        containers = (ContainerResources("b"), ContainerResources("a"))
        assert await listed_v1alpha1(kubelet) == (PodResources("whole", "apps", containers),)


async def test_the_node_offers_the_machines_cpus_and_memory_whoever_has_them(short_dir: Path) -> None:
    async with monitored(short_dir, machine=COMPUTER) as kubelet:
        await kubelet.admit(WHOLE)
        offered = await allocatable(kubelet)
        assert (offered.cpu_ids, offered.memory) == ((2, 3, 4, 5, 6, 7), COMPUTER.memory)


async def test_a_monitor_works_out_the_shared_cpus_from_two_answers(short_dir: Path) -> None:
    """Allocatable ones less those that containers have for themselves, of pods that are here."""

    def shared(offered: Sequence[int], pods: Sequence[PodResources]) -> set[int]:
        taken = {cpu for found in pods for container in found.containers for cpu in container.cpu_ids}
        return set(offered) - taken

    async with monitored(short_dir, machine=COMPUTER) as kubelet:
        offered = (await allocatable(kubelet)).cpu_ids
        assert shared(offered, await listed(kubelet)) == {2, 3, 4, 5, 6, 7}
        await kubelet.admit(WHOLE)
        assert shared(offered, await listed(kubelet)) == {2, 5, 7}
        kubelet.end_pod("u")
        assert shared(offered, await listed(kubelet)) == {2, 3, 4, 5, 6, 7}
