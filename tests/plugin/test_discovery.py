"""`devices` over time: what happens when it ends, fails or lies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from devplug import Device, DeviceFeed
from tests.plugin.discovered import A, Asked, B, discovered, listed, refused
from tests.plugin.fakes import Time, devices, our_threads
from tests.virtualtime import in_no_time, now, still
from tests.waiting import until

# ── after the first list ──


async def test_an_iterator_that_ends_is_started_again_after_a_second_and_its_last_list_stands() -> None:
    time = Time()
    plugin = Asked(lambda n: iter([[A], [A, B]] if n == 0 else [[B]]))
    async with discovered(plugin, time) as inventory:
        await time.asleep(1)
        assert 0.8 <= time.slept[0] <= 1.2
        assert listed(inventory) == {"a": "", "b": ""}
        time.wake()
        await time.asleep(2)
        assert 0.8 <= time.slept[1] <= 1.2
        assert listed(inventory) == {"b": ""}
        assert plugin.times == 2


def fails_after(*lists: list[Device]) -> Iterator[list[Device]]:
    yield from lists
    raise OSError(5, "bus error")


async def test_an_iterator_that_raises_is_started_again_and_its_last_list_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    async with discovered(Asked(lambda n: fails_after(*([[A]] if n == 0 else [[A, B]]))), time) as inventory:
        await time.asleep(1)
        assert listed(inventory) == {"a": ""}
        time.wake()
        await time.asleep(2)
        assert listed(inventory) == {"a": "", "b": ""}
    assert "devices() failed; the last list stays advertised" in caplog.text
    assert "bus error" in caplog.text


@pytest.mark.parametrize(
    "end", [asyncio.CancelledError(), SystemExit(1)], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("where", ["def", "async def"])
async def test_what_is_no_usual_error_does_not_end_the_asking_either(
    caplog: pytest.LogCaptureFixture, where: str, end: BaseException
) -> None:
    """As where `devices` awaits a task of its own that was cancelled, or calls what calls `sys.exit`."""

    def in_a_thread() -> Iterator[list[Device]]:
        yield [A]
        raise end

    async def on_the_loop() -> AsyncIterator[list[Device]]:
        yield [A]
        raise end

    time = Time()
    plugin = Asked(lambda n: [B] if n else in_a_thread() if where == "def" else on_the_loop())
    async with discovered(plugin, time) as inventory:
        await time.asleep(1)
        assert listed(inventory) == {"a": ""}
        time.wake()
        await until(lambda: listed(inventory) == {"b": ""})
    assert "devices() failed; the last list stays advertised" in caplog.text


async def test_a_later_list_that_is_none_is_a_failure_and_the_last_one_stands() -> None:
    time = Time()
    bad: Any = [A, A]
    async with discovered(Asked(lambda _: iter([[A], bad])), time) as inventory:
        await time.asleep(1)
        assert listed(inventory) == {"a": ""}


async def test_failures_in_a_row_wait_ever_longer_up_to_half_a_minute() -> None:
    time = Time()
    async with discovered(Asked(lambda n: fails_after(*([[A]] if n == 0 else []))), time):
        for n in range(1, 9):
            await time.asleep(n)
            time.wake()
        for wait, nominal in zip(time.slept, [1, 2, 4, 8, 16, 30, 30, 30], strict=False):
            assert 0.8 * nominal <= wait <= 1.2 * nominal


async def test_after_thirty_seconds_of_failing_every_device_is_unhealthy_and_says_why() -> None:
    time = Time()
    async with discovered(Asked(lambda n: fails_after(*([[A, B]] if n == 0 else []))), time) as inventory:
        await time.asleep(1)
        failing_since = time.now
        while time.now - failing_since < 30:
            assert listed(inventory) == {"a": "", "b": ""}
            time.wake()
            await time.asleep(len(time.slept) + 1)
        reason = "devices() fails: OSError(5, 'bus error')"
        assert listed(inventory) == {"a": reason, "b": reason}


async def test_a_good_list_after_that_makes_the_devices_healthy_again() -> None:
    time = Time()
    works = False
    plugin = Asked(lambda n: fails_after(*([[A]] if n == 0 or works else [])))
    async with discovered(plugin, time) as inventory:
        await time.asleep(1)
        time.now += 100
        time.wake()
        await time.asleep(2)
        assert listed(inventory)["a"]
        works = True
        time.wake()
        await until(lambda: listed(inventory) == {"a": ""})


async def test_a_failure_long_after_the_last_one_is_a_first_failure() -> None:
    """Also when every list since then was equal, and so changed nothing."""
    time = Time()

    def works_for_an_hour() -> Iterator[list[Device]]:
        yield [A]
        time.now += 3600
        raise OSError(5, "bus error")

    async with discovered(Asked(lambda _: works_for_an_hour()), time) as inventory:
        for n in range(1, 4):
            await time.asleep(n)
            assert listed(inventory) == {"a": ""}
            assert time.slept[-1] <= 1.2
            time.wake()


# ── the end ──


@in_no_time
async def test_the_finally_of_a_generator_runs_when_the_plugin_is_closed() -> None:
    ends: list[threading.Thread] = []

    def steps() -> Iterator[list[Device]]:
        try:
            while True:
                yield [A]
                go.wait()
        finally:
            ends.append(threading.current_thread())

    go = threading.Event()
    async with still(), discovered(Asked(lambda _: steps())) as inventory:
        while not inventory.is_ready:  # noqa: ASYNC110 -- as below
            await asyncio.sleep(0)
        go.set()
    assert len(ends) == 1
    assert ends[0] is not threading.main_thread()


async def test_the_finally_of_an_async_generator_runs_when_the_plugin_is_closed() -> None:
    ends = []

    async def steps() -> AsyncIterator[list[Device]]:
        try:
            yield [A]
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append(True)

    async with discovered(Asked(lambda _: steps())) as inventory:
        await until(lambda: inventory.is_ready)
    assert ends == [True]


def broken_clean_up() -> Iterator[list[Device]]:
    try:
        yield [A]
        threading.Event().wait(0.05)
        yield [A, B]
    finally:
        raise RuntimeError("no way to clean up")


async def broken_async_clean_up() -> AsyncIterator[list[Device]]:
    try:
        yield [A]
        await asyncio.Event().wait()
    finally:
        raise RuntimeError("no way to clean up")


@pytest.mark.parametrize("steps", [broken_clean_up, broken_async_clean_up])
@in_no_time
async def test_a_finally_that_raises_is_told_of_and_does_not_keep_the_plugin_from_closing(
    steps: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    plugin = Asked(lambda _: steps())
    async with still(), discovered(plugin) as inventory:
        while not inventory.is_ready:  # noqa: ASYNC110 -- a thread makes it so
            await asyncio.sleep(0)
    assert plugin.times == 1
    (record,) = [one for one in caplog.records if "while it was closed" in one.getMessage()]
    assert record.exc_info is not None
    assert "no way to clean up" in str(record.exc_info[1])


@in_no_time
async def test_the_finally_runs_too_when_a_list_is_refused() -> None:
    ends = []

    def steps() -> Iterator[Any]:
        try:
            yield "text"
        finally:
            ends.append(True)

    async with still():
        await refused(Asked(lambda _: steps()))
    assert ends == [True]


@in_no_time
async def test_a_generator_that_blocks_holds_the_close_for_half_a_second_only_and_still_cleans_up_later() -> (
    None
):
    blocked, go, ended = threading.Event(), threading.Event(), threading.Event()

    def steps() -> Iterator[list[Device]]:
        try:
            yield [A]
            blocked.set()
            go.wait()
            yield [A]
        finally:
            ended.set()

    async with discovered(Asked(lambda _: steps())) as inventory:
        await until(blocked.is_set)
        assert inventory.is_ready
        began = now()
    assert now() - began == pytest.approx(0.5)
    assert not ended.is_set()
    go.set()
    await until(ended.is_set)


async def test_no_thread_is_left_after_the_close() -> None:
    async with discovered(Asked(lambda _: [A])) as inventory:
        await until(lambda: inventory.is_ready)
    await until(lambda: not our_threads())


async def test_a_missed_beat_of_the_feed_costs_nothing() -> None:
    """The plugin reads the latest state of its feed, not a queue of changes."""
    feed = DeviceFeed([A])
    async with discovered(Asked(lambda _: feed)) as inventory:
        await until(lambda: inventory.is_ready)
        for n in range(1000):
            feed.replace(devices(f"d{n}"))
        await until(lambda: list(listed(inventory)) == ["d999"])
        assert inventory.version < 10
