"""The figures of a program's processes: memory, threads, descriptors and processor time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TICK_SECONDS: Final = 0.01
"""The kernel counts processor time in steps of this; one may be of the time before."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The time that the threads of some processes ran and waited for a processor so far.

    Empty if the kernel has no schedstat (proc(5)).
    """

    threads: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """By thread ID, the seconds that it ran, and those that it might have run and waited for a processor."""

    def share_since(self, before: Scheduling, seconds: float) -> float:
        """Return the share of a processor that they would take on a machine with one for each of them.

        That is the sum, over the threads, of the time that each ran by the time that it did not wait.
        """
        return sum(ran / max(ran, seconds - waited) for ran, waited in self._since(before) if ran > 0)

    def waited_since(self, before: Scheduling) -> float:
        """Return the longest time that one of them waited, in seconds."""
        return max((waited for _, waited in self._since(before)), default=0.0)

    def _since(self, before: Scheduling) -> Iterable[tuple[float, float]]:
        for thread, (ran, waited) in self.threads.items():
            ran_before, waited_before = before.threads.get(thread, (ran, waited))
            yield ran - ran_before, waited - waited_before


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all processes of a program together."""

    resident_bytes: int
    threads: int
    descriptors: int
    processor_seconds: float
    """Of threads that have ended, too; counted in steps of `TICK_SECONDS`."""
    scheduling: Scheduling = field(default_factory=Scheduling)

    def processor_share_since(self, before: Figures, seconds: float) -> float:
        """Return the share of a processor that it took, or would have taken on an idle machine."""
        ran_seconds = max(0.0, self.processor_seconds - before.processor_seconds - TICK_SECONDS)
        return max(ran_seconds / seconds, self.scheduling.share_since(before.scheduling, seconds))
