"""From what a source sees to the list that the kubelet gets. No I/O, and no clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from devplug.daemon.responses import REPLICA_MARK, device_ids, devices_of, found_name, gap_of
from devplug.daemon.unplugged import Known, after_look
from devplug.devices import LIST_LIMIT_BYTES, Device, Health, HealthState
from devplug.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from devplug.daemon.grammar.config import Resource
    from devplug.daemon.sources.found import Found

__all__ = ["REMOVED", "Listing", "Sight"]

REMOVED: Final = "its resource was removed from the configuration"

LEAST_DEVICE_BYTES: Final = 16
"""What a device takes in a list at least: a short ID, its health, and their tags and lengths."""


@dataclass(frozen=True, slots=True)
class Sight:
    """All that decides over a list at one moment."""

    found: Sequence[Found]
    """What the source sees, and what this resource can have of it."""
    now: float
    """Seconds of a clock that never goes back."""
    unchecked: Collection[str] = ()
    """Names that no rule has had a look at yet."""
    held_ids: frozenset[str] = frozenset()
    """Device IDs that a container may hold."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Names that another resource has, with that one's name."""
    health_of: Callable[[str], Health] = lambda _: Health.healthy()
    """What rules and commands say of a device."""


@dataclass(slots=True)
class _Made:
    """What was made of one device, and of what: making 10,000 of them anew takes half a second."""

    known: Known
    health: Health
    devices: tuple[Device, ...]
    gap: str | None


class Listing:
    """The devices of one resource, from one list to the next; lives as long as the resource is served."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._made: dict[str, _Made] = {}
        self.known: dict[str, Known] = {}
        """By name: what is present, and what is not any more."""
        self.revision = 0
        """Grows with each change of `known`, other than that of the object."""

    def update(self, sight: Sight) -> tuple[Device, ...]:
        """Return the whole list, by device name and replica; no ID is in it twice.

        Raises `PluginError` if that is more than the kubelet takes.
        """
        held_names = self._names(sight.held_ids)
        before = {
            name: one
            for name, one in self.known.items()
            # Neither did it go, nor will it come back here.
            if name not in sight.refused or name in held_names
        }
        self.known = after_look(
            before,
            [self._certain(found, before) for found in sight.found if found.name not in sight.unchecked],
            now=sight.now,
            keep_seconds=self._resource.when_unplugged.keep_unhealthy_for_seconds,
            # One that is being checked again is neither gone nor to be given out.
            held=held_names.union(name for name in sight.unchecked if name in before),
        )
        self._check_size()
        blocked = self._blocked(sight.held_ids)
        made = {name: self._device(name, sight, blocked) for name in sorted(self.known)}
        # Whatever is as before has been taken over as it was.
        if made.keys() != self._made.keys() or any(one is not self._made[name] for name, one in made.items()):
            self.revision += 1
        self._made = made
        listed = [device for one in made.values() for device in one.devices]
        return (*listed, *self._stale(sight.held_ids.difference(device.id for device in listed)))

    def retire(self, held_ids: Collection[str]) -> tuple[Device, ...]:
        """Return the list of a resource that is no more: what containers hold, and nothing to give out."""
        return tuple(Device(one, health=Health.unhealthy(REMOVED)) for one in sorted(held_ids))

    def present(self) -> dict[str, Found]:
        """Return the devices that are there, by name."""
        return {name: one.found for name, one in self.known.items() if one.is_present}

    def ids_of(self, name: str) -> list[str]:
        """Return the device IDs that stand for a found device."""
        return device_ids(name, self._resource.share.replicas)

    def _check_size(self) -> None:
        """Refuse what cannot fit anyway, before a million devices are made of it."""
        replicas = self._resource.share.replicas
        if len(self.known) * replicas * LEAST_DEVICE_BYTES > LIST_LIMIT_BYTES:
            raise PluginError(
                f"{self._resource.name}: {replicas} replicas of {len(self.known)} devices are more than the "
                "kubelet takes in one list (4 MiB); write fewer of share.replicas, or a narrower selector"
            )

    def _names(self, ids: Iterable[str]) -> frozenset[str]:
        return frozenset(found_name(one, self._resource.share.replicas) for one in ids)

    def _certain(self, found: Found, before: Mapping[str, Known]) -> Found:
        """Return what is told of a device of which nobody knows anything: it is as it was before.

        For one that was not there that would be an "unplugged" that is over.
        """
        known = before.get(found.name)
        if found.health.state is HealthState.UNKNOWN and not (known is not None and known.is_present):
            return replace(found, health=Health.healthy())
        return found

    def _blocked(self, held_ids: Collection[str]) -> dict[str, str]:
        """Return the devices that are held under IDs of another number of replicas, with the reason."""
        if self._resource.share.replicas > 1:
            whole = {one for one in held_ids if one in self.known and REPLICA_MARK not in one}
            return dict.fromkeys(whole, "a container still holds it as a whole")
        replicas = {one.rpartition(REPLICA_MARK)[0] for one in held_ids if not self._is_here(one)}
        return dict.fromkeys(replicas & self.known.keys(), "containers still hold replicas of it")

    def _is_here(self, name: str) -> bool:
        return name in self.known and self.known[name].is_present

    def _device(self, name: str, sight: Sight, blocked: Mapping[str, str]) -> _Made:
        known, last = self.known[name], self._made.get(name)
        is_same = last is not None and last.known == known
        gap = last.gap if is_same and last is not None else gap_of(known.found, self._resource)
        health = self._health(known, gap, sight, blocked)
        if is_same and last is not None and last.health == health:
            return last
        return _Made(known, health, devices_of(known.found, self._resource, health), gap)

    def _health(self, known: Known, gap: str | None, sight: Sight, blocked: Mapping[str, str]) -> Health:
        """Return the health of a device: what keeps it from being given out, else what is unknown of it."""
        name = known.found.name
        if name in sight.refused:
            return Health.unhealthy(f"belongs to {sight.refused[name]}")
        if name in sight.unchecked:
            return Health.unhealthy("not checked yet since it was plugged in")
        if not known.is_present:
            return Health.unhealthy("unplugged")
        if fault := blocked.get(name) or gap:
            return Health.unhealthy(fault)
        told = (known.found.health, sight.health_of(name))
        for state in (HealthState.UNHEALTHY, HealthState.UNKNOWN):
            if reasons := [one.reason for one in told if one.state is state]:
                return Health(state, "; ".join(reasons))
        return Health.healthy()

    def _stale(self, ids: Iterable[str]) -> list[Device]:
        """Return held IDs that no device stands for any more, as replicas of a larger number of them."""
        return [Device(one, health=Health.unhealthy("no longer advertised")) for one in sorted(ids)]
