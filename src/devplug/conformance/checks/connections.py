"""Hostile connections: whatever strangers do on the socket, the plugin serves, beside it and afterwards.

Each check ends with a look at whether it does. Requests that are wrong in themselves are in `hostile`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from devplug.conformance.rawbytes import NOT_HTTP2, allocate_request, cut_request, huge_headers
from devplug.conformance.registry import MUST, SHOULD, check
from devplug.conformance.strangers import (
    come_and_go,
    expect_served,
    no_free_descriptors,
    probe,
    settled,
    silent_connections,
    streams,
    talk,
)
from devplug.conformance.streams import require_steady
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError
from devplug.wire.methods import ALLOCATE
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from devplug.conformance.program import Figures
    from devplug.conformance.stage import Stage

CONNECTIONS: Final = 100
STREAMS: Final = 64

_SPARE: Final = 5


@check(
    "HOS05",
    MUST,
    "What is not HTTP/2 on the socket does no harm.",
    why="all pods lose their plugin to a probe or a scan of the sockets",
    change="leave the connections to the gRPC library; treat an error on one as the end of that one only",
    source="RFC 9113, 3.4: the connection preface",
)
async def bears_strangers(stage: Stage) -> None:
    """Connect and send noise, an HTTP/1 request, half a greeting, and wrong settings."""
    for name, content in NOT_HTTP2:
        await talk(stage, content)
        await expect_served(stage, name)


@check(
    "HOS06",
    MUST,
    "Silent connections do not keep a plugin from answering.",
    why="the kubelet waits in Allocate without a limit, and admits no pod meanwhile",
    change="serve every connection by itself; do not wait for the first bytes in the loop that accepts",
    source="kubernetes/kubernetes#117435: one stuck plugin holds up all pods of its node",
)
async def answers_besidesilent_connections(stage: Stage) -> str:
    """Hold a hundred connections that say nothing, and call over the kubelet's and over a new one."""
    limit = stage.times.return_limit_seconds
    async with silent_connections(stage, CONNECTIONS) as count:
        begun = time.monotonic()
        try:
            await probe(stage, stage.client.peer, limit)
            async with connected(stage.client.path) as peer:
                await probe(stage, peer, limit)
        except RemoteError as error:
            raise FailedError(
                f"beside {count} silent connections a call was answered with {error}, after "
                f"{time.monotonic() - begun:.1f} s"
            ) from error
    took = time.monotonic() - begun
    await expect_served(stage, f"{count} silent connections")
    return f"{count} connections, {1000 * took:.0f} ms"


@check(
    "HOS07",
    SHOULD,
    "Connections that come and go leave no descriptors behind.",
    why="a plugin that runs for months comes to the limit, and is lost",
    change="close a connection when its other end does",
    source="getrlimit(2), RLIMIT_NOFILE",
)
async def forgets_connections(stage: Stage) -> str:
    """Connect and close two hundred times, and count the open descriptors of its process."""
    await come_and_go(stage, 10)
    before = stage.program.figures().descriptors
    await come_and_go(stage, 2 * CONNECTIONS)
    after = (await settled(stage, lambda now: now.descriptors <= before + _SPARE)).descriptors
    if after > before + _SPARE:
        raise FailedError(f"{before} descriptors before {2 * CONNECTIONS} connections, {after} after")
    await expect_served(stage, f"{2 * CONNECTIONS} connections")
    return f"{before} descriptors before, {after} after"


@check(
    "HOS08",
    MUST,
    "A caller that breaks off in the middle of a request does no harm.",
    why="a kubelet that is killed in a call would take the plugin with it",
    change="treat an error on a connection as the end of that connection only",
    source="RFC 9113, 5.4: errors of connections and of streams",
)
async def bears_cut_requests(stage: Stage) -> None:
    """Send an Allocate by hand, break off within its message, and do so again a few times."""
    for _ in range(3):
        await talk(stage, cut_request(ALLOCATE, allocate_request(b"x" * 2000)))
    await expect_served(stage, "a request that is cut off")


@check(
    "HOS09",
    MUST,
    "Streams that end leave nothing behind.",
    why="each restart of the kubelet, each tool that looks, costs a thread or a descriptor for ever",
    change="end what serves a stream when the stream's context is cancelled, not at the next send",
    source="Mellanox/k8s-rdma-shared-dev-plugin#74: streams of kubelets that are gone",
    quick=False,
)
async def forgetsstreams(stage: Stage) -> str:
    """Open and cancel 64 streams, then the same again, and compare threads and descriptors in between."""

    async def burst() -> Figures:
        async with (
            connected(stage.client.path) as peer,
            streams(stage, peer, STREAMS, b"") as opened,
        ):
            if not opened:
                raise SkippedError("a second stream cannot be opened")
        return await settled(stage, is_back)

    def is_back(now: Figures) -> bool:
        spare = STREAMS // 4  # runtimes start a thread now and then; a leak is one per stream
        return now.threads <= before.threads + spare and now.descriptors <= before.descriptors + spare

    await require_steady(stage)
    # The first time is for pools of threads, which grow once and stay.
    before = stage.program.figures()
    before = await burst()
    after = await burst()
    await expect_served(stage, f"{STREAMS} cancelled streams")
    seen = (
        f"{before.threads} threads and {before.descriptors} descriptors before {STREAMS} streams, "
        f"{after.threads} and {after.descriptors} after"
    )
    if not is_back(after):
        raise FailedError(seen)
    return seen


@check(
    "HOS12",
    MUST,
    "A call with headers of many kilobytes does not end the plugin.",
    why="all pods lose their plugin until it is started again",
    change="leave the limit of header sizes to the gRPC library",
    source="RFC 9113, 10.5.1: limits on the size of headers",
)
async def bears_huge_headers(stage: Stage) -> None:
    """Begin calls with headers of 20 KB and of 1 MB, made by hand."""
    for kilobytes in (20, 1000):
        await talk(stage, huge_headers(ALLOCATE, 1000 * kilobytes))
        await expect_served(stage, f"headers of {kilobytes} KB")


@check(
    "HOS14",
    SHOULD,
    "A plugin that was short of descriptors for a while serves again.",
    why="a full table is a matter of moments on a busy node, and the plugin is gone after it",
    change="take EMFILE for what passes: wait and accept again; do not end, and do not give up the socket",
    source="getrlimit(2), RLIMIT_NOFILE; kubernetes/kubernetes#64614",
    lane="exhaustion",
    quick=False,
)
async def bears_a_full_table(stage: Stage) -> str:
    """Take all free descriptors from its process for a moment, connect many times, and give them back."""
    with no_free_descriptors(stage):
        async with silent_connections(stage, CONNECTIONS):
            await asyncio.sleep(stage.times.settle_seconds)
    begun = time.monotonic()
    limit = stage.times.answer_seconds
    last = ""
    while time.monotonic() - begun < limit and stage.is_alive():
        try:
            async with connected(stage.client.path) as peer:
                await probe(stage, peer, stage.times.return_limit_seconds)
            await stage.check_serves()
        except (RemoteError, FailedError) as error:
            last = str(error)
            await asyncio.sleep(stage.times.settle_seconds / 10)
        else:
            return f"{1000 * (time.monotonic() - begun):.0f} ms after"
    await stage.check_serves()
    raise FailedError(f"{limit:g} s after there were free descriptors again: {last}")
