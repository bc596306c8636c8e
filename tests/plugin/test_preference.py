"""GetPreferredAllocation: a rank that cannot be wrong, and an empty one whenever there is none."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import AllocationError, Device, UnhealthyDeviceError
from devplug.kubelet.pods import PodPhase
from devplug.plugin.inventory import Inventory
from devplug.plugin.service import PluginService
from devplug.wire import deviceplugin
from devplug.wire.values import PreferenceRequest
from tests.kubelet.fakes import pod
from tests.plugin.fakes import Listed, Served, devices, refusal, registered, served
from tests.virtualtime import in_no_time


class Ranking(Listed):
    """A plugin that ranks as `rank` says, and notes what it was asked."""

    def __init__(self, rank: Callable[..., Any]) -> None:
        self.rank = rank
        self.asked: list[tuple[str, str, int]] = []

    async def devices(self) -> list[Device]:
        return devices("a", "b", "c", "d")

    def prefer(self, available: Sequence[Device], must_include: Sequence[Device], size: int, /) -> Any:
        self.asked.append((ids(available), ids(must_include), size))
        return self.rank(available, must_include, size)


def ids(given: Iterable[Device]) -> str:
    return "".join(device.id for device in given)


def backwards(available: Sequence[Device], must_include: Sequence[Device], size: int) -> list[Device]:
    return list(reversed(available))


def fail(error: BaseException) -> Any:
    raise error


@asynccontextmanager
async def ranked(folder: Path, rank: Callable[..., Any]) -> AsyncIterator[tuple[Served, Ranking]]:
    ranking = Ranking(rank)
    async with served(folder, ranking, devices("a", "b", "c", "d")) as plugin:
        yield plugin, ranking


async def preferred(plugin: Served, available: str, must_include: str, size: int) -> str:
    request = PreferenceRequest(tuple(available), tuple(must_include), size)
    (answer,) = await plugin.peer.call(deviceplugin.GET_PREFERRED_ALLOCATION, [request])
    return "".join(answer)


# ── a rank ──


@pytest.mark.parametrize(
    ("rank", "available", "must_include", "size", "answer"),
    [
        (backwards, "abcd", "", 2, "dc"),
        (backwards, "abcd", "a", 2, "ad"),
        (backwards, "abcd", "ab", 2, "ab"),
        (backwards, "dcba", "", 4, "dcba"),
        (backwards, "aabb", "", 2, "ba"),
        (backwards, "ab", "bb", 2, "ba"),
        (lambda available, *_: available[:1], "abcd", "", 2, "a"),
        (lambda available, *_: [available[0]] * 5, "abcd", "", 2, "a"),
        (lambda *_: devices("d", "zz", "a"), "abc", "", 2, "a"),
        (lambda *_: [], "abcd", "c", 2, "c"),
        (lambda available, *_: iter(available), "abcd", "", 2, "ab"),
        (lambda available, *_: {device.id: device for device in available}.values(), "ab", "", 1, "a"),
    ],
    ids=[
        "the best",
        "after those that must be",
        "only those that must be",
        "all",
        "available twice",
        "must be twice",
        "too short a rank",
        "the same again and again",
        "strangers",
        "none",
        "an iterator",
        "a view",
    ],
)
async def test_the_answer_is_what_must_be_and_the_best_of_the_rest(
    short_dir: Path, rank: Callable[..., Any], available: str, must_include: str, size: int, answer: str
) -> None:
    async with ranked(short_dir, rank) as (plugin, _):
        assert await preferred(plugin, available, must_include, size) == answer


async def test_the_author_gets_devices_in_the_order_of_their_ids_and_the_size(short_dir: Path) -> None:
    async with ranked(short_dir, backwards) as (plugin, ranking):
        await preferred(plugin, "dba", "bd", 2)
        assert ranking.asked == [("abd", "bd", 2)]


async def test_each_container_of_a_request_has_its_own_answer(short_dir: Path) -> None:
    async with ranked(short_dir, backwards) as (plugin, _):
        requests = [PreferenceRequest(("a", "b"), (), 1), PreferenceRequest(("c", "d"), (), 2)]
        answers = await plugin.peer.call(deviceplugin.GET_PREFERRED_ALLOCATION, requests)
        assert list(answers) == [("b",), ("d", "c")]


async def test_an_async_def_may_rank(short_dir: Path) -> None:
    class Async(Listed):
        async def prefer(
            self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
        ) -> Iterable[Device]:
            return reversed(available)

    async with served(short_dir, Async(), devices("a", "b")) as plugin:
        assert await preferred(plugin, "ab", "", 1) == "b"


async def test_a_def_that_yields_its_rank_runs_in_its_thread_to_the_end(short_dir: Path) -> None:
    threads = []

    def one_by_one(available: Sequence[Device], *_: object) -> Iterable[Device]:
        for device in reversed(available):
            threads.append(threading.current_thread())
            yield device

    async with ranked(short_dir, one_by_one) as (plugin, _):
        assert await preferred(plugin, "abc", "", 2) == "cb"
    assert threading.main_thread() not in threads


async def test_the_kubelet_follows_the_rank(short_dir: Path) -> None:
    async with registered(short_dir, Ranking(backwards)) as (kubelet, _):
        status = await kubelet.run_pod(pod("p", 2))
        assert status.phase is PodPhase.RUNNING
        assert kubelet.allocations()[0].device_ids == ("c", "d")


# ── none ──


@pytest.mark.parametrize(
    ("available", "must_include", "size"),
    [("abcd", "", 0), ("abcd", "a", 0), ("ab", "", 3), ("abc", "abc", 2), ("", "", 1), ("xyz", "", 1)],
    ids=["size 0", "size 0 and one must be", "too few", "too many must be", "none available", "strangers"],
)
async def test_what_cannot_be_met_has_an_empty_answer_and_does_not_reach_the_author(
    short_dir: Path, available: str, must_include: str, size: int
) -> None:
    async with ranked(short_dir, backwards) as (plugin, ranking):
        assert await preferred(plugin, available, must_include, size) == ""
        assert ranking.asked == []


@pytest.mark.parametrize(
    "rank",
    [
        lambda *_: fail(ValueError("bad day")),
        lambda *_: None,
        lambda *_: 7,
        lambda *_: ["a", "b"],
        lambda *_: next(iter([])),
        lambda *_: fail(AllocationError("no")),
        lambda available, *_: fail(UnhealthyDeviceError("no", *available)),
        lambda *_: fail(asyncio.CancelledError()),
        lambda *_: sys.exit(1),
    ],
    ids=[
        "raises",
        "None",
        "a number",
        "ids",
        "StopIteration",
        "AllocationError",
        "UnhealthyDeviceError",
        "CancelledError",
        "SystemExit",
    ],
)
async def test_a_rank_that_fails_is_an_empty_answer_and_a_line_in_the_log(
    short_dir: Path, caplog: pytest.LogCaptureFixture, rank: Callable[..., Any]
) -> None:
    """An error would leak the kubelet's reservations (kubernetes/kubernetes#130145)."""
    async with ranked(short_dir, rank) as (plugin, _):
        before = plugin.inventory.version
        assert await preferred(plugin, "ab", "", 1) == ""
        assert plugin.inventory.version == before
    assert "prefer() failed; the kubelet chooses the devices" in caplog.text


@in_no_time
async def test_a_rank_that_takes_over_a_second_is_an_empty_answer(short_dir: Path) -> None:
    release = threading.Event()

    def block(*_: object) -> None:
        release.wait()

    async with ranked(short_dir, block) as (plugin, ranking):
        ranking.allocate_timeout_seconds = 0.2  # which is not the limit here
        assert await preferred(plugin, "ab", "", 1) == ""
        release.set()


# ── refused ──


@pytest.mark.parametrize(
    ("available", "must_include", "size", "text"),
    [
        ("ab", "", -1, "InvalidArgument prefer: container 0 asks for -1 devices"),
        ("ab", "c", 1, 'InvalidArgument prefer: container 0 must include "c", which is not available'),
    ],
)
async def test_only_what_no_kubelet_sends_is_refused(
    short_dir: Path, available: str, must_include: str, size: int, text: str
) -> None:
    async with ranked(short_dir, backwards) as (plugin, ranking):
        assert await refusal(preferred(plugin, available, must_include, size)) == text
        assert ranking.asked == []


async def test_a_plugin_that_does_not_rank_says_that_it_does_not(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin:
        text = "Unimplemented prefer: this plugin does not announce preferred allocation"
        assert await refusal(preferred(plugin, "a", "", 1)) == text


# ── whatever the author says ──


@given(
    rank=st.lists(st.sampled_from("abcdexyz")),
    available=st.sets(st.sampled_from("abcd")),
    must_include=st.sets(st.sampled_from("abcd")),
    size=st.integers(0, 5),
)
async def test_no_rank_can_make_an_answer_wrong(
    rank: list[str], available: set[str], must_include: set[str], size: int
) -> None:
    wanted = must_include & available
    ranking = Ranking(lambda *_: devices(*rank))
    inventory = Inventory(ranking.resource_name)
    await inventory.replace(devices("a", "b", "c", "d"))
    service = PluginService(ranking, inventory, lambda: None)
    request = PreferenceRequest(tuple(available), tuple(wanted), size)
    (answer,) = await service.preferred_allocation([request])
    service.close()
    assert len(answer) == len(set(answer)) <= size
    assert set(answer) <= available
    if answer:
        assert wanted <= set(answer)
