"""A kubelet drives our driver: real sockets, and a clock that costs nothing."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devplug.devices import Device, Health
from devplug.driver.offer import OfferedDevice
from devplug.errors import PluginError
from devplug.k8s.errors import ClusterError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.wire.dra import PREPARE, UNPREPARE
from devplug.wire.pluginregistration import GET_INFO
from devplug.wire.sockets import connected
from tests.driver.world import DRIVER, SERIAL, Cluster, Node, events, serving
from tests.kubelet.dra_driver import pod, running
from tests.virtualtime import on_virtual_time, passes
from tests.waiting import until

OLD, NEW = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-aaaaaaaaaaaa"


anyio_backend = on_virtual_time


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir)


# ── registration ──────────────────────────────────────────────────────────────────────────────────


async def test_the_kubelet_registers_the_driver_with_both_versions(node: Node) -> None:
    """D03, D04: type, endpoint as the kubelet sees it, and the version that is preferred first."""
    driver = node.driver("a")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered and driver.is_connected)
        assert kubelet.dra.has_driver(DRIVER)
        assert driver.fault == ""
        async with connected(node.registration_socket()) as peer:
            info = await peer.call(GET_INFO, None)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(node.socket()))
    assert info.supported_versions == ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    assert not node.socket().exists()
    assert not node.registration_socket().exists()


async def test_a_driver_in_a_container_names_the_host_s_path(node: Node) -> None:
    """D97: the kubelet dials where the folder is on the host."""
    driver = node.driver(host_root=Path("/var/lib/k0s/kubelet"))
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.registration_socket()) as peer:
            info = await peer.call(GET_INFO, None)
    assert info.endpoint == f"/var/lib/k0s/kubelet/plugins/{DRIVER}/dra.sock"


async def test_sockets_that_somebody_removes_are_made_again(node: Node) -> None:
    """D08: the kubelet registers a socket again that was removed and made again."""
    driver = node.driver("a")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        node.registration_socket().unlink()
        node.socket().unlink()
        await until(lambda: not driver.is_registered)
        await until(
            lambda: driver.is_registered and node.socket().exists() and kubelet.dra.has_driver(DRIVER)
        )


async def test_two_drivers_of_one_name_do_not_replace_each_other_s_sockets(node: Node) -> None:
    """Two installations outside of pods: the later one serves, the first says why it does not."""
    first, second = node.driver("a"), node.driver("a")
    async with running(node.root, Cluster(node)), serving(first):
        await until(lambda: first.is_registered and first.is_connected)
        async with serving(second):
            await until(lambda: second.is_registered and "another process" in first.fault)
            identity = node.socket().stat().st_ino
            assert f"serves the driver {DRIVER} has replaced {node.socket()}" in first.fault
            await passes(100)
            assert node.socket().stat().st_ino == identity
            assert second.fault == ""
            assert not first.is_registered
        await until(lambda: first.is_registered and first.fault == "")


async def test_a_driver_waits_for_the_kubelet_s_folder(node: Node) -> None:
    (node.root / "plugins_registry").rmdir()
    driver = node.driver("a")
    async with serving(driver):
        await until(lambda: "cannot listen" in driver.fault)
        (node.root / "plugins_registry").mkdir()
        await until(node.registration_socket().exists)
        assert "no kubelet has registered" in driver.fault


async def test_the_sockets_of_dead_instances_are_removed_and_no_others(node: Node) -> None:
    dead = node.driver(pod_uid=OLD)
    async with serving(dead):
        await until(node.registration_socket(OLD).exists)
        other = node.root / "plugins_registry" / "other.example.com-reg.sock"
        other.touch()
        for path in (node.registration_socket(OLD), node.socket(OLD)):
            path.with_name(f"{path.name}-moved").hardlink_to(path)
    for path in (node.registration_socket(OLD), node.socket(OLD)):  # nobody listens there any more
        path.with_name(f"{path.name}-moved").rename(path)
    async with serving(node.driver(pod_uid=NEW)):
        await until(node.registration_socket(NEW).exists)
        assert not node.registration_socket(OLD).exists()
        assert not node.socket(OLD).exists()
        assert other.exists()


def test_a_name_that_no_socket_can_have_is_refused(node: Node) -> None:
    node.root = node.root / ("x" * 100)
    node.root.mkdir()
    (node.root / "plugins_registry").mkdir()
    with pytest.raises(PluginError, match="take a shorter driver name"):
        node.driver(pod_uid=NEW)


# ── the life of a claim ───────────────────────────────────────────────────────────────────────────


async def test_a_claim_is_prepared_and_unprepared(node: Node) -> None:
    """D14, D22, D23, D98: the kubelet's whole way, with one CDI file, one prepare and one release."""
    node.claims.allocate("c", "a", "b")
    driver = node.driver("a", "b")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        status = await kubelet.run_pod(pod("u", "c", requests=("r",)))
        assert status.phase is PodPhase.RUNNING
        names = kubelet.container_config("u", "c").cdi_devices
        assert names == tuple(f"k8s.{DRIVER}/claim=uid-c-{device}" for device in "ab")
        assert node.cdi_names() == [f"k8s.{DRIVER}-claim-uid-c.yaml"]
        assert driver.store.held_ids(SERIAL) == {"a", "b"}
        await kubelet.dra.unprepare(pod("u", "c"))
    assert node.cdi_names() == []
    assert node.resource.prepared == [("a", "b")]
    assert node.resource.released == ["a", "b"]
    assert driver.store.held_ids(SERIAL) == frozenset()


async def test_a_kubelet_that_restarts_gets_the_same_answer_and_nothing_is_done_twice(node: Node) -> None:
    """D24: the next pod that uses the claim has it prepared again, while the first one runs."""
    node.claims.allocate("c", "a", pods=("u", "v"))
    driver = node.driver("a")
    async with serving(driver):
        async with running(node.root, Cluster(node)) as kubelet:
            await until(lambda: driver.is_registered)
            await kubelet.run_pod(pod("u", "c"))
        async with running(node.root, Cluster(node)) as kubelet:
            await until(lambda: kubelet.dra.has_driver(DRIVER))
            await kubelet.run_pod(pod("u", "c"))
            await kubelet.run_pod(pod("v", "c"))
            assert events(kubelet) == []
            assert node.resource.prepared == [("a",)]
            await kubelet.dra.unprepare(pod("u", "c"))
            await kubelet.dra.unprepare(pod("v", "c"))
    assert node.resource.released == ["a"]


async def test_a_driver_that_restarts_knows_its_claims(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            first = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
    driver = node.driver("a")
    async with serving(driver):
        await until(node.registration_socket().exists)
        assert driver.store.held_ids(SERIAL) == {"a"}
        async with connected(node.socket()) as peer:
            assert await peer.call(PREPARE["v1beta1.DRAPlugin"], [claim]) == first
            node.claims.delete("c")
            node.claims.errors.append(ClusterError("the API server is away"))
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: ""}
    assert node.resource.prepared == [("a",)]
    assert node.resource.released == ["a"]


async def test_claim_that_is_deleted_by_force_keeps_its_device_until_unprepare(node: Node) -> None:
    """D28: the new claim is prepared before the old one is unprepared, whose container may still run."""
    node.claims.allocate("old", "a")
    driver = node.driver("a")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        await kubelet.run_pod(pod("u", "old"))
        kubelet.remove_pod("u")
        node.claims.delete("old")
        node.claims.allocate("new", "a", pods=("v",))
        assert not await kubelet.dra.try_prepare(pod("v", "new"))
        (refusal,) = events(kubelet)
        assert "ResourceClaim ns/old is deleted, but its pod may still run here" in refusal
        assert node.resource.released == []
        await kubelet.dra.reconcile()
        assert node.resource.released == ["a"]
        await kubelet.run_pod(pod("v", "new"))
        assert node.cdi_names() == [f"k8s.{DRIVER}-claim-uid-new.yaml"]
        assert driver.store.held_ids(SERIAL) == {"a"}


async def test_two_instances_share_the_claims_and_the_last_one_is_asked(node: Node) -> None:
    """D09: a rolling update without a gap."""
    node.claims.allocate("c", "a")
    node.claims.allocate("d", "b", pods=("v",))
    async with AsyncExitStack() as stack:
        kubelet = await stack.enter_async_context(running(node.root, Cluster(node)))
        old, new = (node.driver("a", "b", pod_uid=uid) for uid in (OLD, NEW))
        ending = AsyncExitStack()
        await ending.enter_async_context(serving(old))
        await until(lambda: old.is_registered and old.is_connected)
        await kubelet.run_pod(pod("u", "c"))
        await stack.enter_async_context(serving(new))
        await until(lambda: new.is_registered and new.is_connected)
        await kubelet.run_pod(pod("v", "d"))
        assert new.store.held_ids(SERIAL) == {"a", "b"}
        await ending.aclose()
        await until(lambda: not node.registration_socket(OLD).exists())
        await kubelet.dra.unprepare(pod("u", "c"))
        await kubelet.dra.unprepare(pod("v", "d"))
        assert events(kubelet) == []
    assert node.resource.released == ["a", "b"]
    assert node.cdi_names() == []


# ── health ────────────────────────────────────────────────────────────────────────────────────────


async def test_pods_show_the_health_of_their_devices(node: Node) -> None:
    """D33, D36: of devices in use, with the reason, also after it came back."""
    node.claims.allocate("c", "a")
    driver = node.driver("a", "b")

    def shown(kubelet: Kubelet) -> list[tuple[str, str]]:
        found = kubelet.pod("u").containers[0].claims_health
        return [(one.health, one.message) for devices in found.values() for one in devices]

    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered and driver.is_connected)
        await kubelet.run_pod(pod("u", "c"))
        await until(lambda: shown(kubelet) == [("Healthy", "")])
        sick = Device("a", health=Health.unhealthy("too hot"))
        driver.offer.replace({"a": OfferedDevice(SERIAL, sick)})
        await until(lambda: shown(kubelet) == [("Unhealthy", "too hot")])
        driver.offer.replace({"a": OfferedDevice(SERIAL, Device("a"))})
        await until(lambda: shown(kubelet) == [("Healthy", "")])
        driver.offer.replace({})
        await until(lambda: shown(kubelet) == [("Unknown", "the driver does not see the device")])
