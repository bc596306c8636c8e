"""Hostile clients: no request and no connection on the socket ends a plugin, or keeps it from serving.

Each check ends with a look at whether the plugin serves, on the kubelet's connection and on a new one.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.raw_clients import (
    MALFORMED,
    NOT_HTTP2,
    UNKNOWN_METHODS,
    allocate_request,
    come_and_go,
    cut_request,
    expect_served,
    huge_headers,
    no_free_descriptors,
    probe,
    raw,
    settled,
    silent_connections,
    streams,
    talk,
)
from devplug.conformance.streams import fall, require_steady
from devplug.conformance.testbed import BROKEN, LATE
from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, SkippedError, check
from devplug.errors import RemoteError
from devplug.wire.deviceplugin import ALLOCATE, GET_OPTIONS, GET_PREFERRED_ALLOCATION, PRE_START_CONTAINER
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from devplug.conformance.figures import Figures
    from devplug.conformance.testbed import TestBed

CALLS: Final = 64
TEXT_LIMIT_BYTES: Final = 4096
"""A status travels in a header, and grpc takes 8 KiB of them all."""

CONNECTIONS: Final = 100
STREAMS: Final = 64
_STREAM_BYTES: Final = 2048
"""Memory that each ended stream may take; Go plugins that never return from it keep 12 to 16 KiB."""
_AT_ONCE: Final = 8
_BURSTS: Final = 3
_SPARE: Final = 5


# ── requests that are wrong in themselves ──


@check(
    "HOS01",
    MUST,
    "An Allocate request that cannot be decoded is refused, and has no other effect.",
    why="otherwise the plugin gives out devices that nobody asked for, or crashes and serves no pod",
    change="let the gRPC library decode, and pass on its error; do not exit or panic on it",
    source="gRPC status codes, INVALID_ARGUMENT and INTERNAL",
)
async def refuses_malformed_allocate(bed: TestBed) -> None:
    """Send bytes that cannot be decoded: endless, cut off, not UTF-8, too deep."""
    for malformed in MALFORMED:
        error = await bed.refusal(raw(ALLOCATE), malformed.content)
        if error is not None and error.status == LATE:
            raise FailedError(f"{malformed.name}: nothing came within {bed.times.answer_seconds:g} s")
        if error is None and malformed.must_be_refused:
            raise FailedError(f"{malformed.name} was answered like a valid request")
        await expect_served(bed, malformed.name)


@check(
    "HOS02",
    MUST,
    "Bytes that cannot be decoded do no harm to the other calls.",
    why="a plugin that crashes on them serves no pod until it is started again",
    change="let the gRPC library decode, and pass on its error; do not exit or panic on it",
    source="gRPC status codes, INVALID_ARGUMENT and INTERNAL",
)
async def bears_malformed_calls(bed: TestBed) -> None:
    """Send the same bytes to all other calls of the API."""
    for malformed in MALFORMED:
        for method in (GET_OPTIONS, GET_PREFERRED_ALLOCATION, PRE_START_CONTAINER):
            error = await bed.refusal(raw(method), malformed.content)
            await expect_served(bed, f"{malformed.name} to {method.name}")
            if malformed.must_be_refused and error is not None and error.status == LATE:
                raise FailedError(f"{malformed.name} to {method.name}: nothing came")
        if not await fall(bed):
            async with streams(bed, bed.client.peer, 1, malformed.content):
                pass
            await expect_served(bed, f"{malformed.name} to ListAndWatch")


@check(
    "HOS03",
    MUST,
    "A call that the API does not have is answered with UNIMPLEMENTED.",
    why="callers learn from it what a plugin supports; any other answer looks like a fault or a success",
    change="register the generated service only, and no handler for everything else",
    source="gRPC status codes, UNIMPLEMENTED",
    harmless=True,
)
async def knows_what_it_does_not(bed: TestBed) -> None:
    """Call a method, a version and a service that do not exist."""
    for method in UNKNOWN_METHODS:
        error = await bed.refusal(method, b"")
        if error is None or error.status != "Unimplemented":
            raise FailedError(f"{method.path} is answered with {error or 'success'}")


@check(
    "HOS04",
    MUST,
    "A request of many megabytes does not end the plugin.",
    why="a plugin that ends serves no pod until it is started again",
    change="set the gRPC library's limit for received messages, 16 MiB at most",
    source="grpc-go, MaxRecvMsgSize; volcano-sh/volcano-vgpu-device-plugin#152",
)
async def bears_large_requests(bed: TestBed) -> None:
    """Ask Allocate for unknown devices with 3 MB of IDs, then with 5 MB and 20 MB; any answer will do."""
    for megabytes in (3, 5, 20):
        content = allocate_request(b"devplug-verify-no-such-device-00", count=megabytes * 10**6 // 34)
        await bed.refusal(raw(ALLOCATE), content)
        await expect_served(bed, f"a request of {megabytes} MB")


@check(
    "HOS10",
    SHOULD,
    "The refusal of bytes that cannot be decoded is one line without a stack trace.",
    why="people read it to find out why a pod failed, and a stack trace does not help them",
    change="return a status with a sentence, and log the rest",
    source="gRPC status codes; the kubelet puts a plugin's words into the pod's status",
)
async def says_one_line(bed: TestBed) -> None:
    """Send bytes that cannot be decoded to Allocate, and look at the error's text."""
    for malformed in MALFORMED:
        error = await bed.refusal(raw(ALLOCATE), malformed.content)
        text = error.text.strip() if error else ""
        traces = [word for word in ("Traceback (", 'File "', "goroutine ", "\n") if word in text]
        if traces:
            raise FailedError(f"{malformed.name} was answered with {text[:120]!r}")
        await expect_served(bed, malformed.name)


@check(
    "HOS11",
    NOTE,
    f"A refusal quotes at most {TEXT_LIMIT_BYTES // 1024} KiB of a request.",
    why="the caller's library drops an answer with longer headers, and nobody learns what was wrong",
    change="shorten what a message quotes, for example to 64 characters",
    source="gRPC over HTTP/2, Status-Message; the kubelet puts it into the pod's status",
)
async def quotes_little(bed: TestBed) -> None:
    """Ask Allocate for a device with an ID of 1 MiB; the size of the text counts, not whether it refuses."""
    error = await bed.refusal(raw(ALLOCATE), allocate_request(b"x" * 2**20))
    size = len(error.text.encode()) if error else 0
    is_dropped = error is not None and "metadata size" in error.text  # what grpc says for too long headers
    if size > TEXT_LIMIT_BYTES or is_dropped:
        raise FailedError(
            "the text was too long for a header" if is_dropped else f"the text has {size} bytes"
        )
    await expect_served(bed, "an ID of 1 MiB")


@check(
    "HOS13",
    SHOULD,
    "Concurrent calls of Allocate are all answered.",
    why="a call without an answer blocks the admission of pods for good",
    change="guard what calls share with a lock, and hold it briefly",
    source="v1beta1 endpoint.go: the kubelet sets no deadline for Allocate",
)
async def answers_together(bed: TestBed) -> str:
    """Send 64 calls of Allocate at once, for the same few devices; a refusal counts as an answer."""
    ids = bed.client.healthy_ids
    bed.healthy_ids()
    begun = time.monotonic()
    await bed.refusal(ALLOCATE, [(ids[0],)])
    # One after the other is fine, however long each takes.
    limit = min(
        max(bed.times.answer_seconds, 2 * CALLS * (time.monotonic() - begun)), bed.times.check_seconds / 2
    )
    lost: list[str] = []

    async def ask(id_: str) -> None:
        try:
            await bed.call(ALLOCATE, [(id_,)], seconds=limit)
        except RemoteError as error:
            if error.status in BROKEN:
                lost.append(str(error))

    begun = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(CALLS):
            group.create_task(ask(ids[number % len(ids)]))
    took = time.monotonic() - begun
    if lost:
        raise FailedError(f"of {CALLS} calls {len(lost)} did not come back within {limit:.0f} s: {lost[0]}")
    await expect_served(bed, f"{CALLS} calls at once")
    return f"{CALLS} calls in {1000 * took:.0f} ms"


# ── connections and streams ──


@check(
    "HOS05",
    MUST,
    "Bytes on the socket that are not HTTP/2 do no harm.",
    why="otherwise a probe or a scan of the sockets stops the plugin for all pods",
    change="leave the connections to the gRPC library; treat an error on one as the end of that one only",
    source="RFC 9113, 3.4: the connection preface",
)
async def survives_other_protocols(bed: TestBed) -> None:
    """Connect and send noise, an HTTP/1 request, half a connection preface, and wrong settings."""
    for name, content in NOT_HTTP2:
        await talk(bed, content)
        await expect_served(bed, name)


@check(
    "HOS06",
    MUST,
    "Silent connections do not keep a plugin from answering.",
    why="the kubelet waits in Allocate without a limit, and admits no pod meanwhile",
    change="serve every connection independently; do not wait for the first bytes in the loop that accepts",
    source="kubernetes/kubernetes#117435: one stuck plugin holds up all pods of its node",
)
async def answers_beside_silent_connections(bed: TestBed) -> str:
    """Hold a hundred connections that say nothing, and call over the kubelet's and over a new one."""
    limit = bed.times.return_limit_seconds
    async with silent_connections(bed, CONNECTIONS) as count:
        begun = time.monotonic()
        try:
            await probe(bed, bed.client.peer, limit)
            async with connected(bed.client.path) as peer:
                await probe(bed, peer, limit)
        except RemoteError as error:
            raise FailedError(
                f"beside {count} silent connections a call was answered with {error}, after "
                f"{time.monotonic() - begun:.1f} s"
            ) from error
    took = time.monotonic() - begun
    await expect_served(bed, f"{count} silent connections")
    return f"{count} connections, {1000 * took:.0f} ms"


@check(
    "HOS07",
    SHOULD,
    "Connections that come and go leave no descriptors behind.",
    why="a plugin that runs for months reaches the limit of descriptors, and nobody can dial it",
    change="close a connection when its other end does",
    source="getrlimit(2), RLIMIT_NOFILE",
)
async def forgets_connections(bed: TestBed) -> str:
    """Connect and close two hundred times, and count the open descriptors of its process."""
    await come_and_go(bed, 10)
    before = bed.program.figures().descriptors
    await come_and_go(bed, 2 * CONNECTIONS)
    after = (await settled(bed, lambda now: now.descriptors <= before + _SPARE)).descriptors
    if after > before + _SPARE:
        raise FailedError(f"{before} descriptors before {2 * CONNECTIONS} connections, {after} after")
    await expect_served(bed, f"{2 * CONNECTIONS} connections")
    return f"{before} descriptors before, {after} after"


@check(
    "HOS08",
    MUST,
    "A caller that breaks off in the middle of a request does no harm.",
    why="otherwise a kubelet that is killed during a call takes the plugin with it",
    change="treat an error on a connection as the end of that connection only",
    source="RFC 9113, 5.4: errors of connections and of streams",
)
async def bears_cut_requests(bed: TestBed) -> None:
    """Send an Allocate by hand, break off within its message, and repeat that a few times."""
    for _ in range(3):
        await talk(bed, cut_request(ALLOCATE, allocate_request(b"x" * 2000)))
    await expect_served(bed, "a request that is cut off")


@check(
    "HOS09",
    MUST,
    "Streams that end leave nothing behind.",
    why="each restart of the kubelet and each tool that opens a stream leaks a thread or a descriptor",
    change="end what serves a stream when the stream's context is cancelled, not at the next send",
    source="Mellanox/k8s-rdma-shared-dev-plugin#74: streams of kubelets that are gone",
    quick=False,
)
async def forgets_streams(bed: TestBed) -> str:
    """Open and cancel 64 streams, then the same again, and compare threads and descriptors in between."""

    async def burst() -> Figures:
        async with (
            connected(bed.client.path) as peer,
            streams(bed, peer, STREAMS, b"") as opened,
        ):
            if not opened:
                raise SkippedError("a second stream cannot be opened")
        return await settled(bed, is_back)

    def is_back(now: Figures) -> bool:
        spare = STREAMS // 4  # runtimes start a thread now and then; a leak is one per stream
        return now.threads <= before.threads + spare and now.descriptors <= before.descriptors + spare

    await require_steady(bed)
    # The first time is for pools of threads, which grow once and stay.
    before = bed.program.figures()
    before = await burst()
    after = await burst()
    await expect_served(bed, f"{STREAMS} cancelled streams")
    seen = (
        f"{before.threads} threads and {before.descriptors} descriptors before {STREAMS} streams, "
        f"{after.threads} and {after.descriptors} after"
    )
    if not is_back(after):
        raise FailedError(seen)
    return seen


@check(
    "HOS15",
    SHOULD,
    "Memory does not grow with the streams that have ended.",
    why="each restart of the kubelet and each tool that opens a stream adds to it, up to the memory limit",
    change="return from ListAndWatch when the context of its stream is done",
    source="grpc-go: a handler that does not return keeps its stream's buffers; squat generic.go",
    quick=False,
)
async def forgets_the_memory_of_streams(bed: TestBed) -> str:
    """Open and cancel 1,000 streams, then as many again, and compare the resident memory; try thrice."""
    await require_steady(bed)
    count = bed.times.burst_streams
    limit = count * _STREAM_BYTES

    async def burst() -> int:
        left = count
        async with connected(bed.client.path) as peer:
            while left > 0:
                async with streams(bed, peer, min(left, _AT_ONCE), b"") as opened:
                    if not opened:
                        raise SkippedError("a second stream cannot be opened")
                    left -= opened
        await asyncio.sleep(bed.times.settle_seconds)
        return bed.program.figures().resident_bytes

    before = await burst()  # the first time is for buffers and pools, which grow once and stay
    growths: list[int] = []
    for _ in range(_BURSTS):
        after = await burst()
        growths.append(after - before)
        if growths[-1] <= limit:
            break
        before = after
    await expect_served(bed, f"{count} cancelled streams")
    grown = min(growths)
    seen = f"{grown / 1024:+.0f} KiB with {count} streams"
    if grown > limit:
        raise FailedError(
            f"resident memory grew by {grown / count / 1024:.1f} KiB for each of {count} streams that ended, "
            f"{len(growths)} times in a row"
        )
    return seen


@check(
    "HOS12",
    MUST,
    "A call with headers of many kilobytes does not end the plugin.",
    why="a plugin that ends serves no pod until it is started again",
    change="leave the limit of header sizes to the gRPC library",
    source="RFC 9113, 10.5.1: limits on the size of headers",
)
async def bears_huge_headers(bed: TestBed) -> None:
    """Begin calls with headers of 20 KB and of 1 MB, made by hand."""
    for kilobytes in (20, 1000):
        await talk(bed, huge_headers(ALLOCATE, 1000 * kilobytes))
        await expect_served(bed, f"headers of {kilobytes} KB")


@check(
    "HOS14",
    SHOULD,
    "A plugin that was short of descriptors for a while serves again.",
    why=(
        "descriptors can run out for a moment on a busy node; a plugin that ends then takes its devices away"
    ),
    change="treat EMFILE as temporary: wait and accept again; do not end, and do not close the socket",
    source="getrlimit(2), RLIMIT_NOFILE; kubernetes/kubernetes#64614",
    lane="exhaustion",
    quick=False,
)
async def bears_a_full_table(bed: TestBed) -> str:
    """Take all free descriptors from its process for a moment, connect many times, and give them back."""
    with no_free_descriptors(bed):
        async with silent_connections(bed, CONNECTIONS):
            await asyncio.sleep(bed.times.settle_seconds)
    begun = time.monotonic()
    limit = bed.times.answer_seconds
    last = ""
    while time.monotonic() - begun < limit and bed.is_alive():
        try:
            async with connected(bed.client.path) as peer:
                await probe(bed, peer, bed.times.return_limit_seconds)
            await bed.check_serves()
        except (RemoteError, FailedError) as error:
            last = str(error)
            await asyncio.sleep(bed.times.settle_seconds / 10)
        else:
            return f"{1000 * (time.monotonic() - begun):.0f} ms after"
    await bed.check_serves()
    raise FailedError(f"{limit:g} s after there were free descriptors again: {last}")
