"""Devices that come and go, by two commands of the user: what becomes of their slices and their claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.conformance.dra.slice_rules import Device
    from devplug.conformance.dra.testbed import DriverBed

LANE = "change"


async def _unplug(bed: DriverBed) -> tuple[Sequence[Device], Sequence[Device]]:
    """Take a device away; return the devices before, and those of them that claims can get no more."""
    subject = bed.test_run.subject
    if not subject.unplug or not subject.replug:
        raise SkippedError("give --unplug and --replug, commands that take a device away and bring it back")
    before = bed.free(max(1, bed.free_count))
    await bed.run(subject.unplug)
    await bed.kubelet.until(lambda: bed.free_count < len(before), bed.times.change_seconds)
    left = {one.name for one in bed.devices() if not one.is_tainted}
    return before, [one for one in before if one.name not in left]


async def _replug(bed: DriverBed, before: Sequence[Device]) -> bool:
    """Bring it back; return whether all devices are as they were before."""
    await bed.run(bed.test_run.subject.replug)
    return await bed.kubelet.until(lambda: {*before} <= {*bed.devices()}, bed.times.change_seconds)


@check(
    "DRA35",
    MUST,
    "A device that is unplugged leaves its slice, or gets a taint.",
    why="claims get it, their pods never start, and the scheduler takes it again for the next",
    change="watch the hardware; write the slice without the device, or with a taint of effect NoSchedule",
    source="google/dranet#155; resource.k8s.io/v1 types.go, DeviceTaint",
    lane=LANE,
    alone=True,
    quick=False,
)
async def withdraws_unplugged_devices(bed: DriverBed) -> str:
    """Unplug a device and wait until no claim could get it; plug it in again."""
    before, gone = await _unplug(bed)
    await _replug(bed, before)
    if not gone:
        raise FailedError(f"after {bed.times.change_seconds:g} s all {len(before)} devices can be allocated")
    return ", ".join(one.name for one in gone)


@check(
    "DRA36",
    SHOULD,
    "A device that is plugged in again can be allocated by its old name.",
    why="the device is lost until the driver restarts, and claims by its attributes stay pending",
    change="take the taint away, and derive the name from what the hardware is",
    source="NVIDIA/k8s-dra-driver-gpu#904",
    lane=LANE,
    alone=True,
    quick=False,
)
async def takes_devices_back(bed: DriverBed) -> None:
    """Unplug a device, plug it in again, and compare the devices with those before."""
    before, gone = await _unplug(bed)
    is_back = await _replug(bed, before)
    if not gone:
        raise SkippedError("the device did not go (DRA35)")
    if not is_back:
        raise FailedError(f"{gone[0].name} is not back after {bed.times.change_seconds:g} s")


@check(
    "DRA37",
    MUST,
    "A claim whose device is unplugged is unprepared without an error.",
    why="its pod stays Terminating for ever, as the device does not come back for it",
    change="forget the claim and its file, whatever becomes of the device; log what could not be cleaned",
    source="pkg/kubelet/cm/dra/manager.go (unprepareResources); google/dranet#33",
    lane=LANE,
    alone=True,
    quick=False,
)
async def unprepares_without_the_device(bed: DriverBed) -> None:
    """Have a claim of each device prepared, unplug one, and unprepare all of them."""
    claims = [bed.allocate(device) for device in bed.free(max(1, bed.free_count))]
    defined = {*bed.cdi.defined()}
    for claim in claims:
        await bed.prepare(claim)
    before, gone = await _unplug(bed)
    try:
        for claim in claims:
            await bed.unprepare(claim, after="with its device unplugged" if gone else "")
        if left := sorted({*bed.cdi.defined()} - defined):
            raise FailedError(f"{left[0]} is still defined")
    finally:
        await _replug(bed, before)
