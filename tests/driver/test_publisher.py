"""The publisher against a real API server: what it writes, what it leaves, and what it survives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug import Device, Health
from devplug.driver.device_entries import device_name
from devplug.driver.publisher import WRITES_AT_ONCE, Publisher
from devplug.k8s.client import Retries
from devplug.sandbox.registry import NODES, RESOURCE_SLICES
from tests.driver.apiserver import NODE, Cluster, cluster
from tests.waiting import until

DRIVER = "devices.example.com"
SERIAL = "example.com/serial"
SOON = Retries(0.01, 0.05)
START = 1_700_000_000.0
A, B = Device("a", attributes={"model": "x"}), Device("b")
ILL = A.with_health(Health.unhealthy("no echo"))


@asynccontextmanager
async def publishing(server: Cluster, *devices: Device, **settings: Any) -> AsyncIterator[Publisher]:
    """A publisher of these devices; of none that is offered yet if there are none."""
    told = {"retries": SOON, "wall_clock": lambda: START, **settings}
    publisher = Publisher(DRIVER, NODE, server.account, **told)
    if devices:
        publisher.offer({SERIAL: devices})
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()


async def current(publisher: Publisher, devices: Collection[Device]) -> None:
    """Offer devices, and wait until they are published."""
    publisher.offer({SERIAL: devices})
    await until(lambda: publisher.status.stale_since is None)


def name(device: Device) -> str:
    return device_name(SERIAL, device.id)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def test_devices_are_published_as_slices_that_the_node_owns(short_dir: Path) -> None:
    """D41, D52."""
    async with cluster(short_dir) as server, publishing(server, A, B) as publisher:
        await until(lambda: publisher.status.generation)
        (one,) = server.slices()
        node: Any = server.registry.get(NODES, "", NODE)
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Node", node["metadata"]["uid"], True)
        assert one["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        assert [*server.devices()] == [name(A), name(B)]
        assert server.devices()[name(A)]["attributes"] == {
            "resource": {"string": SERIAL},
            "model": {"string": "x"},
            "id": {"string": "a"},
        }
        assert (publisher.status.slices, publisher.status.devices) == (1, 2)
        assert publisher.status.stale_since is None


async def test_a_change_is_one_write_and_the_same_list_again_none(short_dir: Path) -> None:
    async with cluster(short_dir) as server, publishing(server, A) as publisher:
        await until(lambda: publisher.status.generation)
        await current(publisher, [A, B])
        await current(publisher, [Device("a", attributes={"model": "x"}), B])
        await current(publisher, [B])
        assert server.writes == ["POST", "PUT", "PUT"]


async def test_slices_of_other_nodes_and_drivers_are_left_alone(short_dir: Path) -> None:
    async with cluster(short_dir) as server:
        for number, (node, driver) in enumerate([("worker-1", DRIVER), (NODE, "other.example.com")]):
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
            server.registry.create(RESOURCE_SLICES, "", {"metadata": {"name": f"s{number}"}, "spec": spec})
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.generation)
            await current(publisher, [])
        kept = [one["metadata"]["name"] for node in ("worker-1", NODE) for one in server.slices(node)]
        assert sorted(kept) == ["s0", "s1"]


async def test_slices_that_a_kubelet_has_wiped_are_back(short_dir: Path) -> None:
    """D12: its start deletes all slices of the node. However often: there is no burst that is used up."""
    many = [Device(f"d{number}") for number in range(200)]
    async with cluster(short_dir) as server, publishing(server, *many) as publisher:
        await until(lambda: publisher.status.generation)
        for _ in range(7):
            before = {one["metadata"]["uid"] for one in server.slices()}
            server.wipe()
            await until(lambda: len(server.devices()) == 200)
            assert before.isdisjoint(one["metadata"]["uid"] for one in server.slices())
        await until(lambda: publisher.status.stale_since is None)


async def test_slices_that_go_one_by_one_while_they_are_made_again_are_all_back(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D12: a collection is deleted slice by slice; the answer to a creation may come after its deletion."""
    many = [Device(f"d{number}") for number in range(64 * 30)]
    async with cluster(short_dir) as server, publishing(server, *many) as publisher:
        await until(lambda: publisher.status.generation)
        left = [one["metadata"]["name"] for one in server.slices()]

        def delete_one() -> None:
            server.registry.delete(RESOURCE_SLICES, "", left.pop())
            if left:
                server.before_write = delete_one

        for _ in range(2 * WRITES_AT_ONCE):
            delete_one()
        await until(lambda: not left and len(server.devices()) == 64 * 30)
        await until(lambda: publisher.status.stale_since is None)
        assert errors(caplog) == []


async def test_slices_are_written_side_by_side_and_a_successor_goes_on_whichever_are_done(
    short_dir: Path,
) -> None:
    many = [Device(f"d{number}") for number in range(64 * 20)]
    async with cluster(short_dir) as server:
        server.permits = asyncio.Semaphore(5)
        async with publishing(server, *many):
            await until(lambda: len(server.slices()) == 5 and server.waiting == WRITES_AT_ONCE)
        assert {one["spec"]["pool"]["resourceSliceCount"] for one in server.slices()} == {20}
        server.permits = None
        async with publishing(server, *many) as successor:
            await until(lambda: successor.status.generation)
            assert len(server.devices()) == 64 * 20
            assert (successor.status.generation, successor.status.slices) == (1, 20)


async def test_a_slice_that_somebody_changed_is_put_right(short_dir: Path) -> None:
    async with cluster(short_dir) as server, publishing(server, A) as publisher:
        await until(lambda: publisher.status.generation)
        (one,) = server.slices()
        spec = {**one["spec"], "devices": []}
        server.registry.update(
            RESOURCE_SLICES, "", one["metadata"]["name"], lambda old: {**old, "spec": spec}
        )
        await until(lambda: [*server.devices()] == [name(A)])


async def test_an_unhealthy_device_has_a_taint_with_the_time_of_its_first_one(short_dir: Path) -> None:
    """D80: the API server would fill in a new time at each write that lacks one."""

    def taint() -> Any:
        (found,) = server.devices()[name(A)]["taints"]
        return found

    clock = [START]
    async with cluster(short_dir) as server:
        async with publishing(server, ILL, wall_clock=lambda: clock[0]) as publisher:
            await until(lambda: publisher.status.generation)
            assert taint() == {
                "key": "devplug.io/unhealthy",
                "effect": "NoSchedule",
                "value": "no-echo",
                "timeAdded": "2023-11-14T22:13:20Z",
            }
            clock[0] += 3600
            await current(publisher, [A.with_health(Health.unhealthy("still none"))])
            assert (taint()["value"], taint()["timeAdded"]) == ("still-none", "2023-11-14T22:13:20Z")
            server.wipe()
            await until(server.devices)
            assert taint()["timeAdded"] == "2023-11-14T22:13:20Z"
        async with publishing(server, ILL, B, wall_clock=lambda: clock[0]) as successor:
            await until(lambda: successor.status.generation)
            assert taint()["timeAdded"] == "2023-11-14T22:13:20Z"
            await current(successor, [A, B])
            assert "taints" not in server.devices()[name(A)]
            await current(successor, [ILL, B])
            assert taint()["timeAdded"] == "2023-11-14T23:13:20Z"


async def test_taints_can_end_pods(short_dir: Path) -> None:
    """D80: NoExecute."""
    async with cluster(short_dir) as server, publishing(server, ILL, evicting={SERIAL}) as publisher:
        await until(lambda: publisher.status.generation)
        assert server.devices()[name(A)]["taints"][0]["effect"] == "NoExecute"


async def test_an_api_server_that_is_away_costs_nothing_but_staleness(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(short_dir) as server, publishing(server, A) as publisher:
        await until(lambda: publisher.status.generation)
        await server.stop()
        publisher.offer({SERIAL: [A, B]})
        await until(lambda: publisher.status.error)
        assert publisher.status.stale_since == START
        assert publisher.status.generation == 1
        server.start()
        await until(lambda: publisher.status.stale_since is None)
        assert publisher.status.error == ""
        assert [*server.devices()] == [name(A), name(B)]
        reasons = [vars(one)["reason"] for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(set(reasons)) == len(reasons)


async def test_slices_stay_when_the_publisher_ends_and_until_its_successor_knows_its_devices(
    short_dir: Path,
) -> None:
    async with cluster(short_dir) as server:
        async with publishing(server, A, B) as publisher:
            await until(lambda: publisher.status.generation)
        async with publishing(server) as successor:
            await until(lambda: successor.status.version)
            assert [*server.devices()] == [name(A), name(B)]
            await current(successor, [A, B])
        assert server.writes == ["POST"]


async def test_a_write_that_comes_second_is_made_again_on_what_is_stored(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A 409 is nothing that people have to know of."""
    async with cluster(short_dir) as server, publishing(server, A) as publisher:
        await until(lambda: publisher.status.generation)

        def touch() -> None:
            (one,) = server.slices()
            metadata = {**one["metadata"], "labels": {"seen": "yes"}}
            server.registry.update(
                RESOURCE_SLICES, "", metadata["name"], lambda old: {**old, "metadata": metadata}
            )

        server.before_write = touch
        await current(publisher, [A, B])
        assert [*server.devices()] == [name(A), name(B)]
        assert errors(caplog) == []


async def test_a_slice_that_is_there_already_is_found(short_dir: Path) -> None:
    """As when the answer to its creation was lost."""
    async with cluster(short_dir) as server:
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.generation)
        (kept,) = server.slices()
        server.wipe()

        def put_back() -> None:
            metadata = {"name": kept["metadata"]["name"]}
            server.registry.create(RESOURCE_SLICES, "", {"metadata": metadata, "spec": kept["spec"]})

        server.before_write = put_back
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.generation)
            assert [*server.devices()] == [name(A)]


async def test_a_watch_that_is_too_old_begins_anew(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A 410: what was compacted away is listed again."""
    async with cluster(short_dir) as server:
        server.expired_watches = 1
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.generation and not server.expired_watches)
            await until(lambda: publisher.status.stale_since is None)
            server.wipe()
            await until(server.devices)
        assert errors(caplog) == []


async def test_a_watch_that_ends_goes_on_with_a_look_at_all(short_dir: Path) -> None:
    async with cluster(short_dir) as server, publishing(server, A, watch_seconds=0.05) as publisher:
        await until(lambda: publisher.status.generation)
        for _ in range(3):
            server.wipe()
            await until(server.devices)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_an_older_api_gets_its_own_form(short_dir: Path, version: str) -> None:
    async with cluster(short_dir) as server:
        server.version = version
        async with publishing(server, ILL, B) as publisher:
            await until(lambda: publisher.status.generation)
            assert publisher.status.version == version
            assert [*server.devices()] == [name(A), name(B)]
        assert server.writes == ["POST"]


async def test_an_api_server_without_dra_is_named(short_dir: Path) -> None:
    async with cluster(short_dir) as server:
        server.version = "none"
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.error)
            assert "DRA needs Kubernetes 1.32 or later" in publisher.status.error


async def test_where_taints_are_not_kept_an_unhealthy_device_is_not_published(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D49: fields of gates that are off vanish without a word, and the device would be given out."""
    async with cluster(short_dir) as server:
        server.dropped = ("taints",)
        async with publishing(server, ILL, B) as publisher:
            await until(lambda: publisher.status.generation and [*server.devices()] == [name(B)])
            await current(publisher, [A, B])
            assert {*server.devices()} == {name(A), name(B)}
            await current(publisher, [ILL, B])
            assert [*server.devices()] == [name(B)]
        (told,) = errors(caplog)
        assert "does not keep taints" in told


async def test_a_field_that_is_not_kept_is_named_once_and_not_written_again(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D49."""
    async with cluster(short_dir) as server:
        server.dropped = ("attributes",)
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.generation)
            await current(publisher, [A, B])
            assert server.writes == ["POST", "PUT"]
        (told,) = errors(caplog)
        assert "does not keep a field" in told


async def test_an_attribute_that_does_not_fit_is_named_once(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D45."""
    long = [Device(one, attributes={"model": "x" * 65}) for one in ("a", "b")]
    async with cluster(short_dir) as server, publishing(server, *long) as publisher:
        await until(lambda: publisher.status.generation)
    (told,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    text = "an attribute or a capacity is left out of slices"
    assert (told.getMessage(), vars(told)["attribute"]) == (text, "model")
    assert vars(told)["reason"] == "it is 65 bytes long; 64 fit"


async def test_a_node_that_is_not_there_is_named_with_what_to_set(short_dir: Path) -> None:
    async with cluster(short_dir) as server:
        server.registry.delete(NODES, "", NODE)
        async with publishing(server, A) as publisher:
            await until(lambda: publisher.status.error)
            assert "NODE_NAME" in publisher.status.error
            server.make_node(NODE)
            await until(lambda: publisher.status.generation)


async def test_slices_of_a_node_that_was_made_again_are_owned_by_the_new_one(short_dir: Path) -> None:
    """The collector of the old one's deletes them; with that owner they would be deleted again."""
    async with cluster(short_dir) as server, publishing(server, A) as publisher:
        await until(lambda: publisher.status.generation)
        server.registry.delete(NODES, "", NODE)
        made: Any = server.make_node(NODE)
        server.wipe()
        await until(server.slices)
        (one,) = server.slices()
        assert one["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_ten_thousand_devices_are_published_and_one_of_them_changed(short_dir: Path) -> None:
    many = [Device(f"d{number:05}") for number in range(10_000)]
    async with cluster(short_dir) as server, publishing(server, *many) as publisher:
        await until(lambda: publisher.status.generation)
        assert (publisher.status.slices, publisher.status.devices) == (157, 10_000)
        del server.writes[:]
        await current(publisher, [many[0].with_health(Health.unhealthy("hot")), *many[1:]])
        await current(publisher, many[:-1])
        assert server.writes == ["PUT", "PUT", "PUT"]
        assert len(server.devices()) == 9_999
