"""A device that left the list and came back is given out once the kubelet knows it again."""

from __future__ import annotations

import asyncio

import pytest

from devplug import Device
from devplug.plugin.service import TAKEN_SECONDS, SentLists
from devplug.plugin.snapshot import SLICE_DEVICES, whole
from tests.plugin.fakes import devices
from tests.virtualtime import now, on_virtual_time, passes

anyio_backend = on_virtual_time
A = {device.id: device for device in devices("a")}
BOTH = {device.id: device for device in devices("a", "b")}


def send(lists: SentLists, known: dict[str, Device]) -> None:
    whole(lists.sending(1, known, now()))
    lists.sent(1, now())


async def test_what_never_left_the_list_is_not_waited_for() -> None:
    lists = SentLists()
    send(lists, BOTH)
    await lists.until_known(["a", "b"])
    assert now() == 0


async def test_what_is_back_is_waited_for_until_the_kubelet_has_the_list() -> None:
    lists = SentLists()
    for known in (BOTH, A):
        send(lists, known)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(lists.until_known(["b"]))
        await passes(10)
        assert not waiting.done()
        send(lists, BOTH)
        await waiting
        assert now() == pytest.approx(10 + TAKEN_SECONDS)


async def test_a_stream_that_has_ended_is_not_waited_for() -> None:
    lists = SentLists()
    for known in (BOTH, A):
        send(lists, known)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(lists.until_known(["b"]))
        await asyncio.sleep(0)
        lists.end(1)
        await waiting


async def test_a_list_that_is_still_to_be_sent_is_waited_for_however_long_that_takes() -> None:
    lists = SentLists()
    for known in (BOTH, A):
        send(lists, known)
    whole(lists.sending(1, BOTH, now()))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(lists.until_known(["b"]))
        await passes(10 * TAKEN_SECONDS)
        assert not waiting.done()
        lists.sent(1, now())
        await waiting


async def test_what_leaves_with_a_long_list_is_waited_for_before_all_of_that_was_looked_at() -> None:
    lists = SentLists()
    many = {device.id: device for device in devices(*(f"d{number}" for number in range(2 * SLICE_DEVICES)))}
    send(lists, many)
    looking = lists.sending(1, {}, now())
    next(looking)
    async with asyncio.TaskGroup() as group:
        last = group.create_task(lists.until_known([[*many][-1]]))
        await asyncio.sleep(0)
        assert not last.done()
        whole(looking)
        await asyncio.sleep(0)
        assert not last.done()
        lists.end(1)
