"""Devices that are parts of one thing: what is published of them, and what claims get side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import Device, Health, Partition, PluginError
from devplug.daemon.sources.nvidia_gpu import Gpu, MigInstance, partition_of
from devplug.dra.allocations import Allocations
from devplug.dra.objects import Slice
from devplug.driver.device_entries import device_name
from devplug.k8s.node_selectors import Node
from tests.dra.worlds import Small, claim, request
from tests.driver.apiserver import NODE, Cluster, cluster
from tests.driver.test_publisher import DRIVER, SERIAL, current, errors, publishing
from tests.waiting import until

GIB = 2**30
WHOLE = {"memory": 80 * GIB, "compute-slices": 7}


ANY = claim(request(device_class="any"))


def part(name: str, gibibytes: int, slices: int) -> Device:
    takes = {"memory": gibibytes * GIB, "compute-slices": slices}
    return Device(name, partition=Partition("gpu-0", takes, WHOLE))


GPU = part("gpu", 80, 7)
LARGE, SMALL = part("large", 40, 4), part("small", 10, 1)


def given_besides(server: Cluster, *in_use: Device) -> set[str]:
    """The devices that a claim may get while others have these, as the scheduler of 1.36 decides."""
    names = {one.id: device_name(SERIAL, one.id) for one in (GPU, LARGE, SMALL)}
    used = {names[one.id] for one in in_use}
    results = [{"driver": DRIVER, "pool": NODE, "device": name} for name in used]
    allocations = Allocations([{"devices": {"results": results}}])
    return {
        id_
        for id_, name in names.items()
        if Small(only(server, {name, *used}), allocations).devices(ANY, node=Node(NODE, {})) is not None
    }


def only(server: Cluster, names: set[str]) -> tuple[Slice, ...]:
    """The slices, without devices of other names."""
    found = []
    for one in server.slices():
        devices = [each for each in one["spec"].get("devices", []) if each["name"] in names]
        found.append(Slice.of({**one, "spec": {**one["spec"], "devices": devices}}))
    return tuple(found)


async def test_a_whole_and_its_parts_are_never_both_given(short_dir: Path) -> None:
    """D85: also if they are devices of different resources, as a GPU and its instances are."""
    async with cluster(short_dir) as server, publishing(server, GPU, LARGE, SMALL) as publisher:
        await until(lambda: publisher.status.generation)
        assert given_besides(server) == {"gpu", "large", "small"}
        assert given_besides(server, LARGE) == {"small"}
        assert given_besides(server, GPU) == set()
        await current(publisher, [GPU, LARGE.with_health(Health.unhealthy("unplugged"))])
        assert given_besides(server, LARGE) == set(), "it stays in the slice as long as a claim has it"
        await current(publisher, [GPU])
        assert given_besides(server) == {"gpu"}


async def test_what_only_one_device_is_a_part_of_has_no_counters(short_dir: Path) -> None:
    """They would limit nobody, and a node of eight GPUs that are used whole would have a slice more."""
    async with cluster(short_dir) as server, publishing(server, GPU) as publisher:
        await until(lambda: publisher.status.generation)
        assert [one["spec"].get("sharedCounters") for one in server.slices()] == [None]
        await current(publisher, [GPU, SMALL])
        (counters,) = [
            one["spec"]["sharedCounters"] for one in server.slices() if "sharedCounters" in one["spec"]
        ]
        assert counters[0]["counters"] == {"compute-slices": {"value": "7"}, "memory": {"value": "80Gi"}}


async def test_the_next_driver_finds_counters_as_it_would_write_them(short_dir: Path) -> None:
    async with cluster(short_dir) as server:
        for _ in range(2):
            async with publishing(server, GPU, SMALL) as publisher:
                await until(lambda: publisher.status.generation)
        assert server.writes == ["POST"] * 4, "a question, two slices, a question"


async def test_where_the_api_server_does_not_know_counters_that_is_said(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D49: a slice of counters alone would have nothing in it."""
    async with cluster(short_dir) as server:
        server.dropped = ("consumesCounters",)
        async with publishing(server, GPU, SMALL) as publisher:
            await until(lambda: publisher.status.generation)
            assert publisher.status.slices == 1
        (told,) = errors(caplog)
        assert "parts are published without what they exclude" in told
        assert any(getattr(one, "feature_gate", "") == "DRAPartitionableDevices" for one in caplog.records)


@pytest.mark.parametrize(
    ("takes", "whole", "fault"),
    [
        ({"memory": 2}, {"memory": 1}, "of which there is less"),
        ({"other": 1}, {"memory": 1}, 'counter "other", of which there is less'),
        ({}, {}, "1 to 32 counters"),
        ({}, {"Memory": 1}, "no DNS label"),
        ({}, {"memory": -1}, "whole number"),
    ],
)
def test_a_partition_that_cannot_be_is_refused(
    takes: dict[str, int], whole: dict[str, int], fault: str
) -> None:
    with pytest.raises(PluginError, match=fault):
        Partition("gpu-0", takes, whole)


# ── MIG ──

MIB = 2**20
A100 = Gpu("GPU-1", "0000:3b:00.0", memory_bytes=81920 * MIB, mig_slices=7)


def instance(memory_mib: int, gpu_slices: int, compute_slices: int) -> MigInstance:
    return MigInstance("MIG-1", "p", 1, 0, memory_mib * MIB, gpu_slices, compute_slices)


LAYOUTS = [
    [(9728, 1)] * 7,
    [(40192, 4), (40192, 3)],
    [(19968, 2), (19968, 2), (19968, 2), (9728, 1)],
    [(80896, 7)],
]
"""Instances that exist side by side on such a GPU: memory in MiB and slices (NVIDIA's MIG user guide)."""


@given(st.sampled_from(LAYOUTS), st.data())
def test_instances_that_exist_side_by_side_never_take_more_than_their_gpu_has(
    layout: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Also when a GPU instance is divided once more: its compute instances share its memory."""
    takes = []
    for memory_mib, slices in layout:
        own = data.draw(st.sampled_from([1, slices]))
        found = [partition_of(A100, instance(memory_mib, slices, own)) for _ in range(slices // own)]
        takes += [one.takes for one in found if one is not None]
    whole = partition_of(A100, None)
    assert whole is not None
    assert whole.takes == whole.whole
    for name, amount in whole.whole.items():
        assert sum(one[name] for one in takes) <= amount


def test_of_what_the_driver_does_not_say_there_is_no_partition() -> None:
    assert partition_of(Gpu("GPU-1", "0000:3b:00.0"), None) is None
    assert partition_of(A100, MigInstance("MIG-1", "1g.10gb", 1, 0)) is None
