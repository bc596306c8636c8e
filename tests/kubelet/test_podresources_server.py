"""The socket for monitors: where it is, how many calls it takes, what it counts, what older kubelets lack."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.metrics import KubeletMetrics
from devplug.kubelet.podresources import TokenBucket
from devplug.kubelet.pods import Pod
from devplug.kubelet.settings import KubeletSettings
from devplug.wire.deviceplugin import Method
from devplug.wire.podresources import GET, GET_ALLOCATABLE_RESOURCES, LIST, V1ALPHA1_LIST
from devplug.wire.sockets import Peer, connected
from devplug.wire.values import PodName, PodResources
from tests.kubelet.fakes import Clock, pod
from tests.kubelet.monitors import allocatable, ask, got, listed, listed_v1alpha1, monitored, socket_below
from tests.wire.fakes import FolderEvents

CALLS: list[tuple[Method[Any, Any], Any]] = [
    (LIST, None),
    (V1ALPHA1_LIST, None),
    (GET, PodName("u", "default")),
    (GET_ALLOCATABLE_RESOURCES, None),
]


async def outcome(peer: Peer, method: Method[Any, Any] = LIST, request: object = None) -> str:
    """Return how a call ended: `OK`, or its status and text."""
    try:
        await peer.call(method, request)
    except RemoteError as error:
        return f"{error.status}: {error.text}"
    return "OK"


REFUSED = "ResourceExhausted: rejected by rate limit"


# ── the socket ────────────────────────────────────────────────────────────────────────────────────


async def test_the_folder_is_made_for_its_owner_and_group_alone(short_dir: Path) -> None:
    before = os.umask(0)
    try:
        async with monitored(short_dir):
            assert socket_below(short_dir).is_socket()
            assert socket_below(short_dir).parent.stat().st_mode & 0o777 == 0o750
    finally:
        os.umask(before)


async def test_a_folder_that_is_there_keeps_its_mode(short_dir: Path) -> None:
    folder = socket_below(short_dir).parent
    folder.mkdir()
    folder.chmod(0o700)

    async with monitored(short_dir) as kubelet:
        assert await listed(kubelet) == ()
        assert folder.stat().st_mode & 0o777 == 0o700


async def test_watchers_of_the_folder_see_the_socket_moved_in(short_dir: Path) -> None:
    folder = socket_below(short_dir).parent
    folder.mkdir()

    with FolderEvents(folder) as events:
        async with monitored(short_dir) as kubelet:
            assert events.of("kubelet.sock") == ["moved in"]
            await kubelet.restart()
            assert events.of("kubelet.sock") == ["removed", "moved in"]
            assert await listed(kubelet) == ()
    assert [path.name for path in folder.iterdir()] == ["kubelet.sock"]


async def test_the_socket_takes_the_place_of_whatever_file_has_its_name(short_dir: Path) -> None:
    socket_below(short_dir).parent.mkdir()
    socket_below(short_dir).write_text("mine")

    async with monitored(short_dir) as kubelet:
        assert await listed(kubelet) == ()


async def test_the_socket_survives_the_kubelet_and_refuses_connections(short_dir: Path) -> None:
    async with monitored(short_dir):
        pass
    path = socket_below(short_dir)
    assert path.is_socket()
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(path))


async def test_an_orderly_end_removes_the_socket(short_dir: Path) -> None:
    kubelet = Kubelet(
        short_dir / "device-plugins", KubeletSettings(pod_resources_socket=socket_below(short_dir))
    )
    async with kubelet.running(orderly=True):
        assert socket_below(short_dir).is_socket()
    assert list(socket_below(short_dir).parent.iterdir()) == []


async def test_a_kubelet_does_not_start_if_the_folder_cannot_be_made(short_dir: Path) -> None:
    folder = socket_below(short_dir).parent
    folder.write_text("a file")

    with pytest.raises(KubeletError, match=f"^cannot make the folder {folder}: File exists$"):
        async with monitored(short_dir):
            pass
    registration = short_dir / "device-plugins" / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(registration))


async def test_a_request_over_four_mebibytes_is_refused(short_dir: Path) -> None:
    async with monitored(short_dir) as kubelet, connected(socket_below(short_dir)) as peer:
        name = "x" * 4 * 1024 * 1024
        refusal = await outcome(peer, GET, PodName(name, "default"))
        assert refusal.startswith("ResourceExhausted: ")
        assert refusal.endswith(f"({len(name) + 14} vs. {len(name)})")
        assert counted(kubelet.metrics, "v1") == {}


async def test_an_answer_may_be_larger_than_monitors_take_by_default(short_dir: Path) -> None:
    """The kubelet sends it all; who reads a large node raises the limit of its own end."""
    name = "x" * 4 * 1024 * 1024

    async with monitored(short_dir) as kubelet:
        await kubelet.admit(Pod("u", name))
        async with connected(socket_below(short_dir)) as peer:
            assert (await outcome(peer)).startswith("ResourceExhausted: ")
        async with connected(socket_below(short_dir), receive_limit_bytes=2**24) as peer:
            assert await peer.call(LIST, None) == (PodResources(name, "default"),)


# ── how many calls ────────────────────────────────────────────────────────────────────────────────


async def test_a_burst_of_more_than_ten_calls_is_cut_and_refilled_at_a_hundred_a_second(
    short_dir: Path,
) -> None:
    """C96."""
    clock = Clock()
    async with monitored(short_dir, clock=clock), connected(socket_below(short_dir)) as peer:
        assert [await outcome(peer) for _ in range(12)] == ["OK"] * 10 + [REFUSED] * 2
        clock.seconds += 0.009
        assert await outcome(peer) == REFUSED
        clock.seconds += 0.001
        assert [await outcome(peer) for _ in range(2)] == ["OK", REFUSED]
        clock.seconds += 0.05
        assert [await outcome(peer) for _ in range(6)] == ["OK"] * 5 + [REFUSED]
        clock.seconds += 3600
        assert [await outcome(peer) for _ in range(11)] == ["OK"] * 10 + [REFUSED]


async def test_monitors_calls_and_versions_share_one_limit(short_dir: Path) -> None:
    """C96."""
    async with (
        monitored(short_dir, clock=Clock()) as kubelet,
        connected(socket_below(short_dir)) as one,
        connected(socket_below(short_dir)) as other,
    ):
        await kubelet.admit(pod("u"))
        async with asyncio.TaskGroup() as tasks:
            burst = [
                tasks.create_task(outcome(peer, method, request))
                for peer in (one, other)
                for method, request in CALLS * 2
            ]
        assert Counter(call.result() for call in burst) == {"OK": 10, REFUSED: 6}
        for method, request in CALLS:
            assert await outcome(one, method, request) == REFUSED


async def test_a_restart_forgets_the_burst_before_it(short_dir: Path) -> None:
    async with monitored(short_dir, clock=Clock()) as kubelet:
        async with connected(socket_below(short_dir)) as peer:
            assert (await outcome(peer), [await outcome(peer) for _ in range(10)][-1]) == ("OK", REFUSED)
        await kubelet.restart()
        assert await listed(kubelet) == ()


# ── what is counted ───────────────────────────────────────────────────────────────────────────────


def counted(metrics: KubeletMetrics, version: str) -> dict[str, float]:
    """The counters that are not 0, by the end of their names."""
    names = ("requests_total", "requests_list", "requests_get", "requests_get_allocatable", "errors_get")
    prefix = "kubelet_pod_resources_endpoint_"
    counts = {name: metrics.value(prefix + name, server_api_version=version) for name in names}
    return {name: count for name, count in counts.items() if count}


async def test_every_call_is_counted_by_its_version(short_dir: Path) -> None:
    """Also one that fails; v1alpha1 has no counter of lists (server_v1alpha1.go)."""
    async with monitored(short_dir, clock=Clock()) as kubelet:
        await kubelet.admit(pod("u"))
        for read in (listed, listed, allocatable, listed_v1alpha1):
            await read(kubelet)
        await got(kubelet, "u")
        with pytest.raises(RemoteError):
            await got(kubelet, "v")
        assert counted(kubelet.metrics, "v1") == {
            "requests_total": 5,
            "requests_list": 2,
            "requests_get": 2,
            "requests_get_allocatable": 1,
            "errors_get": 1,
        }
        assert counted(kubelet.metrics, "v1alpha1") == {"requests_total": 1}


async def test_a_call_over_the_limit_is_not_counted(short_dir: Path) -> None:
    """C96."""
    async with monitored(short_dir, clock=Clock()) as kubelet, connected(socket_below(short_dir)) as peer:
        for _ in range(10):
            await peer.call(LIST, None)
        before = kubelet.metrics.exposition()
        for method, request in CALLS:
            assert await outcome(peer, method, request) == REFUSED
        assert kubelet.metrics.exposition() == before


# ── what older kubelets lack ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "call", "text"),
    [
        ("get", CALLS[2], "unknown method Get for service v1.PodResourcesLister"),
        ("allocatable", CALLS[3], "unknown method GetAllocatableResources for service v1.PodResourcesLister"),
    ],
)
async def test_a_call_that_this_kubelet_does_not_have_is_unimplemented_and_not_limited(
    short_dir: Path, name: Literal["get", "allocatable"], call: tuple[Method[Any, Any], Any], text: str
) -> None:
    async with (
        monitored(short_dir, clock=Clock(), without=frozenset({name})) as kubelet,
        connected(socket_below(short_dir)) as peer,
    ):
        await kubelet.admit(pod("u"))
        for _ in range(12):
            assert await outcome(peer, *call) == f"Unimplemented: {text}"
        others = [other for other in CALLS if other != call]
        assert [await outcome(peer, *other) for other in others] == ["OK"] * 3


async def test_a_kubelet_without_the_later_calls_still_lists(short_dir: Path) -> None:
    async with monitored(short_dir, without=frozenset({"get", "allocatable"})) as kubelet:
        await kubelet.admit(pod("u"))
        (found,) = await ask(kubelet, LIST, None)
        assert isinstance(found, PodResources)
        assert len(await listed_v1alpha1(kubelet)) == 1


# ── the bucket ────────────────────────────────────────────────────────────────────────────────────

moments = st.lists(st.integers(0, 60), min_size=1, max_size=60).map(
    lambda gaps: [1e6 + milliseconds / 1000 for milliseconds in itertools.accumulate(gaps)]
)


def allowed(times: list[float]) -> tuple[list[float], list[float]]:
    """Call at each of these times; return when it was allowed, and when it was refused."""
    bucket = TokenBucket(per_second=100, size=10, counted_at_seconds=0)
    taken: list[float] = []
    refused: list[float] = []
    for now in times:
        after = bucket.taken(now)
        (refused if after is None else taken).append(now)
        bucket = after or bucket
    return taken, refused


@given(moments)
def test_no_span_of_time_has_more_calls_than_a_full_bucket_and_its_refill(times: list[float]) -> None:
    taken, _ = allowed(times)
    for first, start in enumerate(taken):
        for count, end in enumerate(taken[first:], 1):
            assert count <= 10 + 100 * (end - start) + 1e-3


@given(moments)
def test_a_call_is_refused_only_if_allowed_ones_have_emptied_the_bucket(times: list[float]) -> None:
    taken, refused = allowed(times)
    for now in refused:
        before = [time for time in taken if time <= now]
        assert any(
            count > 9 + 100 * (now - start) - 1e-3
            for start, count in zip(before, range(len(before), 0, -1), strict=True)
        )


@given(moments)
def test_a_refused_call_takes_nothing(times: list[float]) -> None:
    taken, _ = allowed(times)
    assert allowed(taken) == (taken, [])


@given(st.floats(0, 1e8), st.integers(1, 100))
def test_calls_at_the_rate_of_the_refill_are_always_allowed(start: float, count: int) -> None:
    bucket: TokenBucket | None = TokenBucket(per_second=100, size=1, counted_at_seconds=start)
    for number in range(count):
        assert bucket is not None
        bucket = bucket.taken(start + number / 100)
    assert bucket is not None
