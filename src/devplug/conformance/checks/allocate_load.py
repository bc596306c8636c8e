"""Allocate: calls repeated, at once, and given up; how long they take, and how much they bring."""

from __future__ import annotations

import asyncio
import math
import os
import time
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Final

from devplug.conformance.answers import answer, demand_none, sample, steady
from devplug.conformance.program import scheduling_of
from devplug.conformance.response_rules import hardware, items
from devplug.conformance.verdicts import MUST, SHOULD, FailedError, NoAnswerError, SkippedError, check
from devplug.errors import RemoteError
from devplug.wire.deviceplugin import ALLOCATE, LIST_AND_WATCH
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.conformance.testbed import TestBed
    from devplug.devices import ContainerResponse

_CALLS_AT_ONCE: Final = 8
_MORE_STREAMS: Final = 5
_CANCELLED_AFTER_SECONDS: Final = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
_MANY: Final = 10_000
# What a plugin answers that chokes on the size, and not on a rule of its own.
_CHOKED: Final = ("ResourceExhausted", "Internal", "Unavailable", "Canceled", "DeadlineExceeded")


@check(
    "ALL10",
    MUST,
    "A repeated request gets the same answer.",
    why="the kubelet allocates a device again after an init container had it, and for each new pod; the "
    "API has no call for a release",
    change="derive the response from the device, not from earlier allocations",
    source="manager.go, devicesToAllocate reuses devices of init containers; project-akri/akri#843",
    lane="again",
)
async def same_request_has_same_answer(bed: TestBed) -> None:
    """Ask for one device three times and compare device nodes and CDI names."""
    (id_,) = sample(bed, 1)
    first = await answer(bed, id_)
    for _ in range(2):
        try:
            responses = await bed.allocate([id_])
        except RemoteError as error:
            raise FailedError(f"Allocate gave out {id_} once, and refuses it now: {error}") from error
        if len(responses) != 1 or hardware(responses[0]) != hardware(first):
            raise FailedError(
                f"{id_} was answered with {_described(first)}, and then with "
                f"{' and '.join(map(_described, responses)) or 'nothing'}"
            )


def _described(response: ContainerResponse) -> str:
    return (
        ", ".join(" ".join(part) for part in sorted(hardware(response))) or "no device node and no CDI name"
    )


@check(
    "ALL31",
    MUST,
    "A cancelled call of Allocate does not block the next.",
    why="a kubelet that restarts cancels its calls; a lock that stays held then fails every later pod",
    change="release locks and remove unfinished files however the call ends",
    source="grpc.io, cancellation; manager.go, Allocate runs without a deadline of its own",
    lane="again",
)
async def cancelled_call_leaves_it_able(bed: TestBed) -> None:
    """Cancel calls of Allocate after 0 to 100 ms, then ask once more and compare the answers."""
    (id_,) = sample(bed, 1)
    before = await answer(bed, id_)
    if hardware(await answer(bed, id_)) != hardware(before):
        raise SkippedError(f"{id_} is answered differently each time (see ALL10)")
    for after in _CANCELLED_AFTER_SECONDS:
        with suppress(TimeoutError, RemoteError):
            async with asyncio.timeout(after):
                await bed.allocate([id_])
    try:
        responses = await bed.allocate([id_])
    except RemoteError as error:
        raise FailedError(
            f"after {len(_CANCELLED_AFTER_SECONDS)} cancelled calls Allocate answers {error}"
        ) from error
    if [hardware(one) for one in responses] != [hardware(before)]:
        raise FailedError(f"after cancelled calls {id_} is answered differently")


@check(
    "ALL11",
    MUST,
    "Concurrent calls get the same answers as calls one after the other.",
    why="the kubelet calls Allocate at the same time for pods whose containers restart; if answers are "
    "mixed up, two pods share a device",
    change="keep the state of a call in its handler, and guard shared state with a lock",
    source="pkg/kubelet/cm/devicemanager/manager.go, GetDeviceRunContainerOptions in pod workers",
)
async def calls_at_once_are_kept_apart(bed: TestBed) -> None:
    """Call Allocate eight times at once, for as many devices as there are, and compare with single calls."""
    alone = {id_: await steady(bed, id_) for id_ in sample(bed, _CALLS_AT_ONCE)}
    ids = (list(alone) * _CALLS_AT_ONCE)[:_CALLS_AT_ONCE]
    results: list[tuple[str, Sequence[ContainerResponse] | RemoteError]] = []

    async def ask(id_: str) -> None:
        try:
            results.append((id_, await bed.allocate([id_])))
        except RemoteError as error:
            results.append((id_, error))

    async with asyncio.TaskGroup() as group:
        for id_ in ids:
            group.create_task(ask(id_))
    demand_none(fault for id_, result in results if (fault := _mixed_up(id_, result, alone)))


def _mixed_up(
    id_: str,
    result: Sequence[ContainerResponse] | RemoteError,
    alone: Mapping[str, frozenset[tuple[str, ...]]],
) -> str:
    """Return what is wrong with the answer to one of several calls, or an empty string."""
    if isinstance(result, RemoteError):
        return f"one of {_CALLS_AT_ONCE} calls at once, for {id_}, is answered with {result}"
    if len(result) != 1:
        return f"one of {_CALLS_AT_ONCE} calls at once, for {id_}, has {len(result)} container responses"
    given = items(result[0])
    others = frozenset[tuple[str, ...]]().union(*alone.values()) - alone[id_]
    if given & others:
        return (
            f"asked for together with others, {id_} is answered with a part of another device: "
            f"{min(given & others)}"
        )
    if alone[id_] - given:
        return f"in a call with others, the response for {id_} lacks {min(alone[id_] - given)}"
    return ""


@check(
    "ALL27",
    MUST,
    "Allocate is answered while several streams are open.",
    why="streams of kubelets that have ended can stay open for a while; if they use up the threads of "
    "the server, Allocate hangs, the kubelet waits without a deadline, and no pod of the node starts "
    "(kubernetes#117435)",
    change="serve streams so that none of them holds a thread of the pool that answers calls",
    source="manager.go, Allocate without a timeout; gRPC's thread pools in Python and C++",
    lane="latency",
)
async def streams_do_not_starve_it(bed: TestBed) -> None:
    """Open five more streams, each on its own connection, wait for their lists, and call Allocate."""
    (id_,) = sample(bed, 1)
    client = bed.client
    await answer(bed, id_)
    async with AsyncExitStack() as opened:
        for _ in range(_MORE_STREAMS):
            peer = await opened.enter_async_context(connected(client.path))
            lists = await opened.enter_async_context(aclosing(peer.stream(LIST_AND_WATCH, None)))
            # A stream that is refused, or has no list, is for the checks of the stream.
            with suppress(RemoteError, TimeoutError, StopAsyncIteration):
                async with asyncio.timeout(bed.times.settle_seconds):
                    await anext(lists)
        try:
            # The kubelet's stream may have ended; that is for the checks of the stream, too.
            await bed.call(ALLOCATE, [(id_,)], peer=client.peer)
        except RemoteError as error:
            raise FailedError(f"with {_MORE_STREAMS} more streams open Allocate answers {error}") from error


@check(
    "ALL12",
    MUST,
    "One Allocate takes less than 5 seconds.",
    why="the kubelet admits one pod after the other and waits without a deadline: all others wait too",
    change="prepare devices before they are listed; in Allocate only look up what to give",
    source="devicemanager/endpoint.go, allocate has no timeout; kubernetes/kubernetes#117435",
    lane="latency",
)
async def one_call_is_no_long_wait(bed: TestBed) -> str:
    """Time the first calls after a start, for up to four devices."""
    limit_seconds = bed.times.call_limit_seconds
    slowest = 0.0
    for id_ in sample(bed, 4):
        begun = time.monotonic()
        try:
            error = await bed.refusal(ALLOCATE, [(id_,)])
        except NoAnswerError as silence:
            raise FailedError(str(silence)) from silence
        took = time.monotonic() - begun
        if took > limit_seconds:
            raise FailedError(
                f"Allocate of {id_} took {took:.1f} s" + (f" and ended in {error}" if error else "")
            )
        if error:
            raise SkippedError(f"Allocate refuses {id_} (see ALL01, ALL10): {error}")
        slowest = max(slowest, took)
    return f"at most {1000 * slowest:.1f} ms"


@check(
    "ALL13",
    SHOULD,
    "99 of 100 calls of Allocate take less than 100 ms.",
    why="the start of every pod with a device waits for it",
    change="do not scan the machine, start programs or ask a server in Allocate",
    source="pkg/kubelet/kubelet.go, pods are admitted one by one",
    lane="latency",
    alone=True,
)
async def calls_are_quick(bed: TestBed) -> str:
    """Time 100 calls in a row over the healthy devices; if they are slow, time 100 more and take the better.

    The time that the plugin and the judge waited for a processor does not count.
    """
    ids = sample(bed)
    for id_ in ids:
        await answer(bed, id_)
    pids = bed.program.pids()
    calls = bed.times.calls
    bearable = max(1, calls - math.ceil(0.99 * calls))
    seconds: list[float] = []
    slow: list[float] = []
    for _ in range(2):
        seconds = []
        slow = []
        while len(seconds) < calls and len(slow) <= bearable:
            before = [scheduling_of(group) for group in ((os.getpid(),), pids)]
            begun = time.monotonic()
            await answer(bed, ids[len(seconds) % len(ids)])
            took = time.monotonic() - begun
            after = [scheduling_of(group) for group in ((os.getpid(),), pids)]
            waited = sum(now.waited_since(then) for now, then in zip(after, before, strict=True))
            seconds.append(max(0.0, took - waited))
            slow = [one for one in seconds if one >= bed.times.quick_call_limit_seconds]
        if len(slow) <= bearable:
            median, p99 = (1000 * sorted(seconds)[math.ceil(part * calls) - 1] for part in (0.5, 0.99))
            return f"median {median:.1f} ms, p99 {p99:.1f} ms"
    raise FailedError(f"{len(slow)} of {len(seconds)} calls took {1000 * min(slow):.0f} ms or more")


@check(
    "ALL32",
    SHOULD,
    "The answer for all devices at once fits into 4 MiB.",
    why="the kubelet's gRPC client refuses a larger answer, and the pod fails",
    change="give one folder, mount or variable for all devices instead of one for each, or shorter values",
    source="grpc-go, the default of MaxCallRecvMsgSize; kubernetes/kubernetes#109304",
)
async def answer_for_all_fits(bed: TestBed) -> str:
    """Ask for all healthy devices, up to 10,000, for one container."""
    ids = sample(bed, _MANY)
    try:
        responses = await bed.allocate(ids)
    except RemoteError as error:
        if error.status in _CHOKED and await bed.refusal(ALLOCATE, [(ids[0],)]) is None:
            raise FailedError(f"Allocate answers a request for {len(ids)} devices with {error}") from error
        raise SkippedError(f"{len(ids)} devices at once are refused: {error}") from error
    return f"{len(ALLOCATE.response.encode(responses))} bytes for {len(ids)} devices"
