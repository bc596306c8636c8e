"""ResourceSlices: what is published, that it is whole, and that it comes back."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.dra.slice_rules import (
    count_faults,
    duplicate_faults,
    has_devices_of,
    is_of_node,
    moved_taints,
    owner_faults,
    taint_times,
)
from devplug.conformance.dra.testbed import NODE
from devplug.conformance.rules import summary
from devplug.conformance.runner import ARRIVAL
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check
from devplug.k8s.objects import Object, entries, fields, part, text, with_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.conformance.dra.testbed import DriverBed, DriverRun

_SLICES: Final = "/resourceslices"
_BAD_REQUEST: Final = 400
_CONFLICT: Final = 409
_GONE: Final = 410
_DROPPED: Final = ("taints", "allowMultipleAllocations", "consumesCounters")
_WRITES_LEFT: Final = 2
"""One more try may be on its way when the judge begins to look."""


def writes_since(bed: DriverBed, moment: float) -> Sequence[str]:
    """Return the writes of slices from `moment` on, as method and status."""
    return [f"{one.method} {one.code}" for one in bed.slice_writes(moment)]


def _published(bed: DriverBed) -> Sequence[Object]:
    slices = bed.slices()
    if not slices:
        raise SkippedError("nothing is published (DRA20)")
    return slices


@check(
    "DRA20",
    MUST,
    "A driver publishes the devices of its node as ResourceSlices, by the name with which it registers.",
    why="the scheduler knows no other devices, and the kubelet calls the driver that the slices name",
    change="create slices with spec.driver as in GetInfo, at the start and without being asked",
    source="resource.k8s.io/v1 types.go, ResourceSlice",
    lane=ARRIVAL,
)
async def publishes_slices(bed: DriverBed) -> str:
    """Wait for slices with devices at an API server that has the node and nothing else."""
    if bed.devices():
        return f"{len(bed.devices())} devices in {len(bed.slices())} slices"
    others = sorted({text(one, "spec", "driver") for one in bed.api.slices()})
    if others:
        raise FailedError(f"there are only slices of {', '.join(others)}, and GetInfo says {bed.driver}")
    _ = bed.driver
    refused = [f"{one.method} {one.path}: {one.code}" for one in bed.api.requests if one.code >= _BAD_REQUEST]
    words = f"; the last refused request was {refused[-1]}" if refused else ""
    raise FailedError(f"no slice with devices came within {bed.times.start_seconds:g} s{words}{bed.fate()}")


@check(
    "DRA21",
    MUST,
    "The slices of local devices are bound to the node by spec.nodeName.",
    why="slices without it are never removed when the driver is gone, and a pod elsewhere may get the device",
    change="set spec.nodeName to NODE_NAME",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (DeleteCollection by spec.nodeName)",
    lane=ARRIVAL,
)
async def names_its_node(bed: DriverBed) -> None:
    """Look at spec.nodeName of each slice."""
    for one in _published(bed):
        if not is_of_node(one, NODE):
            raise FailedError(
                f"spec.nodeName is {text(one, 'spec', 'nodeName') or 'absent'}, the node is {NODE}"
            )


@check(
    "DRA22",
    MUST,
    "A pool has as many slices of its newest generation as resourceSliceCount says.",
    why="the scheduler does not touch a pool that is not complete, so pods stay pending",
    change="set pool.generation and pool.resourceSliceCount alike in all slices of a pool",
    source="structured/internal/incubating/pools_incubating.go",
    lane=ARRIVAL,
)
async def has_complete_pools(bed: DriverBed) -> None:
    """Wait a moment for the last slice, then count."""
    slices = _published(bed)
    await bed.kubelet.until(lambda: not count_faults(bed.slices()), bed.times.republish_limit_seconds)
    slices = bed.slices() or slices
    if faults := count_faults(slices):
        raise FailedError(summary(faults))


@check(
    "DRA23",
    MUST,
    "Device names are unique in a pool.",
    why="the scheduler takes the pool for invalid and uses none of its devices",
    change="give each device of a pool a name of its own",
    source="structured/internal/incubating/pools_incubating.go (checkSlicesInPool)",
    lane=ARRIVAL,
)
async def names_devices_once(bed: DriverBed) -> None:
    """Compare the names in all slices of each pool; the API server sees only one slice at a time."""
    if faults := duplicate_faults(_published(bed)):
        raise FailedError(summary(faults))


@check(
    "DRA24",
    SHOULD,
    "Slices have the node as owner.",
    why="slices of a node that is deleted stay, and the scheduler keeps offering its devices",
    change="set an owner reference to the Node, with its UID",
    source="resourceslice/resourceslicecontroller.go",
    lane=ARRIVAL,
)
async def has_the_node_as_owner(bed: DriverBed) -> None:
    """Look at metadata.ownerReferences."""
    if faults := owner_faults(_published(bed), NODE):
        raise FailedError(summary(faults))


@check(
    "DRA25",
    MUST,
    "No slice is refused by the API server.",
    why="devices that are in a refused slice do not exist for the scheduler, and nobody is told",
    change="change what the API server's answer names; the limits are 128 devices a slice, 64 with taints, "
    "DNS labels as names, and texts of 64 bytes",
    source="pkg/apis/resource/validation/validation.go; resource.k8s.io/v1 types.go",
    lane="written slices",
)
async def writes_valid_slices(bed: DriverBed) -> None:
    """Look at the answers to all writes of slices, and have them written once more."""
    bed.wipe()
    await bed.kubelet.until(lambda: bool(bed.devices()), bed.times.slices_seconds)
    refused = [
        f"{one.method}: {one.code}"
        for one in bed.api.requests
        if one.method in {"POST", "PUT", "PATCH"} and _SLICES in one.path and one.code in {_BAD_REQUEST, 422}
    ]
    if refused:
        raise FailedError(f"{len(refused)} writes were refused, the first {refused[0]}")


@check(
    "DRA26",
    SHOULD,
    "Slices are not written where nothing changes.",
    why="every write is sent to all schedulers and controllers that watch slices, of every node",
    change="compare with what is there, and write only what differs",
    source="resourceslice/resourceslicecontroller.go",
    lane="silence",
    quick=False,
)
async def is_silent(bed: DriverBed) -> None:
    """Watch the requests while nothing happens."""
    await bed.wait_published()
    begun = time.monotonic()
    await asyncio.sleep(bed.times.silence_seconds)
    if writes := writes_since(bed, begun):
        raise FailedError(
            f"within {bed.times.silence_seconds:g} s came {len(writes)} writes, first {writes[0]}"
        )


async def _back(bed: DriverBed, before: Sequence[Object], what: str) -> str:
    """Wait until the slices say what they did before. Raises `FailedError`."""
    begun = time.monotonic()
    limit = bed.times.slices_seconds
    if not await bed.kubelet.until(lambda: has_devices_of(bed.slices(), before), limit):
        raise FailedError(
            f"{limit:g} s after {what} {len(bed.devices())} devices are published, and they are not the ones "
            "that were published before"
        )
    bed.republished_seconds = time.monotonic() - begun
    return f"{1000 * bed.republished_seconds:.0f} ms"


@check(
    "DRA27",
    MUST,
    "Slices that are deleted while the driver runs are published again within 65 s.",
    why="the kubelet deletes them at its start, and when it lost the driver for 30 s",
    change="watch the node's slices, and create what is missing",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go; NVIDIA/k8s-dra-driver-gpu#330",
    lane="slices",
)
async def publishes_again(bed: DriverBed) -> str:
    """Delete the node's slices as the kubelet does, and wait until all devices are back."""
    before = _published(bed)
    bed.wipe()
    return await _back(bed, before, "the deletion")


@check(
    "DRA38",
    SHOULD,
    "Deleted slices are published again within 5 s.",
    why="until then the scheduler finds no device on the node, after each start of the kubelet",
    change="write at the watch's event; with upstream's helper set Controller.SyncDelay below its 30 s",
    source="resourceslice/resourceslicecontroller.go (DefaultSyncDelay, DefaultMutationCacheTTL)",
    lane="slices",
    quick=False,
)
async def publishes_again_soon(bed: DriverBed) -> str:
    """Take the time of the deletion before, or delete the node's slices, and compare it with 5 s."""
    seconds = bed.republished_seconds
    if seconds is None:
        before = _published(bed)
        bed.wipe()
        try:
            await _back(bed, before, "the deletion")
        except FailedError as error:
            raise SkippedError(f"{error} (DRA27)") from error
        seconds = bed.republished_seconds or 0.0
    if seconds > bed.times.republish_limit_seconds:
        raise FailedError(f"it took {seconds:.1f} s")
    return f"{1000 * seconds:.0f} ms"


@check(
    "DRA28",
    SHOULD,
    "A slice that somebody else has changed is put right.",
    why="devices stay lost, or wrong, until the driver restarts",
    change="compare what is watched with what should be there",
    source="resourceslice/resourceslicecontroller.go",
    lane="changed slices",
)
async def mends_changed_slices(bed: DriverBed) -> str:
    """Let the driver come to rest, take the devices out of a slice, and wait until they are back."""
    before = _published(bed)
    await asyncio.sleep(bed.times.settle_seconds)
    name = text(before[0], "metadata", "name")
    bed.api.replace("ResourceSlice", name, lambda old: with_part(old, [], "spec", "devices"))
    return await _back(bed, before, "the change")


@check(
    "DRA29",
    SHOULD,
    "timeAdded of a taint stays when slices are published again.",
    why="the API server fills in the time of the write, so tolerationSeconds start again at each wipe",
    change="remember when each taint was added, and write it",
    source="pkg/apis/resource/v1/defaults.go; pkg/controller/devicetainteviction",
    lane="slices",
)
async def keeps_the_time_of_taints(bed: DriverBed) -> None:
    """Set the clock of each taint back by a change of the slices' devices, as time would; wipe; compare."""
    before = taint_times(_published(bed))
    if not before:
        raise SkippedError("no device has a taint")
    kept = _published(bed)
    await asyncio.sleep(bed.times.clock_seconds)
    bed.wipe()
    await _back(bed, kept, "the deletion")
    if faults := moved_taints(before, taint_times(bed.slices())):
        raise FailedError(faults[0])


@check(
    "DRA30",
    MUST,
    "Slices of other drivers and of other nodes are left alone.",
    why="a driver that removes them takes the devices of others away",
    change="select by spec.driver and spec.nodeName, in lists, watches and deletions",
    source="resource.k8s.io/v1 types.go, field selectors of ResourceSlice",
    fresh=True,
)
async def leaves_others_alone(run: DriverRun) -> None:
    """Have slices of another driver and of another node when the driver starts, and look what is left."""
    async with run.bed(launch=False) as bed:
        others = [
            bed.api.create("ResourceSlice", _slice("of-another-driver", "other.example.com", NODE)),
            bed.api.create("ResourceSlice", _slice("of-another-node", _known(run), "another-node")),
        ]
        await bed.launch()
        await bed.wait_ready(bed.times.start_seconds)
        bed.wipe()
        await bed.kubelet.until(lambda: bool(bed.devices()), bed.times.slices_seconds)
        await asyncio.sleep(bed.times.settle_seconds)
        left = {text(one, "metadata", "name"): fields(one, "spec") for one in bed.api.slices()}
        for one in others:
            if left.get(text(one, "metadata", "name")) != fields(one, "spec"):
                raise FailedError(f"the slice {text(one, 'metadata', 'name')} was changed or removed")


@check(
    "DRA31",
    SHOULD,
    "Slices of the driver's earlier life are removed.",
    why="devices that are gone stay allocatable, and claims that get them never start",
    change="at the start list the node's slices of the driver, and delete what should not be there",
    source="resourceslice/resourceslicecontroller.go; google/dranet#155",
    fresh=True,
)
async def removes_stale_slices(run: DriverRun) -> None:
    """Have a slice of the driver, the node and a pool of old when the driver starts, and wait for its end."""
    async with run.bed(launch=False) as bed:
        stale = bed.api.create("ResourceSlice", _slice("stale", _known(run), NODE))
        await bed.launch()
        await bed.wait_ready(bed.times.start_seconds)

        def is_gone() -> bool:
            uids = [text(one, "metadata", "uid") for one in bed.slices() if entries(one, "spec", "devices")]
            pools = {device.name for device in bed.devices()}
            return text(stale, "metadata", "uid") not in uids or "gone-device" not in pools

        if not await bed.kubelet.until(is_gone, bed.times.slices_seconds):
            raise FailedError(f"it is still there {bed.times.slices_seconds:g} s after the start")


def _known(run: DriverRun) -> str:
    if not run.driver:
        raise SkippedError("no driver was found (DRA01)")
    return run.driver


def _slice(name: str, driver: str, node_name: str) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": "old-pool", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gone-device"}],
        },
    }


@check(
    "DRA34",
    MUST,
    "Fields that the API server drops are not written again and again.",
    why="an older server, or one with a gate off, takes slices without them; each write wakes all schedulers",
    change="compare with what the server answered to the last write, and log once what it has dropped",
    source="kubernetes/kubernetes#130856; resourceslice/resourceslicecontroller.go (DroppedFieldsError)",
    lane="dropped fields",
    quick=False,
)
async def bears_dropped_fields(bed: DriverBed) -> None:
    """Wipe the slices where the server drops taints and shares of devices; then watch the writes."""
    published = [device for one in _published(bed) for device in entries(one, "spec", "devices")]
    if not any(part(one, field) for one in published for field in _DROPPED):
        raise SkippedError(f"no device has one of {', '.join(_DROPPED)}")
    bed.api.dropped = _DROPPED
    bed.wipe()
    if not await bed.kubelet.until(lambda: bool(bed.devices()), bed.times.slices_seconds):
        raise FailedError("nothing is published at an API server that drops fields")
    await asyncio.sleep(bed.times.settle_seconds)
    begun = time.monotonic()
    await asyncio.sleep(bed.times.silence_seconds)
    if (count := len(writes_since(bed, begun))) > _WRITES_LEFT:
        raise FailedError(f"within {bed.times.silence_seconds:g} s came {count} writes")
