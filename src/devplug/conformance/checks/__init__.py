"""The checks of the judge, in files by subject; each tries a `TestBed`, or a `TestRun` if it is fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.conformance.checks import (
    allocate,
    allocate_load,
    changes,
    footprint,
    hostile,
    lists,
    optional_calls,
    registration,
    registration_retries,
    responses,
    restarts,
    shutdown,
    stream,
    takeover,
)
from devplug.conformance.verdicts import Check, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SUBJECTS", "all_checks"]

SUBJECTS: Final = (
    registration,
    registration_retries,
    stream,
    lists,
    changes,
    allocate,
    responses,
    allocate_load,
    optional_calls,
    restarts,
    takeover,
    shutdown,
    hostile,
    footprint,
)
"""The files that have checks; every `Check` in them is made."""


def all_checks() -> Sequence[Check]:
    """Return every check, by group and number."""
    order = list(Group)
    checks = [one for subject in SUBJECTS for one in vars(subject).values() if isinstance(one, Check)]
    return sorted(checks, key=lambda one: (order.index(one.group), one.id))
