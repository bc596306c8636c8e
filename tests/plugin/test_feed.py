"""A feed: devices that callbacks of any thread change, and each reader's latest list of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devplug import Device, DeviceFeed, Health
from tests.plugin.fakes import Fed, allocatable, devices, registered
from tests.waiting import until

A, B, C = devices("a", "b", "c")
SICK = A.with_health(Health.unhealthy("dust"))


def reading(feed: DeviceFeed) -> AsyncGenerator[list[Device], None]:
    reader = aiter(feed)
    assert hasattr(reader, "aclose")
    return reader  # type: ignore[return-value]  # so that tests can close it


def ids(listed: list[Device]) -> list[str]:
    return [device.id for device in listed]


async def test_a_new_feed_says_nothing_until_it_was_given_devices() -> None:
    feed = DeviceFeed()
    async with aclosing(reading(feed)) as lists, asyncio.TaskGroup() as group:
        first = group.create_task(anext(lists))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not first.done()
        feed.put(*devices("a"))
        assert ids(await first) == ["a"]


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        (lambda _: None, [A, B]),
        (lambda feed: feed.replace([]), []),
        (lambda feed: feed.replace([C]), [C]),
        (lambda feed: feed.put(SICK, C), [SICK, B, C]),
        (lambda feed: feed.remove("a", "x"), [B]),
    ],
    ids=["as made", "replaced by none", "replaced", "put: changed and added", "removed, with an unknown ID"],
)
async def test_a_reader_gets_the_devices_as_the_last_change_left_them(
    change: Callable[[DeviceFeed], None], listed: list[Device]
) -> None:
    feed = DeviceFeed([A, B])
    change(feed)
    async with aclosing(reading(feed)) as lists:
        assert await anext(lists) == listed


async def test_an_empty_list_is_a_list_of_a_new_feed_too() -> None:
    feed = DeviceFeed()
    feed.replace([])
    async with aclosing(reading(feed)) as lists:
        assert await anext(lists) == []


async def test_a_reader_gets_the_latest_list_and_no_backlog() -> None:
    feed = DeviceFeed(devices("a"))
    async with aclosing(reading(feed)) as lists:
        await anext(lists)
        for n in range(100):
            feed.replace(devices(f"d{n}"))
        assert ids(await anext(lists)) == ["d99"]
        feed.put(*devices("e"))
        assert ids(await anext(lists)) == ["d99", "e"]


async def test_a_list_that_a_reader_has_got_does_not_change() -> None:
    feed = DeviceFeed(devices("a"))
    async with aclosing(reading(feed)) as lists:
        first = await anext(lists)
        feed.put(*devices("b"))
        assert ids(first) == ["a"]


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts how often a feed woke it."""

    woken = 0

    def call_soon_threadsafe(self, *arguments: Any, **more: Any) -> asyncio.Handle:  # type: ignore[override]
        self.woken += 1
        return super().call_soon_threadsafe(*arguments, **more)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": CountingLoop})], ids=["counting"])
async def test_many_changes_before_a_reader_has_its_turn_wake_it_once() -> None:
    loop, feed = asyncio.get_running_loop(), DeviceFeed(devices("a"))
    assert isinstance(loop, CountingLoop)
    async with aclosing(reading(feed)) as lists:
        await anext(lists)
        before = loop.woken
        for n in range(1000):
            feed.put(*devices(f"d{n % 5}"))
        assert loop.woken == before + 1
        assert len(await anext(lists)) == 6


async def test_two_readers_get_all_of_it() -> None:
    feed = DeviceFeed(devices("a"))
    async with aclosing(reading(feed)) as one, aclosing(reading(feed)) as other:
        assert ids(await anext(one)) == ids(await anext(other)) == ["a"]
        feed.put(*devices("b"))
        assert ids(await anext(one)) == ids(await anext(other)) == ["a", "b"]


def test_a_reader_that_has_gone_is_forgotten_and_the_feed_works_on() -> None:
    async def story() -> None:
        async with aclosing(reading(feed)) as lists:
            await anext(lists)

    feed = DeviceFeed(devices("a"))
    asyncio.run(story())
    feed.put(*devices("b"))  # its loop is closed by now
    asyncio.run(story())


async def test_threads_may_push_at_the_same_time_and_nothing_is_lost() -> None:
    feed = DeviceFeed()

    def push(name: str) -> None:
        for n in range(200):
            feed.put(Device(f"{name}{n}"))
            if n % 2:
                feed.remove(f"{name}{n}")

    threads = [threading.Thread(target=push, args=(name,)) for name in "abcd"]
    wanted = {f"{name}{n}" for name in "abcd" for n in range(0, 200, 2)}
    async with aclosing(reading(feed)) as lists:
        for thread in threads:
            thread.start()
        async for listed in lists:
            if set(ids(listed)) == wanted:
                break
    for thread in threads:
        thread.join()


async def test_a_push_of_another_thread_reaches_the_kubelet(short_dir: Path) -> None:
    plugin = Fed("a")
    async with registered(short_dir, plugin) as (kubelet, _):
        callback = threading.Thread(target=plugin.feed.put, args=devices("b"))
        callback.start()
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        callback.join()


@pytest.mark.parametrize(
    "change",
    [lambda feed: feed.put(A), lambda feed: feed.replace([A]), lambda feed: feed.remove("b")],
    ids=["put", "replace", "remove"],
)
async def test_a_change_wakes_a_reader_that_waits(change: Callable[[DeviceFeed], None]) -> None:
    feed = DeviceFeed(devices("a"))
    async with aclosing(reading(feed)) as lists, asyncio.TaskGroup() as group:
        await anext(lists)
        waiting = group.create_task(anext(lists))
        await asyncio.sleep(0)
        change(feed)
        await until(waiting.done)
