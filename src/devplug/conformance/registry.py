"""The checks by ID: what a check is, how a function becomes one, and how some of them are chosen."""

from __future__ import annotations

import inspect
import pkgutil
import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

__all__ = [
    "MUST",
    "NOTE",
    "SHOULD",
    "Check",
    "Group",
    "Severity",
    "UnknownCheckError",
    "all_checks",
    "check",
    "chosen",
]


class Severity(Enum):
    """What it means to break a rule."""

    MUST = "must"
    """Pods or the node suffer for it."""
    SHOULD = "should"
    """It works, and somebody will be surprised one day."""
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


_ID = re.compile(r"[A-Z]{3}[0-9]{2}")

Function = TypeVar("Function", bound="Callable[[Any], Awaitable[str | None]]")


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

    Takes the lane's `Stage`, on which a plugin is registered, or a `Lab` if it is `fresh`.
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


_CHECKS: dict[str, Check] = {}


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
) -> Callable[[Function], Function]:
    """Make the decorated function the check `id_`; its docstring says how it is tried.

    Without `lane` its lane is that of its group, and that of a `fresh` one its own.
    """

    def register(function: Function) -> Function:
        if not _ID.fullmatch(id_) or id_ in _CHECKS:
            raise DevplugError(f"check ID {id_} is used twice, or is none")
        _CHECKS[id_] = Check(
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
        return function

    return register


def all_checks() -> Sequence[Check]:
    """Return every check, by group and number."""
    package = import_module("devplug.conformance.checks")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    order = list(Group)
    return sorted(_CHECKS.values(), key=lambda one: (order.index(one.group), one.id))


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
