"""The notifier: no change is lost between a look and a wait, and a wait ends in time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from devplug.linux.notifier import Event, Notifier, within


async def test_a_change_between_the_look_and_the_wait_is_not_lost() -> None:
    notifier = Notifier()
    changed = notifier.next
    notifier.notify()
    assert await within(None, changed.wait())


async def test_a_wait_for_what_does_not_come_ends() -> None:
    assert not await within(0, asyncio.Event().wait())


# ── events ──


@given(st.lists(st.sampled_from(["set", "clear", "wait", "cancel", "turn"]), max_size=30))
async def test_an_event_behaves_as_that_of_asyncio(steps: list[str]) -> None:
    """Each step is done to both; the same tasks have ended after it."""
    ours, theirs = Event(), asyncio.Event()
    waiting: list[tuple[asyncio.Task[object], asyncio.Task[object]]] = []
    async with asyncio.TaskGroup() as group:
        for step in steps:
            if step == "set":
                ours.set()
                theirs.set()
            elif step == "clear":
                ours.clear()
                theirs.clear()
            elif step == "wait":
                waiting.append((group.create_task(ours.wait()), group.create_task(theirs.wait())))
            elif step == "cancel" and waiting:
                for task in waiting[len(steps) % len(waiting)]:
                    task.cancel()
            else:
                await asyncio.sleep(0)
            assert ours.is_set() == theirs.is_set()
            assert [one.done() for one, _ in waiting] == [other.done() for _, other in waiting]
        for pair in waiting:
            for task in pair:
                task.cancel()
