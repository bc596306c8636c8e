"""The log lines of a changed device list: one per device and change, or one for all of many. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from devplug.devices import HealthState
from devplug.pace import Pace
from devplug.plugin.snapshot import slices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.devices import Device
    from devplug.plugin.snapshot import Slices, Snapshot

__all__ = ["FLAPPING_LINES", "FLAPPING_SECONDS", "LINES_LIMIT", "Flaps", "Line", "lines_of"]

LINES_LIMIT: Final = 20
"""Most lines about one change; more become one line with the number of devices in each state."""

REASONS_LIMIT: Final = 3

FLAPPING_LINES: Final = 20
FLAPPING_SECONDS: Final = 60.0
"""A device gets `FLAPPING_LINES` lines at once, and then one every `FLAPPING_SECONDS`."""

KNOWN_LIMIT: Final = 1000
"""For how many devices the times of their lines are kept."""

_MANY: Final = "many devices changed at once"


class Line(Struct, frozen=True):
    """One line for the log: a constant message, and its facts."""

    message: str
    facts: Mapping[str, object]
    is_warning: bool = False


class Flaps(Struct):
    """The devices that change too often for a line each time; lives as long as the list's owner.

    A key is a device ID, or `_MANY` for all that change together. Times are seconds of one clock.
    """

    _paces: dict[str, Pace] = field(default_factory=dict)
    _held_back: dict[str, int] = field(default_factory=dict)
    _flapping: set[str] = field(default_factory=set)
    _list_pace: Pace = field(default_factory=lambda: Pace(1 / FLAPPING_SECONDS, FLAPPING_LINES))

    def has_line(self, key: str, now: float) -> bool:
        """Whether a change gets its line now; otherwise it is counted."""
        if len(self._paces) > KNOWN_LIMIT:
            self._paces = {held: self._paces[held] for held in self._held_back}
            self._flapping.intersection_update(self._held_back)
        pace = self._paces.setdefault(key, Pace(1 / FLAPPING_SECONDS, FLAPPING_LINES))
        if key in self._held_back or pace.wait_seconds(now):
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return False
        pace.spend(now)
        self._flapping.discard(key)
        return True

    def begins(self, key: str) -> bool:
        """Whether the change that was just held back is the first one of this key."""
        is_new = key not in self._flapping
        self._flapping.add(key)
        return is_new

    def has_list_line(self, now: float) -> bool:
        """Whether the line that the list changes too fast may be logged now."""
        if self._list_pace.wait_seconds(now):
            return False
        self._list_pace.spend(now)
        return True

    def due(self, now: float) -> dict[str, int]:
        """Return the number of held back changes of each key whose line is due now."""
        due = [key for key in self._held_back if not self._paces[key].wait_seconds(now)]
        for key in due:
            self._paces[key].spend(now)
        return {key: self._held_back.pop(key) for key in due}

    def wait_seconds(self, now: float) -> float | None:
        """Return the seconds until `due` has something; None if nothing is held back."""
        return min((self._paces[key].wait_seconds(now) for key in self._held_back), default=None)


def lines_of(
    before: Snapshot,
    after: Snapshot,
    *,
    is_first: bool,
    changes: int = 1,
    flaps: Flaps | None = None,
    now: float = 0.0,
) -> Slices[tuple[Line, ...]]:
    """Return the lines to log when `after` takes the place of `before`.

    Of a first list only the unhealthy devices get lines, as the line of its registration has the number. A
    new reason alone is no change: it may contain a reading, which differs each time. `changes` is the number
    of lists since `before`: those in between get one line together. What `flaps` holds back gets a line now
    and then, with the number of changes; infinity as `now` returns all that is held back.
    """
    flaps = flaps or Flaps()
    lines: list[Line] = []
    has_line: dict[str, bool] = {}
    for line in (yield from _lines_of(before, after, is_first=is_first)):
        key = str(line.facts.get("device_id", _MANY))
        if key not in has_line:
            has_line[key] = flaps.has_line(key, now)
            if not has_line[key] and flaps.begins(key):
                lines.append(_flapping_now(key))
        if has_line[key]:
            lines.append(line)
    if changes > 1 and all(has_line.values()) and flaps.has_list_line(now):
        lines.append(Line("the device list changes too fast to log each change", {"changes": changes}))
    return (*lines, *(_flapping(key, count, after) for key, count in flaps.due(now).items()))


def _flapping_now(key: str) -> Line:
    if key == _MANY:
        return Line(
            "many devices flap; from now on their changes are counted and logged once a minute",
            {},
            is_warning=True,
        )
    return Line(
        "a device flaps; from now on its changes are counted and logged once a minute",
        {"device_id": key},
        is_warning=True,
    )


def _flapping(key: str, changes: int, after: Snapshot) -> Line:
    if key == _MANY:
        return Line("many devices flap", {"devices": len(after.devices), "changes": changes}, is_warning=True)
    device = after.devices.get(key)
    state = "gone" if device is None else device.health.state.value
    return Line("a device flaps", {"device_id": key, "changes": changes, "state": state}, is_warning=True)


def _lines_of(before: Snapshot, after: Snapshot, *, is_first: bool) -> Slices[tuple[Line, ...]]:
    worse: list[Device] = []
    better: list[Device] = []
    came: list[Device] = []
    moved: list[Device] = []
    for is_later, part in slices(after.devices.items()):
        if is_later:
            yield
        for id_, device in part:
            old = before.devices.get(id_)
            if old is device:
                continue
            is_healthy = device.health.state is HealthState.HEALTHY
            if old is None and not is_first:
                came.append(device)
            if not is_healthy and (old is None or old.health.state is HealthState.HEALTHY):
                worse.append(device)
            elif old is not None and is_healthy and old.health.state is not HealthState.HEALTHY:
                better.append(device)
            if old is not None and old.numa_nodes != device.numa_nodes:
                moved.append(device)
    left = yield from _left(before, after)
    if len(worse) + len(better) + len(came) + len(moved) + len(left) > LINES_LIMIT:
        counts = {
            "unhealthy": len(worse),
            "healthy": len(better),
            "appeared": len(came),
            "left": len(left),
            "moved": len(moved),
        }
        return (
            (yield from _summary(after, {name: count for name, count in counts.items() if count}, worse)),
        )
    return (
        *(Line("a device appeared", {"device_id": one.id}) for one in came),
        *(
            Line("a device is unhealthy", {"device_id": one.id, "reason": one.health.reason}, is_warning=True)
            for one in worse
        ),
        *(Line("a device is healthy again", {"device_id": one.id}) for one in better),
        *(
            Line(
                "the NUMA nodes of a device changed",
                {"device_id": one.id, "numa_nodes": list(one.numa_nodes)},
            )
            for one in moved
        ),
        *(Line("a device left the list", {"device_id": id_}) for id_ in left),
    )


def _left(before: Snapshot, after: Snapshot) -> Slices[list[str]]:
    left: list[str] = []
    for is_later, ids in slices(before.devices):
        if is_later:
            yield
        left += [id_ for id_ in ids if id_ not in after.devices]
    return left


def _summary(after: Snapshot, counts: Mapping[str, int], worse: list[Device]) -> Slices[Line]:
    reasons: Counter[str] = Counter()
    for is_later, part in slices(worse):
        if is_later:
            yield
        reasons.update(device.health.reason for device in part)
    facts: dict[str, object] = {"devices": len(after.devices), **counts}
    if reasons:
        facts["reasons"] = [f"{count} of {reason}" for reason, count in reasons.most_common(REASONS_LIMIT)]
    return Line(_MANY, facts, is_warning=bool(worse))
