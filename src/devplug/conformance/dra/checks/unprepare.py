"""NodeUnprepareResources, and the CDI files that claims have meanwhile."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from devplug.conformance.dra.cdi_rules import file_faults, is_spec_file, qualified_name_fault
from devplug.conformance.dra.checks.prepare import LANE
from devplug.conformance.rules import summary
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check
from devplug.wire.dra import ClaimName

if TYPE_CHECKING:
    from devplug.conformance.dra.testbed import DriverBed
    from devplug.wire.dra import PreparedClaim


def cdi_names(answer: PreparedClaim) -> list[str]:
    """Return the CDI devices of an answer. Raises `SkippedError` where there are none."""
    names = [one for device in answer.devices for one in device.cdi_device_ids]
    if not names:
        raise SkippedError("the answer has no CDI devices: this driver injects in another way")
    return names


@check(
    "DRA60",
    MUST,
    "A claim that was never prepared, or is unprepared already, is unprepared without an error.",
    why="its pod stays Terminating for ever: the kubelet tries until it succeeds",
    change="answer no error where there is nothing to do",
    source="pkg/kubelet/cm/dra/manager.go; kubernetes/kubernetes#129402",
    lane=LANE,
)
async def unprepares_what_is_not_there(bed: DriverBed) -> None:
    """Unprepare a claim that nobody knows, and one twice."""
    await bed.unprepare(ClaimName("default", str(uuid.uuid4()), "there-is-none"), after="never seen")
    claim = bed.allocate(*bed.free())
    await bed.prepare(claim)
    await bed.unprepare(claim)
    await bed.unprepare(claim, after="the second time")


@check(
    "DRA61",
    MUST,
    "A claim that is gone from the API server is unprepared.",
    why="with a force-deleted pod the claim is gone first; the pod's sandbox and the device stay in use",
    change="let unprepare succeed without the claim's object: use what is known since prepare",
    source="pkg/kubelet/cm/dra/manager.go (reconcile loop)",
    lane=LANE,
)
async def unprepares_a_claim_that_is_gone(bed: DriverBed) -> None:
    """Prepare a claim, delete it from the API server, unprepare it."""
    claim = bed.allocate(*bed.free())
    await bed.prepare(claim)
    bed.delete(claim)
    await bed.unprepare(claim, after="with the claim gone")


@check(
    "DRA62",
    MUST,
    "The CDI devices of an answer are defined when it comes.",
    why="the container is not created: unresolvable CDI devices; or it runs without the device",
    change="write the spec file before you answer, and name its devices as vendor.com/class=device",
    source="container-device-interface, SPEC.md; pkg/kubelet/kubelet_pods.go (names are passed on)",
    lane=LANE,
)
async def defines_its_cdi_devices(bed: DriverBed) -> None:
    """Look the names of an answer up in the folder of CDI files, as a runtime would."""
    names = cdi_names(await bed.prepare(bed.allocate(*bed.free())))
    if faults := [fault for name in names if (fault := qualified_name_fault(name))]:
        raise FailedError(summary(faults))
    if missing := sorted({*names} - {*bed.cdi.defined()}):
        raise FailedError(f"{missing[0]} is in no file of the CDI folder")


@check(
    "DRA63",
    MUST,
    "CDI files are valid.",
    why="runtimes ignore a file with a fault, or refuse every container until it is gone",
    change="keep to the specification: cdiVersion, kind, device names, absolute paths, permissions",
    source="container-device-interface, SPEC.md",
    lane=LANE,
)
async def writes_valid_files(bed: DriverBed) -> None:
    """Read every JSON file of the CDI folder while a claim is prepared."""
    await bed.prepare(bed.allocate(*bed.free()))
    files = {name: text for name, text in bed.cdi.files().items() if name.endswith(".json")}
    faults = [fault for name, text in files.items() for fault in file_faults(name, text)]
    if faults:
        raise FailedError(summary(faults))


@check(
    "DRA64",
    MUST,
    "A CDI file that other claims use is replaced as a whole.",
    why="a runtime that reads half of it does not find their devices, and cannot create their containers",
    change="write to a name that does not end in .json or .yaml, then rename; or have a file for each claim",
    source="container-device-interface, pkg/cdi/cache.go (every spec is read at each change of the folder)",
    lane="atomic",
)
async def writes_files_whole(bed: DriverBed) -> None:
    """Have claims prepared, and watch for writes to files with devices under names that runtimes read.

    A file of one claim may be written in place: its devices have no user until the call is answered.
    Upstream's helper writes the metadata of a request so (kubeletplugin/metadata.go).
    """
    known = bed.cdi.defining()
    changed: set[str] = set()
    for device in bed.free(min(2, max(1, bed.free_count))):
        cdi_names(await bed.prepare(bed.allocate(device)))
        now = bed.cdi.defining()
        changed |= {name for name in known.keys() & now.keys() if known[name] != now[name]}
        known = now
    written = bed.cdi.written_in_place
    await bed.kubelet.until(lambda: not changed.isdisjoint(written), bed.times.settle_seconds)
    if names := sorted(changed.intersection(written)):
        raise FailedError(f"{names[0]} has devices that are in use, and was written in place")


@check(
    "DRA65",
    MUST,
    "Unprepare removes the CDI devices of the claim.",
    why="files pile up until the runtime is slow, and a stale one gives a device to whoever names it",
    change="remove the claim's file, or its devices, in unprepare",
    source="container-device-interface, SPEC.md",
    lane=LANE,
)
async def removes_its_cdi_devices(bed: DriverBed) -> None:
    """Compare what is defined before prepare and after unprepare."""
    before = {*bed.cdi.defined()}
    claim = bed.allocate(*bed.free())
    cdi_names(await bed.prepare(claim))
    await bed.unprepare(claim)
    if left := sorted({*bed.cdi.defined()} - before):
        raise FailedError(f"{left[0]} is still defined")


@check(
    "DRA66",
    SHOULD,
    "No temporary files are left in the CDI folder.",
    why="they pile up with every claim",
    change="rename or remove what was written, also after an error",
    source="container-device-interface, SPEC.md",
    lane="atomic",
)
async def leaves_no_temporary_files(bed: DriverBed) -> None:
    """Look for files that no runtime reads after a claim came and went."""
    claim = bed.allocate(*bed.free())
    await bed.prepare(claim)
    await bed.unprepare(claim)
    if left := [name for name in bed.cdi.files() if not is_spec_file(name)]:
        raise FailedError(f"{left[0]} is left, {len(left)} in all")


@check(
    "DRA67",
    MUST,
    "A UID or name with slashes reaches no file outside of the driver's.",
    why="whoever can call the socket removes or writes files of the node",
    change="take only what is a UUID for a part of a file's name",
    source="resource.k8s.io/v1: a UID is given by the API server, and callers of the socket are not",
    lane="paths",
)
async def keeps_to_its_folder(bed: DriverBed) -> None:
    """Unprepare and prepare UIDs that are paths to a file beside the CDI folder."""
    victim = bed.cdi.path.parent / "victim.json"
    victim.write_text("{}")
    for uid in ("../victim", "../victim.json", f"x/../../{victim.stem}", str(victim.with_suffix(""))):
        claim = ClaimName("default", uid, "there-is-none")
        await bed.refusal(claim)
        try:
            await bed.unprepare(claim)
        except FailedError:
            continue
        finally:
            bed.claims.pop(uid, None)
    if not victim.exists() or victim.read_text() != "{}":
        raise FailedError("a file beside the CDI folder was removed or written")
    if not bed.is_alive():
        raise FailedError(f"the driver does not run any more{bed.fate()}")


@check(
    "DRA68",
    MUST,
    "One unprepare ends a claim, however often it was prepared.",
    why="the kubelet prepares again after each of its restarts, and unprepares once; no device gets free",
    change="let the first unprepare undo all prepares of the claim",
    source="pkg/kubelet/cm/dra/manager.go; google/dranet#33; NVIDIA/k8s-dra-driver-gpu#473",
    lane="uses",
)
async def ends_with_one_unprepare(bed: DriverBed) -> None:
    """Prepare a claim twice, unprepare it once; nothing is left of it, and another gets its device."""
    before = {*bed.cdi.defined()}
    (device,) = bed.free()
    for count in (1, 2):
        claim = bed.allocate(device)
        for _ in range(count):
            await bed.prepare(claim)
        await bed.unprepare(claim)
        bed.delete(claim)
        if left := sorted({*bed.cdi.defined()} - before):
            if count == 1:
                raise SkippedError(f"{left[0]} is left of a claim that was prepared once (DRA65)")
            raise FailedError(f"{left[0]} is still defined")
    await bed.prepare(bed.allocate(device), after="for the next claim of the device")
