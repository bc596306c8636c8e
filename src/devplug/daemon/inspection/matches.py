"""Matches of a configuration with a machine: the devices that it would find there. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.container_response import share_of, with_room_for_replicas
from devplug.daemon.device_list import DeviceList, ScanResult
from devplug.devices import HealthState
from devplug.errors import PluginError, UnhealthyDeviceError
from devplug.holds.decide import Face, Findings, Found, Listing, decide

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from devplug.daemon.config.loader import ConfigReading
    from devplug.daemon.config.types import Resource
    from devplug.daemon.sources.device import HostDevice
    from devplug.devices import Device, DeviceNode, Health
    from devplug.errors import Problem

_OF_RESOURCE: Final = re.compile(r"resources\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Match:
    """One device that a resource finds on the machine."""

    found: HostDevice
    """The device, by the name that is its device ID; a replica adds its number."""
    nodes: tuple[DeviceNode, ...]
    """The nodes of a container that has only this device; empty if no container can get it."""
    health: Health
    """The health that would be advertised, and why; no health rule of the file was tried."""
    owner: str = ""
    """The resource that owns it instead, as it stands first in the file; empty if this one does."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """One resource of a file with the devices that it finds."""

    index: int
    """Its place among the file's resources, from 0."""
    name: str
    """The resource name; empty if the file's could not be read."""
    resource: Resource
    problem: Problem | None = None
    """The first problem of it in the file; devices of such a resource are not looked for."""
    is_elsewhere: bool = False
    """Whether `nodeNames` gives it to other machines only."""
    matches: tuple[Match, ...] | None = None
    """What was found; None if nobody looked."""

    @property
    def capacity(self) -> int | None:
        """The number of devices that would be advertised; None if it is not known."""
        if self.matches is None:
            return None
        return self.resource.share.replicas * sum(not match.owner for match in self.matches)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that would be advertised."""
        found = [match.found for match in self.matches or () if not match.owner]
        return DeviceList(self.resource).update(ScanResult(found, now=0.0))


def sound_resources(reading: ConfigReading) -> list[int]:
    """Return the places of the resources without a problem, for which devices can be looked for."""
    count = len(reading.config.resources) if reading.config else 0
    wrong = _first_problems(reading)
    return [index for index in range(count) if index not in wrong]


def _first_problems(reading: ConfigReading) -> dict[int, Problem]:
    first: dict[int, Problem] = {}
    for problem in reading.problems:
        if place := _OF_RESOURCE.match(problem.path):
            first.setdefault(int(place[1]), problem)
    return first


def inspected(
    reading: ConfigReading,
    looks: Mapping[int, Sequence[HostDevice]],
    elsewhere: Collection[int] = (),
) -> tuple[Inspected, ...]:
    """Return each resource of a file with what it finds, in file order.

    `looks` has what the source of a resource saw, by the resource's place; `elsewhere` are the places of
    those that are for other machines.
    """
    if reading.config is None:
        return ()
    first = _first_problems(reading)
    resources = reading.config.resources
    named = {
        index: [with_room_for_replicas(one, resources[index].share.replicas) for one in looked]
        for index, looked in looks.items()
    }
    refused = _refused(resources, named)
    return tuple(
        Inspected(
            index,
            str(resource.name),
            resource,
            first.get(index),
            index in elsewhere,
            tuple(_match(one, resource, refused[index].get(one.name, "")) for one in named[index])
            if index in named
            else None,
        )
        for index, resource in enumerate(resources)
    )


def _refused(
    resources: Sequence[Resource], named: Mapping[int, Sequence[HostDevice]]
) -> dict[int, Mapping[str, str]]:
    """Return for each resource the found devices that another one owns, with the owner."""
    listings = [
        Listing(
            str(index),
            [Found(one.name, one.identity, one.keys) for one in named[index]],
            resources[index].overlap == "shared",
        )
        for index in sorted(named)
    ]
    decision = decide(Findings(listings), ())
    return {
        index: {
            name: resources[int(one.owner)].name
            for name, one in decision.withheld_of(Face(str(index))).items()
        }
        for index in named
    }


def _match(found: HostDevice, resource: Resource, owner: str) -> Match:
    (device, *_) = DeviceList(resource).update(ScanResult([found], now=0.0))
    try:
        nodes = share_of(found, 0, resource.expose).device_nodes
    except (UnhealthyDeviceError, PluginError):
        nodes = ()
    is_sick = device.health.state is HealthState.UNHEALTHY
    return Match(found, nodes, device.health if is_sick else found.health, owner)
