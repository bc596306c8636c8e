"""Waiting for what nothing announces: a file, a line of a log, the end of what another process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from tests.virtualtime import passes

Found = TypeVar("Found")

FIRST_SECONDS: Final = 0.002
LAST_SECONDS: Final = 0.1
"""The first and the longest wait between two looks; each is a fiftieth longer than the one before."""


async def until(claim: Callable[[], Found]) -> Found:
    """Return what is claimed as soon as it is true; the test's time-out bounds it."""
    seconds = FIRST_SECONDS
    while not (found := claim()):
        await passes(seconds)
        seconds = min(seconds * 1.02, LAST_SECONDS)
    return found
