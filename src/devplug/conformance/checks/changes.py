"""The stream while a device goes and comes back: what the kubelet learns of it, when, and on which stream.

For these the run needs two commands, which take a device away and bring it back.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.conformance.streams import another_stream, clients_of, healthy_ids
from devplug.conformance.testbed import LATE, once
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, NoAnswerError, SkippedError, check
from devplug.errors import quoted
from devplug.wire.deviceplugin import ALLOCATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from devplug.conformance.scripted_kubelet import Client
    from devplug.conformance.testbed import TestBed

ONE_CALL_LIMIT = 1000
"""How many devices are asked for at once; a pod that has so many of one resource is hard to find."""

SINGLE_LIMIT = 64
"""How many are asked for one by one, where the plugin does not give all of them at once."""


# ── one device goes, and comes back ──


@dataclass(frozen=True, slots=True)
class _Trip:
    """What the kubelet saw while one device was away."""

    waited_seconds: float
    lost: frozenset[str]
    """The devices that were Healthy before and then were not; empty if nothing was noticed."""
    lost_after_seconds: float
    held: frozenset[str]
    """Those of them that a pod had got before."""
    dropped: frozenset[str]
    """Those of them that were missing in a list."""
    back_after_seconds: float | None
    """How long after its return all were Healthy again; None if they were not."""
    left: str
    """What the last list said of those that did not come back."""

    def require_notice(self) -> None:
        """Raise `SkippedError` if nothing was noticed."""
        if not self.lost:
            raise SkippedError("the plugin did not notice that the device was taken away (STR20)")

    def require_return(self) -> None:
        """Raise `SkippedError` if nothing was noticed, or if the device did not come back."""
        self.require_notice()
        if self.back_after_seconds is None:
            raise SkippedError("the device was not Healthy again after its return (STR23)")


async def _trip(bed: TestBed) -> _Trip:
    """Let a pod have all devices, take one away, bring it back, and watch the kubelet's stream."""
    kubelet, seconds = bed.kubelet, bed.times.change_seconds
    _require_commands(bed)
    bed.healthy_ids()  # or there is nothing to take away
    before = healthy_ids(bed.client)
    held = await _allocated(bed, sorted(before))

    def healthy() -> frozenset[str]:
        return healthy_ids(kubelet.client)

    begun_at = time.monotonic()  # a quick plugin tells of it before the command has ended
    try:
        await bed.run(bed.test_run.subject.unplug)
        gone_at = time.monotonic()
        await kubelet.until(lambda: not before <= healthy() or not bed.is_alive(), seconds)
        lost, seen_at = before - healthy(), time.monotonic()
        if lost:  # some list it as Unhealthy first, and drop it a moment later
            await asyncio.sleep(bed.times.settle_seconds)
        dropped = {id_ for id_ in lost & held if _is_missing(bed, id_, begun_at)}
        _require_life(bed, "a device was taken away")
    finally:
        await bed.run(bed.test_run.subject.replug)
        back_at = time.monotonic()
    if not lost:
        return _Trip(seconds, lost, 0.0, lost, lost, None, "")
    is_back = await kubelet.until(lambda: lost <= healthy() or not bed.is_alive(), seconds)
    _require_life(bed, "a device was brought back")
    back_after_seconds = time.monotonic() - back_at if is_back else None
    return _Trip(
        seconds,
        lost,
        seen_at - gone_at,
        lost & held,
        frozenset(dropped),
        back_after_seconds,
        _last_listed(kubelet.client, lost - healthy(), before),
    )


def _require_commands(bed: TestBed) -> None:
    if not bed.test_run.subject.unplug or not bed.test_run.subject.replug:
        raise SkippedError("no commands were given that take a device away and bring it back (--unplug)")


def _require_life(bed: TestBed, when: str) -> None:
    if not bed.is_alive():
        raise FailedError(f"when {when}, its process ended: {bed.program.last_words()}")


async def _allocated(bed: TestBed, ids: Sequence[str]) -> frozenset[str]:
    """Ask for all devices at once, or else for each, unless there are too many; return those given."""
    if len(ids) > ONE_CALL_LIMIT:
        return frozenset()
    given: set[str] = set()
    with suppress(NoAnswerError):
        if await bed.refusal(ALLOCATE, [tuple(ids)]) is None:
            return frozenset(ids)
        for id_ in ids[:SINGLE_LIMIT]:
            error = await bed.refusal(ALLOCATE, [(id_,)])
            if error is None:
                given.add(id_)
            elif error.status == LATE:
                break
    return frozenset(given)


def _is_missing(bed: TestBed, id_: str, since: float) -> bool:
    """Whether a list that came after `since` does not have this device."""
    return any(
        at >= since and all(device.id != id_ for device in devices)
        for client in clients_of(bed)
        for at, devices in client.lists
    )


def _last_listed(client: Client | None, ids: Iterable[str], before: frozenset[str]) -> str:
    """Return what the last list says of `ids`, and which IDs are new in it."""
    if client is None:
        return "the plugin is not registered any more"
    words = {device.id: device.health for device in client.devices}
    parts = [f"{quoted(id_)} is {words.get(id_, 'not listed')}" for id_ in sorted(ids)[:3]]
    new = sorted(healthy_ids(client) - before)
    return ", ".join([*parts, *(f"{quoted(id_)} is listed instead" for id_ in new[:1])])


def _named(ids: Iterable[str]) -> str:
    return ", ".join(map(quoted, sorted(ids)[:3]))


@check(
    "STR20",
    MUST,
    "A device that is taken away soon becomes Unhealthy or leaves the list.",
    why="the scheduler sends pods to a device that is not there, and they fail when they start",
    change="watch the device (udev events, inotify on its node) or look for it every few seconds, "
    "and send a new list",
    source="v1beta1 api.proto, ListAndWatch returns a new list whenever a device changes or disappears",
    lane="change",
    alone=True,
    quick=False,
)
async def departure_noticed(bed: TestBed) -> str:
    """Allocate all devices, take one away, and wait for a list that shows it."""
    trip = await once(bed, _trip)
    if not trip.lost:
        raise FailedError(f"{trip.waited_seconds:g} s later all devices were still listed as Healthy")
    return f"{_named(trip.lost)} after {trip.lost_after_seconds:.2f} s"


@check(
    "STR21",
    SHOULD,
    "A device that is taken away stops being Healthy within a second.",
    why="pods that arrive in between get the device and fail",
    change="react to the kernel's event instead of polling",
    source="kubernetes/kubernetes#60388",
    lane="change",
    alone=True,
    quick=False,
)
async def departure_noticed_soon(bed: TestBed) -> str:
    """Take the time from the end of the command that takes a device away to the list that shows it."""
    trip = await once(bed, _trip)
    trip.require_notice()
    limit_seconds = bed.times.notice_limit_seconds
    if trip.lost_after_seconds > limit_seconds:
        raise FailedError(
            f"{_named(trip.lost)} was Healthy for {trip.lost_after_seconds:.1f} s after it was taken away; "
            f"{limit_seconds:g} s are allowed"
        )
    return f"{1000 * trip.lost_after_seconds:.0f} ms"


@check(
    "STR22",
    MUST,
    "A device that is taken away while a pod has it stays in the list as Unhealthy.",
    why="the kubelet looks up the devices of running pods in the last list without a check, and can crash; "
    "the pod's status keeps saying Healthy",
    change="keep every device that Allocate gave out in the list, as Unhealthy, until it is back or no pod "
    "has it",
    source="manager.go, allDevices of a device in use; topology_hints.go",
    lane="change",
    alone=True,
    quick=False,
)
async def held_device_stays_listed(bed: TestBed) -> str:
    """Allocate all devices, take one away, and look for its ID in every list that comes then."""
    trip = await once(bed, _trip)
    trip.require_notice()
    if not trip.held:
        raise SkippedError("Allocate did not give out the device that was taken away")
    if trip.dropped:
        raise FailedError(f"{_named(trip.dropped)} was allocated, and left the list when it was taken away")
    return _named(trip.held)


@check(
    "STR23",
    MUST,
    "A device that comes back is Healthy again, with the ID that it had.",
    why="otherwise every passing fault costs the node a device until someone restarts the plugin; under "
    "another ID a pod cannot get its device back",
    change="keep checking the health of every device, also of those that failed; make IDs of serial numbers "
    "or bus addresses, not of node names",
    source="NVIDIA/k8s-device-plugin#189; squat/generic-device-plugin#74",
    lane="change",
    alone=True,
    quick=False,
)
async def return_noticed(bed: TestBed) -> str:
    """Bring back the device that was taken away, and wait until the same ID is listed as Healthy."""
    trip = await once(bed, _trip)
    trip.require_notice()
    if trip.back_after_seconds is None:
        raise FailedError(f"{trip.waited_seconds:g} s after its return {trip.left}")
    return f"{trip.back_after_seconds:.2f} s"


# ── which streams get the change ──


async def _change_on_all(bed: TestBed, streams: Mapping[str, Client]) -> None:
    """Take a device away and bring it back; raise `FailedError` if one of the streams does not get both.

    For a stream that ended, its end tells the kubelet that all devices are Unhealthy.
    """
    before = {client: healthy_ids(client) for client in streams.values()}

    async def without_change(has_change: Callable[[Client], bool]) -> Sequence[str]:
        def missing() -> list[str]:
            return [
                name for name, client in streams.items() if not client.has_ended and not has_change(client)
            ]

        await bed.kubelet.until(lambda: not missing(), bed.times.change_seconds)
        return missing()

    try:
        await bed.run(bed.test_run.subject.unplug)
        unaware = await without_change(lambda client: not before[client] <= healthy_ids(client))
    finally:
        await bed.run(bed.test_run.subject.replug)
    if unaware:
        await asyncio.sleep(bed.times.settle_seconds)  # or its return would be news in the next check
        raise FailedError(
            f"{' and '.join(unaware)} got no new list within {bed.times.change_seconds:g} s after a "
            "device was taken away"
        )
    if unaware := await without_change(lambda client: before[client] <= healthy_ids(client)):
        raise FailedError(
            f"{' and '.join(unaware)} got a list without the device, and no new list within "
            f"{bed.times.change_seconds:g} s after its return"
        )


def _require_open(*streams: Client) -> None:
    if any(stream.has_ended for stream in streams):
        raise SkippedError("a stream ended when others were opened or cancelled (STR11, STR13)")


@check(
    "STR24",
    MUST,
    "A change reaches the open stream, even after earlier streams were cancelled.",
    why="otherwise the handler of the old kubelet's stream takes the update after a restart, and the new "
    "kubelet keeps a wrong list",
    change="end the loop of ListAndWatch when the call's context is done, and let every stream compare the "
    "list with the last one that it sent itself; use no channel or flag that only one of them can read",
    source="Mellanox/k8s-rdma-shared-dev-plugin#46",
    lane="change",
    alone=True,
    quick=False,
)
async def abandoned_streams_take_nothing(bed: TestBed) -> None:
    """Open two more streams and cancel them, then take a device away and bring it back."""
    (await once(bed, _trip)).require_return()
    client = bed.client
    # Those that poll look for each stream by itself: the abandoned ones shall not look together with it.
    await asyncio.sleep(bed.times.settle_seconds)
    for _ in range(2):
        async with another_stream(bed, client):
            pass
    # One that ends all streams with one may do so a moment later.
    await bed.kubelet.until(lambda: client.has_ended, bed.times.settle_seconds)
    _require_open(client)
    await _change_on_all(bed, {"the kubelet's stream": client})


@check(
    "STR25",
    MUST,
    "A change reaches every open stream.",
    why="the plugin cannot know which open stream is the kubelet's and which is left over",
    change="keep one list with a version and wake all streams when it is replaced; each sends the list if "
    "it has not sent that version",
    source="Mellanox/k8s-rdma-shared-dev-plugin#74",
    lane="change",
    alone=True,
    quick=False,
)
async def every_stream_gets_the_change(bed: TestBed) -> None:
    """Open two more streams beside the kubelet's, then take a device away and bring it back."""
    (await once(bed, _trip)).require_return()
    client = bed.client
    streams = {"the kubelet's stream": client}
    async with AsyncExitStack() as opened:
        for name in ("the second stream", "the third stream"):
            streams[name] = await opened.enter_async_context(another_stream(bed, client))
            if not streams[name].lists:
                raise SkippedError(f"{name} got no list (STR11)")
        _require_open(*streams.values())
        await _change_on_all(bed, streams)
