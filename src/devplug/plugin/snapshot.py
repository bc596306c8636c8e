"""The snapshot of what is advertised: from an author's list to the list that the kubelet gets. Pure.

Functions over all devices work in slices, so that an Allocate that comes meanwhile is answered: they are
generators that stop between two slices, and return their result. Their caller decides what happens in
between. What fits into one slice is done in one go.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from itertools import count, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import Struct, field

from devplug.devices import HEALTHY, UNHEALTHY, Device, Health, HealthState
from devplug.errors import PluginError, quoted
from devplug.pace import Pace
from devplug.wire.values import LIST_LIMIT_BYTES, AdvertisedDevice, list_size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet


# ── slices ──

Item = TypeVar("Item")
Result = TypeVar("Result")

Slices: TypeAlias = Generator[None, None, Result]

SLICE_DEVICES: Final = 500
"""How many devices are handled between two turns of the loop: about a millisecond for the slowest
function."""


def slices(items: Iterable[Item]) -> Iterator[tuple[bool, list[Item]]]:
    """Yield items by slices, each with whether it is not the first: then it is time to stop before it."""
    left = iter(items)
    for number in count():
        taken = list(islice(left, SLICE_DEVICES))
        if not taken:
            return
        yield number > 0, taken


def whole(looking: Slices[Result]) -> Result:
    """Return the result of a sliced function, without stops."""
    while True:
        try:
            next(looking)
        except StopIteration as end:
            found: Result = end.value
            return found


# ── snapshots ──

GONE: Final = Health.unhealthy("gone")
"""The health of a device that has left the list, and that a pod may hold."""

_NONE: Mapping[str, Device] = MappingProxyType({})


class Snapshot(Struct, frozen=True):
    """All devices of a plugin at one moment, with the health that is advertised. Immutable."""

    devices: Mapping[str, Device] = field(default_factory=lambda: _NONE)
    """By ID, sorted; none of them has unknown health."""

    def advertised(self) -> Iterator[AdvertisedDevice]:
        """Yield the ListAndWatch list, sorted by ID. A device without NUMA nodes has no topology at all."""
        for device in self.devices.values():
            word = HEALTHY if device.health.state is HealthState.HEALTHY else UNHEALTHY
            yield AdvertisedDevice(device.id, word, device.numa_nodes or None)


def checked_list(listed: object) -> Slices[tuple[Device, ...]]:
    """Return an author's list as a tuple; raises `PluginError` if it is not one that can be advertised."""
    if isinstance(listed, Device):
        raise PluginError(
            f"devices gave one Device, not a list of all: write [Device({quoted(listed.id)}, ...)]"
        )
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Collection):
        raise PluginError(f"devices gave {type(listed).__name__}, not a list of all devices")
    given: tuple[object, ...] = tuple(listed)  # at once: it is the author's, who may change it meanwhile
    devices: list[Device] = []
    counted: dict[str, int] = {}
    size = 0
    for is_later, items in slices(given):
        if is_later:
            yield
        part = [item for item in items if isinstance(item, Device)]
        if len(part) < len(items):
            stranger = next(item for item in items if not isinstance(item, Device))
            raise PluginError(f"devices gave a list with {quoted(stranger)} in it, which is no Device")
        for device in part:
            counted[device.id] = counted.get(device.id, 0) + 1
        size += list_size_bytes(part)
        devices += part
    # An ID listed healthy and unhealthy counts twice (manager.go genericDeviceUpdateCallback).
    if len(counted) < len(devices):
        twice = [id_ for id_, count in counted.items() if count > 1]
        raise PluginError(*(f"device ID {quoted(id_)} is listed {counted[id_]} times" for id_ in twice[:5]))
    if size > LIST_LIMIT_BYTES:
        fitting = len(devices) * LIST_LIMIT_BYTES // size
        raise PluginError(
            f"{len(devices)} devices make a list of {size} bytes; the kubelet takes {LIST_LIMIT_BYTES}, "
            f"about {fitting} such devices: use shorter IDs or a second resource",
        )
    return tuple(devices)


def next_snapshot(
    before: Snapshot,
    listed: Iterable[Device],
    *,
    held: AbstractSet[str] = frozenset(),
    marked: Mapping[str, str] = MappingProxyType({}),
    failing: str | None = None,
) -> Slices[Snapshot]:
    """Return what is advertised after `before`, given the author's latest list.

    `held` are the IDs that a pod may hold: they stay, Unhealthy "gone", when the list lacks them,
    because a kubelet that looks one up may crash (manager.go devicesToAllocate). `marked` are IDs that an
    author's error marked unhealthy, with the reason. `failing` says why the list is no longer valid.
    """
    devices: dict[str, Device] = {}
    for is_later, part in slices(listed):
        if is_later:
            yield
        for device in part:
            devices[device.id] = _advertised_as(device, before, marked, failing)
    for is_later, ids in slices(held):
        if is_later:
            yield
        for id_ in ids:
            gone = before.devices.get(id_) if id_ not in devices else None
            if gone is not None:
                devices[id_] = gone if gone.health == GONE else gone.with_health(GONE)
    return Snapshot(MappingProxyType((yield from _in_order(devices))))


def _advertised_as(
    device: Device, before: Snapshot, marked: Mapping[str, str], failing: str | None
) -> Device:
    """Return a listed device with the health that is advertised."""
    health = device.health
    if failing is not None:
        health = Health.unhealthy(failing)
    elif device.id in marked:
        health = Health.unhealthy(marked[device.id])
    elif health.state is HealthState.UNKNOWN:
        old = before.devices.get(device.id)
        health = old.health if old is not None else Health.healthy()
    return device if health is device.health or health == device.health else device.with_health(health)


def _in_order(devices: Mapping[str, Device]) -> Slices[dict[str, Device]]:
    """Return devices sorted by ID."""
    order: list[str] = []
    for is_later, ids in slices(devices):
        if is_later:
            yield
        order += sorted(ids)
    order.sort()  # which has only to merge the slices
    ordered: dict[str, Device] = {}
    for is_later, ids in slices(order):
        if is_later:
            yield
        ordered.update((id_, devices[id_]) for id_ in ids)
    return ordered


class Urgency(enum.Enum):
    """How soon the kubelet needs a list, by how it differs from the one that the kubelet has."""

    NONE = enum.auto()
    """Nothing differs for pods."""
    NORMAL = enum.auto()
    """Devices have come, are healthy again, or have other NUMA nodes; none has got worse."""
    URGENT = enum.auto()
    """A device has left or become unhealthy: pods that get it now will fail."""


class Difference(Struct):
    """The devices of a snapshot that differ from an earlier one."""

    came: list[Device] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    worse: list[Device] = field(default_factory=list)
    """The devices that were healthy."""
    better: list[Device] = field(default_factory=list)
    moved: list[Device] = field(default_factory=list)
    """The devices with other NUMA nodes."""
    is_any: bool = False
    """Whether anything differs, even only the text of a reason."""

    @property
    def is_visible(self) -> bool:
        """Whether a device came or left, or its advertised health changed."""
        return bool(self.came or self.left or self.worse or self.better)

    @property
    def urgency(self) -> Urgency:
        """How soon a kubelet that has the earlier snapshot needs the later one."""
        if self.left or self.worse:
            return Urgency.URGENT
        return Urgency.NORMAL if self.is_visible or self.moved else Urgency.NONE


def difference(before: Snapshot, after: Snapshot) -> Slices[Difference]:
    """Return how `after` differs from `before`."""
    found = Difference()
    for is_later, part in slices(after.devices.items()):
        if is_later:
            yield
        for id_, device in part:
            old = before.devices.get(id_)
            if old is device:
                continue
            if old is None:
                found.came.append(device)
                continue
            if old.health.state is not device.health.state:
                is_healthy = device.health.state is HealthState.HEALTHY
                (found.better if is_healthy else found.worse).append(device)
            if old.numa_nodes != device.numa_nodes:
                found.moved.append(device)
            found.is_any = found.is_any or old != device
    for is_later, ids in slices(before.devices):
        if is_later:
            yield
        found.left += [id_ for id_ in ids if id_ not in after.devices]
    found.is_any = found.is_any or found.is_visible
    return found


class ListPace(Struct):
    """How fast the lists of one stream may follow each other. Times are seconds.

    The kubelet rewrites and syncs its checkpoint for every list (manager.go writeCheckpoint), so there are
    five at once and then two a second. An urgent list does not wait for that: it is sent at once, in at most
    20 lists a second.
    """

    _steady: Pace = field(default_factory=Pace)
    _urgent: Pace = field(default_factory=lambda: Pace(per_second=15.0))

    def wait_seconds(self, urgency: Urgency, now: float) -> float:
        """Return how long a list of this urgency has to wait at time `now`; 0 means it may go."""
        return (self._urgent if urgency is Urgency.URGENT else self._steady).wait_seconds(now)

    def spend(self, now: float) -> None:
        """Count a list sent at time `now`."""
        self._steady.spend(now)
        self._urgent.spend(now)


# ── the log lines of a changed device list ──


LINES_LIMIT: Final = 20
"""Most lines about one change; more become one line with the number of devices in each state."""

REASONS_LIMIT: Final = 3


class Line(Struct, frozen=True):
    """One line for the log: a constant message, and its facts."""

    message: str
    facts: Mapping[str, object]
    is_warning: bool = False


def lines_of(before: Snapshot, after: Snapshot, *, is_first: bool) -> Slices[tuple[Line, ...]]:
    """Return the lines to log when `after` takes the place of `before`.

    A first list has lines only for unhealthy devices. A new reason alone has none: it may contain a reading.
    """
    found = yield from difference(before, after)
    worse = [*(one for one in found.came if one.health.state is not HealthState.HEALTHY), *found.worse]
    came = [] if is_first else found.came
    changes: dict[str, Sequence[object]] = {
        "unhealthy": worse,
        "healthy": found.better,
        "appeared": came,
        "left": found.left,
        "moved": found.moved,
    }
    counts = {word: len(changed) for word, changed in changes.items() if changed}
    if sum(counts.values()) > LINES_LIMIT:
        return ((yield from _summary(after, counts, worse)),)
    lines = [Line("a device appeared", {"device_id": one.id}) for one in came]
    for one in worse:
        facts = {"device_id": one.id, "reason": one.health.reason}
        lines.append(Line("a device is unhealthy", facts, is_warning=True))
    lines += [Line("a device is healthy again", {"device_id": one.id}) for one in found.better]
    for one in found.moved:
        nodes = {"device_id": one.id, "numa_nodes": list(one.numa_nodes)}
        lines.append(Line("the NUMA nodes of a device changed", nodes))
    lines += [Line("a device left the list", {"device_id": id_}) for id_ in found.left]
    return tuple(lines)


def _summary(after: Snapshot, counts: Mapping[str, int], worse: list[Device]) -> Slices[Line]:
    reasons: Counter[str] = Counter()
    for is_later, part in slices(worse):
        if is_later:
            yield
        reasons.update(device.health.reason for device in part)
    facts: dict[str, object] = {"devices": len(after.devices), **counts}
    if reasons:
        facts["reasons"] = [f"{count} of {reason}" for reason, count in reasons.most_common(REASONS_LIMIT)]
    return Line("many devices changed at once", facts, is_warning=bool(worse))
