"""The kernel's queue of inotify events, and its overflow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

EVENTS_KEPT = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
"""How many events the kernel keeps for a reader."""

FEW_EVENTS_KEPT = pytest.mark.skipif(
    EVENTS_KEPT > 100_000, reason=f"this kernel keeps {EVENTS_KEPT} events, which is too many to make here"
)


def overflow(folder: Path) -> None:
    """Make more events than the kernel keeps: two by each change of a name."""
    names = folder / "noise", folder / "sound"
    names[0].touch()
    for number in range(EVENTS_KEPT // 2 + 1):
        names[number % 2].rename(names[1 - number % 2])


async def turns(count: int = 10) -> None:
    """Let the loop read what the kernel has told by now: its queue is filled before a call returns."""
    for _ in range(count):
        await asyncio.sleep(0)
