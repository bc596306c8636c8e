"""What an unexpected error of a supervised task ends."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from devplug.linux.supervision import kept_running
from tests.virtualtime import now, passes, play


def test_a_task_that_fails_is_started_again_after_waits_that_double() -> None:
    starts: list[float] = []
    failures: list[str] = []

    async def work() -> None:
        starts.append(now())
        if len(starts) < 5:
            raise ValueError(str(len(starts)))

    play(kept_running(work, lambda error: failures.append(str(error))))
    assert failures == ["1", "2", "3", "4"]
    waits = [round(later - sooner, 6) for sooner, later in pairwise(starts)]
    assert waits == [0.1, 0.2, 0.4, 0.8]


def test_a_task_that_ran_for_long_is_started_again_at_once() -> None:
    starts: list[float] = []

    async def work() -> None:
        starts.append(now())
        if len(starts) < 12:
            await passes(61)
            raise ValueError

    play(kept_running(work, lambda _: None))
    assert starts[-1] - starts[-2] == pytest.approx(61.1)


def test_the_report_may_end_it_all() -> None:
    async def work() -> None:
        raise ValueError("first")

    def failed(error: Exception) -> None:
        raise error

    with pytest.raises(ValueError, match="first"):
        play(kept_running(work, failed))


async def test_a_cancelled_task_is_not_started_again() -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(kept_running(asyncio.Event().wait, lambda _: None))  # type: ignore[arg-type]
        task.cancel()
    assert task.cancelled()
