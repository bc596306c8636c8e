"""What a program remembers of each resource name beyond the plugin that serves it: counts, and the last list.

Pure: times are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.plugin.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from devplug.plugin.inventory import Past

__all__ = ["FORMER_LIMIT", "REPLACED_WITHIN_SECONDS", "Records"]

REPLACED_WITHIN_SECONDS: Final = 10.0
"""How soon a plugin has to follow another one of its name, for its devices to count as listed all along."""

FORMER_LIMIT: Final = 100
"""Of how many resources that are served no longer the counts are kept, the latest ones: names may come and
go for years."""


class Records:
    """Lives as long as the program serves. Times are seconds on one clock that never goes back."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._pasts: dict[str, tuple[float, Past]] = {}

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """The counts of each resource, by name."""
        return self._tallies

    def tally(self, name: str) -> Tally:
        """Return the counts of a resource, which begin with 0 when it is first asked for."""
        return self._tallies.setdefault(name, Tally())

    def leave(self, name: str, past: Past, now: float) -> None:
        """Note what a plugin that has ended leaves to the one that may follow it."""
        recent = {one: (at, left) for one, (at, left) in self._pasts.items() if _is_recent(at, now)}
        self._pasts = {**recent, name: (now, past)}
        self._tallies[name] = self._tallies.pop(name, Tally())  # the last one to be forgotten

    def take(self, name: str, now: float) -> Past | None:
        """Return what the plugin before has left, once; None if there was none a moment ago."""
        at, past = self._pasts.pop(name, (now, None))
        return past if _is_recent(at, now) else None

    def forget_former(self, served: Collection[str]) -> None:
        """Forget the counts of all but the latest of those that are not served."""
        former = [name for name in self._tallies if name not in served]
        for name in former[:-FORMER_LIMIT]:
            del self._tallies[name]


def _is_recent(at: float, now: float) -> bool:
    return now - at <= REPLACED_WITHIN_SECONDS
