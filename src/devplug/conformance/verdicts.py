"""What came of a check: passed, failed, skipped or not judged, and why; and what that means for the whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.conformance.registry import Check

__all__ = ["FailedError", "NoAnswerError", "Outcome", "SkippedError", "Verdict", "is_complete", "is_failure"]


class FailedError(DevplugError):
    """The plugin broke the rule of a check; the text says what was seen, with its figures."""


class SkippedError(DevplugError):
    """A check cannot be made on this plugin or this machine; the text says why."""


class NoAnswerError(SkippedError):
    """Allocate answers nothing at all. ALL01 and ALL12 fail of it, every other check that asks is skipped."""


class Outcome(StrEnum):
    """The ways in which a check ends."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNJUDGED = "not judged"
    """The time of the whole run was over before."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check came to on one plugin."""

    check: Check
    outcome: Outcome
    seen: str = ""
    """What was seen, or why it was skipped or not judged; may be empty for one that passed."""
    seconds: float = 0.0
    """How long it took."""


def is_complete(verdicts: Iterable[Verdict]) -> bool:
    """Whether there was time for all checks."""
    return all(verdict.outcome is not Outcome.UNJUDGED for verdict in verdicts)


def is_failure(verdicts: Iterable[Verdict]) -> bool:
    """Whether a plugin with these verdicts is wrong: notes are advice, all else counts."""
    return any(verdict.outcome is Outcome.FAILED and verdict.check.severity.counts for verdict in verdicts)
