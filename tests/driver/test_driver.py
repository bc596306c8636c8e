"""A kubelet drives our driver: real sockets, and a clock that costs nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devplug.devices import Device, Health
from devplug.driver.offer import OfferedDevice
from devplug.errors import NotReadyError, PluginError
from devplug.k8s.errors import ClusterError, RefusedError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.wire.dra import PREPARE, UNPREPARE
from devplug.wire.pluginregistration import GET_INFO
from devplug.wire.sockets import connected
from tests.driver.world import DRIVER, NAMESPACE, SERIAL, Node, refusal, serving
from tests.kubelet.dra_driver import FakeCluster, pod, running
from tests.virtualtime import BACKEND, now
from tests.waiting import until

OLD, NEW = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-aaaaaaaaaaaa"


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir)


class Cluster(FakeCluster):
    """The kubelet reads the same claims."""

    def __init__(self, node: Node) -> None:
        super().__init__(claims=node.claims.objects)


def events(kubelet: Kubelet) -> list[str]:
    prefix = "Failed to prepare dynamic resources: prepare dynamic resources: "
    return [event.message.removeprefix(prefix) for event in kubelet.events]


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
        assert driver.held_ids(SERIAL) == {"a", "b"}
        await kubelet.dra.unprepare(pod("u", "c"))
    assert node.cdi_names() == []
    assert node.resource.prepared == [("a", "b")]
    assert node.resource.released == ["a", "b"]
    assert driver.held_ids(SERIAL) == frozenset()


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
        assert driver.held_ids(SERIAL) == {"a"}
        async with connected(node.socket()) as peer:
            assert await peer.call(PREPARE["v1beta1.DRAPlugin"], [claim]) == first
            node.claims.delete("c")
            node.claims.errors.append(ClusterError("the API server is away"))
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: ""}
    assert node.resource.prepared == [("a",)]
    assert node.resource.released == ["a"]


async def test_a_pod_that_is_deleted_by_force_lets_the_next_one_have_the_device(node: Node) -> None:
    """D28: the new claim is prepared before the old one is unprepared, which does nothing any more."""
    node.claims.allocate("old", "a")
    driver = node.driver("a")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        await kubelet.run_pod(pod("u", "old"))
        kubelet.remove_pod("u")
        node.claims.delete("old")
        node.claims.allocate("new", "a", pods=("v",))
        await kubelet.run_pod(pod("v", "new"))
        assert events(kubelet) == []
        assert node.resource.released == ["a"]
        assert node.cdi_names() == [f"k8s.{DRIVER}-claim-uid-new.yaml"]
        await kubelet.dra.reconcile()
        assert node.resource.released == ["a"]
        assert driver.held_ids(SERIAL) == {"a"}


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
        assert new.held_ids(SERIAL) == {"a", "b"}
        await ending.aclose()
        await until(lambda: not node.registration_socket(OLD).exists())
        await kubelet.dra.unprepare(pod("u", "c"))
        await kubelet.dra.unprepare(pod("v", "d"))
        assert events(kubelet) == []
    assert node.resource.released == ["a", "b"]
    assert node.cdi_names() == []


# ── what passes is waited for, what does not is refused ───────────────────────────────────────────


async def test_a_hiccup_of_the_api_server_costs_the_pod_nothing(node: Node) -> None:
    """D18: a refused prepare would cost it a minute."""
    node.claims.allocate("c", "a")
    driver = node.driver("a")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        node.claims.errors += [ClusterError("away") for _ in range(8)]
        begin = now()
        assert (await kubelet.run_pod(pod("u", "c"))).phase is PodPhase.RUNNING
        assert now() - begin == pytest.approx(2.0, abs=0.1)


async def test_an_api_server_that_stays_away_is_named_before_the_kubelet_s_deadline(node: Node) -> None:
    node.claims.allocate("c", "a")
    driver = node.driver("a")
    async with running(node.root, Cluster(node)) as kubelet, serving(driver):
        await until(lambda: driver.is_registered)
        node.claims.errors += [ClusterError("the API server is away") for _ in range(200)]
        begin = now()
        await kubelet.run_pod(pod("u", "c"))
        assert 20 <= now() - begin < 45
        assert events(kubelet) == ["NodePrepareResources failed for ResourceClaim c: the API server is away"]


async def test_a_device_that_settles_is_waited_for(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    driver = node.driver()
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer, asyncio.TaskGroup() as tasks:
            call = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [claim]))
            await until(lambda: node.claims.reads)
            node.resource.prepare_errors.append(NotReadyError("settling"))
            driver.offer.replace({"a": OfferedDevice(SERIAL, Device("a"))})
            assert not (await call)[claim.uid].error
    assert node.resource.prepared == [("a",), ("a",)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RefusedError("the API server refuses (403)"), "the API server refuses (403)"),
        (ValueError("a secret"), "internal error, incident "),
    ],
)
async def test_what_cannot_pass_is_refused_at_once(node: Node, error: Exception, text: str) -> None:
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            node.claims.errors.append(error)
            begin = now()
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
            assert now() - begin < 1
            assert text in answer[claim.uid].error
            assert "secret" not in answer[claim.uid].error
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error


async def test_a_resource_s_refusal_is_told_and_its_use_ends_with_the_unprepare(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    node.resource.prepare_errors.append(refusal())
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
            assert answer[claim.uid].error == "the device is on fire"
            assert node.cdi_names() == []
            await peer.call(UNPREPARE["v1.DRAPlugin"], [claim])
    assert node.resource.released == ["a"]


async def test_a_release_that_fails_is_tried_again_by_the_kubelet(node: Node) -> None:
    """D27: until then the pod stays."""
    claim = node.claims.allocate("c", "a")
    node.resource.release_errors.append(refusal("it is still busy"))
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            await peer.call(PREPARE["v1.DRAPlugin"], [claim])
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: "it is still busy"}
            assert node.cdi_names() == []
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: ""}
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: ""}
    assert node.resource.released == ["a"]


async def test_work_goes_on_when_the_kubelet_gives_a_call_up(node: Node) -> None:
    """D24: after a timeout the next call finds it done."""
    claim = node.claims.allocate("c", "a")
    node.resource.may_go_on = asyncio.Event()
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer, asyncio.TaskGroup() as tasks:
            call = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [claim]))
            await until(lambda: node.resource.prepared)
            call.cancel()
            await asyncio.wait((call,))
            node.resource.may_go_on.set()
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error
    assert node.resource.prepared == [("a",)]


async def test_a_device_is_never_in_two_claims_that_both_are_allocated(node: Node) -> None:
    one, two = (node.claims.allocate(name, "a") for name in ("one", "two"))
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [one, two])
            assert answer[one.uid].error == ""
            refused = answer[two.uid].error
            assert refused.startswith(
                f'device "a" is allocated to ResourceClaim {NAMESPACE}/one, too; delete'
            )
            node.claims.release("one")
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [two]))[two.uid].error
    assert node.resource.released == ["a"]


async def test_who_shares_a_device_or_only_looks_at_it_keeps_nobody_out(node: Node) -> None:
    """D79, D86: it is released with the last who shares it; who only looked does not count."""
    one = node.claims.allocate("one", "a", share="s1")
    two = node.claims.allocate("two", "a", share="s2")
    admin = node.claims.allocate("admin", "a", admin=True)
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [one, two, admin])
            assert [answer[one.uid].devices[0].share_id, answer[two.uid].devices[0].share_id] == ["s1", "s2"]
            assert not any(claim.error for claim in answer.values())
            await peer.call(UNPREPARE["v1.DRAPlugin"], [one])
            assert node.resource.released == []
            await peer.call(UNPREPARE["v1.DRAPlugin"], [two])
            assert node.resource.released == ["a"]
            await peer.call(UNPREPARE["v1.DRAPlugin"], [admin])
    assert node.resource.released == ["a"]
    assert node.cdi_names() == []


async def test_what_was_prepared_stays_so_and_what_is_configured_wrongly_is_refused_with_all_of_it(
    node: Node,
) -> None:
    wrong: list[tuple[str, dict[str, object]]] = [
        ("FromClass", {"colour": "red"}),
        ("FromClaim", {"permissions": "x", "size": 1}),
    ]
    claim = node.claims.allocate("c", "a", parameters=wrong)
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            error = (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error
            assert "config[0].opaque.parameters: colour: unknown key" in error
            assert "config[1].opaque.parameters: size: unknown key" in error
            assert node.resource.prepared == []
            node.claims.allocate("c", "a", parameters=[("FromClaim", {"env": {"BAUD": "9600"}})])
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error
            assert "BAUD=9600" in (node.cdi / f"k8s.{DRIVER}-claim-uid-c.yaml").read_text()
            node.claims.allocate("c", "a", parameters=wrong)
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error


# ── hostile and odd requests ──────────────────────────────────────────────────────────────────────


async def test_a_uid_that_is_a_path_is_refused_and_no_file_is_touched(node: Node) -> None:
    victim = node.root / "victim.yaml"
    victim.touch()
    claim = node.claims.allocate("c", "a", uid="/../../victim")
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
            assert "is no UID of a claim" in answer[claim.uid].error
            assert await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]) == {claim.uid: ""}
            assert await peer.call(PREPARE["v1.DRAPlugin"], []) == {}
    assert victim.exists()


async def test_a_cdi_folder_that_is_not_mounted_is_explained(node: Node) -> None:
    node.cdi.rmdir()
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a", cdi_folder=node.cdi / "missing")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
    assert "mount the host's /var/run/cdi there" in answer[claim.uid].error


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
