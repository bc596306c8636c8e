"""The pace of sessions with the API server: how soon the next one begins when one has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.k8s.errors import ExistsError, ExpiredError
from devplug.pace import Pace

if TYPE_CHECKING:
    from devplug.k8s.client import Retries
    from devplug.k8s.errors import ClusterError

__all__ = ["SessionPace"]

RECOVERIES_PER_SECOND: Final = 0.1
RECOVERIES_AT_ONCE: Final = 5
"""How often the API server may have been well before waits double nevertheless: it may end every session."""

LOOKS_PER_SECOND: Final = 1 / 30
LOOKS_AT_ONCE: Final = 5
"""How often a session that met something newer is followed at once by another."""


class SessionPace(Struct):
    """How soon sessions follow each other. Times are seconds.

    The waits after failures double. An API server that was well in between makes the next failure the first
    one again, and a session that met something newer than it knew is no failure: each of them so often only,
    as thousands of nodes would ask a server that is always like that.
    """

    retries: Retries
    _failures: int = 0
    _was_well: bool = False
    _recoveries: Pace = field(default_factory=lambda: Pace(RECOVERIES_PER_SECOND, RECOVERIES_AT_ONCE))
    _looks: Pace = field(default_factory=lambda: Pace(LOOKS_PER_SECOND, LOOKS_AT_ONCE))

    def note_well(self) -> None:
        """Note that the API server was well in this session."""
        self._was_well = True

    def wait_seconds(self, now: float, error: ClusterError) -> float:
        """Return how long the next session waits after one that `error` ends at `now`; 0.0 if it need not."""
        was_well, self._was_well = self._was_well, False
        if was_well and _is_granted(self._recoveries, now):
            self._failures = 0
        asked_seconds = min(error.retry_after_seconds, self.retries.most_seconds)
        if isinstance(error, ExistsError | ExpiredError) and _is_granted(self._looks, now):
            return asked_seconds  # a new look at all slices is what is missing
        self._failures += 1
        return asked_seconds + self.retries.wait_seconds(self._failures)


def _is_granted(pace: Pace, now: float) -> bool:
    if pace.wait_seconds(now):
        return False
    pace.spend(now)
    return True
