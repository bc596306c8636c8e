"""Waiting for what nothing announces: a file, a line of a log, the end of what another process does."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tests.virtualtime import passes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["until"]

Found = TypeVar("Found")


async def until(claim: Callable[[], Found]) -> Found:
    """Return what is claimed as soon as it is true; the test's time-out bounds it."""
    while not (found := claim()):
        await passes(0.002)
    return found
