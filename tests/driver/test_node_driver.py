"""The driver of a node with an API server and a kubelet: its resources come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.devices import Device, Health
from devplug.driver.device_entries import device_name
from devplug.driver.node_driver import DRAIN_SECONDS, TURNS_NAME, NodeDriver
from devplug.driver.offer import FIRST_SECONDS, GATHER_SECONDS
from devplug.driver.publisher import Turns
from devplug.sandbox.registry import RESOURCE_CLAIMS
from devplug.wire.dra import PREPARE, ClaimName
from devplug.wire.sockets import connected
from tests.driver.apiserver import Cluster, cluster
from tests.driver.world import DRIVER, NODE, SERIAL, FakeResource, decode
from tests.kubelet.dra_driver import FakeCluster, running
from tests.virtualtime import BACKEND, now, passes
from tests.waiting import until

CAMERA = "example.com/camera"
A, B, C = Device("a"), Device("b"), Device("c")


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


@asynccontextmanager
async def driving(
    server: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch, **resources: tuple[Device, ...]
) -> AsyncIterator[NodeDriver]:
    """A driver that has published the devices of some resources; no kubelet wipes them."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    (root / "plugins_registry").mkdir()
    driver = NodeDriver(
        DRIVER, NODE, decode, kubelet_root=root, cdi_folder=root / "cdi", account_folder=root / "none"
    )
    for name, devices in resources.items():
        driver.add(FakeResource(f"example.com/{name}"))
        driver.offer(f"example.com/{name}", devices)
    async with running(root, FakeCluster()), asyncio.TaskGroup() as tasks:
        life = tasks.create_task(driver.run())
        try:
            await is_current(driver)
            server.writes.clear()
            yield driver
        finally:
            life.cancel()


async def is_current(driver: NodeDriver) -> None:
    """Wait until everything that was offered is published."""
    await until(lambda: not driver.fault and driver.status().stale_since is None)


def name(device: Device, resource_name: str = SERIAL) -> str:
    return device_name(resource_name, device.id)


def allocate(server: Cluster, claim: str, *devices: Device) -> ClaimName:
    """Make a claim that is allocated, and reserved for a pod."""
    request = {"name": "r", "exactly": {"deviceClassName": "serial"}}
    spec = {"devices": {"requests": [request]}}
    made: Any = server.registry.create(
        RESOURCE_CLAIMS, "default", {"metadata": {"name": claim}, "spec": spec}
    )
    result = {"request": "r", "driver": DRIVER, "pool": NODE}
    status: dict[str, object] = {
        "allocation": {"devices": {"results": [{**result, "device": name(one)} for one in devices]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
    }
    server.registry.set_status(RESOURCE_CLAIMS, "default", claim, status)
    return ClaimName("default", made["metadata"]["uid"], claim)


# ── resources that go, and new ones ──


async def test_a_resource_that_is_removed_for_good_leaves_slices_at_once(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cluster(short_dir) as server,
        driving(server, short_dir, monkeypatch, serial=(A,), camera=(C,)) as driver,
    ):
        begin = now()
        driver.remove(SERIAL)
        driver.remove(SERIAL)  # what the end of its plugin says
        await until(lambda: [*server.devices()] == [name(C, CAMERA)])
        assert now() - begin < FIRST_SECONDS / 10


# ── another instance ──────────────────────────────────────────────────────────────────────────────


async def test_a_driver_that_ends_leaves_publishing_to_another_instance_while_it_works_on_claims(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predecessor = Turns(short_dir / "plugins" / DRIVER / TURNS_NAME)
    assert predecessor.is_ours(is_ready=True)
    slow = FakeResource(may_go_on=asyncio.Event())

    async def finish_when_it_is_the_predecessors_turn() -> None:
        await until(lambda: predecessor.is_ours(is_ready=True))
        assert slow.may_go_on is not None
        slow.may_go_on.set()

    async with cluster(short_dir) as server, asyncio.TaskGroup() as tasks:
        async with driving(server, short_dir, monkeypatch, serial=(A,)) as driver:
            assert not predecessor.is_ours(is_ready=True)
            driver.add(slow)
            driver.offer(SERIAL, (A,))
            async with connected(short_dir / "plugins" / DRIVER / "dra.sock") as peer:
                call = tasks.create_task(peer.call(PREPARE["v1.DRAPlugin"], [allocate(server, "c", A)]))
                await until(lambda: slow.prepared)
                call.cancel()
            tasks.create_task(finish_when_it_is_the_predecessors_turn())
            begin = now()
        assert now() - begin < DRAIN_SECONDS / 2
    predecessor.close()


# ── one that is new ───────────────────────────────────────────────────────────────────────────────


async def test_a_new_resource_that_is_not_ready_keeps_no_change_of_others_back(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cluster(short_dir) as server,
        driving(server, short_dir, monkeypatch, serial=(A,)) as driver,
    ):
        await passes(2 * FIRST_SECONDS)
        driver.add(FakeResource(CAMERA))
        await passes(2 * FIRST_SECONDS)
        assert server.writes == []
        begin = now()
        driver.offer(SERIAL, (A.with_health(Health.unhealthy("no echo")),))
        await until(lambda: "taints" in server.devices()[name(A)])
        assert now() - begin < GATHER_SECONDS + 1
        assert server.writes == ["PUT"]


async def test_an_edit_of_all_resources_is_one_new_generation(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = ((*(Device(f"d{number}") for number in range(size)),) for size in (60, 70))
    async with (
        cluster(short_dir) as server,
        driving(server, short_dir, monkeypatch, serial=few, camera=few) as driver,
    ):
        for resource_name in (SERIAL, CAMERA):
            driver.offer(resource_name, many)
        await until(lambda: len(server.devices()) == 140)
        assert {one["spec"]["pool"]["generation"] for one in server.slices()} == {2}
        assert server.writes == ["PUT", "POST", "POST"]
