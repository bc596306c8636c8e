"""The fixture `kubelet`, used as authors of plugins use it; pytest has found it by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from devplug import (
    AllocationError,
    ContainerResponse,
    Device,
    DeviceFeed,
    DevicePlugin,
    PluginError,
    stable_id,
    watch_paths,
)
from devplug.errors import ConfigError, KubeletError
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.topology import NodeHardware, NumaNode, TopologySettings
from devplug.testing import SyncKubelet
from devplug.wire.podresources import LIST
from devplug.wire.sockets import connected

NAME = "example.com/serial"


class Serial(DevicePlugin):
    resource_name = NAME

    def __init__(self, glob: str) -> None:
        self.glob = glob

    async def devices(self) -> AsyncIterator[list[Device]]:
        async for paths in watch_paths(self.glob, every_seconds=10):
            yield [Device(stable_id(path.name), device_nodes=[path]) for path in paths]

    def allocate(self, devices: Sequence[Device]) -> ContainerResponse:
        return ContainerResponse.of(devices, envs={"SERIALS": ",".join(device.id for device in devices)})


class Fixed(DevicePlugin):
    resource_name = NAME

    def __init__(self, *devices: Device) -> None:
        self.feed = DeviceFeed(devices)

    def devices(self) -> DeviceFeed:
        return self.feed


def fixed(*ids: str) -> Fixed:
    return Fixed(*(Device(device_id) for device_id in ids))


class Counting(Fixed):
    """Tells each container how often it has been asked."""

    allocations = 0

    def allocate(self, devices: Sequence[Device]) -> ContainerResponse:
        self.allocations += 1
        return ContainerResponse(envs={"ALLOCATION": str(self.allocations)})


ONE = """
metadata: {name: one}
spec: {containers: [{name: c, resources: {limits: {example.com/serial: 1}}}]}
"""


def test_an_unplugged_adapter_is_not_given_out(kubelet: SyncKubelet, tmp_path: Path) -> None:
    (tmp_path / "A1").symlink_to("/dev/null")
    kubelet.start(Serial(f"{tmp_path}/*"))
    assert kubelet.admit({NAME: 1}).container.envs == {"SERIALS": "A1"}
    (tmp_path / "A1").unlink()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 0)
    assert kubelet.capacity[NAME] == 1  # Unhealthy, not dropped: a pod holds it


def test_a_pod_shows_what_its_container_got(kubelet: SyncKubelet) -> None:
    kubelet.start(Fixed(Device("a", device_nodes=["/dev/null"])))
    pod = kubelet.admit({NAME: 1})
    assert pod.phase == "Running"
    assert pod.container.device_ids == ("a",)
    assert pod.container.devices == {NAME: ("a",)}
    assert [node.container_path for node in pod.container.device_nodes] == ["/dev/null"]
    assert pod.container.health == {NAME: {"a": "Healthy"}}
    assert [(held.pod_uid, held.device_ids) for held in kubelet.allocations] == [(pod.uid, ("a",))]


def test_a_refused_pod_has_the_reason_that_users_see(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a"))
    pod = kubelet.admit({NAME: 2})
    assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
    assert "Requested: 2, Available: 1" in pod.message
    assert "Requested: 2, Available: 1" in repr(pod)
    assert [event.reason for event in kubelet.events] == ["UnexpectedAdmissionError"]
    with pytest.raises(LookupError, match="Available: 1"):
        _ = pod.container


def test_without_the_api_server_monitors_see_static_pods_only(kubelet: SyncKubelet) -> None:
    async def held() -> list[tuple[str, ...]]:
        async with connected(kubelet.root / "pod-resources" / "kubelet.sock") as peer:
            pods = await peer.call(LIST, None)
            return [entry.device_ids for pod in pods for one in pod.containers for entry in one.devices]

    kubelet.start(fixed("a", "b"))
    pod = kubelet.admit({NAME: 1})
    kubelet.lose_api_server()
    kubelet.restart()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 2)
    static = kubelet.admit({NAME: 1}, static=True)
    assert (pod.container.device_ids, static.container.device_ids) == (("a",), ("b",))
    assert asyncio.run(held()) == [("b",)]
    kubelet.find_api_server()
    assert asyncio.run(held()) == [("a",), ("b",)]


def test_a_manifest_is_admitted_whether_text_or_mapping(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a", "b"))
    manifest = """
    metadata: {name: reader}
    spec:
      containers:
        - {name: one, resources: {limits: {example.com/serial: 1}}}
        - {name: two}
    """
    pod = kubelet.admit(manifest)
    assert {name: view.device_ids for name, view in pod.containers.items()} == {"one": ("a",), "two": ()}
    with pytest.raises(LookupError, match="one, two"):
        _ = pod.container
    other = kubelet.admit(
        {
            "metadata": {"name": "other"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {NAME: 1}}}]},
        }
    )
    assert other.container.device_ids == ("b",)
    with pytest.raises(ConfigError, match="must be an integer"):
        kubelet.admit({NAME: "500m"})


def test_a_deleted_pods_devices_are_given_to_the_next(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a"))
    first = kubelet.admit({NAME: 1})
    first.delete()
    assert kubelet.admit({NAME: 1}).container.device_ids == ("a",)
    with pytest.raises(KubeletError, match="no pod"):
        _ = first.phase


def test_a_pod_that_comes_again_after_its_deletion_is_another_pod(kubelet: SyncKubelet) -> None:
    """As from the API server: else it would find the devices and the answer of the first one."""
    plugin = Counting(Device("a"))
    kubelet.start(plugin)
    first = kubelet.admit(ONE)
    first.delete()
    second = kubelet.admit(ONE)
    assert first.uid != second.uid
    assert second.container.envs == {"ALLOCATION": "2"}


def test_a_second_pod_of_one_name_is_refused_as_by_the_api_server(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a", "b"))
    first = kubelet.admit(ONE)
    with pytest.raises(KubeletError, match='pods "one" already exists'):
        kubelet.admit(ONE)
    assert [held.pod_uid for held in kubelet.allocations] == [first.uid]


def test_a_container_that_could_not_be_made_is_tried_again_and_others_follow(kubelet: SyncKubelet) -> None:
    class Stuck(Fixed):
        is_stuck = True

        def pre_start(self, devices: Sequence[Device]) -> None:
            if self.is_stuck:
                raise AllocationError("still busy")

    plugin = Stuck(Device("a"))
    kubelet.start(plugin)
    pod = kubelet.admit(
        {
            "metadata": {"name": "p"},
            "spec": {
                "initContainers": [{"name": "first", "resources": {"limits": {NAME: 1}}}],
                "containers": [{"name": "second"}],
            },
        }
    )
    assert pod.phase == "Pending"
    assert pod.containers["first"].reason == "CreateContainerConfigError"
    assert "still busy" in pod.containers["first"].message
    plugin.is_stuck = False
    assert pod.restart_container("first").restart_count == 0
    assert [view.state for view in pod.containers.values()] == ["terminated", "running"]
    assert pod.phase == "Running"


def test_a_restarted_container_gets_the_same_again(kubelet: SyncKubelet) -> None:
    kubelet.start(Fixed(Device("a", device_nodes=["/dev/null"])))
    pod = kubelet.admit({NAME: 1})
    before = pod.container
    after = pod.restart_container("main")
    assert after.restart_count == 1
    assert after.device_nodes == before.device_nodes


def test_a_plugin_comes_back_after_a_restart_of_the_kubelet(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a", "b"))
    pod = kubelet.admit({NAME: 1})
    kubelet.restart()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 2)
    assert (pod.phase, pod.container.device_ids) == ("Running", ("a",))


def test_a_reboot_before_the_plugin_is_back_fails_the_pod_as_it_does_on_a_node(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a"))
    pod = kubelet.admit({NAME: 1})
    kubelet.restart(reboot=True)
    assert "no healthy devices present" in pod.message


def test_a_reboot_after_which_the_plugin_comes_first_leaves_the_pod_its_device(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a", "b"))
    pod = kubelet.admit({NAME: 1})
    kubelet.restart(reboot=True, plugins_first=True)
    assert (pod.phase, pod.container.state) == ("Running", "terminated")
    after = pod.restart_container("main")
    assert (after.state, after.device_ids) == ("running", ("a",))


def test_a_plugin_registers_again_when_its_stream_is_cut(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a"))
    kubelet.drop_stream(NAME)
    assert kubelet.allocatable[NAME] == 0
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 1)
    assert kubelet.metric("kubelet_device_plugin_registration_total", resource_name=NAME) == 2


def test_the_clock_moves_past_the_grace_period(kubelet: SyncKubelet) -> None:
    started = kubelet.start(fixed("a"))
    started.stop()
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 0)
    assert kubelet.capacity[NAME] == 1
    kubelet.clock.advance(301)
    assert kubelet.capacity[NAME] == 0


def test_the_clock_never_goes_back(kubelet: SyncKubelet) -> None:
    before = kubelet.clock()
    with pytest.raises(ValueError, match="cannot go back by 1 s"):
        kubelet.clock.advance(-1)
    assert kubelet.clock() >= before


def test_the_lists_of_a_feed_are_seen(kubelet: SyncKubelet) -> None:
    plugin = fixed("a")
    kubelet.start(plugin)
    plugin.feed.put(Device("b"))
    kubelet.wait(lambda: [device.id for device in kubelet.devices(NAME)] == ["a", "b"])


def test_a_name_that_the_node_does_not_have_is_told_with_those_it_has(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a"))
    with pytest.raises(KeyError, match=r"no example.com/serail; it has example.com/serial"):
        _ = kubelet.allocatable["example.com/serail"]
    with pytest.raises(KeyError, match=r"no example.com/serail; it has example.com/serial"):
        kubelet.devices("example.com/serail")


def test_a_refusal_of_the_plugin_is_the_pods_message(kubelet: SyncKubelet) -> None:
    class Picky(Fixed):
        def allocate(self, devices: Sequence[Device]) -> ContainerResponse:
            raise AllocationError("not on a Sunday")

    kubelet.start(Picky(Device("a")))
    assert "desc = allocate: not on a Sunday" in kubelet.admit({NAME: 1}).message


def test_a_plugin_that_breaks_the_contract_is_refused(kubelet: SyncKubelet) -> None:
    class Bad(DevicePlugin):
        resource_name = "gpu"

        def devices(self) -> list[Device]:
            return []

    with pytest.raises(PluginError, match="needs a domain and a kind"):
        kubelet.start(Bad())


def test_a_plugin_whose_devices_fail_at_once_fails_its_start(kubelet: SyncKubelet) -> None:
    class Broken(DevicePlugin):
        resource_name = NAME

        def devices(self) -> list[Device]:
            raise OSError("no bus")

    with pytest.raises(PluginError, match="no bus"):
        kubelet.start(Broken())


def test_a_topology_policy_can_be_tried(make_kubelet: Callable[[KubeletSettings], SyncKubelet]) -> None:
    settings = KubeletSettings(
        machine=NodeHardware((NumaNode(0), NumaNode(1))), topology=TopologySettings("single-numa-node")
    )
    kubelet = make_kubelet(settings)
    kubelet.start(Fixed(Device("a", numa_nodes=[0]), Device("b", numa_nodes=[1])))
    assert kubelet.admit({NAME: 2}).reason == "TopologyAffinityError"
    assert kubelet.admit({NAME: 1}).container.device_ids == ("a",)


def test_two_kubelets_run_side_by_side(make_kubelet: Callable[[], SyncKubelet]) -> None:
    one, other = make_kubelet(), make_kubelet()
    one.start(fixed("a"))
    other.start(fixed("x", "y"))
    assert (one.allocatable, other.allocatable) == ({NAME: 1}, {NAME: 2})
    assert one.root != other.root


def test_plugins_can_come_by_plugins_registry(kubelet: SyncKubelet) -> None:
    kubelet.start(fixed("a"), registration="watcher")
    assert kubelet.allocatable == {NAME: 1}
    assert kubelet.metric("kubelet_device_plugin_registration_total", resource_name=NAME) == 0


def test_nothing_is_left_when_it_ends() -> None:
    threads = threading.active_count()
    with SyncKubelet() as kubelet:
        kubelet.start(fixed("a"))
        root = kubelet.root
    assert not root.exists()
    assert threading.active_count() <= threads + 1  # gRPC keeps one for the life of the process


def test_stopped_plugins_may_be_stopped_again(kubelet: SyncKubelet) -> None:
    started = kubelet.start(fixed("a"))
    started.stop()
    started.stop()
    kubelet.start(fixed("b"))
    assert [device.id for device in kubelet.devices(NAME)] == ["b"]
