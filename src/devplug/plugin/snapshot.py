"""What is advertised, as values and rules: from an author's list to the list the kubelet gets. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY, LIST_LIMIT_BYTES, UNHEALTHY, Device, Health, HealthState, list_size_bytes
from devplug.errors import PluginError, quoted
from devplug.exchange import AdvertisedDevice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

__all__ = ["Pace", "Snapshot", "checked_list", "next_snapshot", "transitions"]

GONE: Final = Health.unhealthy("gone")
_NONE: Mapping[str, Device] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All devices of a plugin at one moment, with the health that the kubelet is told. Immutable."""

    devices: Mapping[str, Device] = field(default_factory=lambda: _NONE)
    """By ID, sorted; none of them has unknown health."""

    def advertised(self) -> tuple[AdvertisedDevice, ...]:
        """Return the ListAndWatch list, sorted by ID. A device without NUMA nodes has no topology at all."""
        return tuple(
            AdvertisedDevice(
                device.id,
                HEALTHY if device.health.state is HealthState.HEALTHY else UNHEALTHY,
                device.numa_nodes or None,
            )
            for device in self.devices.values()
        )


def checked_list(listed: object) -> tuple[Device, ...]:
    """Return an author's list as a tuple; raises `PluginError` if it is not one that can be advertised."""
    if isinstance(listed, Device):
        raise PluginError(
            f"devices gave one Device, not a list of all: write [Device({quoted(listed.id)}, ...)]"
        )
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Collection):
        raise PluginError(f"devices gave {type(listed).__name__}, not a list of all devices")
    strangers = [item for item in listed if not isinstance(item, Device)]
    if strangers:
        raise PluginError(f"devices gave a list with {quoted(strangers[0])} in it, which is no Device")
    devices: tuple[Device, ...] = tuple(listed)
    counted: dict[str, int] = {}
    for device in devices:
        counted[device.id] = counted.get(device.id, 0) + 1
    # An ID listed healthy and unhealthy counts twice (manager.go genericDeviceUpdateCallback).
    if twice := [id_ for id_, count in counted.items() if count > 1]:
        raise PluginError(*(f"device ID {quoted(id_)} is listed {counted[id_]} times" for id_ in twice[:5]))
    if (size := list_size_bytes(devices)) > LIST_LIMIT_BYTES:
        fitting = len(devices) * LIST_LIMIT_BYTES // size
        raise PluginError(
            f"{len(devices)} devices make a list of {size} bytes; the kubelet takes {LIST_LIMIT_BYTES}, "
            f"about {fitting} such devices: use shorter IDs or a second resource",
        )
    return devices


def next_snapshot(
    before: Snapshot,
    listed: Iterable[Device],
    *,
    held: AbstractSet[str] = frozenset(),
    marked: Mapping[str, str] = MappingProxyType({}),
    failing: str | None = None,
) -> Snapshot:
    """Return what is advertised after `before`, given the author's latest list.

    `held` are the IDs that a pod may hold: they stay, Unhealthy "gone", when the list has them no more,
    because a kubelet that looks one up may crash (manager.go devicesToAllocate). `marked` are IDs that an
    author's refusal called unhealthy, with the reason. `failing` says why the list is not to be believed.
    """
    devices: dict[str, Device] = {}
    for device in listed:
        health = device.health
        if failing is not None:
            health = Health.unhealthy(failing)
        elif device.id in marked:
            health = Health.unhealthy(marked[device.id])
        elif health.state is HealthState.UNKNOWN:
            old = before.devices.get(device.id)
            health = old.health if old is not None else Health.healthy()
        devices[device.id] = device if health == device.health else device.with_health(health)
    for id_, device in before.devices.items():
        if id_ in held and id_ not in devices:
            devices[id_] = device if device.health == GONE else device.with_health(GONE)
    return Snapshot(MappingProxyType(dict(sorted(devices.items()))))


def transitions(before: Snapshot, after: Snapshot) -> Iterator[Device]:
    """Yield the devices of `after` that are new in it, or that the kubelet gets told another health of."""
    for id_, device in after.devices.items():
        old = before.devices.get(id_)
        if old is not device and (old is None or old.health.state is not device.health.state):
            yield device


@dataclass(slots=True)
class Pace:
    """How fast lists may follow each other: a burst at once, then a steady rate. Times are seconds.

    The kubelet rewrites and syncs its checkpoint for every list (manager.go writeCheckpoint).
    """

    per_second: float = 2.0
    burst: int = 5
    _left: float | None = None
    _at: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """Return how long the next list has to wait at time `now`; 0 means it may go."""
        return max(0.0, (1.0 - self._refilled(now)) / self.per_second)

    def spend(self, now: float) -> None:
        """Take note of a list sent at time `now`."""
        self._left = self._refilled(now) - 1.0
        self._at = now

    def _refilled(self, now: float) -> float:
        if self._left is None:
            return float(self.burst)
        return min(float(self.burst), self._left + (now - self._at) * self.per_second)
