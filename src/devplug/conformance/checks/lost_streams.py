"""Lost streams: ListAndWatch ends while the kubelet and both sockets stay; many plugins never notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.conformance.registry import MUST, SHOULD, check
from devplug.conformance.restart_scenes import expect_loss_survived, losses
from devplug.conformance.verdicts import FailedError, SkippedError

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage

_LANE = "lost stream"


@check(
    "RES04",
    MUST,
    "A plugin registers again when its stream was lost, though kubelet and sockets are still there.",
    why="the kubelet holds all its devices for Unhealthy then and never calls ListAndWatch by itself",
    change="take the end of ListAndWatch (its context is cancelled, or a send fails) for a reason to call "
    "Register again, unless another stream is open or you are ending",
    source="kubernetes/kubernetes#92958, #125501, #127803",
    lane=_LANE,
    quick=False,
)
async def back_after_a_lost_stream(stage: Stage) -> None:
    """Close the kubelet's connection to the plugin, leave the rest as it is, and wait for a registration."""
    seen = await losses(stage)
    if not seen.seconds:
        raise FailedError(seen.trouble)


@check(
    "RES05",
    SHOULD,
    "It is back soon after a lost stream.",
    why="until then the node has none of its devices to give",
    change="register at once when the stream ends, and wait only after a registration that failed",
    source="kubernetes/kubernetes#92958, the kubelet never opens a stream by itself",
    lane=_LANE,
    quick=False,
)
async def back_soon(stage: Stage) -> str:
    """Take the time from the first lost stream to the call of Register."""
    seconds = (await expect_loss_survived(stage)).seconds[0]
    limit_seconds = stage.times.return_seconds / 3
    if seconds > limit_seconds:
        raise FailedError(
            f"it registered {seconds:.1f} s after the lost stream; {limit_seconds:.1f} s are allowed"
        )
    return f"after {1000 * seconds:.0f} ms"


@check(
    "RES15",
    SHOULD,
    "Registrations that follow each other leave no sockets behind.",
    why="behind each is a server that is never ended, or nothing, which stays until the kubelet restarts",
    change="keep the one server over a new registration, or stop the old one and remove its socket first",
    source="kubevirt/device-plugin-manager pkg/dpm/manager.go, where StopServer works on a copy",
    lane=_LANE,
    quick=False,
)
async def no_sockets_left(stage: Stage) -> None:
    """Lose several streams, one after the other, and count the sockets in the folder before and after."""
    seen = await expect_loss_survived(stage)
    if len(seen.seconds) < 3:
        raise SkippedError(f"it was back after {len(seen.seconds)} lost streams only, which show no leak")
    if len(seen.sockets_after) > len(seen.sockets_before) + 1:
        raise FailedError(
            f"after {len(seen.seconds)} lost streams there are {len(seen.sockets_after)} sockets, "
            f"{len(seen.sockets_before)} before"
        )


@check(
    "RES16",
    MUST,
    "A plugin whose new stream is lost at once registers a third time.",
    why="a kubelet that ends the old stream late takes the newest client down with it, up to 1.36",
    change="do not count registrations or losses: a stream that ends while none is open asks for a new one",
    source="kubernetes/kubernetes#121994, handler.go of 1.36, PluginDisconnected by resource name",
    lane=_LANE,
    quick=False,
)
async def back_after_a_second_lost_stream(stage: Stage) -> str:
    """Lose the stream, and the next one as soon as its first list is there; wait for a registration."""
    seen = await expect_loss_survived(stage)
    if len(seen.seconds) == 1:
        raise FailedError(seen.trouble)
    return f"back after each of {len(seen.seconds)} lost streams"
