"""The stream: what ListAndWatch lists, when, and to whom."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from devplug.conformance.registry import MUST, check
from devplug.conformance.verdicts import FailedError

if TYPE_CHECKING:
    from devplug.conformance.stage import Stage


@check(
    "STR07",
    MUST,
    "A list is sent only when something in it changed.",
    why="for every list the kubelet rewrites and syncs a file to disk",
    change="remember the last list; send only when it differs",
    source="manager.go, genericDeviceUpdateCallback writes the checkpoint; kubelet.md 3",
    lane="silence",
)
async def silence(stage: Stage) -> None:
    """Watch the stream while nothing happens on the machine, and count lists equal to the one before."""
    client = stage.client
    before = len(client.lists)
    await asyncio.sleep(stage.pace.silence_seconds)
    devices = [list_ for _, list_ in client.lists[max(0, before - 1) :]]
    repeats = sum(one == next_ for one, next_ in pairwise(devices))
    if repeats:
        raise FailedError(
            f"the same list was sent {repeats + 1} times in {stage.pace.silence_seconds:g} s, "
            "nothing had changed",
        )
