"""The shapes of `devices`: lists, iterators and awaitables, and errors before the first list."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devplug import Device, DeviceFeed, DevicePlugin, PluginError, serve
from devplug.plugin.discovery import discover
from devplug.plugin.inventory import Inventory
from tests.plugin.discovered import A, Asked, B, discovered, listed, refused
from tests.plugin.fakes import RESOURCE, Time
from tests.waiting import until

# ── shapes ──


async def later(answer: Any) -> Any:
    return answer


class ReturnsLater(Asked):
    async def devices(self) -> Any:
        return super().devices()


class Yields(DevicePlugin):
    resource_name = RESOURCE

    def devices(self) -> Iterator[list[Device]]:
        yield [B]
        while True:
            yield [A]
            threading.Event().wait(0.01)


class YieldsLater(DevicePlugin):
    resource_name = RESOURCE

    async def devices(self) -> AsyncIterator[list[Device]]:
        yield [B]
        yield [A]
        await asyncio.Event().wait()


SHAPES = {
    "def, a list": Asked(lambda _: [A]),
    "async def, a list": ReturnsLater(lambda _: [A]),
    "def, a coroutine": Asked(lambda _: later([A])),
    "def, an iterator": Asked(lambda _: iter([[B], [A]])),
    "def, a feed": Asked(lambda _: DeviceFeed([A])),
    "async def, a feed": ReturnsLater(lambda _: DeviceFeed([A])),
    "def, yields": Yields(),
    "async def, yields": YieldsLater(),
}


@pytest.mark.parametrize("plugin", SHAPES.values(), ids=SHAPES)
async def test_devices_may_have_this_shape(plugin: DevicePlugin) -> None:
    async with discovered(plugin) as inventory:
        await until(lambda: listed(inventory) == {"a": ""})


@pytest.mark.parametrize("shape", ["def, a list", "async def, a list", "def, a coroutine"])
async def test_a_returned_list_is_all_there_is(shape: str) -> None:
    inventory = Inventory(RESOURCE)
    await discover(SHAPES[shape], inventory)  # which so has an end
    assert listed(inventory) == {"a": ""}


async def test_a_def_runs_in_a_thread_and_all_its_lists_in_the_same_one() -> None:
    threads = []

    def steps() -> Iterator[list[Device]]:
        for _ in range(3):
            threads.append(threading.current_thread())
            yield [A]

    time = Time()
    async with discovered(Asked(lambda _: steps()), time):
        await time.asleep(1)
    assert len(set(threads)) == 1
    assert threads[0] is not threading.main_thread()
    assert threads[0].daemon


async def test_each_list_is_the_whole_truth() -> None:
    feed = DeviceFeed([A, B])
    async with discovered(Asked(lambda _: feed)) as inventory:
        await until(lambda: listed(inventory) == {"a": "", "b": ""})
        feed.replace([B])
        await until(lambda: listed(inventory) == {"b": ""})


# ── before the first list ──


def explode(_: int) -> Any:
    raise OSError(19, "no such bus")


async def explode_later() -> Any:
    explode(0)


def explode_in_a_step() -> Iterator[list[Device]]:
    yield from explode(0)


@pytest.mark.parametrize(
    "answer",
    [explode, lambda _: explode_later(), lambda _: explode_in_a_step()],
    ids=["def", "async", "yield"],
)
async def test_devices_that_fail_before_the_first_list_end_the_program(
    short_dir: Path, answer: Callable[[int], Any]
) -> None:
    with pytest.raises(PluginError) as caught:
        async with serve(Asked(answer), plugin_dir=short_dir):
            await asyncio.Event().wait()
    text = "example.com/a: devices() failed: OSError(19, 'no such bus')"
    assert str(caught.value) == text
    assert isinstance(caught.value.__cause__, OSError)
    assert list(short_dir.iterdir()) == []


async def test_an_iterator_that_ends_before_the_first_list_is_refused() -> None:
    text = "example.com/a: devices() ended without a list"
    assert await refused(Asked(lambda _: iter([]))) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (A, 'devices gave one Device, not a list of all: write [Device("a", ...)]'),
        (iter([A, B]), 'devices gave one Device, not a list of all: write [Device("a", ...)]'),
        (None, "devices gave NoneType, not a list of all devices"),
        ({"a": A}, "devices gave dict, not a list of all devices"),
        ([A, A], 'device ID "a" is listed 2 times'),
        (["a"], 'devices gave a list with "a" in it, which is no Device'),
    ],
    ids=["a device", "yields devices", "nothing", "a mapping", "a double", "ids"],
)
async def test_a_first_list_that_is_none_is_refused_with_what_to_write(answer: object, text: str) -> None:
    assert await refused(Asked(lambda _: answer)) == text
