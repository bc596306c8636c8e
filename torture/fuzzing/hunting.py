"""The hunt itself: what is kept is tried first, then one change after the other; finds are made small."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from torture.catalogue import PATIENCE
from torture.fuzzing.corpus import Entry, minimised

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from torture.catalogue import Trial

    Changed = Callable[[Entry, Random], bytes]
    Fault = Callable[[Entry], str]
    """What is wrong about how an input was taken; empty if nothing is."""

__all__ = ["Clock", "hunt", "replayed"]

ROUNDS_AT_ONCE: Final = 256
"""Rounds between two turns of the loop, which is what ends a case that takes too long."""

SHOWN_BYTES: Final = 4_096
"""Longest find that is told whole."""


def replayed(trial: Trial, kept: Sequence[Entry], fault: Fault) -> None:
    """Try what is in the corpus, as it is."""
    for entry in kept:
        if found := fault(entry):
            trial.broke(f"corpus, {entry.of}, {entry.what!r}: {found}", trial.first)
    trial.figure("replayed from the corpus", len(kept))


async def hunt(trial: Trial, kept: Sequence[Entry], changed: Changed, fault: Fault) -> None:
    """Change what is kept, once for each round, and note every fault with a line for the corpus."""
    for turn in trial.rounds():
        entry = kept[turn.random.randrange(len(kept))]
        made = Entry(entry.of, "", changed(entry, turn.random))
        if found := fault(made):
            trial.broke(f"{found}\n    for the corpus: {_told(made, fault)}", turn.number)
        if not turn.number % ROUNDS_AT_ONCE:
            await asyncio.sleep(0)


def _told(found: Entry, fault: Fault) -> str:
    kind = fault(found).partition(":")[0]
    content = minimised(found.content, lambda one: fault(Entry(found.of, "", one)).startswith(kind))
    return Entry(found.of, "found: ", content[:SHOWN_BYTES]).line


class Clock:
    """The longest time that one input took, in seconds of this thread's processor: a busy machine adds none.

    Enter it around each input. An input that takes longer than `limit_seconds` is a fault.
    """

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.longest = 0.0
        self.last = 0.0
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.last = time.thread_time() - self._begun
        self.longest = max(self.longest, self.last)

    @property
    def fault(self) -> str:
        """What is wrong with the time of the last input; empty if nothing is."""
        if self.last <= self.limit_seconds * PATIENCE.get():
            return ""
        return f"X40: one input took {self.last:.2f} s of processor, over {self.limit_seconds:g} s"
