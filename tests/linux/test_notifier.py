"""The notifier: no change is lost between a look and a wait, and a wait ends in time."""

from __future__ import annotations

import asyncio

from devplug.linux.notifier import Notifier, within


async def test_a_change_between_the_look_and_the_wait_is_not_lost() -> None:
    notifier = Notifier()
    changed = notifier.next
    notifier.notify()
    assert await within(None, changed.wait())


async def test_a_wait_for_what_does_not_come_ends() -> None:
    assert not await within(0, asyncio.Event().wait())
