"""The debounce of host events: when to scan again, from what happened and when. Pure: no clock, no timer.

A USB device appears in pieces, and a scan in between would show it without its name or its NUMA node.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from msgspec import Struct, field

QUIET_SECONDS: Final = 0.05
"""A device has settled when there was no event of it for so long. The tty of a USB adapter comes 31 ms after
the device itself, the last binding 14 ms later."""

AT_MOST_SECONDS: Final = 0.5
"""A scan comes at most so long after the first event that it has to show."""

AGAIN_SECONDS: Final = 1.0
"""The wait for one more scan after something came: udev makes its links once it has read the device."""

BURST: Final = 5
"""So many scans may follow each other as soon as they are due,"""

BURST_WINDOW_SECONDS: Final = 10.0
"""within this time; if there are more, something flaps,"""

PACE_SECONDS: Final = 0.5
"""and there is one scan in this time, until fewer than `BURST` were needed in the window."""

LOOK_SHARE: Final = 0.05
"""The share of the time that scans for departures may take."""

_LEAVING: Final = frozenset({"remove", "unbind"})


class Debounce(Struct):
    """The events of one source since its last scan; lives as long as the source is followed.

    All times are seconds of one clock that does not go back. The first look is due at once.

    - When something leaves, a look is due at once; but never in the middle of something that comes, which it
      would show in pieces, nor within `QUIET_SECONDS` of another look: then one look shows all that left.
    - When something comes or changes, it is due after `QUIET_SECONDS` of quiet, `AT_MOST_SECONDS` after the
      first event at the latest, and once more `AGAIN_SECONDS` after the last event.
    - Without a cause it is due every `resync_seconds`.
    """

    resync_seconds: float
    _looked_at: float | None = None
    _first_at: float | None = None
    """The times of the first and the last event since the last scan."""
    _last_at: float = -math.inf
    _is_only_leaving: bool = True
    _again_at: float | None = None
    _looks: deque[float] = field(default_factory=lambda: deque(maxlen=BURST))
    """The times of the last scans that had a cause."""

    def note(self, action: str, now: float) -> None:
        """Record an event by the kernel's name of its action; an unknown one counts as a change."""
        if self._first_at is None:
            self._first_at = now
        self._last_at = now
        if action not in _LEAVING:
            self._is_only_leaving = False
            self._again_at = now + AGAIN_SECONDS

    def missed(self, now: float) -> None:
        """Record that events were lost: any device may have come, changed or gone."""
        self.note("change", now)

    def looked(self, now: float) -> None:
        """Record that a scan begins. Events from now on need another scan."""
        is_again = self._again_at is not None and self._again_at <= now
        if self._first_at is not None or is_again:
            self._looks.append(now)
        if is_again:
            self._again_at = None
        self._looked_at, self._first_at, self._is_only_leaving = now, None, True

    def due_at(self) -> float:
        """Return when the next scan is due, unless an event comes before; it may be in the past."""
        if self._looked_at is None:
            return -math.inf
        resync_at = self._looked_at + self.resync_seconds
        if self._first_at is not None:
            # Looks without a cause wait as well: they would show things in pieces just the same.
            return self._paced(self._settled_at(self._first_at, self._looked_at), self._looked_at)
        if self._again_at is not None:
            return min(self._paced(self._again_at, self._looked_at), resync_at)
        return resync_at

    def _settled_at(self, first_at: float, looked_at: float) -> float:
        if self._is_only_leaving and first_at >= looked_at + QUIET_SECONDS:
            return first_at
        return min(self._last_at + QUIET_SECONDS, first_at + AT_MOST_SECONDS)

    def _paced(self, due_at: float, looked_at: float) -> float:
        """Return when a scan is due at the pace for what flaps."""
        is_burst = len(self._looks) == BURST and due_at - self._looks[0] < BURST_WINDOW_SECONDS
        return max(due_at, looked_at + PACE_SECONDS) if is_burst else due_at


class Departures(Struct):
    """When to scan for devices that have left, while `Debounce` waits: no pod must get one of them.

    Such a scan removes devices and adds none, so it shows nothing in pieces. It is due `QUIET_SECONDS`
    after the one before, or later if looks take long: `LOOK_SHARE`. Times are as in `Debounce`.
    """

    _left_at: float | None = None
    _looked_at: float = -math.inf
    _pause_seconds: float = QUIET_SECONDS

    def note(self, action: str, now: float) -> None:
        """Record an event by the kernel's name of its action."""
        if action in _LEAVING and self._left_at is None:
            self._left_at = now

    def looked(self, began_at: float, ended_at: float) -> None:
        """Record a scan of any kind. Events since its beginning must be recorded after this call."""
        self._left_at, self._looked_at = None, began_at
        self._pause_seconds = max(QUIET_SECONDS, (ended_at - began_at) / LOOK_SHARE)

    def due_at(self) -> float:
        """Return when the scan is due; infinity if nothing has left since the last one."""
        return (
            math.inf if self._left_at is None else max(self._left_at, self._looked_at + self._pause_seconds)
        )
