"""Waiting for what nothing announces: a file, a line of a log, the end of what another process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.virtualtime import passes

__all__ = ["until"]

Found = TypeVar("Found")


async def until(claim: Callable[[], Found]) -> Found:
    """Return what is claimed as soon as it is true; the test's time-out bounds it."""
    while not (found := claim()):
        await passes(0.002)
    return found
