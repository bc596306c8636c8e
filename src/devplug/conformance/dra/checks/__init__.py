"""The checks of DRA drivers, by subject; each tries a `DriverBed`, or a `DriverRun` if it is fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.conformance.dra.checks import (
    changes,
    deadlines,
    health,
    hostile,
    prepare,
    registration,
    restarts,
    slices,
    unprepare,
)
from devplug.conformance.verdicts import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SUBJECTS", "all_driver_checks"]

SUBJECTS: Final = (registration, slices, changes, prepare, deadlines, unprepare, restarts, hostile, health)
"""The files that have checks; every `Check` in them is made."""


def all_driver_checks() -> Sequence[Check]:
    """Return every check, by number."""
    found = [one for subject in SUBJECTS for one in vars(subject).values() if isinstance(one, Check)]
    return sorted(found, key=lambda one: one.id)
