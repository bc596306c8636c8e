"""The list of all that happens to groups, from which every search learns what is new. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.sandbox.scheduling.ceilings import ShelfKey, ceiling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.scheduling.groups import Group
    from devplug.sandbox.scheduling.scoring import ScoringSettings

__all__ = ["PART_BITS", "Line", "Shelves", "in_parts"]

PART_BITS: Final = 16
"""Ceilings are whole numbers of parts of a point: 2 to the power of so many make one."""

_ROUNDING: Final = 1e-6
"""Far more points than floats are wrong by."""

Line: TypeAlias = "tuple[Group, int, int, int]"
"""A group that came, or whose first node is another; the numbers of its family, of the parts of its ceiling
and of its shelf."""


def in_parts(points: float) -> int:
    """Return so many points as parts, and rather more than fewer."""
    return math.ceil((points + _ROUNDING) * (1 << PART_BITS))


@dataclass(slots=True)
class Shelves:
    """All groups for pods to whom scored resources weigh the same; it lives until nodes are grouped anew."""

    settings: ScoringSettings
    weights: tuple[int, ...]
    keys: list[ShelfKey] = field(default_factory=list)
    """What groups with one shelf number have in common; only ever longer, as is the list of lines."""
    lines: list[Line] = field(default_factory=list)
    _numbers: dict[ShelfKey, int] = field(default_factory=dict)
    _line_of: dict[int, Line] = field(default_factory=dict)
    """By number of the group, which has the same line each time."""

    def enter(self, group: Group) -> None:
        """Add a line, for every search to read."""
        self.lines.append(self._line(group))

    def lines_of(self, groups: Iterable[Group]) -> list[Line]:
        """Return a line for each group: what a search reads that begins now."""
        known = self._line_of.get
        return [known(one.number) or self._line(one) for one in groups]

    def _line(self, group: Group) -> Line:
        line = self._line_of.get(group.number)
        if line is None:
            line = self._line_of[group.number] = self._new_line(group)
        return line

    def _new_line(self, group: Group) -> Line:
        key = ShelfKey.of(self.settings, group)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        most = in_parts(ceiling(self.settings, self.weights, group))
        return group, group.family.number, most, number
