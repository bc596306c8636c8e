"""What became of a node's devices over the last hour, from one status to the next. Pure: times are told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.monitor.differences import Change, differences
from devplug.monitor.found import found_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.monitor.found import FoundDevice
    from devplug.status.values import NodeStatus

__all__ = ["CHANGES_LIMIT", "GONE", "SEGMENTS_LIMIT", "WINDOW_SECONDS", "History", "Segment", "slots"]

WINDOW_SECONDS: Final = 3600.0
SEGMENTS_LIMIT: Final = 200
"""Of one device: one that flaps for longer loses its oldest."""

CHANGES_LIMIT: Final = 200
"""Of all nodes."""

_ALL_SEGMENTS_LIMIT: Final = 200_000
"""Of all devices of a node: each has its share where there are thousands, and 4 in any case."""

_GONE_LIMIT: Final = 2_000
"""Devices that are no longer listed, and remembered in case they come back."""

_LEAST: Final = 4

GONE: Final = "Gone"
"""The health of a device while it is in no list."""

_NOT_KNOWN: Final = "-"
_LETTERS: Final = {HEALTHY: "h", UNHEALTHY: "u", GONE: "."}
_OTHER: Final = "?"
_RANKS: Final = {letter: rank for rank, letter in enumerate("-h.?u")}

Key: TypeAlias = tuple[str, str]
"""Resource name and ID of the found device."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A time during which a device's health was the same: from `since` to the next one's."""

    since: float
    """As a Unix time in seconds."""
    health: str
    """`Healthy`, `Unhealthy`, another word that was told, or `Gone`."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of all nodes; a value that `after` makes a newer one of."""

    latest: Mapping[str, NodeStatus] = field(default_factory=dict)
    """Each node's last status, by its name."""
    found: Mapping[str, Mapping[str, tuple[FoundDevice, ...]]] = field(default_factory=dict)
    """The devices of that status, by node and resource name."""
    strips: Mapping[str, Mapping[Key, tuple[Segment, ...]]] = field(default_factory=dict)
    """By node: each device's segments, oldest first."""
    changes: tuple[tuple[str, Change], ...] = ()
    """The last ones, oldest first, each with its node's name."""

    def after(self, status: NodeStatus) -> History:
        """Return the history with one more status of one node; that must not be older than its last."""
        before = self.latest.get(status.name)
        changes = () if before is None else differences(before, status)[-CHANGES_LIMIT:]
        found = {resource.name: found_devices(resource) for resource in status.resources}
        strips = _strips(self.strips.get(status.name, {}), found, status.at)
        return replace(
            self,
            latest={**self.latest, status.name: status},
            found={**self.found, status.name: found},
            strips={**self.strips, status.name: strips},
            changes=(*self.changes, *((status.name, change) for change in changes))[-CHANGES_LIMIT:],
        )

    def strip(self, node: str, resource: str, found: str) -> tuple[Segment, ...]:
        """Return the segments of one device, none for one that never was."""
        return self.strips.get(node, {}).get((resource, found), ())


def _strips(
    before: Mapping[Key, tuple[Segment, ...]], found: Mapping[str, Sequence[FoundDevice]], at: float
) -> dict[Key, tuple[Segment, ...]]:
    count = sum(map(len, found.values()))
    most = max(_LEAST, min(SEGMENTS_LIMIT, _ALL_SEGMENTS_LIMIT // max(1, count)))
    begin = at - WINDOW_SECONDS
    strips = {
        (resource, device.id): _bounded(_with(before.get((resource, device.id), ()), device, at), begin, most)
        for resource, devices in found.items()
        for device in devices
    }
    gone = [(key, _without(segments, at)) for key, segments in before.items() if key not in strips]
    kept = sorted(
        ((key, segments) for key, segments in gone if segments[-1].since > begin),
        key=lambda one: one[1][-1].since,
    )
    return strips | {key: _bounded(segments, begin, most) for key, segments in kept[-_GONE_LIMIT:]}


def _with(segments: tuple[Segment, ...], found: FoundDevice, at: float) -> tuple[Segment, ...]:
    worst = found.worst
    last = segments[-1] if segments else None
    if last is not None and (last.health, last.reason) == (worst.health, worst.reason):
        return segments
    since = at if worst.since is None else min(worst.since, at)
    if last is None:
        return (Segment(since, worst.health, worst.reason),)
    if last.health == worst.health:  # only the words have changed
        return (*segments[:-1], replace(last, reason=worst.reason))
    return (*segments, Segment(since if since > last.since else at, worst.health, worst.reason))


def _without(segments: tuple[Segment, ...], at: float) -> tuple[Segment, ...]:
    return segments if segments[-1].health == GONE else (*segments, Segment(at, GONE))


def _bounded(segments: tuple[Segment, ...], begin: float, most: int) -> tuple[Segment, ...]:
    """Leave out what ended before the window, and the oldest beyond the limit."""
    first = max(0, len(segments) - most)
    while first + 1 < len(segments) and segments[first + 1].since <= begin:
        first += 1
    return segments[first:] if first else segments


# ── drawn ──


def slots(segments: Sequence[Segment], now: float, *, count: int = 60) -> str:
    """Return the last hour in `count` letters, oldest first: the worst that happened in each slot.

    `u` Unhealthy, `?` another word, `.` in no list, `h` Healthy, `-` not known. Slots begin at whole minutes
    (of a count of 60), so a strip moves once in a minute and not at every look.
    """
    seconds = WINDOW_SECONDS / count
    end = now // seconds + 1
    letters = [_NOT_KNOWN] * count
    for segment, until in _spans(segments, now):
        letter = _LETTERS.get(segment.health, _OTHER)
        first = max(0, int(segment.since // seconds - end) + count)
        last = min(count - 1, int(until // seconds - end) + count)
        for slot in range(first, last + 1):
            if _RANKS[letter] > _RANKS[letters[slot]]:
                letters[slot] = letter
    return "".join(letters)


def _spans(segments: Sequence[Segment], now: float) -> Iterator[tuple[Segment, float]]:
    for number, segment in enumerate(segments):
        yield segment, segments[number + 1].since if number + 1 < len(segments) else now
