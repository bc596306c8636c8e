"""What a ledger has of one resource: who holds which ID, what came free, and what of it is remembered. Pure.

It keeps account; what an answer means is the `ledger`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from devplug.holders.values import Remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devplug.holders.values import Memory, Released

__all__ = ["FREE", "Book", "Hold"]


@dataclass(frozen=True, slots=True)
class Hold:
    """One held ID."""

    remembered: Remembered = field(default_factory=Remembered)
    """What of it outlives the process."""
    allocated_at: float | None = None
    """Our last Allocate of it, if no answer has shown it since."""
    missing_since: float | None = None
    """The first of the answers in a row that are evidence that it is free."""


FREE: Final = Hold()


@dataclass(slots=True)
class Book:
    """What is known of one resource. Lives as long as its ledger."""

    holds: dict[str, Hold] = field(default_factory=dict)
    """By ID; none of them is in `untaken`."""
    untaken: dict[str, tuple[Released, Remembered]] = field(default_factory=dict)
    """What came free and was not taken, and how it was held before, by ID."""
    is_kept: bool = False
    """Whether releases are kept until they are taken."""
    revision: int = 0
    """Another number whenever something else is remembered of this resource."""
    ids: frozenset[str] | None = None
    """The IDs of `holds`, if somebody has asked since they changed."""

    def put(self, device_id: str, hold: Hold) -> None:
        """Note how an ID is held now."""
        before = self.holds.get(device_id)
        self.holds[device_id] = hold
        if before is None:
            self.ids = None
            self.untaken.pop(device_id, None)
        if before is None or before.remembered != hold.remembered:
            self.revision += 1

    def release(self, device_id: str, released: Released) -> None:
        """Note that nobody holds an ID any more."""
        hold = self.holds.pop(device_id)
        self.ids = None
        self.revision += 1
        if self.is_kept:
            self.untaken[device_id] = released, hold.remembered

    def take(self, released: Released) -> None:
        """Note that a release was acted upon."""
        if self.untaken.get(released.device_id, (None,))[0] is released:
            del self.untaken[released.device_id]
            self.revision += 1

    def forget_absences(self) -> None:
        """Wait anew for two answers that do not show an ID."""
        for device_id, hold in self.holds.items():
            if hold.missing_since is not None:
                self.holds[device_id] = replace(hold, missing_since=None)

    def held_ids(self) -> frozenset[str]:
        """Return the IDs that a container may hold."""
        if self.ids is None:
            self.ids = frozenset(self.holds)
        return self.ids

    def memory_later(self) -> Callable[[], Memory]:
        """Return what makes the memory of this moment, at any time and in any thread; cheap itself."""
        return partial(_memory, self.holds.copy(), self.untaken.copy())


def _memory(holds: Mapping[str, Hold], untaken: Mapping[str, tuple[Released, Remembered]]) -> Memory:
    held = {device_id: remembered for device_id, (_, remembered) in untaken.items()}
    held.update((device_id, hold.remembered) for device_id, hold in holds.items())
    return held
