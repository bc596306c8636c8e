"""Two publishers of one pool, side by side as while a DaemonSet is updated: one of them writes at a time."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from devplug import Device
from devplug.driver.publisher import KUBELET_SECONDS, WRITES_AT_ONCE, Publisher, Turns
from tests.driver.apiserver import Cluster, cluster
from tests.driver.test_publisher import ILL, START, A, B, current, name, publishing
from tests.virtualtime import on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time

C = Device("c")


class Instance:
    """An instance of the driver; a kubelet has registered it once `is_ready`."""

    def __init__(self, server: Cluster, folder: Path, *, is_ready: bool) -> None:
        self.turns = Turns(folder / "publisher.lock")
        self.is_ready = is_ready
        self._server = server

    def is_our_turn(self) -> bool:
        return self.turns.is_ours(is_ready=self.is_ready)

    def publishing(
        self, *devices: Device, wall_clock: float = START
    ) -> AbstractAsyncContextManager[Publisher]:
        return publishing(
            self._server,
            *devices,
            may_begin=lambda: self.is_ready,
            is_our_turn=self.is_our_turn,
            wall_clock=lambda: wall_clock,
        )


def names(*devices: Device) -> set[str]:
    return {*map(name, devices)}


async def test_a_successor_writes_once_it_is_registered_and_its_predecessor_when_it_has_ended(
    short_dir: Path,
) -> None:
    async with cluster(short_dir) as server:
        old, new = (Instance(server, short_dir, is_ready=ready) for ready in (True, False))
        async with old.publishing(A, B) as first:
            await until(lambda: first.status.generation)
            async with new.publishing(B, C) as second:
                await until(lambda: second.status.slices)
                assert server.writes == ["POST"]
                new.is_ready = True
                second.look_again.notify()
                await until(lambda: server.devices().keys() == names(B, C))
                await current(first, [A])
                assert server.writes == ["POST", "PUT"]
                server.wipe()
                await until(lambda: server.devices().keys() == names(B, C))
                assert server.writes == ["POST", "PUT", "POST"]
            assert server.devices().keys() == names(B, C)
            new.turns.close()
            await until(lambda: server.devices().keys() == names(A))
        old.turns.close()


async def test_slices_are_published_half_a_minute_later_where_no_kubelet_registers(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(short_dir) as server:
        alone = Instance(server, short_dir, is_ready=False)
        async with alone.publishing(A):
            await passes(KUBELET_SECONDS - 1)
            assert not server.slices()
            await passes(2)
            await until(lambda: server.devices().keys() == names(A))
        alone.turns.close()
    assert [one.message for one in caplog.records if "no kubelet" in one.message] == [
        "no kubelet has registered the driver; its slices are published without one"
    ]


async def test_a_predecessor_stops_in_the_middle_of_its_writes(short_dir: Path) -> None:
    async with cluster(short_dir) as server:
        server.permits = asyncio.Semaphore(0)
        old, new = (Instance(server, short_dir, is_ready=True) for _ in range(2))
        async with old.publishing(*(Device(f"d{number}") for number in range(64 * 20))) as publisher:
            await until(lambda: server.waiting == WRITES_AT_ONCE)
            assert new.is_our_turn()
            for _ in range(20):
                server.permits.release()
            await until(lambda: publisher.status.slices == WRITES_AT_ONCE)
            assert len(server.slices()) == WRITES_AT_ONCE
            new.turns.close()
            await until(lambda: len(server.slices()) == 20)
        old.turns.close()


async def test_a_successor_keeps_the_time_of_a_taint_that_came_while_it_waited(short_dir: Path) -> None:
    """D80: with another time, how long pods tolerate the taint would begin anew."""
    async with cluster(short_dir) as server:
        old, new = (Instance(server, short_dir, is_ready=ready) for ready in (True, False))
        async with old.publishing(B) as first:
            await until(lambda: first.status.generation)
            async with new.publishing(ILL, B, wall_clock=START + 100) as second:
                await until(lambda: second.status.devices == 1)
                await current(first, [ILL, B])
                await until(lambda: second.status.devices == 2)
                new.is_ready = True
                second.look_again.notify()
                await until(lambda: not old.is_our_turn() and second.status.stale_since is None)
                assert server.writes == ["POST", "PUT"]
        new.turns.close()
        old.turns.close()


async def test_a_second_installation_is_a_conflict_that_the_silent_one_reports(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rollout has two instances for a moment, and its new one must stay ready: the old one reports."""
    async with cluster(short_dir) as server:
        one, other = (Instance(server, short_dir, is_ready=True) for _ in range(2))
        async with one.publishing(A) as first:
            await until(lambda: first.status.generation)
            async with other.publishing(B) as second:
                await until(lambda: server.devices().keys() == names(B))
                await passes(4 * 60)
                assert first.status.conflict == ""
                await passes(2 * 60)
                assert "uninstall one of them, or give it another driver" in first.status.conflict
                assert second.status.conflict == ""
                await passes(60 * 60)
                assert len([one for one in caplog.records if "goes on publishing" in one.message]) == 1
            other.turns.close()
            await until(lambda: server.devices().keys() == names(A))
            assert first.status.conflict == ""
        one.turns.close()
