"""What looks at very many devices stops after each slice of them, and others have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from devplug import Device, Health
from devplug.plugin.inventory import Inventory, in_turns
from devplug.plugin.service import SentLists
from devplug.plugin.snapshot import (
    SLICE_DEVICES,
    Snapshot,
    checked_list,
    difference,
    lines_of,
    next_snapshot,
    slices,
    whole,
)
from devplug.wire.deviceplugin import DEVICE_LIST, list_pieces
from devplug.wire.values import AdvertisedDevice

SLICES = 5
MANY = [Device(f"d{number:05}") for number in reversed(range(SLICES * SLICE_DEVICES))]
FEW = MANY[:SLICE_DEVICES]
ILL = Health.unhealthy("dust")


def snapshot(devices: list[Device]) -> Snapshot:
    return whole(next_snapshot(Snapshot(), devices))


def stops(looking: Generator[None, None, Any]) -> int:
    return sum(1 for _ in looking)


def told(before: list[Device], after: list[Device]) -> Generator[None, None, None]:
    streams = SentLists()
    whole(streams.sending(1, snapshot(before).devices, 0.0))
    return streams.sending(1, snapshot(after).devices, 1.0)


LOOKS: dict[str, Callable[[list[Device], list[Device]], Generator[None, None, Any]]] = {
    "checking an author's list": lambda _, after: checked_list(after),
    "making the snapshot": lambda before, after: next_snapshot(snapshot(before), after),
    "keeping what is held": lambda before, _: next_snapshot(
        snapshot(before), [], held={device.id for device in before}
    ),
    "comparing": lambda before, after: difference(snapshot(before), snapshot(after)),
    "noting what left": told,
    "logging what came": lambda before, after: lines_of(snapshot(before), snapshot(after), is_first=False),
    "logging what left": lambda before, _: lines_of(snapshot(before), Snapshot(), is_first=False),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_at_many_devices_stops_between_slices(name: str) -> None:
    changed = [device.with_health(ILL) for device in MANY]
    assert stops(LOOKS[name](MANY, changed)) >= SLICES - 1


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_at_few_devices_is_one_that_nothing_comes_between(name: str) -> None:
    assert stops(LOOKS[name](FEW, [device.with_health(ILL) for device in FEW])) == 0


def test_slices_are_all_of_it_in_order() -> None:
    parts = list(slices(range(2 * SLICE_DEVICES + 1)))
    assert [is_later for is_later, _ in parts] == [False, True, True]
    assert [item for _, part in parts for item in part] == list(range(2 * SLICE_DEVICES + 1))


def test_a_list_has_the_same_bytes_in_pieces() -> None:
    advertised = [AdvertisedDevice(f"d{number}", "Healthy", (number % 3,)) for number in range(1999)]
    pieces = list(list_pieces(iter(advertised)))
    assert len(pieces) > 3
    assert b"".join(pieces) == DEVICE_LIST.encode(advertised)
    assert list(DEVICE_LIST.decode(b"".join(pieces))) == advertised


async def test_others_have_a_turn_between_two_slices() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        beside = group.create_task(other())
        inventory = Inventory("example.com/a")
        await in_turns(checked_list(MANY))
        checked = turns
        await inventory.replace(MANY)
        beside.cancel()
    assert checked >= SLICES - 1
    assert turns - checked >= 3 * (SLICES - 1)


# ── what happens between two slices ──


async def _after_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(1, 40, 3))
async def test_what_is_asked_for_while_the_list_loses_it_stays_listed(turns: int) -> None:
    inventory = Inventory("example.com/a")
    await inventory.replace(MANY)
    async with asyncio.TaskGroup() as group:
        replacing = group.create_task(inventory.replace(MANY[1:]))
        await _after_turns(turns)
        if MANY[0].id not in inventory.snapshot.devices:
            await replacing
            return  # it left before it was asked for
        async with inventory.handing_out(inventory.find([MANY[0].id])):
            await replacing
            assert inventory.snapshot.devices[MANY[0].id].health == Health.unhealthy("gone")
    assert len(inventory.snapshot.devices) == len(MANY)


async def test_who_asks_for_another_device_each_time_does_not_keep_a_list_from_coming() -> None:
    inventory = Inventory("example.com/a")
    await inventory.replace(MANY)

    async def ask() -> None:
        for device in MANY:
            async with inventory.handing_out([device]):
                await _after_turns(2)

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask())
        await inventory.replace([Device(f"e{number}") for number in range(len(MANY))])
        assert inventory.version == 2
        assert not asking.done()
        asking.cancel()


async def test_a_device_that_is_refused_while_a_list_is_taken_is_unhealthy_when_the_refusal_is_told() -> None:
    inventory = Inventory("example.com/a")
    await inventory.replace(MANY)
    async with asyncio.TaskGroup() as group:
        group.create_task(inventory.replace([*MANY, Device("new")]))
        await _after_turns(3 * SLICES)
        await inventory.mark_unhealthy([MANY[0].id], "dust")
        assert inventory.snapshot.devices[MANY[0].id].health == ILL
        assert "new" in inventory.snapshot.devices
