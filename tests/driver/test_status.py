"""What a driver tells of itself: which claims use a device, since when, and by which version it is called."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from devplug.driver.claims import ClaimUse, DeviceUse
from devplug.driver.status import device_claims
from devplug.k8s.errors import ClusterError
from devplug.logs import AUDIT
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected
from tests.driver.world import SERIAL, Node, refusal, serving
from tests.virtualtime import BACKEND
from tests.waiting import until


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@pytest.fixture
def node(short_dir: Path) -> Node:
    return Node(short_dir)


async def test_a_claim_is_told_with_its_request_pods_and_beginning_over_a_restart(node: Node) -> None:
    claim = node.claims.allocate("c", "a", pods=("p", "q"))
    before = node.driver("a")
    async with serving(before):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:
            await peer.call(PREPARE["v1.DRAPlugin"], [claim])
        ((told,),) = device_claims(before.store.claims.values(), SERIAL).values()
    assert (told.namespace, told.name, told.uid) == (claim.namespace, "c", claim.uid)
    assert (told.request, told.device, told.prepared_for) == ("r", "a", ("p", "q"))
    assert told.since is not None

    after = node.driver("a")
    async with serving(after):
        await until(node.registration_socket().exists)
        assert device_claims(after.store.claims.values(), SERIAL) == {"a": (told,)}


@pytest.mark.parametrize("version", PREPARE)
async def test_the_version_by_which_a_kubelet_calls_is_told(node: Node, version: str) -> None:
    driver = node.driver("a")
    async with serving(driver):
        await until(node.registration_socket().exists)
        assert driver.counters.kubelet_api == ""
        async with connected(node.socket()) as peer, asyncio.timeout(30):
            await peer.call(PREPARE[version], [])
        assert driver.counters.kubelet_api == version


async def test_calls_are_counted_by_what_came_of_them(node: Node) -> None:
    good, refused, away, late = (node.claims.allocate(name, name) for name in ("a", "b", "c", "d"))
    driver = node.driver("a", "b", "c")
    async with serving(driver):
        await until(node.registration_socket().exists)
        async with connected(node.socket()) as peer:

            async def prepares(claim: ClaimName) -> str:
                return (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error

            assert not await prepares(good)
            assert not await prepares(good)
            node.resource.prepare_errors.append(refusal())
            assert await prepares(refused)
            node.claims.errors.append(ValueError("a bug"))
            assert await prepares(refused)
            node.claims.errors += [ClusterError("away") for _ in range(200)]
            assert await prepares(away)
            node.claims.errors.clear()
            assert await prepares(late)  # its device never comes
            node.resource.release_errors.append(refusal("busy"))
            for _ in range(2):
                await peer.call(UNPREPARE["v1.DRAPlugin"], [good])
    assert dict(driver.counters.prepares.samples()) == {
        ("prepared",): 2,
        ("refused",): 1,
        ("failed",): 1,
        ("timed_out",): 2,
    }
    assert driver.counters.prepare_seconds.sample("d").count == 6
    assert dict(driver.counters.unprepares.samples()) == {
        ("unprepared",): 1,
        ("refused",): 1,
        ("failed",): 0,
        ("timed_out",): 0,
    }
    assert driver.counters.unprepare_seconds.sample("d").count == 2


async def test_audit_lines_name_claim_devices_and_pods(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    claim = node.claims.allocate("c", "a", pods=("p",))
    node.resource.prepare_errors.append(refusal())
    node.resource.release_errors.append(refusal("busy"))
    with caplog.at_level(logging.INFO, logger=AUDIT):
        async with serving(node.driver("a")):
            await until(node.registration_socket().exists)
            async with connected(node.socket()) as peer:
                for _ in range(2):
                    await peer.call(PREPARE["v1.DRAPlugin"], [claim])
                for _ in range(2):
                    await peer.call(UNPREPARE["v1.DRAPlugin"], [claim])
    told = [one for one in caplog.records if one.name == AUDIT]
    of_claim: dict[str, object] = {"claim": "ns/c", "claim_uid": claim.uid}
    of_use = {**of_claim, "devices": ["a"], "pods": ["p"]}
    wanted: list[tuple[str, dict[str, object]]] = [
        ("not prepared", {**of_claim, "reason": "the device is on fire"}),
        ("prepared", of_use),
        ("not unprepared", {**of_claim, "reason": "busy"}),
        ("unprepared", of_use),
    ]
    assert [one.getMessage() for one in told] == [message for message, _ in wanted]
    for record, (_, facts) in zip(told, wanted, strict=True):
        assert vars(record).items() >= facts.items()


def used(name: str, since: int, *devices: DeviceUse) -> ClaimUse:
    return ClaimUse("ns", name, f"uid-{name}", devices, since)


def test_a_device_that_claims_share_names_the_oldest_first_and_who_only_looks() -> None:
    uses = [
        used("young", 20, DeviceUse("r", "a-1", SERIAL, "a", share_id="1")),
        used("old", 10, DeviceUse("r", "a-1", SERIAL, "a", share_id="2"), DeviceUse("s", "b-1", SERIAL, "b")),
        used("admin", 30, DeviceUse("r", "a-1", SERIAL, "a", has_admin_access=True)),
        used("elsewhere", 5, DeviceUse("r", "a-2", "example.com/other", "a")),
    ]
    found = device_claims(uses, SERIAL)
    assert [(one.name, one.has_admin_access) for one in found["a"]] == [
        ("old", False),
        ("young", False),
        ("admin", True),
    ]
    assert [(one.name, one.request) for one in found["b"]] == [("old", "s")]
