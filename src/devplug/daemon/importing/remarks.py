"""What a translation has to tell: values with their place in the peer's file, and their list. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.daemon.grammar.tree import Keys, Node, path_text
from devplug.errors import Problem

__all__ = ["At", "Grade", "Remark", "Remarks"]

if TYPE_CHECKING:
    from collections.abc import Iterator


class Grade(enum.Enum):
    """How much a remark asks of its reader."""

    NOTE = "note"
    """It is translated; what is told works differently from before, and nothing needs to be done."""
    WARNING = "warning"
    """Something was left out, or pods must be changed."""


@dataclass(frozen=True, slots=True)
class At:
    """A value of the peer's file, and the way to it."""

    node: Node
    keys: Keys = ()

    def problem(self, message: str) -> Problem:
        """Return `message` with the place of this value."""
        return Problem(self.node.line, self.node.column, path_text(self.keys), message)


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that is told of a translation."""

    grade: Grade
    problem: Problem


@dataclass(slots=True)
class Remarks:
    """Collects what there is to tell; lives for one translation."""

    _all: dict[Remark, None] = field(default_factory=dict)
    _told_once: set[str] = field(default_factory=set)

    def note(self, at: At, message: str) -> None:
        """Tell of something that is translated and works differently."""
        self._all[Remark(Grade.NOTE, at.problem(message))] = None

    def note_once(self, at: At, message: str) -> None:
        """Tell of something that holds for the whole file, at the first place where it matters."""
        if message not in self._told_once:
            self._told_once.add(message)
            self.note(at, message)

    def warn(self, at: At, message: str) -> None:
        """Tell of something that was left out, and of what to do about it."""
        self._all[Remark(Grade.WARNING, at.problem(message))] = None

    def __iter__(self) -> Iterator[Remark]:
        """Go through all of it in file order."""
        return iter(sorted(self._all, key=lambda one: (one.problem, one.grade.value)))
