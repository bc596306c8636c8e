"""A device that left the list and came back is given out once the kubelet knows it again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from devplug.plugin.slices import SLICE_DEVICES, whole
from devplug.plugin.told import TAKEN_SECONDS, Told
from tests.plugin.fakes import devices

if TYPE_CHECKING:
    from devplug import Device

A = {device.id: device for device in devices("a")}
BOTH = {device.id: device for device in devices("a", "b")}


def tell(told: Told, known: dict[str, Device]) -> None:
    now = asyncio.get_running_loop().time()
    whole(told.tell(1, known, now))
    told.sent(1, now)


async def test_what_never_left_the_list_is_not_waited_for() -> None:
    told = Told()
    tell(told, BOTH)
    waited = asyncio.get_running_loop().time()
    await told.until_known(["a", "b"])
    assert asyncio.get_running_loop().time() - waited < TAKEN_SECONDS / 2


async def test_what_is_back_is_waited_for_until_the_kubelet_has_the_list() -> None:
    told, loop = Told(), asyncio.get_running_loop()
    for known in (BOTH, A):
        tell(told, known)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(told.until_known(["b"]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        tell(told, BOTH)
        sent_at = loop.time()
        await waiting
        assert loop.time() - sent_at >= TAKEN_SECONDS * 0.9


async def test_a_stream_that_has_ended_is_not_waited_for() -> None:
    told = Told()
    for known in (BOTH, A):
        tell(told, known)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(told.until_known(["b"]))
        await asyncio.sleep(0)
        told.end(1)
        await waiting


async def test_a_list_that_is_still_to_be_sent_is_waited_for_however_long_that_takes() -> None:
    told, loop = Told(), asyncio.get_running_loop()
    for known in (BOTH, A):
        tell(told, known)
    whole(told.tell(1, BOTH, loop.time() - 10 * TAKEN_SECONDS))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(told.until_known(["b"]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        told.sent(1, loop.time() - 10 * TAKEN_SECONDS)
        await waiting


async def test_what_leaves_with_a_long_list_is_waited_for_before_all_of_that_was_looked_at() -> None:
    told, loop = Told(), asyncio.get_running_loop()
    many = {device.id: device for device in devices(*(f"d{number}" for number in range(2 * SLICE_DEVICES)))}
    tell(told, many)
    looking = told.tell(1, {}, loop.time())
    next(looking)
    async with asyncio.TaskGroup() as group:
        last = group.create_task(told.until_known([[*many][-1]]))
        await asyncio.sleep(0)
        assert not last.done()
        whole(looking)
        await asyncio.sleep(0)
        assert not last.done()
        told.end(1)
