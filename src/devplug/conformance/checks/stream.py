"""The stream: when ListAndWatch sends its lists, to whom, and how often."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.conformance import rules
from devplug.conformance.runner import ARRIVAL
from devplug.conformance.streams import another_stream, clients_of, last_client
from devplug.conformance.testbed import once
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, SkippedError, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.conformance.testbed import TestBed
    from devplug.wire.values import AdvertisedDevice

LISTS_PER_SECOND_LIMIT = 10.0
"""More than this is a flood: each costs the kubelet an fsync under its lock."""


# ── the first list ──


@check(
    "STR01",
    MUST,
    "The first list comes soon after the stream is opened.",
    why="until then the node does not have the resource, and pods that ask for it are refused",
    change="send the list as the first thing in ListAndWatch, from what is known already; "
    "find devices and start libraries before Register",
    source="v1beta1 api.proto, ListAndWatch; manager.go fills its tables from lists only",
    lane=ARRIVAL,
)
async def first_list_in_time(bed: TestBed) -> str:
    """Take the time from the opening of ListAndWatch, after a registration, to the first list."""
    client = last_client(bed)
    limit_seconds = bed.times.first_list_limit_seconds
    opened_at = client.stream_opened_at or time.monotonic()
    left_seconds = opened_at + limit_seconds - time.monotonic()
    await bed.kubelet.until(lambda: bool(client.lists) or client.has_ended, max(0.0, left_seconds))
    if client.lists:
        took_seconds = client.lists[0][0] - client.stream_opened_at
        if took_seconds > limit_seconds:
            raise FailedError(
                f"the first list came {took_seconds:.1f} s after the stream was opened; "
                f"{limit_seconds:g} s are allowed"
            )
        return f"{1000 * took_seconds:.0f} ms"
    ends = [one.end_reason for one in clients_of(bed)]
    if any(rules.is_undecodable(end) or rules.is_too_large(end) for end in ends):
        raise SkippedError("a list came, and the kubelet could not take it (STR03, STR10)")
    if client.has_ended:
        raise FailedError(f"the stream ended before any list came: {client.end_reason}")
    raise FailedError(f"no list came within {limit_seconds:g} s of the stream's opening")


@check(
    "STR02",
    SHOULD,
    "The first list has the devices that are present.",
    why="after a reboot the pods of the node are refused for good while the list is empty",
    change="look for devices before Register; register without any only if there are none after a search",
    source="kubernetes/kubernetes#109595, #125579: UnexpectedAdmissionError after a boot",
    lane=ARRIVAL,
)
async def first_list_not_empty(bed: TestBed) -> None:
    """Check whether the first list was empty and a list with devices came right after it."""
    lists = next((client.lists for client in clients_of(bed) if client.lists), None)
    if lists is None:
        raise SkippedError("no list came")
    first_at, first = lists[0]
    if first:
        return
    until = first_at + bed.times.settle_seconds
    await bed.kubelet.until(lambda: any(devices for _, devices in lists), max(0.0, until - time.monotonic()))
    later = next(((at, devices) for at, devices in lists if devices and at <= until), None)
    if later is None:
        raise SkippedError("the list stayed empty")
    later_at, devices = later
    took_ms = 1000 * (later_at - first_at)
    raise FailedError(f"the first list was empty, and {len(devices)} devices came {took_ms:.0f} ms later")


# ── several streams ──


@dataclass(frozen=True, slots=True)
class _Several:
    """What became of the kubelet's stream and of others beside it."""

    second_seconds: float | None
    """How long the second stream waited for its list; None if none came."""
    second_end: str
    """Why the second stream ended, if it did so without a list."""
    devices: tuple[int, int] = (0, 0)
    """How many the first and the second listed."""
    ended_beside: Sequence[str] = ()
    """Which streams ended while others were open, and why."""
    ended_with_third: Sequence[str] = ()
    """Which streams ended when the third was cancelled, and why."""
    new_trouble: str = ""
    """Why a stream that was opened after that got no list."""


async def _open_several(bed: TestBed) -> _Several:
    """Open a second and a third stream beside the kubelet's, cancel the third, open a fourth."""
    kubelet, settle_seconds = bed.kubelet, bed.times.settle_seconds
    first = bed.client
    async with another_stream(bed, first) as second:
        if not second.lists:
            return _Several(None, second.end_reason)
        names = {"the first": first, "the second": second}

        def ended() -> list[str]:
            return [f"{name} ({one.end_reason})" for name, one in names.items() if one.has_ended]

        async with another_stream(bed, first):
            await kubelet.until(lambda: bool(ended()), settle_seconds)
            devices = (len(first.devices), len(second.devices))
            ended_beside = ended()
        if not ended_beside:
            await kubelet.until(lambda: bool(ended()), settle_seconds)
        ended_with_third = [] if ended_beside else ended()
        async with another_stream(bed, first) as new:
            new_trouble = (new.end_reason or "none came") if not new.lists else ""
    took_seconds = second.lists[0][0] - second.stream_opened_at
    return _Several(took_seconds, "", devices, ended_beside, ended_with_third, new_trouble)


@check(
    "STR11",
    MUST,
    "A second stream gets the whole list at once, and the first stays open.",
    why="a kubelet that restarts opens its stream while the stream of its predecessor may still be open",
    change="keep no state of a single stream: each call of ListAndWatch sends the present list first and "
    "every later one after it",
    source="plugin/v1beta1/handler.go and client.go, one ListAndWatch per registration; "
    "Mellanox/k8s-rdma-shared-dev-plugin#48",
    lane="streams",
)
async def second_stream(bed: TestBed) -> str:
    """Open more streams beside the kubelet's, compare the number of devices, and check that all stay open."""
    seen = await once(bed, _open_several)
    if seen.second_seconds is None:
        raise FailedError(
            f"a second stream ended without a list: {seen.second_end}"
            if seen.second_end
            else f"a second stream got no list within {bed.times.first_list_limit_seconds:g} s"
        )
    if seen.ended_beside:
        raise FailedError(
            f"while several streams were open, the plugin ended {' and '.join(seen.ended_beside)}"
        )
    if seen.devices[0] != seen.devices[1]:
        raise FailedError(f"the second stream lists {seen.devices[1]} devices, the first {seen.devices[0]}")
    return f"{1000 * seen.second_seconds:.0f} ms"


@check(
    "STR13",
    MUST,
    "The end of one stream disturbs no other, and a new one gets the list at once.",
    why="otherwise a broken old connection ends the kubelet's stream too, and the node loses all devices",
    change="end only what belongs to the call whose context is done; "
    "an error from Send on one stream must not stop the server or close a shared channel",
    source="k8snetworkplumbingwg/sriov-network-device-plugin#648; "
    "intel/intel-device-plugins-for-kubernetes, sendDevices",
    lane="streams",
)
async def cancelled_stream(bed: TestBed) -> None:
    """Open more streams and cancel one, see the others stay open for a while, then open a new one."""
    seen = await once(bed, _open_several)
    if seen.second_seconds is None or seen.ended_beside:
        raise SkippedError("the plugin does not serve several streams at once (STR11)")
    if seen.ended_with_third:
        raise FailedError(
            f"when a stream was cancelled, the plugin also ended {' and '.join(seen.ended_with_third)}"
        )
    if seen.new_trouble:
        raise FailedError(f"after a stream was cancelled, a new one got no list: {seen.new_trouble}")


# ── while nothing happens ──


@dataclass(frozen=True, slots=True)
class _Quiet:
    """What came while nothing changed."""

    seconds: float
    rows: Sequence[Sequence[Sequence[AdvertisedDevice]]]
    """The lists of each stream, from the last before the watch on."""
    new_lists: int
    ends: Sequence[str]
    """Why streams ended meanwhile."""


async def _watch_quietly(bed: TestBed) -> _Quiet:
    seconds = bed.times.silence_seconds
    before = {client: (len(client.lists), client.has_ended) for client in clients_of(bed)}
    await asyncio.sleep(seconds)
    rows, new_lists, ends = [], 0, []
    for client in clients_of(bed):
        known, had_ended = before.get(client, (0, False))
        rows.append([devices for _, devices in client.lists[max(0, known - 1) :]])
        new_lists += len(client.lists) - known
        if client.has_ended and not had_ended:
            ends.append(client.end_reason)
    return _Quiet(seconds, rows, new_lists, ends)


@check(
    "STR07",
    MUST,
    "A list is sent only when something in it changed.",
    why="for every list the kubelet rewrites and syncs a file to disk",
    change="remember the last list; send only when it differs",
    source="manager.go, genericDeviceUpdateCallback writes the checkpoint",
    lane="silence",
    quick=False,
)
async def silence(bed: TestBed) -> None:
    """Watch the stream while nothing happens on the machine, and count lists equal to the one before."""
    quiet = await once(bed, _watch_quietly)
    if repeats := sum(map(rules.repeats, quiet.rows)):
        raise FailedError(
            f"the same list was sent {repeats + 1} times in {quiet.seconds:g} s, nothing had changed"
        )


@check(
    "STR14",
    MUST,
    "The stream stays open as long as the plugin serves.",
    why="at its end the kubelet marks all devices Unhealthy at once, and never opens another by itself",
    change="return from ListAndWatch only when the call's context is done or the plugin ends; "
    "wait for changes without a timeout",
    source="kubernetes/kubernetes#92958, #125501; test/e2e_node/device_plugin_failures_test.go",
    lane="silence",
    quick=False,
)
async def stays_open(bed: TestBed) -> None:
    """Watch the stream while nothing happens on the machine, and see whether the plugin ends it."""
    quiet = await once(bed, _watch_quietly)
    if quiet.ends:
        raise FailedError(
            f"{len(quiet.ends)} streams were ended in {quiet.seconds:g} s, the last with: {quiet.ends[-1]}"
        )


@check(
    "STR17",
    SHOULD,
    "The plugin sends at most ten lists a second.",
    why="for each list the kubelet writes and syncs a file, under the lock that admission needs too",
    change="collect changes for half a second before you send a list, and wait until a device that flaps "
    "has settled",
    source="manager.go, genericDeviceUpdateCallback and writeCheckpoint",
    lane="silence",
    quick=False,
)
async def no_flood(bed: TestBed) -> str:
    """Count the lists that come while nothing happens on the machine, on average over the time."""
    quiet = await once(bed, _watch_quietly)
    rate = quiet.new_lists / quiet.seconds
    if rate > LISTS_PER_SECOND_LIMIT:
        raise FailedError(
            f"{quiet.new_lists} lists came in {quiet.seconds:g} s, that is {rate:.0f} a second; "
            f"{LISTS_PER_SECOND_LIMIT:g} are allowed"
        )
    return f"{rate:.1f} lists a second"


@check(
    "STR18",
    SHOULD,
    "No device leaves the list and comes back while nothing changes.",
    why="in between the kubelet does not know the device, and refuses a pod that needs it",
    change="build the whole list first and publish it in one step; keep the last list when a scan fails",
    source="manager.go, genericDeviceUpdateCallback: every list replaces all",
    lane="silence",
    quick=False,
)
async def no_flapping(bed: TestBed) -> None:
    """Watch the stream while nothing happens on the machine, and look for IDs that a list left out."""
    quiet = await once(bed, _watch_quietly)
    if faults := [fault for row in quiet.rows for fault in rules.flapping(row)]:
        raise FailedError(f"in {quiet.seconds:g} s {rules.summary(faults)}")
