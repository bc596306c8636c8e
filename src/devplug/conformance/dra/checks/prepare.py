"""NodePrepareResources: what is answered for claims, right and wrong ones."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from devplug.conformance.dra.claims import result_of
from devplug.conformance.dra.slice_rules import Device
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check
from devplug.errors import RemoteError
from devplug.wire.dra import ClaimName

if TYPE_CHECKING:
    from devplug.conformance.dra.testbed import DriverBed
    from devplug.wire.dra import PreparedClaim

LANE = "claims"


def _names(answer: PreparedClaim) -> list[tuple[str, str]]:
    return sorted((one.pool_name, one.device_name) for one in answer.devices)


@check(
    "DRA40",
    MUST,
    "A claim is answered with the devices that are allocated to it.",
    why="the kubelet gives the CDI devices of the answer to the containers, and no others",
    change="read status.allocation.devices.results, and answer pool and device of each result",
    source="pkg/kubelet/apis/dra/v1/api.proto, Device",
    lane=LANE,
)
async def prepares_a_claim(bed: DriverBed) -> str:
    """Allocate up to two devices to a claim and have it prepared."""
    devices = bed.free(min(2, max(1, bed.free_count)))
    answer = await bed.prepare(bed.allocate(*devices))
    expected = sorted((one.pool, one.name) for one in devices)
    if _names(answer) != expected:
        raise FailedError(f"allocated is {expected}, answered {_names(answer)}")
    return f"{len(devices)} devices"


@check(
    "DRA41",
    MUST,
    "Results of other drivers in a claim are left to them.",
    why="two drivers prepare one device, or the claim is refused for a device that is none of the driver's",
    change="filter the results by the driver's name",
    source="resource.k8s.io/v1 types.go, DeviceRequestAllocationResult.driver",
    lane=LANE,
)
async def leaves_others_results(bed: DriverBed) -> None:
    """Allocate a device of another driver to the same claim."""
    (device,) = bed.free()
    other = result_of(Device(device.pool, "others-device"), "other.example.com", "other")
    answer = await bed.prepare(bed.allocate(device, more=(other,)))
    if _names(answer) != [(device.pool, device.name)]:
        raise FailedError(f"answered is {_names(answer)}, the driver's own is {device.name}")


@check(
    "DRA42",
    MUST,
    "The answer names the top-level request of each device.",
    why="a container that names a request gets the devices of that exact name; with another it runs without",
    change="cut what follows the slash in a result's request, as in `req/sub`",
    source="pkg/kubelet/cm/dra/claiminfo.go (cdiDevicesAsList); kubeletplugin/draplugin.go",
    lane=LANE,
)
async def names_the_request(bed: DriverBed) -> None:
    """Allocate a device for an alternative of a request, and look at request_names."""
    answer = await bed.prepare(bed.allocate(*bed.free(), request="req/small"))
    for one in answer.devices:
        if one.request_names not in {("req",), ()}:
            raise FailedError(f"request_names is {list(one.request_names)}, the request is req")


@check(
    "DRA43",
    MUST,
    "The share ID of a result is in the answer.",
    why="pod-resources and whoever reads it cannot tell the shares of one device apart",
    change="copy shareID of the result to share_id, in v1",
    source="pkg/kubelet/apis/dra/v1/api.proto, Device.share_id",
    lane=LANE,
)
async def passes_share_ids_on(bed: DriverBed) -> None:
    """Allocate a device that claims share, with a share ID."""
    shared = [one for one in bed.devices() if one.is_shared and not one.is_tainted]
    if not shared or bed.registration.version == "v1beta1.DRAPlugin":
        raise SkippedError("no device has allowMultipleAllocations, or the kubelet uses v1beta1")
    share_id = str(uuid.uuid4())
    answer = await bed.prepare(bed.allocate(shared[0], share_id=share_id))
    if [one.share_id for one in answer.devices] != [share_id]:
        raise FailedError(f"share_id is {[one.share_id for one in answer.devices]}, allocated is {share_id}")


@check(
    "DRA44",
    MUST,
    "A claim that is prepared again gets the same answer.",
    why="the kubelet asks again after every error, timeout and restart, also while containers run",
    change="answer a prepare of the same claim with the same devices, from memory or from its allocation",
    source="pkg/kubelet/cm/dra/manager.go (prepared is not in the checkpoint)",
    lane=LANE,
)
async def prepares_again(bed: DriverBed) -> None:
    """Have a claim prepared three times."""
    claim = bed.allocate(*bed.free())
    first = await bed.prepare(claim)
    for _ in range(2):
        if (again := await bed.prepare(claim, after="the second time")) != first:
            raise FailedError(f"first it was {first}, then {again}")


@check(
    "DRA45",
    MUST,
    "A claim whose UID is another by now is refused.",
    why="the pod gets the devices of a claim that was made anew under the name, and is another pod's",
    change="compare metadata.uid of what the API server has with the UID in the call",
    source="kubeletplugin/draplugin.go (claim UID mismatch)",
    lane=LANE,
)
async def refuses_another_uid(bed: DriverBed) -> None:
    """Ask for a claim that is there under a UID that it does not have."""
    claim = bed.allocate(*bed.free())
    if not await bed.refusal(ClaimName(claim.namespace, str(uuid.uuid4()), claim.name)):
        raise FailedError("the claim is prepared")


@check(
    "DRA46",
    MUST,
    "A claim that does not exist is refused.",
    why="a pod starts without devices, and nobody is told",
    change="answer the error of the API server for that claim",
    source="pkg/kubelet/apis/dra/v1/api.proto, NodePrepareResourceResponse.error",
    lane=LANE,
)
async def refuses_a_claim_that_is_gone(bed: DriverBed) -> None:
    """Delete a claim from the API server, then ask for it."""
    claim = bed.allocate(*bed.free())
    bed.delete(claim)
    if not await bed.refusal(claim):
        raise FailedError("the claim is prepared")


@check(
    "DRA47",
    MUST,
    "A claim that is not allocated is refused.",
    why="a pod starts without devices, and nobody is told",
    change="answer an error where status.allocation is missing, or has no results of the driver",
    source="pkg/kubelet/cm/dra/manager.go (not allocated)",
    lane=LANE,
)
async def refuses_what_is_not_allocated(bed: DriverBed) -> None:
    """Ask for a claim without an allocation."""
    if not await bed.refusal(bed.allocate()):
        raise FailedError("the claim is prepared")


@check(
    "DRA48",
    MUST,
    "A claim for a device that is not there is refused.",
    why="the pod of a device that was removed runs without it",
    change="look the device up among the published ones, and answer an error if it is not there",
    source="google/dranet#155; pkg/kubelet/cm/dra/manager.go (names are not checked)",
    lane=LANE,
)
async def refuses_unknown_devices(bed: DriverBed) -> None:
    """Allocate a device that was never published."""
    (device,) = bed.free()
    if not await bed.refusal(bed.allocate(Device(device.pool, "gone-device"))):
        raise FailedError(f"the device gone-device of pool {device.pool} is prepared")


@check(
    "DRA59",
    SHOULD,
    "A claim for a device of a pool that the driver does not publish is refused.",
    why="a claim that names another pool means another device; the pod gets this one, or starts without any",
    change="compare the pool of each result with the pool that is published, too",
    source="resource.k8s.io/v1 types.go, DeviceRequestAllocationResult.pool",
    lane=LANE,
)
async def refuses_unknown_pools(bed: DriverBed) -> None:
    """Allocate a device of a pool that was never published, by the name of a device of this node."""
    (device,) = bed.free()
    claim = bed.allocate(Device("another-node", device.name))
    if await bed.refusal(claim):
        return
    if (await bed.prepare(claim)).devices:
        raise FailedError(f"device {device.name} of the pool another-node is prepared")
    raise FailedError("its claim is answered without an error, and without a device")


@check(
    "DRA49",
    SHOULD,
    "One claim that cannot be prepared spares the others of its call.",
    why="all claims of a pod come in one call; an error status for the call hides which one is wrong",
    change="put the error into the claim's entry of the answer, and prepare the others",
    source="pkg/kubelet/apis/dra/v1/api.proto, NodePrepareResourcesResponse",
    lane=LANE,
)
async def spares_the_others(bed: DriverBed) -> None:
    """Ask for a claim that does not exist between two that are right, in one call."""
    one, other = (bed.allocate(device) for device in bed.free(2))
    missing = ClaimName(one.namespace, str(uuid.uuid4()), "there-is-none")
    try:
        answer = await bed.call_prepare(one, missing, other)
    except RemoteError as error:
        raise FailedError(f"the whole call is answered with {error}") from error
    finally:
        bed.claims.pop(missing.uid, None)
    for claim in (one, other):
        if claim.uid in answer and answer[claim.uid].error:
            raise FailedError(f"a right claim is answered with {answer[claim.uid].error}")


@check(
    "DRA50",
    MUST,
    "The answer has an entry for each claim of the call, and no other.",
    why="the kubelet refuses the pod: `skipped ResourceClaims`, or `result for unknown claim UID`",
    change="answer one entry for each claim of the call, also where it failed, and no other entry",
    source="pkg/kubelet/cm/dra/manager.go (prepareResources)",
    lane=LANE,
)
async def answers_every_claim(bed: DriverBed) -> None:
    """Ask for a right claim and one that does not exist, in both calls, and compare the UIDs."""
    right = bed.allocate(*bed.free())
    missing = ClaimName(right.namespace, str(uuid.uuid4()), "there-is-none")
    try:
        prepared, unprepared = (
            await bed.call_prepare(right, missing),
            await bed.call_unprepare(right, missing),
        )
    except RemoteError as error:
        raise SkippedError(f"the whole call is answered with {error} (DRA49)") from error
    finally:
        bed.claims.pop(missing.uid, None)
    for what, answer in (("prepare", {*prepared}), ("unprepare", {*unprepared})):
        if answer != {right.uid, missing.uid}:
            raise FailedError(f"{what} of 2 claims is answered with {len(answer)} entries")


@check(
    "DRA52",
    SHOULD,
    "A device that its old claim has released is prepared for a new one, before the old is unprepared.",
    why="the kubelet may unprepare a minute late, after its restart; the new pod waits, or never starts",
    change="ask the API server whether the old claim still has the device, and take it over if not",
    source="pkg/kubelet/cm/dra/manager.go (reconcile loop, 60 s)",
    lane=LANE,
)
async def takes_a_device_over(bed: DriverBed) -> None:
    """Take the allocation of a device from its claim, have a second one prepared, unprepare the first."""
    (device,) = bed.free()
    old = bed.allocate(device)
    await bed.prepare(old)
    bed.release(old)
    new = bed.allocate(device)
    first = await bed.prepare(new, after="with the old claim released")
    await bed.unprepare(old, after="late")
    if await bed.prepare(new, after="after the late unprepare") != first:
        raise FailedError("the late unprepare of the old claim changed the answer for the new one")
    missing = {one for device in first.devices for one in device.cdi_device_ids} - {*bed.cdi.defined()}
    if missing:
        raise FailedError(f"the late unprepare removed the CDI device {min(missing)} of the new claim")
