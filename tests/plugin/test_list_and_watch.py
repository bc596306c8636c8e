"""What a kubelet reads from the stream: the whole list at once, then the latest after each change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from devplug import Device, Health
from devplug.wire.values import AdvertisedDevice
from tests.plugin.fakes import UNPLUGGED, Listed, devices, refusal, served
from tests.virtualtime import in_no_time, now, passes
from tests.waiting import until


def ids(listed: Sequence[AdvertisedDevice]) -> list[str]:
    return [device.id for device in listed]


def unhealthy(listed: Sequence[AdvertisedDevice]) -> list[str]:
    return [device.id for device in listed if device.health == "Unhealthy"]


async def test_a_stream_begins_with_the_whole_list_sorted(short_dir: Path) -> None:
    listed = [Device("b", numa_nodes=[1]), Device("a", health=UNPLUGGED)]
    async with served(short_dir, Listed(), listed) as plugin, aclosing(plugin.lists()) as lists:
        assert list(await anext(lists)) == [
            AdvertisedDevice("a", "Unhealthy", None),
            AdvertisedDevice("b", "Healthy", (1,)),
        ]


async def test_an_empty_list_is_sent_too(short_dir: Path) -> None:
    async with served(short_dir, Listed(), []) as plugin, aclosing(plugin.lists()) as lists:
        assert list(await anext(lists)) == []
        await plugin.inventory.replace(devices("a"))
        assert ids(await anext(lists)) == ["a"]
        await plugin.inventory.replace([])
        assert list(await anext(lists)) == []


async def test_a_stream_that_opens_before_the_first_list_waits_for_it(short_dir: Path) -> None:
    async with (
        served(short_dir, Listed()) as plugin,
        aclosing(plugin.lists()) as lists,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(anext(lists))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not first.done()
        await plugin.inventory.replace(devices("a"))
        assert ids(await first) == ["a"]


@pytest.mark.parametrize(
    "same",
    [
        [Device("b"), Device("a")],
        [Device("a"), Device("b", health=Health.unknown("no answer"))],
        [Device("a", device_nodes=["/dev/a"], attributes={"k": "v"}), Device("b")],
    ],
    ids=["equal", "unknown health", "only what the kubelet never sees is new"],
)
async def test_a_list_that_says_nothing_new_is_not_sent(short_dir: Path, same: list[Device]) -> None:
    listed = [Device("a"), Device("b")]
    async with served(short_dir, Listed(), listed) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        for _ in range(3):
            await plugin.inventory.replace(same)
            for _ in range(20):
                await asyncio.sleep(0)
        await plugin.inventory.replace([Device("c")])
        assert ids(await anext(lists)) == ["c"]


async def test_a_change_and_its_undoing_before_anybody_looked_send_nothing(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        await plugin.inventory.replace([])
        await plugin.inventory.replace(devices("a"))
        for _ in range(50):
            await asyncio.sleep(0)
        await plugin.inventory.replace(devices("b"))
        assert ids(await anext(lists)) == ["b"]


@in_no_time
async def test_a_burst_of_changes_sends_few_lists_and_the_last_one_is_right(short_dir: Path) -> None:
    async with (
        served(short_dir, Listed(), devices("d0")) as plugin,
        aclosing(plugin.lists()) as lists,
        asyncio.TaskGroup() as group,
    ):

        async def flap() -> None:
            for n in range(1, 501):
                await plugin.inventory.replace(devices(f"d{n}"))
                await asyncio.sleep(0)

        began_at = now()
        group.create_task(flap())
        got = [ids(await anext(lists))]
        while got[-1] != ["d500"]:
            got.append(ids(await anext(lists)))
        # Each list lacks a device, so it may go at once: five do, then fifteen a second.
        assert len(got) <= 1 + 5 + 15 * (now() - began_at)


async def test_a_stream_that_nobody_reads_gets_the_latest_list_and_no_backlog(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        for n in range(2000):
            await plugin.inventory.replace(devices(f"d{n}"))
        got = ids(await anext(lists))
        while got != ["d1999"]:
            got = ids(await anext(lists))


async def test_a_dropped_device_that_was_handed_out_stays_unhealthy(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a", "b")) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        await plugin.allocate(["a"])
        await plugin.inventory.replace([])
        left = await anext(lists)
        assert ids(left) == unhealthy(left) == ["a"]
        assert plugin.inventory.snapshot.devices["a"].health.reason == "gone"


async def test_a_handed_out_device_that_comes_back_is_healthy_again(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        await plugin.allocate(["a"])
        await plugin.inventory.replace([])
        assert unhealthy(await anext(lists)) == ["a"]
        await plugin.inventory.replace(devices("a"))
        assert unhealthy(await anext(lists)) == []


async def test_each_of_two_streams_gets_every_list(short_dir: Path) -> None:
    """A stream of a kubelet that is gone takes nothing away from that of the next one."""
    async with (
        served(short_dir, Listed(), devices("a")) as plugin,
        aclosing(plugin.lists()) as old,
        aclosing(plugin.lists()) as new,
    ):
        assert ids(await anext(old)) == ids(await anext(new)) == ["a"]
        await plugin.inventory.replace(devices("a", "b"))
        assert ids(await anext(new)) == ["a", "b"]
        assert ids(await anext(old)) == ["a", "b"]


async def test_the_seventeenth_stream_is_refused_until_one_ends(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(plugin.lists())) for _ in range(16)]
        for lists in streams:
            assert ids(await anext(lists)) == ["a"]
        async with aclosing(plugin.lists()) as one_too_many:
            text = await refusal(anext(one_too_many))
        assert text == "ResourceExhausted 16 streams are open, which is the limit"
        await plugin.allocate(["a"])
        await streams[0].aclose()
        await until(lambda: len(plugin.service.streams.open) < 16)
        async with aclosing(plugin.lists()) as next_one:
            assert ids(await anext(next_one)) == ["a"]


async def test_streams_end_without_an_error_when_the_plugin_is_drained(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        await plugin.service.drain()
        assert [listed async for listed in lists] == []
        assert plugin.service.streams.open == set()


@in_no_time
async def test_a_stream_that_waits_for_its_turn_ends_at_once_when_the_plugin_is_drained(
    short_dir: Path,
) -> None:
    async with served(short_dir, Listed(), devices("d")) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        for n in range(5):
            await plugin.inventory.replace(devices(f"d{n}"))
            if n < 4:
                await anext(lists)
        await passes(0.01)
        began = now()
        await plugin.service.drain()
        async for _ in lists:
            pass
        assert now() == began


async def test_ten_thousand_devices_fit_into_a_list(short_dir: Path) -> None:
    listed = [Device(f"{n:063}", numa_nodes=[n % 8]) for n in range(10_000)]
    async with served(short_dir, Listed(), listed) as plugin, aclosing(plugin.lists()) as lists:
        assert len(await anext(lists)) == 10_000
