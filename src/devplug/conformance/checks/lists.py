"""The lists: what stands in them, device by device, whenever they come."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.conformance import rules
from devplug.conformance.runner import ARRIVAL
from devplug.conformance.streams import another_stream, clients_of, ids_of, last_client
from devplug.conformance.testbed import once
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devplug.conformance.testbed import TestBed
    from devplug.wire.values import AdvertisedDevice

NUMA_FOLDER = Path("/sys/devices/system/node")


# ── those that end the stream, so that no other check is made ──


def _came(bed: TestBed) -> list[Sequence[AdvertisedDevice]]:
    """Return the lists that came from the plugin on the kubelet's streams."""
    return [devices for client in clients_of(bed) for _, devices in client.lists]


def _judge(
    lists: Sequence[Sequence[AdvertisedDevice]], faults_of: Callable[[Sequence[AdvertisedDevice]], list[str]]
) -> None:
    """Raise `FailedError` for the first list that has faults, `SkippedError` if no device was in any."""
    if not any(lists):
        raise SkippedError("no devices were listed")
    for devices in lists:
        if faults := faults_of(devices):
            raise FailedError(rules.summary(faults))


@check(
    "STR03",
    MUST,
    "Every device has an ID, and it is UTF-8.",
    why="a list with bytes that are not UTF-8 ends the stream, so no device is left; "
    "a pod that gets an empty ID gets no device",
    change="make IDs of what identifies the hardware, and replace or encode bytes that are no text",
    source="v1beta1 api.proto, Device.ID: a string of proto3 is UTF-8",
    lane=ARRIVAL,
    harmless=True,
)
async def ids_are_text(bed: TestBed) -> None:
    """Look at the lists that came, and at how a stream ended if one did."""
    last_client(bed)
    for client in clients_of(bed):
        if rules.is_undecodable(client.end_reason):
            raise FailedError(
                f"a list could not be read, as IDs of other bytes than UTF-8: {client.end_reason}"
            )
    _judge(_came(bed), rules.empty_id_faults)


@check(
    "STR10",
    MUST,
    "The list fits into the kubelet's message limit, even when all devices are Unhealthy.",
    why="a message over 4 MiB ends the stream, all devices become Unhealthy, and no other stream is opened",
    change="offer fewer or larger units, make IDs shorter, or divide the devices between two resources",
    source="kubernetes/kubernetes#109304 (4 MiB); Project-HAMi/volcano-vgpu-device-plugin#99",
    lane=ARRIVAL,
    harmless=True,
)
async def list_fits(bed: TestBed) -> str:
    """Compute the size of each list that came if every device were Unhealthy; read why a stream ended."""
    last_client(bed)
    for client in clients_of(bed):
        if rules.is_too_large(client.end_reason):
            raise FailedError(f"a list was larger than the kubelet takes: {client.end_reason}")
    lists = _came(bed)
    _judge(lists, rules.size_faults)
    return f"{max(map(rules.largest_size_bytes, lists)):,} bytes"


# ── what the lists of two streams hold ──


async def _seen_twice(bed: TestBed) -> Sequence[tuple[frozenset[str], Sequence[Sequence[AdvertisedDevice]]]]:
    """Open a second stream; return the IDs that the last lists of both hold, and all lists of each."""
    first = bed.client
    async with another_stream(bed, first) as second:
        if second.lists:  # a change may be on its way to one of them
            await bed.kubelet.until(lambda: ids_of(first) == ids_of(second), bed.times.settle_seconds)
        return [(ids_of(stream), [devices for _, devices in stream.lists]) for stream in (first, second)]


async def _judge_all(bed: TestBed, faults_of: Callable[[Sequence[AdvertisedDevice]], list[str]]) -> None:
    seen = await once(bed, _seen_twice)
    _judge([*_came(bed), *seen[-1][1]], faults_of)


@check(
    "STR04",
    MUST,
    "No ID appears twice in a list.",
    why="the kubelet keeps the last one; an ID listed both as Healthy and as Unhealthy is counted twice",
    change="make the IDs of different devices different, and list each device once",
    source="manager.go, genericDeviceUpdateCallback",
    harmless=True,
)
async def no_duplicates(bed: TestBed) -> None:
    """Look for equal IDs in each list that came, on the kubelet's stream and on a second one."""
    await _judge_all(bed, rules.duplicate_faults)


@check(
    "STR05",
    MUST,
    "The health of a device is spelt Healthy or Unhealthy.",
    why="every other word counts as unhealthy, also in lower case, so no pod ever gets the device",
    change="send the constants of the API, Healthy and Unhealthy; map what a library says onto them",
    source="v1beta1 constants.go; manager.go compares byte for byte",
    harmless=True,
)
async def health_words(bed: TestBed) -> None:
    """Look at the health of each device in each list that came, on the kubelet's and on a second stream."""
    await _judge_all(bed, rules.health_faults)


@check(
    "STR06",
    SHOULD,
    "An ID has at most 63 bytes.",
    why="the API documents this limit for programs that store or show IDs; the kubelet does not check it",
    change="shorten long IDs: a readable part and a hash of the whole",
    source="v1beta1 api.proto, Device.ID",
    harmless=True,
)
async def short_ids(bed: TestBed) -> None:
    """Measure the IDs in each list that came, on the kubelet's stream and on a second one."""
    await _judge_all(bed, rules.long_id_faults)


@check(
    "STR08",
    MUST,
    "The NUMA nodes of a device are numbers that a node can have.",
    why="the kubelet takes -1 for the number of a node: no topology hint fits the device, and a strict "
    "policy refuses its pods",
    change="leave the topology out when sysfs says -1 or nothing",
    source="topology_hints.go drops what the machine has not; ROCm/k8s-device-plugin, plugin.go",
    harmless=True,
)
async def numa_numbers(bed: TestBed) -> None:
    """Look at the topology of each device in each list that came; 0 to 1023 are possible in Linux."""
    await _judge_all(bed, rules.numa_faults)


@check(
    "STR09",
    SHOULD,
    "A device without a known NUMA node has no topology message.",
    why="kubelets crashed on such a message, and PodResources still leaves such devices out",
    change="set the topology only when there is a node to put into it; else leave it unset",
    source="kubernetes/kubernetes#96553; container_manager.go, GetAllocatableDevices",
    harmless=True,
)
async def no_empty_topology(bed: TestBed) -> None:
    """Look for topology messages without nodes in each list that came."""
    await _judge_all(bed, rules.empty_topology_faults)


@check(
    "STR12",
    MUST,
    "Every stream lists the same devices by the same IDs.",
    why="pods hold devices by ID: after a restart of the kubelet it would not know their IDs, and would "
    "give the same hardware to others under new ones",
    change="make IDs of what identifies the hardware (serial number, bus address), "
    "never of a counter, the time or chance",
    source="manager.go, the checkpoint holds IDs; test/e2e_node/device_plugin_test.go, kubelet restart",
    harmless=True,
)
async def same_devices(bed: TestBed) -> None:
    """Open a second stream and compare the IDs on it with those that the kubelet got."""
    (first, _), (second, lists) = await once(bed, _seen_twice)
    if not lists:
        raise SkippedError("a second stream got no list (STR11)")
    if first != second:
        odd = sorted(map(quoted, first ^ second))
        raise FailedError(f"of two streams only one lists {', '.join(odd[:3])}, {len(odd)} IDs in all")


@check(
    "STR15",
    SHOULD,
    "IDs are printable ASCII, without a space, a comma or an equals sign.",
    why="IDs end up in environment variables as lists, in file names and in logs",
    change="replace other characters in IDs, and add a hash where two could become the same",
    source="NVIDIA_VISIBLE_DEVICES and its kind are comma lists",
    harmless=True,
)
async def plain_ids(bed: TestBed) -> None:
    """Look at the characters of the IDs in each list that came."""
    await _judge_all(bed, rules.awkward_id_faults)


@check(
    "STR16",
    SHOULD,
    "The NUMA nodes of devices are nodes of this machine.",
    why="the kubelet ignores nodes that the machine does not have, so it cannot align the device",
    change="read numa_node of the device in sysfs; leave it out where the machine has no such node",
    source="topology_hints.go, unknown NUMA nodes; kubernetes/kubernetes#138244",
    harmless=True,
)
async def numa_nodes_exist(bed: TestBed) -> None:
    """Compare the NUMA nodes in each list that came with those in /sys/devices/system/node."""
    present = _numa_nodes(NUMA_FOLDER)
    if not present:
        raise SkippedError(f"this machine has no nodes in {NUMA_FOLDER}")
    await once(bed, _seen_twice)
    if not any(device.numa_nodes for devices in _came(bed) for device in devices):
        raise SkippedError("no device has a NUMA node")
    await _judge_all(bed, lambda devices: rules.absent_numa_faults(devices, present))


def _numa_nodes(folder: Path) -> frozenset[int]:
    if not folder.is_dir():
        return frozenset()
    names = (re.fullmatch(r"node([0-9]+)", entry.name) for entry in folder.iterdir())
    return frozenset(int(name[1]) for name in names if name)
