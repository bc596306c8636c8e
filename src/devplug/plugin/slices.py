"""Long looks at many devices, cut into slices, so that an Allocate that comes meanwhile is answered.

Who looks is a generator that stops between two slices, and returns what it found. It is pure: who runs it
decides what happens in between. What fits into one slice is looked at in one go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import count, islice
from typing import Final, TypeAlias, TypeVar

__all__ = ["SLICE_DEVICES", "Slices", "in_turns", "slices", "whole"]

Item = TypeVar("Item")
Result = TypeVar("Result")

Slices: TypeAlias = Generator[None, None, Result]

SLICE_DEVICES: Final = 500
"""How many devices are looked at between two turns of the loop: about a millisecond for the slowest look."""


def slices(items: Iterable[Item]) -> Iterator[tuple[bool, list[Item]]]:
    """Yield items by slices, each with whether it is not the first: then it is time to stop before it."""
    left = iter(items)
    for number in count():
        taken = list(islice(left, SLICE_DEVICES))
        if not taken:
            return
        yield number > 0, taken


def whole(looking: Slices[Result]) -> Result:
    """Return what is found, without a stop."""
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found: Result = end.value
            return found


async def in_turns(looking: Slices[Result]) -> Result:
    """Return what is found; others have their turns between two slices."""
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found: Result = end.value
            return found
        await asyncio.sleep(0)
