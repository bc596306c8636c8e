"""Restarts of kubelet and driver, lost sockets, a second instance, and an API server that is away."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING

from devplug.conformance.dra.checks.unprepare import cdi_names
from devplug.conformance.dra.slice_rules import has_devices_of, moved_taints, taint_times
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check
from devplug.k8s.objects import text

if TYPE_CHECKING:
    from devplug.conformance.dra.testbed import DriverBed, DriverRun

__all__: list[str] = []


async def _restart_kubelet(bed: DriverBed) -> float:
    """Restart the kubelet as it is: with the node's slices deleted, and every socket new."""
    await bed.kubelet.stop()
    bed.wipe(all_drivers=True)
    begun = time.monotonic()
    await bed.kubelet.start()
    return begun


@check(
    "DRA32",
    MUST,
    "Pools and devices have the same names after a restart of the driver.",
    why="claims that are allocated name devices that do not exist any more",
    change="derive names from what the hardware is, and not from the order in which it is found",
    source="resource.k8s.io/v1 types.go, DeviceRequestAllocationResult",
    lane="restarts",
)
async def keeps_names_over_a_restart(bed: DriverBed) -> None:
    """End the driver, wipe its slices, start it again and compare."""
    before = {(one.pool, one.name) for one in bed.devices()}
    await bed.program.stop(bed.times.end_seconds)
    bed.wipe()
    await bed.launch()
    await bed.wait_ready(bed.times.start_seconds)

    def lost() -> list[tuple[str, str]]:
        return sorted(before - {(one.pool, one.name) for one in bed.devices()})

    await bed.kubelet.until(lambda: not lost(), bed.times.republish_limit_seconds)
    if names := lost():
        raise FailedError(f"{names[0][1]} in pool {names[0][0]} is there only before")


@check(
    "DRA33",
    SHOULD,
    "timeAdded of a taint stays over a restart of the driver.",
    why="tolerationSeconds start again with each update of the driver, and pods on a broken device stay",
    change="read the times from the slices that are there, or keep them in a file",
    source="pkg/apis/resource/v1/defaults.go; pkg/controller/devicetainteviction",
    lane="restarts",
)
async def keeps_the_time_of_taints_over_a_restart(bed: DriverBed) -> None:
    """End the driver, start it again after a second, and compare the taints."""
    before = taint_times(bed.slices())
    if not before:
        raise SkippedError("no device has a taint")
    await bed.program.stop(bed.times.end_seconds)
    await asyncio.sleep(bed.times.clock_seconds)
    await bed.launch()
    await bed.wait_ready(bed.times.start_seconds)
    await asyncio.sleep(bed.times.settle_seconds)
    if faults := moved_taints(before, taint_times(bed.slices())):
        raise FailedError(faults[0])


@check(
    "DRA70",
    MUST,
    "A driver serves a restarted kubelet.",
    why="no pod with a claim starts on the node until the driver is restarted, too",
    change="keep the registration socket, and answer GetInfo whenever it is asked",
    source="pkg/kubelet/pluginmanager (at its start the kubelet asks at every socket)",
    lane="kubelet restarts",
)
async def serves_a_restarted_kubelet(bed: DriverBed) -> None:
    """Restart the kubelet with a claim prepared; the claim is prepared again, and its slices are back."""
    claim = bed.allocate(*bed.free())
    first, slices = await bed.prepare(claim), bed.slices()
    begun = await _restart_kubelet(bed)
    await bed.wait_registered(begun, "the restarted kubelet could not register the driver")
    if await bed.prepare(claim, after="after the kubelet's restart") != first:
        raise FailedError("after the kubelet's restart the claim is answered in another way")
    if not await bed.kubelet.until(lambda: has_devices_of(bed.slices(), slices), bed.times.slices_seconds):
        raise FailedError(
            f"{bed.times.slices_seconds:g} s after the kubelet's restart the slices are not back"
        )


@check(
    "DRA71",
    MUST,
    "SIGTERM ends a driver within 5 s, and its registration socket goes.",
    why="the kubelet calls a socket where nobody answers, and the node drains slowly",
    change="remove the registration socket at SIGTERM, finish calls, and end with 0",
    source="kubeletplugin/draplugin.go (Stop); pkg/kubelet/pluginmanager",
    lane="ends",
)
async def ends_cleanly(bed: DriverBed) -> str:
    """End the driver and look what is left in `plugins_registry`."""
    seconds = await bed.program.stop(bed.times.end_seconds)
    if seconds is None or seconds > bed.times.end_limit_seconds:
        raise FailedError("it had to be killed" if seconds is None else f"it took {seconds:.1f} s")
    if left := sorted(path.name for path in bed.kubelet.folder.rglob("*") if path.is_socket()):
        raise FailedError(f"{left[0]} is left in plugins_registry")
    return f"{1000 * seconds:.0f} ms"


@check(
    "DRA72",
    MUST,
    "What was prepared survives a restart of the driver.",
    why="containers that restart find no CDI device, and the claim's device is lost or given out twice",
    change="answer as before the restart, from a file or from the claim's allocation, and leave CDI files "
    "where they are when the process ends",
    source="google/dranet#89",
    lane="restarts",
)
async def keeps_claims_over_a_restart(bed: DriverBed) -> None:
    """End the driver with a claim prepared: its CDI devices stay; started again it gives the same answer."""
    claim = bed.allocate(*bed.free())
    first = await bed.prepare(claim)
    names = {name for one in first.devices for name in one.cdi_device_ids} & {*bed.cdi.defined()}
    await bed.program.stop(bed.times.end_seconds)
    if lost := sorted(names - {*bed.cdi.defined()}):
        raise FailedError(f"the driver removed {lost[0]} at its end")
    begun = time.monotonic()
    await bed.launch()
    await bed.wait_registered(begun, "the restarted driver did not register")
    if await bed.prepare(claim, after="after the driver's restart") != first:
        raise FailedError("after the driver's restart the claim is answered in another way")


@check(
    "DRA73",
    MUST,
    "A claim that was prepared before the driver's restart is unprepared after it.",
    why="its CDI file and its device stay for ever",
    change="keep in a file what unprepare needs, or derive it from the claim's UID",
    source="google/dranet#89",
    lane="restarts",
)
async def unprepares_after_a_restart(bed: DriverBed) -> None:
    """Restart the driver between prepare and unprepare; the CDI devices that prepare defined are gone."""
    before = {*bed.cdi.defined()}
    claim = bed.allocate(*bed.free())
    names = {*cdi_names(await bed.prepare(claim))} - before
    await bed.program.stop(bed.times.end_seconds)
    begun = time.monotonic()
    await bed.launch()
    await bed.wait_registered(begun, "the restarted driver did not register")
    await bed.unprepare(claim, after="after the driver's restart")
    if left := sorted(names & {*bed.cdi.defined()}):
        raise FailedError(f"{left[0]} is still defined")


@check(
    "DRA74",
    MUST,
    "A driver that was killed comes back by itself when it is started.",
    why="its old sockets are in the way, and the container restarts for ever",
    change="replace a socket at which nobody listens",
    source="unix(7): a socket's file stays when its process ends",
    lane="kills",
)
async def comes_back_after_a_kill(bed: DriverBed) -> None:
    """Kill the driver, start it as the same pod's container, and have a claim prepared."""
    await bed.program.kill()
    begun = time.monotonic()
    await bed.launch()
    await bed.wait_registered(begun, "the driver that was killed did not register again")
    await bed.check_serves("after the kill")


@check(
    "DRA75",
    SHOULD,
    "Sockets that are removed are made again.",
    why="the driver runs, its liveness probe may even pass, and the kubelet does not know it any more",
    change="watch the sockets, and listen anew where one is gone",
    source="pkg/kubelet/pluginmanager (a socket that is gone deregisters)",
    lane="sockets",
)
async def makes_lost_sockets_again(bed: DriverBed) -> None:
    """Remove the registration socket, then the service socket, and wait until claims are served."""
    one = bed.registration
    begun = time.monotonic()
    one.path.unlink()
    one = await bed.wait_registered(begun, "the registration socket was removed and did not come back")
    one.endpoint.unlink(missing_ok=True)
    deadline = time.monotonic() + bed.times.return_seconds
    claim = bed.allocate(*bed.free())
    while reason := await bed.refusal(claim):
        if time.monotonic() > deadline:
            raise FailedError(f"the service socket was removed: {reason}")
        await asyncio.sleep(bed.times.settle_seconds)


@check(
    "DRA76",
    MUST,
    "Unprepare needs no API server.",
    why="while it is away no pod with a claim ends, and a drained node hangs",
    change="let unprepare succeed while the API server is away: use what is known since prepare",
    source="pkg/kubelet/cm/dra/manager.go (the kubelet itself asks nothing for it)",
    lane="api away",
)
async def unprepares_without_the_api_server(bed: DriverBed) -> None:
    """Unprepare a claim while the API server is away."""
    claim = bed.allocate(*bed.free())
    await bed.prepare(claim)
    await bed.api.stop()
    try:
        await bed.unprepare(claim, after="with the API server away")
    finally:
        await bed.api.start()


@check(
    "DRA77",
    SHOULD,
    "A prepare waits for an API server that is away for a moment.",
    why="a refused prepare costs its pod a minute, until the kubelet looks again",
    change="try again inside the call, within the kubelet's 45 s",
    source="pkg/kubelet/kuberuntime/kuberuntime_manager.go (SyncPod returns without an error)",
    lane="api away",
)
async def waits_for_the_api_server(bed: DriverBed) -> None:
    """Ask for a claim while the API server refuses with 503, for half a second from the first refusal on."""
    claim = bed.allocate(*bed.free())
    count = len(bed.api.requests)
    bed.api.refuse_code = 503

    def is_refused() -> bool:
        return any("/resourceclaims/" in one.path for one in bed.api.requests[count:])

    async def recover() -> None:
        await bed.kubelet.until(is_refused, bed.times.claim_limit_seconds)
        await asyncio.sleep(0.5)
        bed.api.refuse_code = 0

    task = bed.kubelet.task_of(recover())
    try:
        await bed.prepare(claim, after="with an API server that refused for half a second")
    finally:
        task.cancel()
        bed.api.refuse_code = 0


@check(
    "DRA78",
    MUST,
    "Slices that are wiped while the API server is away come back when it does.",
    why="the deletion is not seen by a watch that was broken, and no pod gets a device of the node",
    change="list again whenever a watch ends, and compare",
    source="pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go; NVIDIA/k8s-dra-driver-gpu#330",
    lane="api away",
)
async def publishes_after_an_absence(bed: DriverBed) -> None:
    """Take the API server away, wipe the slices, bring it back."""
    slices = bed.slices()
    await bed.api.stop()
    bed.wipe()
    await asyncio.sleep(bed.times.settle_seconds)
    await bed.api.start()
    if not await bed.kubelet.until(lambda: has_devices_of(bed.slices(), slices), bed.times.slices_seconds):
        raise FailedError(f"{bed.times.slices_seconds:g} s after the API server's return they are not back")


@check(
    "DRA79",
    MUST,
    "A watch that the API server has compacted is begun anew.",
    why="the driver sees no change any more: slices that are deleted then stay away",
    change="take 410 Gone, also as an event of type ERROR, as the order to list again",
    source="kubernetes.io/docs/reference/using-api/api-concepts (410 Gone responses)",
    lane="compaction",
)
async def bears_compaction(bed: DriverBed) -> None:
    """Have more changes of slices than the API server keeps, then wipe the slices."""
    slices = bed.slices()
    bed.api.compact()
    await asyncio.sleep(bed.times.settle_seconds)
    bed.wipe()
    if not await bed.kubelet.until(lambda: has_devices_of(bed.slices(), slices), bed.times.slices_seconds):
        raise FailedError(
            f"{bed.times.slices_seconds:g} s after a compaction and the deletion the slices are not back"
        )


@check(
    "DRA80",
    MUST,
    "A driver that starts while the API server refuses comes up when it answers.",
    why="at a node's boot the API server is often not there yet, and the driver stays without slices",
    change="try again, with growing pauses, for ever",
    source="kubernetes.io/docs/concepts/architecture/nodes",
    fresh=True,
)
async def starts_without_the_api_server(run: DriverRun) -> None:
    """Start the driver where every request is answered with 503; then answer."""
    async with run.bed(launch=False) as bed:
        bed.api.refuse_code = 503
        await bed.launch()
        await bed.kubelet.until(lambda: not bed.is_alive(), bed.times.down_seconds)
        bed.api.refuse_code = 0
        if not bed.is_alive():  # as its container would be
            await bed.launch()
        await bed.wait_ready(bed.times.start_seconds)


@check(
    "DRA81",
    MUST,
    "A second instance takes over from the first without a gap.",
    why="while a DaemonSet is updated pods wait a minute, or the old instance removes the new one's sockets",
    change="name both sockets by POD_UID, share the state, and remove only sockets of your own",
    source="kubeletplugin/draplugin.go (RollingUpdate)",
    lane="rolling update",
)
async def updates_without_a_gap(bed: DriverBed) -> None:
    """Start a second instance with another POD_UID, end the first; claims are served all the time."""
    first = bed.program
    claim = bed.allocate(*bed.free())
    answer = await bed.prepare(claim)
    before = {text(one, "metadata", "uid") for one in bed.slices()}
    old = bed.registration.path
    begun = time.monotonic()
    await bed.launch(str(uuid.uuid4()))
    new = await bed.wait_registered(begun, "the second instance did not register")
    if new.path == old:
        raise SkippedError("both instances have the same socket: the driver is not made for rolling updates")
    await first.stop(bed.times.end_seconds)
    await bed.kubelet.until(lambda: not old.exists(), bed.times.settle_seconds)
    if await bed.prepare(claim, after="at the second instance") != answer:
        raise FailedError("the second instance answers in another way than the first")
    await bed.unprepare(claim, after="at the second instance")
    if not before & {text(one, "metadata", "uid") for one in bed.slices()}:
        raise FailedError("the slices were deleted and made anew")
