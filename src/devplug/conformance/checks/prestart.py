"""Pre-start: what a plugin does with a container's devices right before each of its starts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.answers import answer
from devplug.conformance.registry import MUST, NOTE, SHOULD, check
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError
from devplug.wire.methods import PRE_START_CONTAINER

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage

KUBELET_LIMIT_SECONDS: Final = 30.0
"""How long the kubelet waits for the call (constants.go, KubeletPreStartContainerRPCTimeoutInSecs)."""

_UNKNOWN = "devplug-verify-no-such-device"
_LATE = "DeadlineExceeded"
_API = "v1beta1 api.proto, service DevicePlugin, PreStartContainer"


@check(
    "PST01",
    MUST,
    "PreStartContainer succeeds for a device that was just allocated.",
    why="the container does not start; the kubelet tries again and again",
    change="let the call succeed for every device that Allocate gives out",
    source=f"{_API}; manager.go, callPreStartContainerIfNeeded",
)
async def succeeds(stage: Stage) -> None:
    """Allocate a device, then announce the start of its container, as the kubelet does."""
    error = await _pre_start(stage, await _allocated(stage))
    if error is not None and error.status == _LATE:
        raise SkippedError("it did not come back, which PST02 judges")
    if error is not None:
        raise FailedError(f"it answered {error}")


@check(
    "PST02",
    MUST,
    f"PreStartContainer comes back within {KUBELET_LIMIT_SECONDS:g} s.",
    why="the kubelet gives up then, and the container does not start",
    change="give up on the device before that, and return an error that says what is wrong with it",
    source="constants.go, KubeletPreStartContainerRPCTimeoutInSecs; endpoint.go, preStartContainer",
)
async def is_in_time(stage: Stage) -> str:
    """Allocate a device, announce the start of its container, and take the time until any answer."""
    id_ = await _allocated(stage)
    begun = time.monotonic()
    error = await _pre_start(stage, id_)
    took = time.monotonic() - begun
    if error is not None and error.status == _LATE:
        raise FailedError(f"nothing came within {took:.1f} s")
    return f"{1000 * took:.0f} ms"


@check(
    "PST03",
    MUST,
    "PreStartContainer may come again for the same devices.",
    why="a container that restarts keeps its devices, without another Allocate, and would never start again",
    change="reset the device each time; keep no state by which a second call differs from the first",
    source="manager.go, GetDeviceRunContainerOptions, runs before every start",
)
async def may_come_again(stage: Stage) -> None:
    """Allocate a device once, then announce three starts of its container."""
    id_ = await _allocated(stage, -1)
    error = await _pre_start(stage, id_)
    if error is not None:
        raise SkippedError(f"the first call failed already, which PST01 judges: {error}")
    for count in (2, 3):
        error = await _pre_start(stage, id_)
        if error is not None:
            raise FailedError(f"the start number {count} was answered with {error}")


@check(
    "PST04",
    SHOULD,
    "PreStartContainer is refused for a device that the plugin does not have.",
    why="the container starts with a device that is gone, and that nobody has prepared",
    change="return an error, best NOT_FOUND, for IDs that are not in the list of now",
    source="manager.go, GetDeviceRunContainerOptions, which does not look at health before a restart",
)
async def refuses_unknown(stage: Stage) -> str:
    """Announce the start of a container with an ID that was never listed."""
    _check_announced(stage)
    error = await _pre_start(stage, _UNKNOWN)
    if error is None:
        raise FailedError(f"a container may start with the device {_UNKNOWN}, which was never listed")
    return error.status


@check(
    "PST05",
    NOTE,
    "A call of PreStartContainer comes back even where it is not announced.",
    why="who calls all the same, a tool or a later kubelet, is left hanging",
    change="return an error, best UNIMPLEMENTED, or an empty answer, at once",
    source=f"{_API}; DevicePluginOptions, pre_start_required",
)
async def comes_back_unannounced(stage: Stage) -> str:
    """Allocate a device, announce the start of its container, and wait for any answer or error."""
    is_announced = stage.options.pre_start_required
    (id_,) = stage.healthy_ids(1)
    await answer(stage, id_)
    error = await _pre_start(stage, id_) if is_announced else await stage.refusal(PRE_START_CONTAINER, (id_,))
    if error is not None and error.status == _LATE and not is_announced:
        raise FailedError(f"nothing came within {stage.times.answer_seconds:g} s")
    return "answered" if error is None else error.status


# ── what they share ──


def _check_announced(stage: Stage) -> None:
    if not stage.options.pre_start_required:
        raise SkippedError("pre-start is not announced in the options")


async def _allocated(stage: Stage, which: int = 0) -> str:
    """Allocate one of two devices, or the only one; return its ID."""
    _check_announced(stage)
    id_ = stage.healthy_ids(min(2, len(stage.client.healthy_ids)) or 1)[which]
    await answer(stage, id_)
    return id_


async def _pre_start(stage: Stage, id_: str) -> RemoteError | None:
    """Return the error that PreStartContainer meets within the kubelet's own time, None for success."""
    try:
        seconds = min(stage.times.return_seconds, KUBELET_LIMIT_SECONDS)
        await stage.call(PRE_START_CONTAINER, (id_,), seconds=seconds)
    except RemoteError as error:
        return error
    return None
