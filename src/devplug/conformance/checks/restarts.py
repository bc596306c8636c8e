"""Restarts of the kubelet: each ends a plugin's registration, and most remove its socket."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.registry import MUST, SHOULD, check
from devplug.conformance.restart_scenes import (
    absence,
    expect_restart_survived,
    is_listening,
    plain_restart,
)
from devplug.conformance.rules.restart import changed_ids
from devplug.conformance.verdicts import FailedError, SkippedError

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage

_STOP: Final = 19
_CONTINUE: Final = 18

_GAPS_SECONDS: Final = (0.0, 0.02, 0.05)
_STORM: Final = 5
_BUSY_SHARE: Final = 0.2
_LOOK_SECONDS: Final = 0.05


@check(
    "RES01",
    MUST,
    "A plugin registers again when the kubelet was restarted.",
    why="the new kubelet knows no plugin, and without one no pod gets a device any more",
    change="watch the plugin folder; when kubelet.sock is made anew, bind your socket again and call "
    "Register. Do not end instead: what ends is started again after a delay that grows to 5 minutes",
    source="Kubernetes documentation, Device Plugins, Handling kubelet restarts",
)
async def back_after_a_restart(stage: Stage) -> None:
    """End the kubelet, remove all sockets as a new one does, listen anew, and wait for a registration."""
    if trouble := (await plain_restart(stage)).trouble:
        raise FailedError(trouble)


@check(
    "RES02",
    SHOULD,
    "It is back soon after the restart.",
    why="pods that are admitted meanwhile fail for good",
    change="be told of a new kubelet.sock (inotify) or look for it every second, and register at once; wait "
    "only after a registration that failed",
    source="kubernetes/kubernetes#118559, k8snetworkplumbingwg/sriov-network-operator#812",
)
async def back_soon(stage: Stage) -> str:
    """Take the time from the new kubelet.sock to the call of Register."""
    await expect_restart_survived(stage)
    seconds = (await plain_restart(stage)).seconds
    limit_seconds = stage.times.return_limit_seconds
    if seconds > limit_seconds:
        raise FailedError(f"it registered {seconds:.1f} s after the restart; {limit_seconds:g} s are allowed")
    return f"after {1000 * seconds:.0f} ms"


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
async def same_ids_after_a_restart(stage: Stage) -> None:
    """Compare the IDs of the last list before a restart with those of the first lists after it."""
    await expect_restart_survived(stage)
    seen = await plain_restart(stage)
    if change := changed_ids(seen.ids_before, seen.ids_after):
        raise FailedError(f"after the restart {change}")


@check(
    "RES06",
    SHOULD,
    "A plugin whose socket file was removed can soon be dialled again.",
    why="it goes on until the next registration, in which the kubelet finds nobody at the endpoint",
    change="look every second whether the file at your path is still the one that you made; if not, bind "
    "again and register",
    source="Kubernetes documentation, Device Plugins, Handling kubelet restarts; "
    "k8snetworkplumbingwg/sriov-network-device-plugin#411",
    lane="folder",
    quick=False,
)
async def own_socket_returns(stage: Stage) -> str:
    """Remove the plugin's socket file under its open stream; wait until it, or a new one, can be dialled."""
    path = stage.client.path
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise SkippedError(f"there is no file at {path.name} that could be removed") from error
    begun = time.monotonic()
    while time.monotonic() - begun < stage.times.return_seconds and stage.is_alive():
        client = stage.kubelet.client
        if client is not None and is_listening(client.path):
            return f"after {1000 * (time.monotonic() - begun):.0f} ms"
        await asyncio.sleep(_LOOK_SECONDS)
    if not stage.is_alive():
        raise FailedError(
            f"{path.name} was removed, and its process ended with {stage.program.exit_code}: "
            f"{stage.program.last_words()}"
        )
    raise FailedError(
        f"{path.name} was removed, and {stage.times.return_seconds:g} s later nobody listens where the "
        "kubelet would dial"
    )


@check(
    "RES07",
    SHOULD,
    "A new kubelet.sock is enough for a plugin to register, even if its own socket is still there.",
    why="a socket that was made just after the kubelet had cleaned the folder stays, and no other sign comes",
    change="do not wait for the loss of your own socket: compare kubelet.sock itself (inode and time) with "
    "the one that you registered at, and take the end of ListAndWatch for a reason to register",
    source="intel-device-plugins-for-kubernetes pkg/deviceplugin/manager.go, its watch is set after Register",
    quick=False,
)
async def back_without_a_wipe(stage: Stage) -> None:
    """Restart the kubelet so that only kubelet.sock is made anew, and wait for a registration."""
    await expect_restart_survived(stage)
    await stage.kubelet.stop()
    await stage.kubelet.start(clean=False)
    await stage.wait_back(
        stage.kubelet.started_at,
        stage.times.return_seconds,
        "kubelet.sock was made anew, its own socket left alone, and no list came",
    )


@check(
    "RES08",
    MUST,
    "A plugin outlives a kubelet that is away for a while, and registers when it is back.",
    why="a plugin that ends meanwhile is started again only after a delay that grows to 5 minutes",
    change="treat a missing kubelet.sock as something to wait for, without an end and without an exit",
    source="kubernetes/kubernetes#125506",
    lane="kubelet away",
    quick=False,
)
async def outlives_an_absence(stage: Stage) -> None:
    """Stop the kubelet, remove all sockets, wait for some seconds, start it; wait for a registration."""
    await expect_restart_survived(stage)
    if trouble := (await absence(stage)).trouble:
        raise FailedError(trouble)


@check(
    "RES09",
    SHOULD,
    "A plugin waits for an absent kubelet without a hot loop.",
    why="it takes a processor from the node just while that is being repaired",
    change="pause between two tries, from 0.1 s on and longer each time",
    source="smarter-device-manager main.go, a retry without a pause",
    lane="kubelet away",
    quick=False,
)
async def waits_without_a_hot_loop(stage: Stage) -> str:
    """Take the processor time of the plugin in the later half of the time in which the kubelet is away."""
    await expect_restart_survived(stage)
    share = (await absence(stage)).processor_share
    if share is None:
        raise SkippedError("it ended while the kubelet was away, see RES08")
    if share >= _BUSY_SHARE:
        raise FailedError(
            f"it took {share:.0%} of a processor while the kubelet was away; {_BUSY_SHARE:.0%} are allowed"
        )
    return f"{share:.1%} of a processor"


@check(
    "RES10",
    MUST,
    "After two restarts at once a plugin is registered with the last kubelet.",
    why="a kubelet that fails at its start comes up twice in a row, and only the last one counts",
    change="when a registration has come to its end, compare kubelet.sock with the one that you registered "
    "at; do not rely on an event for each of them",
    source="kubevirt/device-plugin-manager#32",
    lane="quick restarts",
    quick=False,
)
async def back_after_two_at_once(stage: Stage) -> None:
    """Restart the kubelet twice, 0, 20 and 50 ms apart, and wait for a registration with the second."""
    await expect_restart_survived(stage)
    for gap_seconds in _GAPS_SECONDS:
        await stage.kubelet.restart()
        await asyncio.sleep(gap_seconds)
        moment = await stage.kubelet.restart()
        words = f"after two restarts {1000 * gap_seconds:.0f} ms apart no list came"
        await stage.wait_back(moment, stage.times.return_seconds, words)


@check(
    "RES21",
    MUST,
    "A plugin that stood still while the kubelet was restarted registers when it goes on.",
    why="a process that is stopped, starved or in a frozen node misses the moment and its events",
    change="look at the facts from time to time (is kubelet.sock still the same, is my socket there, is the "
    "stream open), and not only at events",
    source="kubernetes/kubernetes#117435, a plugin that is stopped; inotify(7), IN_Q_OVERFLOW",
    quick=False,
)
async def back_after_a_standstill(stage: Stage) -> None:
    """Stop the process with SIGSTOP, restart the kubelet, continue it; wait for a registration."""
    await expect_restart_survived(stage)
    # Its call of Register may not be over yet, and a call that is cut is another fault.
    await asyncio.sleep(stage.times.settle_seconds)
    program = stage.program
    program.signal(_STOP)
    try:
        moment = await stage.kubelet.restart()
        await asyncio.sleep(stage.times.down_seconds)
    finally:
        program.signal(_CONTINUE)
    words = "it was stopped over a restart of the kubelet, continued, and no list came"
    await stage.wait_back(moment, stage.times.return_seconds, words)


@check(
    "RES22",
    MUST,
    "One restart of the kubelet brings a few registrations at most.",
    why="each one that replaces another leaves a connection and its memory in the kubelet",
    change="have one task that registers; after a success it does nothing until the stream ends, the socket "
    "is lost or kubelet.sock is another",
    source="kubernetes/kubernetes#124716",
    quick=False,
)
async def no_storm(stage: Stage) -> str:
    """Restart the kubelet, and count the calls of Register until all is quiet."""
    await expect_restart_survived(stage)
    moment = await stage.kubelet.restart()
    await stage.wait_back(moment, stage.times.return_seconds, "after a restart of the kubelet no list came")
    await asyncio.sleep(stage.times.settle_seconds)
    calls = len(stage.kubelet.attempts_since(moment))
    if calls > _STORM:
        raise FailedError(f"Register was called {calls} times after one restart; {_STORM} are plenty")
    return f"{calls} registration{'s' if calls > 1 else ''}"


@check(
    "RES23",
    SHOULD,
    "A plugin is not deaf when the plugin folder itself was made anew.",
    why="a watch on the lost folder never reports anything again",
    change="watch the folder's path, not only the folder: when it is removed or another one, watch the new "
    "one and register; where that cannot be, end with a code that is not 0",
    source="inotify(7), IN_DELETE_SELF and IN_IGNORED",
    lane="folder",
    quick=False,
)
async def folder_made_anew(stage: Stage) -> str | None:
    """Stop the kubelet, remove the folder, start the kubelet in a new one; wait for a list, or the end."""
    if stage.lab.subject.default_dir:
        raise SkippedError(
            "the folder is mounted for the plugin, and a lost mount cannot be mended from inside"
        )
    await expect_restart_survived(stage)
    program = stage.program
    await stage.kubelet.stop()
    # Out of the way first: a plugin that binds again meanwhile does not keep it from being removed.
    shutil.rmtree(stage.folder.rename(stage.root / "lost"), ignore_errors=True)
    await stage.kubelet.start()
    try:
        await stage.wait_back(
            stage.kubelet.started_at, stage.times.return_seconds, "the folder was made anew, and no list came"
        )
    except FailedError:
        if not program.exit_code:
            raise
        return f"it ended with {program.exit_code}, to be started again"
    return None
