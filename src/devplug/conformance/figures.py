"""What the processes of a program take: memory, threads, descriptors, and a processor's time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TICK_SECONDS", "Figures", "Scheduling"]

TICK_SECONDS: Final = 0.01
"""The kernel counts processor time in steps of this; one may be of the time before."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How the threads of some processes fared with the scheduler so far: on a busy machine they wait.

    Empty where the kernel does not tell (proc(5), schedstat).
    """

    threads: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """By thread ID, the seconds that it ran, and those that it might have run and waited for a processor."""

    def share_since(self, before: Scheduling, seconds: float) -> float:
        """Return how much of a processor they would take on a machine that has one for each of them.

        That is, for each thread, how long it ran of the time in which it did not wait for a processor.
        """
        return sum(ran / max(ran, seconds - waited) for ran, waited in self._since(before) if ran > 0)

    def waited_since(self, before: Scheduling) -> float:
        """Return how long the one of them that waited the longest did."""
        return max((waited for _, waited in self._since(before)), default=0.0)

    def _since(self, before: Scheduling) -> Iterable[tuple[float, float]]:
        for thread, (ran, waited) in self.threads.items():
            ran_before, waited_before = before.threads.get(thread, (ran, waited))
            yield ran - ran_before, waited - waited_before


@dataclass(frozen=True, slots=True)
class Figures:
    """What all processes of a program take together."""

    resident_bytes: int
    threads: int
    descriptors: int
    processor_seconds: float
    """Of threads that have ended, too; counted in steps of `TICK_SECONDS`."""
    scheduling: Scheduling = field(default_factory=Scheduling)

    def processor_share_since(self, before: Figures, seconds: float) -> float:
        """Return how much of a processor it took, or would have taken where nobody else wants one."""
        ran_seconds = max(0.0, self.processor_seconds - before.processor_seconds - TICK_SECONDS)
        return max(ran_seconds / seconds, self.scheduling.share_since(before.scheduling, seconds))
