"""What a driver tells of itself: which claims use a device, since when, and by which version it is called."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devplug.driver.claim_spec import ClaimUse, DeviceUse
from devplug.driver.counters import ClaimCounters
from devplug.driver.publisher import PublisherStatus
from devplug.driver.status import device_claims, driver_status
from devplug.wire.dra import PREPARE
from devplug.wire.sockets import connected
from tests.driver.world import SERIAL, Node, serving
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
        ((told,),) = device_claims(before.claims.values(), SERIAL).values()
    assert (told.namespace, told.name, told.uid) == (claim.namespace, "c", claim.uid)
    assert (told.request, told.device, told.prepared_for) == ("r", "a", ("p", "q"))
    assert told.since is not None

    after = node.driver("a")
    async with serving(after):
        await until(node.registration_socket().exists)
        assert device_claims(after.claims.values(), SERIAL) == {"a": (told,)}


@pytest.mark.parametrize("version", PREPARE)
async def test_the_version_by_which_a_kubelet_calls_is_told(node: Node, version: str) -> None:
    driver = node.driver("a")
    async with serving(driver):
        await until(node.registration_socket().exists)
        assert driver.counters.kubelet_api == ""
        async with connected(node.socket()) as peer, asyncio.timeout(30):
            await peer.call(PREPARE[version], [])
        assert driver.counters.kubelet_api == version


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


def test_a_driver_tells_what_is_published_and_what_keeps_it_from_being_ready() -> None:
    published = PublisherStatus(generation=3, slices=2, devices=130, stale_since=7.0, version="v1")
    status = driver_status(
        "d.example.com", published, ClaimCounters(), is_registered=True, fault="away", claims=4
    )
    assert (status.slices, status.devices, status.generation, status.stale_since) == (2, 130, 3, 7.0)
    assert (status.resource_api, status.kubelet_api, status.fault, status.claims) == ("v1", "", "away", 4)
