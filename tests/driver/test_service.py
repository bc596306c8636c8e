"""What a driver answers for claims: what may pass is waited for, and a device has one user."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from devplug.cdi.spec import CdiOwner
from devplug.devices import Device
from devplug.dra.taints import Toleration
from devplug.driver.offer import OfferedDevice
from devplug.errors import NotReadyError
from devplug.k8s.errors import ClusterError, RefusedError
from devplug.kubelet.pods import PodPhase
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected
from tests.driver.world import (
    DRIVER,
    NAMESPACE,
    SERIAL,
    Cluster,
    FakeResource,
    Node,
    events,
    refusal,
    serving,
)
from tests.kubelet.dra_driver import pod, running
from tests.virtualtime import now, on_virtual_time
from tests.waiting import until

anyio_backend = on_virtual_time


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir)


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


async def test_a_request_gets_the_devices_of_two_resources_with_one_id_as_two(node: Node) -> None:
    """IDs tell the devices of one resource apart; a class may select those of several."""
    theirs = FakeResource("example.com/theirs", nodes={"0": "/dev/theirs"}, inside="/dev/in-theirs-{id}")
    node.resources[theirs.resource_name] = theirs
    claim = node.claims.allocate("c", "ours-0", "theirs-0")
    driver = node.driver()
    driver.offer.replace(
        {
            "ours-0": OfferedDevice(SERIAL, Device("0")),
            "theirs-0": OfferedDevice(theirs.resource_name, Device("0")),
        }
    )
    node.resource.nodes["0"] = "/dev/ours"
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error
        (name,) = node.cdi_names()
        written = json.loads((node.cdi / name).read_text().partition("\n")[2])
        nodes = [one["containerEdits"]["deviceNodes"][0] for one in written["devices"]]
        assert [one["hostPath"] for one in nodes] == ["/dev/ours", "/dev/theirs"]


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


async def test_who_prepared_a_device_owns_its_nodes_although_it_is_not_served_any_more(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    node.resource.node_owner = CdiOwner(uid=7)
    node.resource.may_go_on = asyncio.Event()
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer, asyncio.TaskGroup() as tasks:
            call = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [claim]))
            await until(lambda: node.resource.prepared)
            node.resources.clear()
            node.resource.may_go_on.set()
            assert not (await call)[claim.uid].error
    content = (node.cdi / f"k8s.{DRIVER}-claim-{claim.uid}.yaml").read_text()
    (device,) = json.loads(content.partition("\n")[2])["devices"]
    assert [one["uid"] for one in device["containerEdits"]["deviceNodes"]] == [7]


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


async def test_a_claim_that_takes_long_holds_no_other_one_up(node: Node) -> None:
    slow, quick = node.claims.allocate("slow", "a"), node.claims.allocate("quick", "b")
    node.resource.may_go_on = asyncio.Event()
    async with serving(node.driver("a", "b")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer, asyncio.TaskGroup() as tasks:
            first = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [slow]))
            await until(lambda: node.resource.prepared)
            again = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [slow]))
            may_go_on, node.resource.may_go_on = node.resource.may_go_on, None
            assert not (await peer.call(PREPARE["v1.DRAPlugin"], [quick]))[quick.uid].error
            assert not first.done()
            may_go_on.set()
            assert await first == await again
    assert node.resource.prepared == [("a",), ("b",)]


async def test_a_driver_that_is_told_to_end_finishes_its_work(node: Node) -> None:
    claim = node.claims.allocate("c", "a")
    node.resource.may_go_on = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(node.driver("a").run())
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            call = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [claim]))
            await until(lambda: node.resource.prepared)
            life.cancel()
            await until(lambda: not node.registration_socket().exists())
            node.resource.may_go_on.set()
            assert not (await call)[claim.uid].error
    assert node.cdi_names() == [f"k8s.{DRIVER}-claim-uid-c.yaml"]


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


async def test_who_prepares_a_device_knows_what_its_request_tolerates_also_after_a_reboot(node: Node) -> None:
    """D80: an unhealthy device is for claims that say so, and for no others."""
    sick = node.claims.allocate("sick", "a", tolerations=[{"operator": "Exists"}])
    other = node.claims.allocate("other", "b")
    for node.boot in ("boot-1", "boot-2"):
        async with serving(node.driver("a", "b")):
            await until(node.registration_socket().exists)
            async with connected(node.socket()) as peer:
                for claim in (sick, other):
                    assert not (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error
    assert node.resource.tolerations == [((Toleration("", "Exists", "", ""),),), ((),)] * 2


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


async def test_a_name_that_is_a_path_is_asked_of_nobody(node: Node) -> None:
    node.claims.allocate("c", "a")
    async with serving(node.driver("a")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            for claim in (ClaimName("default", "uid-c", "../nodes/c"), ClaimName("x/..", "uid-c", "c")):
                answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
                assert answer[claim.uid].error.endswith("is no name of a claim")


async def test_a_cdi_folder_that_is_not_mounted_is_explained(node: Node) -> None:
    node.cdi.rmdir()
    claim = node.claims.allocate("c", "a")
    async with serving(node.driver("a", cdi_folder=node.cdi / "missing")):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
    assert "mount the host's /var/run/cdi there" in answer[claim.uid].error
