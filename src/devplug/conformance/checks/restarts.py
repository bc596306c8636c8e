"""Restarts of the kubelet, each of which ends a registration; and streams that are lost without one.

Most restarts remove the plugin's socket. When ListAndWatch ends while the kubelet and both sockets stay, many
plugins never notice.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.restart_scenes import (
    absence,
    expect_loss_survived,
    expect_restart_survived,
    ids_of,
    is_listening,
    losses,
    plain_restart,
)
from devplug.conformance.rules import changed_ids
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check
from devplug.devices import HEALTHY
from devplug.wire.deviceplugin import ALLOCATE

if TYPE_CHECKING:
    from devplug.conformance.testbed import TestBed

_STOP: Final = 19
_CONTINUE: Final = 18

_GAPS_SECONDS: Final = (0.0, 0.02, 0.05)
_RESTARTS: Final = 3
"""Attempts at what a busy machine makes slow; the best counts."""
_STORM: Final = 5
_BUSY_SHARE: Final = 0.2
_LOOK_SECONDS: Final = 0.05

_LANE = "lost stream"


# ── restarts ──


@check(
    "RES01",
    MUST,
    "A plugin registers again when the kubelet has restarted.",
    why="the new kubelet knows no plugin, and without a registration no pod gets a device any more",
    change="watch the plugin folder; when kubelet.sock is created anew, bind your socket again and call "
    "Register. Do not exit instead: a container that exits is restarted after a delay that grows to 5 "
    "minutes",
    source="Kubernetes documentation, Device Plugins, Handling kubelet restarts",
)
async def back_after_a_restart(bed: TestBed) -> None:
    """End the kubelet, remove all sockets as a new one does, listen again, and wait for a registration."""
    if trouble := (await plain_restart(bed)).trouble:
        raise FailedError(trouble)


@check(
    "RES02",
    SHOULD,
    "A plugin registers soon after a restart of the kubelet.",
    why="pods that are admitted in between fail for good",
    change="watch for a new kubelet.sock (inotify) or look for it every second, and register at once; wait "
    "only after a registration that failed",
    source="kubernetes/kubernetes#118559, k8snetworkplumbingwg/sriov-network-operator#812",
)
async def back_soon(bed: TestBed) -> str:
    """Take the time from the new kubelet.sock to the call of Register."""
    await expect_restart_survived(bed)
    seconds = (await plain_restart(bed)).seconds
    limit_seconds = bed.times.return_limit_seconds
    if seconds > limit_seconds:
        raise FailedError(
            f"the plugin registered {seconds:.1f} s after the restart; {limit_seconds:g} s are allowed"
        )
    return f"after {1000 * seconds:.0f} ms"


@check(
    "RES24",
    SHOULD,
    "A plugin lists its devices, held ones too, as Healthy within 0.4 s of the kubelet's start.",
    why="the kubelet admits all pods again 0.5 to 0.9 s after its start. If a device is not Healthy then, "
    "each running pod whose completed init container had it is killed; a running container that has the "
    "device itself keeps it",
    change="watch for kubelet.sock with inotify, register at once, and send the last known health of each "
    "device in the first list; check the hardware after that",
    source="pkg/kubelet/cm/devicemanager/manager.go (Allocate); measured with a kubelet of version 1.36.2",
    quick=False,
)
async def back_before_the_first_pods(bed: TestBed) -> str:
    """Allocate a device, and take the time from the new kubelet.sock until all devices are Healthy.

    The best of three restarts counts. After each start PodResources lists no pods, as on a real node.
    """
    await expect_restart_survived(bed)
    limit_seconds = bed.times.first_pods_limit_seconds
    await bed.kubelet.until(lambda: len(bed.client.healthy_ids) == len(ids_of(bed)), bed.times.settle_seconds)
    count = len(bed.client.healthy_ids)
    if not count:
        raise SkippedError("no device is listed as Healthy")
    held = bed.client.healthy_ids[0]
    if await bed.refusal(ALLOCATE, [(held,)]) is None:
        bed.list_as_held(held)
    best_seconds = float("inf")
    for _ in range(_RESTARTS):
        best_seconds = min(best_seconds, await _healthy_again(bed, count))
        if best_seconds <= limit_seconds:
            return f"after {1000 * best_seconds:.0f} ms"
        await asyncio.sleep(bed.times.settle_seconds)  # for what the plugin does after a registration
    raise FailedError(
        f"the devices were listed as Healthy {best_seconds:.1f} s after the kubelet's start at best, in "
        f"{_RESTARTS} restarts; {limit_seconds:g} s are allowed"
    )


async def _healthy_again(bed: TestBed, count: int) -> float:
    """Restart the kubelet; return how long it takes until so many devices are listed as Healthy.

    RES03 judges whether they have the same IDs.
    """
    moment = await bed.kubelet.restart()
    await bed.wait_back(moment, bed.times.return_seconds, "after a restart of the kubelet no list came")

    def times_of_lists() -> list[float]:
        client = bed.kubelet.client
        lists = client.lists if client is not None else []
        return [at for at, devices in lists if sum(device.health == HEALTHY for device in devices) >= count]

    if not await bed.kubelet.until(lambda: bool(times_of_lists()), bed.times.change_seconds):
        raise FailedError(
            f"devices that were Healthy before a restart of the kubelet were not Healthy again within "
            f"{bed.times.change_seconds:g} s"
        )
    return times_of_lists()[0] - moment


@check(
    "RES03",
    MUST,
    "The device IDs are the same after a restart of the kubelet.",
    why="the kubelet's checkpoint names the IDs that pods hold; under another ID a device is given to a "
    "second pod",
    change="make IDs from what the device is (serial number, bus address), never from a counter, a time or "
    "a random number",
    source="Kubernetes e2e_node/device_plugin_test.go, the cases over a restart of the kubelet",
    quick=False,
)
async def same_ids_after_a_restart(bed: TestBed) -> None:
    """Compare the IDs of the last list before a restart with those of the first lists after it."""
    await expect_restart_survived(bed)
    seen = await plain_restart(bed)
    if change := changed_ids(seen.ids_before, seen.ids_after):
        raise FailedError(f"after the restart {change}")


@check(
    "RES06",
    SHOULD,
    "A plugin whose socket file was removed can soon be dialled again.",
    why="the open stream goes on, but at the next registration the kubelet finds nobody at the endpoint",
    change="check every second that the file at your path is still the one that you made; if not, bind "
    "again and register",
    source="Kubernetes documentation, Device Plugins, Handling kubelet restarts; "
    "k8snetworkplumbingwg/sriov-network-device-plugin#411",
    lane="folder",
    quick=False,
)
async def own_socket_returns(bed: TestBed) -> str:
    """Remove the plugin's socket file under its open stream; wait until it or a new one can be dialled."""
    path = bed.client.path
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise SkippedError(f"there is no file {path.name} to remove") from error
    begun = time.monotonic()
    while time.monotonic() - begun < bed.times.return_seconds and bed.is_alive():
        client = bed.kubelet.client
        if client is not None and is_listening(client.path):
            return f"after {1000 * (time.monotonic() - begun):.0f} ms"
        await asyncio.sleep(_LOOK_SECONDS)
    if not bed.is_alive():
        raise FailedError(
            f"{path.name} was removed, and its process ended with {bed.program.exit_code}: "
            f"{bed.program.last_words()}"
        )
    raise FailedError(
        f"{path.name} was removed, and {bed.times.return_seconds:g} s later nobody listens where the "
        "kubelet would dial"
    )


@check(
    "RES07",
    SHOULD,
    "A new kubelet.sock is enough for a plugin to register, even if its own socket is still there.",
    why=(
        "a socket that was made just after the kubelet had cleaned the folder stays, and the new "
        "kubelet.sock is the only sign"
    ),
    change="do not wait for the loss of your own socket: compare kubelet.sock itself (inode and time) with "
    "the one that you registered at, and register when ListAndWatch ends",
    source="intel-device-plugins-for-kubernetes pkg/deviceplugin/manager.go, its watch is set after Register",
    quick=False,
)
async def back_without_a_wipe(bed: TestBed) -> None:
    """Restart the kubelet so that only kubelet.sock is made anew, and wait for a registration."""
    await expect_restart_survived(bed)
    await bed.kubelet.stop()
    await bed.kubelet.start(clean=False)
    await bed.wait_back(
        bed.kubelet.started_at,
        bed.times.return_seconds,
        "kubelet.sock was made anew, its own socket left alone, and no list came",
    )


@check(
    "RES08",
    MUST,
    "A plugin outlives a kubelet that is away for a while, and registers when it is back.",
    why="a plugin that ends meanwhile is started again only after a delay that grows to 5 minutes",
    change="wait for a missing kubelet.sock without a limit, and do not exit",
    source="kubernetes/kubernetes#125506",
    lane="kubelet away",
    quick=False,
)
async def outlives_an_absence(bed: TestBed) -> None:
    """Stop the kubelet, remove all sockets, wait for some seconds, start it; wait for a registration."""
    await expect_restart_survived(bed)
    if trouble := (await absence(bed)).trouble:
        raise FailedError(trouble)


@check(
    "RES09",
    SHOULD,
    "A plugin waits for an absent kubelet without a busy loop.",
    why="a busy loop takes a processor from the node while somebody repairs it",
    change="pause between two tries, from 0.1 s on and longer each time",
    source="smarter-device-manager main.go, a retry without a pause",
    lane="kubelet away",
    quick=False,
)
async def waits_without_a_hot_loop(bed: TestBed) -> str:
    """Take the processor time of the plugin in the later half of the time in which the kubelet is away."""
    await expect_restart_survived(bed)
    share = (await absence(bed)).processor_share
    if share is None:
        raise SkippedError("the plugin ended while the kubelet was away (RES08)")
    if share >= _BUSY_SHARE:
        raise FailedError(
            f"the plugin took {share:.0%} of a processor while the kubelet was away; "
            f"{_BUSY_SHARE:.0%} are allowed"
        )
    return f"{share:.1%} of a processor"


@check(
    "RES10",
    MUST,
    "After two restarts within 50 ms a plugin is registered with the last kubelet.",
    why="a kubelet that fails at its start comes up twice in a row, and only the last one counts",
    change="after each registration, compare kubelet.sock with the one that you registered at; do not "
    "expect an event for each restart",
    source="kubevirt/device-plugin-manager#32",
    lane="quick restarts",
    quick=False,
)
async def back_after_two_at_once(bed: TestBed) -> None:
    """Restart the kubelet twice, 0, 20 and 50 ms apart, and wait for a registration with the second."""
    await expect_restart_survived(bed)
    for gap_seconds in _GAPS_SECONDS:
        await bed.kubelet.restart()
        await asyncio.sleep(gap_seconds)
        moment = await bed.kubelet.restart()
        words = f"after two restarts {1000 * gap_seconds:.0f} ms apart no list came"
        await bed.wait_back(moment, bed.times.return_seconds, words)


@check(
    "RES21",
    MUST,
    "A plugin that is stopped while the kubelet restarts registers when it is continued.",
    why="a process that is stopped or starved, or whose node is frozen, misses the restart and its events",
    change="check the facts from time to time (is kubelet.sock still the same, is my socket there, is the "
    "stream open), and not only at events",
    source="kubernetes/kubernetes#117435, a plugin that is stopped; inotify(7), IN_Q_OVERFLOW",
    quick=False,
)
async def back_after_a_standstill(bed: TestBed) -> None:
    """Stop the process with SIGSTOP, restart the kubelet, continue it; wait for a registration."""
    await expect_restart_survived(bed)
    # Its call of Register may not be over yet, and a call that is cut is another fault.
    await asyncio.sleep(bed.times.settle_seconds)
    program = bed.program
    program.signal(_STOP)
    try:
        moment = await bed.kubelet.restart()
        await asyncio.sleep(bed.times.down_seconds)
    finally:
        program.signal(_CONTINUE)
    words = "the plugin was stopped while the kubelet restarted, was continued, and sent no list"
    await bed.wait_back(moment, bed.times.return_seconds, words)


@check(
    "RES22",
    MUST,
    "A plugin calls Register only a few times after one restart of the kubelet.",
    why="each registration that replaces another leaves a connection and its memory in the kubelet",
    change="have one task that registers; after a success it does nothing until the stream ends, the socket "
    "is lost or kubelet.sock is replaced",
    source="kubernetes/kubernetes#124716",
    quick=False,
)
async def no_storm(bed: TestBed) -> str:
    """Restart the kubelet, and count the calls of Register until all is quiet."""
    await expect_restart_survived(bed)
    moment = await bed.kubelet.restart()
    await bed.wait_back(moment, bed.times.return_seconds, "after a restart of the kubelet no list came")
    await asyncio.sleep(bed.times.settle_seconds)
    calls = len(bed.kubelet.attempts_since(moment))
    if calls > _STORM:
        raise FailedError(
            f"Register was called {calls} times after one restart; at most {_STORM} are allowed"
        )
    return f"{calls} registration{'s' if calls > 1 else ''}"


@check(
    "RES23",
    SHOULD,
    "A plugin notices when the plugin folder itself was replaced.",
    why="a watch on the lost folder never reports an event again",
    change="watch the folder's path, not only the folder: when it is removed or replaced, watch the new one "
    "and register; where that is impossible, exit with a code other than 0",
    source="inotify(7), IN_DELETE_SELF and IN_IGNORED",
    lane="folder",
    quick=False,
)
async def folder_made_anew(bed: TestBed) -> str | None:
    """Stop the kubelet, remove the folder, start the kubelet in a new one; wait for a list, or the end."""
    if bed.test_run.subject.default_dir:
        raise SkippedError(
            "the folder is mounted for the plugin, and cannot be mounted again from inside its container"
        )
    await expect_restart_survived(bed)
    program = bed.program
    await bed.kubelet.stop()
    # Out of the way first: a plugin that binds again meanwhile does not keep it from being removed.
    shutil.rmtree(bed.folder.rename(bed.root / "lost"), ignore_errors=True)
    await bed.kubelet.start()
    try:
        await bed.wait_back(
            bed.kubelet.started_at, bed.times.return_seconds, "the folder was made anew, and no list came"
        )
    except FailedError:
        if not program.exit_code:
            raise
        return f"the plugin ended with {program.exit_code}, to be started again"
    return None


# ── lost streams ──


@check(
    "RES04",
    MUST,
    "A plugin registers again when its stream was lost, even if kubelet and sockets are still there.",
    why="the kubelet then marks all its devices Unhealthy, and never calls ListAndWatch by itself",
    change="call Register again when ListAndWatch ends (its context is cancelled, or a send fails), unless "
    "another stream is open or the plugin is ending",
    source="kubernetes/kubernetes#92958, #125501, #127803",
    lane=_LANE,
    quick=False,
)
async def back_after_a_lost_stream(bed: TestBed) -> None:
    """Close the kubelet's connection to the plugin, leave the rest as it is, and wait for a registration."""
    seen = await losses(bed)
    if not seen.seconds:
        raise FailedError(seen.trouble)


@check(
    "RES05",
    SHOULD,
    "A plugin registers soon after its stream was lost.",
    why="until then the node can give out none of its devices",
    change="register at once when the stream ends, and wait only after a registration that failed",
    source="kubernetes/kubernetes#92958, the kubelet never opens a stream by itself",
    lane=_LANE,
    quick=False,
)
async def back_soon_after_a_lost_stream(bed: TestBed) -> str:
    """Take the time from the first lost stream to the call of Register."""
    seconds = (await expect_loss_survived(bed)).seconds[0]
    limit_seconds = bed.times.return_seconds / 3
    if seconds > limit_seconds:
        raise FailedError(
            f"the plugin registered {seconds:.1f} s after the lost stream; {limit_seconds:.1f} s are allowed"
        )
    return f"after {1000 * seconds:.0f} ms"


@check(
    "RES15",
    SHOULD,
    "Repeated registrations leave no sockets behind.",
    why="each leftover socket has a server that never ends, or no server, and stays until the kubelet "
    "restarts",
    change="keep the one server over a new registration, or stop the old one and remove its socket first",
    source="kubevirt/device-plugin-manager pkg/dpm/manager.go, where StopServer works on a copy",
    lane=_LANE,
    quick=False,
)
async def no_sockets_left(bed: TestBed) -> None:
    """Lose several streams, one after the other, and count the sockets in the folder before and after."""
    seen = await expect_loss_survived(bed)
    if len(seen.seconds) < 3:
        raise SkippedError(
            f"the plugin registered after {len(seen.seconds)} lost streams only, too few to show a leak"
        )
    if len(seen.sockets_after) > len(seen.sockets_before) + 1:
        raise FailedError(
            f"after {len(seen.seconds)} lost streams there are {len(seen.sockets_after)} sockets, "
            f"{len(seen.sockets_before)} before"
        )


@check(
    "RES16",
    MUST,
    "A plugin whose new stream is lost at once registers a third time.",
    why="up to 1.36, a kubelet that ends an old stream late also drops the newest connection of the resource",
    change="do not limit registrations: register whenever a stream ends and no other is open",
    source="kubernetes/kubernetes#121994, handler.go of 1.36, PluginDisconnected by resource name",
    lane=_LANE,
    quick=False,
)
async def back_after_a_second_lost_stream(bed: TestBed) -> str:
    """Lose the stream, and the next one as soon as its first list is there; wait for a registration."""
    seen = await expect_loss_survived(bed)
    if len(seen.seconds) == 1:
        raise FailedError(seen.trouble)
    return f"registered after each of {len(seen.seconds)} lost streams"
