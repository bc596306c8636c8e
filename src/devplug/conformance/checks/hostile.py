"""Hostile input: no request that comes over the socket ends a plugin, or keeps it from serving.

Each check ends with a look at whether the plugin serves, on the kubelet's connection and on a new one. What
strangers do below the requests is in `connections`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.rawbytes import MALFORMED, UNKNOWN_METHODS, allocate_request, raw
from devplug.conformance.registry import MUST, NOTE, SHOULD, check
from devplug.conformance.stage import BROKEN, LATE
from devplug.conformance.strangers import expect_served, streams
from devplug.conformance.streams import fall
from devplug.conformance.verdicts import FailedError
from devplug.errors import RemoteError
from devplug.wire.methods import ALLOCATE, GET_OPTIONS, GET_PREFERRED_ALLOCATION, PRE_START_CONTAINER

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage

CALLS: Final = 64
TEXT_LIMIT_BYTES: Final = 4096
"""A status travels in a header, and grpc takes 8 KiB of them all."""


@check(
    "HOS01",
    MUST,
    "An Allocate request that is no valid message is refused, and nothing else happens.",
    why="devices would be given out that nobody asked for, or all pods lose their plugin",
    change="let the gRPC library decode, and pass on its error; do not exit or panic on it",
    source="gRPC status codes, INVALID_ARGUMENT and INTERNAL",
)
async def refuses_malformed_allocate(stage: Stage) -> None:
    """Send bytes that cannot be decoded: endless, cut off, not UTF-8, too deep."""
    for malformed in MALFORMED:
        error = await stage.refusal(raw(ALLOCATE), malformed.content)
        if error is not None and error.status == LATE:
            raise FailedError(f"{malformed.name}: nothing came within {stage.times.answer_seconds:g} s")
        if error is None and malformed.must_be_refused:
            raise FailedError(f"{malformed.name} was answered like a request")
        await expect_served(stage, malformed.name)


@check(
    "HOS02",
    MUST,
    "Bytes that are no valid message do no harm to the other calls.",
    why="all pods lose their plugin until it is started again",
    change="let the gRPC library decode, and pass on its error; do not exit or panic on it",
    source="gRPC status codes, INVALID_ARGUMENT and INTERNAL",
)
async def bears_malformed_calls(stage: Stage) -> None:
    """Send the same bytes to the options, the stream, the preference and the pre-start."""
    for malformed in MALFORMED:
        for method in (GET_OPTIONS, GET_PREFERRED_ALLOCATION, PRE_START_CONTAINER):
            error = await stage.refusal(raw(method), malformed.content)
            await expect_served(stage, f"{malformed.name} to {method.name}")
            if malformed.must_be_refused and error is not None and error.status == LATE:
                raise FailedError(f"{malformed.name} to {method.name}: nothing came")
        if not await fall(stage):
            async with streams(stage, stage.client.peer, 1, malformed.content):
                pass
            await expect_served(stage, f"{malformed.name} to ListAndWatch")


@check(
    "HOS03",
    MUST,
    "A call that the API does not have is answered with UNIMPLEMENTED.",
    why="callers find out by it what a plugin can do; anything else looks like a fault or an answer",
    change="register the generated service only, and no handler for everything else",
    source="gRPC status codes, UNIMPLEMENTED",
    harmless=True,
)
async def knows_what_it_does_not(stage: Stage) -> None:
    """Call a method, a version and a service that there are not."""
    for method in UNKNOWN_METHODS:
        error = await stage.refusal(method, b"")
        if error is None or error.status != "Unimplemented":
            raise FailedError(f"{method.path} is answered with {error or 'success'}")


@check(
    "HOS04",
    MUST,
    "A request of many megabytes does not end the plugin.",
    why="all pods lose their plugin until it is started again",
    change="set the gRPC library's limit for received messages, 16 MiB at most",
    source="grpc-go, MaxRecvMsgSize; volcano-sh/volcano-vgpu-device-plugin#152",
)
async def bears_large_requests(stage: Stage) -> None:
    """Ask Allocate for unknown devices with 5 MB of IDs, then with 20 MB; any answer will do."""
    for megabytes in (5, 20):
        content = allocate_request(b"devplug-verify-no-such-device-00", count=megabytes * 10**6 // 34)
        await stage.refusal(raw(ALLOCATE), content)
        await expect_served(stage, f"a request of {megabytes} MB")


@check(
    "HOS10",
    SHOULD,
    "What is said to bytes that cannot be decoded is one line, without a trace of the code.",
    why="it shows the inside of the plugin to people who look for a pod's fault",
    change="return a status with a sentence, and log the rest",
    source="gRPC status codes; the kubelet puts a plugin's words into the pod's status",
)
async def says_one_line(stage: Stage) -> None:
    """Send bytes that cannot be decoded to Allocate, and look at the error's text."""
    for malformed in MALFORMED:
        error = await stage.refusal(raw(ALLOCATE), malformed.content)
        text = error.text.strip() if error else ""
        traces = [word for word in ("Traceback (", 'File "', "goroutine ", "\n") if word in text]
        if traces:
            raise FailedError(f"{malformed.name} was answered with {text[:120]!r}")
        await expect_served(stage, malformed.name)


@check(
    "HOS11",
    NOTE,
    f"A refusal repeats no more of a request than fits into {TEXT_LIMIT_BYTES // 1024} KiB.",
    why="the caller's library drops an answer with longer headers, and nobody learns what was wrong",
    change="cut what a message quotes, to 64 characters say",
    source="gRPC over HTTP/2, Status-Message; the kubelet puts it into the pod's status",
)
async def quotes_little(stage: Stage) -> None:
    """Ask Allocate for a device with an ID of 1 MiB; what it says counts, not whether it refuses."""
    error = await stage.refusal(raw(ALLOCATE), allocate_request(b"x" * 2**20))
    size = len(error.text.encode()) if error else 0
    is_dropped = error is not None and "metadata size" in error.text  # what grpc says for too long headers
    if size > TEXT_LIMIT_BYTES or is_dropped:
        raise FailedError("the text was too long for a header" if is_dropped else f"it has {size} bytes")
    await expect_served(stage, "an ID of 1 MiB")


@check(
    "HOS13",
    SHOULD,
    "Calls of Allocate that come together all come back.",
    why="a call that is lost holds the admission of pods for good",
    change="guard what calls share with a lock, and take it for short",
    source="v1beta1 endpoint.go: the kubelet sets no deadline for Allocate",
)
async def answers_together(stage: Stage) -> str:
    """Send 64 calls of Allocate at once, for the same few devices; a refusal is an answer too."""
    ids = stage.client.healthy_ids
    stage.healthy_ids()
    begun = time.monotonic()
    await stage.refusal(ALLOCATE, [(ids[0],)])
    # One after the other is fine, however long each takes.
    limit = min(
        max(stage.times.answer_seconds, 2 * CALLS * (time.monotonic() - begun)), stage.times.check_seconds / 2
    )
    lost: list[str] = []

    async def ask(id_: str) -> None:
        try:
            await stage.call(ALLOCATE, [(id_,)], seconds=limit)
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
    await expect_served(stage, f"{CALLS} calls at once")
    return f"{CALLS} calls in {1000 * took:.0f} ms"
