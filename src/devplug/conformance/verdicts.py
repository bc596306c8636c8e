"""A check, which is one rule of the contract with an ID, and the verdict that a plugin gets on it. Pure.

Each check is a function that `check` has given its rule; here they are chosen by ID and group. A verdict says
what came of one: passed, failed, skipped or not judged, and why.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

# ── checks ──


class Severity(Enum):
    """The severity of breaking a rule."""

    MUST = "must"
    """Pods or the node suffer for it."""
    SHOULD = "should"
    """A plugin that breaks it works, but not in every situation."""
    NOTE = "note"
    """Advice; never makes a plugin wrong."""

    @property
    def counts(self) -> bool:
        """Whether a plugin that fails such a check is wrong."""
        return self is not Severity.NOTE


MUST: Final = Severity.MUST
SHOULD: Final = Severity.SHOULD
NOTE: Final = Severity.NOTE


class Group(StrEnum):
    """The parts of a plugin's life; the value is what people read, the name starts the IDs of its checks."""

    REG = "registration"
    STR = "stream"
    ALL = "allocate"
    PRE = "preferred"
    PST = "pre-start"
    RES = "restarts"
    END = "shutdown"
    HOS = "hostile"
    FOO = "footprint"
    DRA = "dra"


_ID = re.compile(r"[A-Z]{3}[0-9]{2}")


class UnknownCheckError(DevplugError):
    """No check has such an ID."""


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One rule of the contract, with the function that tries a plugin by it."""

    id: str
    """Three letters of the group and two digits; a promise, never used for another rule."""
    severity: Severity
    rule: str
    """The rule, in one sentence."""
    why: str
    """What happens where it is broken; a clause without a full stop."""
    change: str
    """What the author has to change; a clause without a full stop."""
    source: str
    """Where the rule comes from: API text, a file of Kubernetes, an issue."""
    function: Callable[[Any], Awaitable[str | None]]
    """Returns what was measured, if that is of interest. Raises `FailedError` and `SkippedError`.

    Takes the lane's `TestBed`, on which a plugin is registered, or a `TestRun` if it is `fresh`.
    """
    lane: str
    """Checks of one lane share one start of the plugin, one after the other, by ID."""
    fresh: bool
    """Whether it starts the plugin by itself, in its own way."""
    alone: bool
    """Whether nothing else may run meanwhile, because it measures or changes the machine."""
    quick: bool
    """Whether it belongs to the quick set."""
    harmless: bool
    """Whether it may be tried on a plugin that serves a real kubelet."""

    @property
    def group(self) -> Group:
        """The part of a plugin's life that it belongs to."""
        return Group[self.id[:3]]

    @property
    def how(self) -> str:
        """How it is tried, in the words of its function."""
        return inspect.cleandoc(self.function.__doc__ or "")


def check(
    id_: str,
    severity: Severity,
    rule: str,
    *,
    why: str,
    change: str,
    source: str,
    lane: str = "",
    fresh: bool = False,
    alone: bool = False,
    quick: bool = True,
    harmless: bool = False,
) -> Callable[[Callable[[Any], Awaitable[str | None]]], Check]:
    """Make the decorated function the check `id_`; its docstring says how it is tried.

    Without `lane` its lane is that of its group, and that of a `fresh` one its own.
    """

    def made(function: Callable[[Any], Awaitable[str | None]]) -> Check:
        if not _ID.fullmatch(id_):
            raise DevplugError(f"{id_} is no check ID")
        return Check(
            id_,
            severity,
            rule,
            why,
            change,
            source,
            function,
            lane or (id_ if fresh else Group[id_[:3]].value),
            fresh,
            alone,
            quick,
            harmless,
        )

    return made


def chosen(
    checks: Iterable[Check],
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    quick: bool = False,
    harmless: bool = False,
) -> Sequence[Check]:
    """Return the checks that are asked for.

    `only` and `skip` hold IDs, globs of them (`RES*`) or names of groups. `quick` leaves out what waits long,
    `harmless` all that a serving plugin should be spared. Raises `UnknownCheckError` for a word that fits no
    check at all.
    """
    checks = list(checks)

    def fits(one: Check, word: str) -> bool:
        return one.group.value == word.lower() or fnmatchcase(one.id, word.upper())

    for word in (*only, *skip):
        if not any(fits(one, word) for one in checks):
            raise UnknownCheckError(
                f"no check is called {word}; `devplug verify --list` shows all, a group is one of "
                f"{', '.join(group.value for group in Group)}"
            )
    return [
        one
        for one in checks
        if (not only or any(fits(one, word) for word in only))
        and not any(fits(one, word) for word in skip)
        and (one.quick or not quick)
        and (one.harmless or not harmless)
    ]


# ── verdicts ──


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
    """The verdict of one check on one plugin."""

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
