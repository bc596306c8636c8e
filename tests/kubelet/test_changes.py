"""Waiting for the kubelet and measuring it, without polling."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from devplug.kubelet.changes import Change, ChangeKind, Changes
from tests.kubelet.fakes import RESOURCE, Clock, FakePlugin, happened, healthy, pod, registered, running
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


async def test_wait_returns_at_once_what_is_true_already() -> None:
    assert await Changes(time.monotonic).wait(lambda: 7) == 7


async def test_wait_asks_again_after_every_change() -> None:
    changes = Changes(time.monotonic)
    asked: list[int] = []

    def third() -> bool:
        asked.append(len(asked))
        return len(asked) == 3

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(changes.wait(third))
        while not waiting.done():
            await asyncio.sleep(0)
            changes.announce(ChangeKind.POD)
    assert len(asked) == 3


async def test_wait_can_be_cut_off(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await kubelet.wait(lambda: False)


async def test_no_change_is_lost_between_two_reads() -> None:
    changes = Changes(lambda: 5.0)
    changes.announce(ChangeKind.STARTED)
    with changes.watching() as seen:
        changes.announce(ChangeKind.LISTED, resource_name=RESOURCE)
        changes.announce(ChangeKind.POD, pod_uid="u")
        assert await anext(seen) == Change(5.0, ChangeKind.LISTED, RESOURCE)
        assert await anext(seen) == Change(5.0, ChangeKind.POD, pod_uid="u")


async def test_a_plugins_life_is_told_in_order(short_dir: Path) -> None:
    async def scenario() -> list[str]:
        kinds: list[str] = []
        async with running(short_dir) as kubelet:
            with kubelet.changes() as changes:
                async with registered(kubelet, healthy("a")):
                    await kubelet.run_pod(pod("u"))
                async for change in changes:
                    kinds.append(change.kind)
                    if change.kind is ChangeKind.STREAM_ENDED:
                        break
        return kinds

    assert await scenario() == ["registered", "listed", "pod", "pod", "disconnected", "stream ended"]


async def test_changes_carry_the_time_at_which_the_table_had_them(short_dir: Path) -> None:
    clock = Clock()
    async with (
        running(short_dir, clock=clock) as kubelet,
        FakePlugin(short_dir, devices=healthy("a")).serving() as plugin,
    ):
        clock.seconds += 7
        with kubelet.changes() as changes:
            await plugin.register()
            listed = await happened(changes, ChangeKind.LISTED)
        assert listed.at_seconds == clock.seconds
