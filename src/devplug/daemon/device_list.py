"""The list of devices that the kubelet gets, and the status of each, from what a source has found. Pure.

A device that is gone stays listed for a while, so that its ID can come back. Its status adds nodes,
attributes, holders and times to the device. Times are passed in.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.container_response import device_ids, found_name, refusal_of
from devplug.daemon.sources.device import HostDevice
from devplug.devices import Device, Health, HealthState, kubelet_device, stable_id
from devplug.errors import PluginError
from devplug.holds.hardware import REPLICA_MARK, marks
from devplug.status import DeviceStatus, health_word
from devplug.wire.values import LIST_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from devplug.attributes import AttributeValue, Partition
    from devplug.daemon.config.types import Resource
    from devplug.status import Holder, ResourceStatus


REMOVED: Final = "the configuration does not serve its resource this way any more"

LEAST_DEVICE_BYTES: Final = 16
"""What a device takes in a list at least: a short ID, its health, and their tags and lengths."""

ATTRIBUTE_PREFIX = "attr."
"""Facts that are read from sysfs one file each; there are dozens of them, so status leaves them out."""


# ── devices that are gone ─────────────────────────────────────────────────────────────────────────


class KnownDevice(Struct, frozen=True):
    """A device that is present, or was: `gone_at` is when it was first missing, in seconds."""

    found: HostDevice
    gone_at: float | None = None
    was_found: bool = True
    """Whether a scan ever found it; else only its hold is known."""

    @property
    def is_present(self) -> bool:
        """Whether the last scan found it."""
        return self.gone_at is None

    def leaves_at(self, keep_seconds: float) -> float:
        """Return when it has been gone for `keep_seconds`; infinite for one that is present."""
        return math.inf if self.gone_at is None else self.gone_at + keep_seconds


def after_look(
    before: Mapping[str, KnownDevice],
    looked: Iterable[HostDevice],
    *,
    now: float,
    keep_seconds: float,
    held: Collection[str] = (),
) -> dict[str, KnownDevice]:
    """Return the known devices after a scan: found, gone for less than `keep_seconds`, or held.

    `held` are names that a container may hold. They stay for as long as that lasts, because a kubelet that
    looks up one that has left the list may crash; also those that were never found since the daemon started.
    """
    known = {found.name: KnownDevice(found) for found in looked}
    for name, old in before.items():
        if name in known:
            continue
        gone = replace(old, gone_at=now) if old.is_present else old
        if name in held or (gone.was_found and now < gone.leaves_at(keep_seconds)):
            known[name] = gone
    for name in held:
        if name not in known:
            known[name] = KnownDevice(HostDevice(name), now, was_found=False)
    return known


def next_drop_at(
    known: Mapping[str, KnownDevice], keep_seconds: float, held: Collection[str] = ()
) -> float | None:
    """Return when the next device that is gone was kept for long enough, or None if none will be dropped.

    One that is held leaves when it is released.
    """
    leaving = [one for name, one in known.items() if not one.is_present and name not in held]
    first = min((one.leaves_at(keep_seconds) for one in leaving), default=math.inf)
    return None if math.isinf(first) else first


# ── the list ──────────────────────────────────────────────────────────────────────────────────────


class ScanResult(Struct, frozen=True):
    """The inputs of a device list at one moment."""

    found: Sequence[HostDevice]
    """The devices of the source, and which of them this resource can have."""
    now: float
    """Seconds of a clock that never goes back."""
    unchecked: Collection[str] = ()
    """Names that no health rule has checked yet."""
    held_ids: frozenset[str] = frozenset()
    """Device IDs that a container may hold."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why a device that was found is not offered, by name."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Why held devices that are present are unhealthy, by name; "" if they are not."""
    twins: Collection[str] = ()
    """The serial numbers that several present devices had in this boot."""
    health_of: Callable[[str], Health] = lambda _: Health.healthy()
    """Returns the health of a device by rules and commands."""


class _Made(Struct):
    """A cached device with its inputs: making 10,000 of them again takes half a second."""

    known: KnownDevice
    health: Health
    devices: tuple[Device, ...]
    lack: str | None


class DeviceList:
    """The devices of one resource, from one list to the next; lives as long as the resource is served.

    With `is_claimed` devices have their attributes, by which claims select, and their nodes, whose change is
    a change of the list then. A device plugin's kubelet sees neither. `name_of` returns the name of the found
    device behind an ID, also of one that was given when the device had another number of replicas.
    """

    def __init__(
        self, resource: Resource, *, is_claimed: bool = False, name_of: Callable[[str], str] | None = None
    ) -> None:
        self._resource = resource
        self._name_of = name_of or partial(found_name, replicas=resource.share.replicas)
        self._is_claimed = is_claimed
        self._made: dict[str, _Made] = {}
        self.withheld: frozenset[str] = frozenset()
        """The device IDs that nobody can get, also who takes an unhealthy device; besides those unplugged."""
        self.known: dict[str, KnownDevice] = {}
        """By name: devices that are present, and those that were."""
        self.has_former = False
        """Whether the list has held IDs of a former number of replicas."""
        self.revision = 0
        """Grows with each change of `known`, other than that of the object."""

    def update(self, scan: ScanResult) -> tuple[Device, ...]:
        """Return the whole list, by device name and replica; no ID is in it twice.

        Raises `PluginError` if that is more than the kubelet takes.
        """
        held = self._held_by_name(scan)
        held_names = held.keys()
        # These are not gone: another resource has them, or they have another name now.
        elsewhere = _renamed(self.known, scan.found, scan.twins).union(scan.refused) - held_names
        before = {name: one for name, one in self.known.items() if name not in elsewhere}
        self.known = after_look(
            before,
            [self._certain(found, before) for found in scan.found if found.name not in scan.unchecked],
            now=scan.now,
            keep_seconds=self._resource.when_unplugged.keep_unhealthy_for_seconds,
            # One that is being checked again is neither gone nor to be given out.
            held=held_names | {name for name in scan.unchecked if name in before},
        )
        self._check_size()
        self.has_former = False
        made = {name: self._device(name, scan, held.get(name, ())) for name in sorted(self.known)}
        # Whatever is as before has been taken over as it was.
        if made.keys() != self._made.keys() or any(one is not self._made[name] for name, one in made.items()):
            self.revision += 1
        self._made = made
        self.withheld = frozenset(
            id_ for name in (*scan.refused, *scan.unchecked) for id_ in self.ids_of(name)
        )
        return tuple(device for one in made.values() for device in one.devices)

    def retire(
        self, held_ids: Collection[str], absent: Collection[str], health_of: Callable[[str], Health]
    ) -> tuple[Device, ...]:
        """Return the list of a removed resource: the devices that containers hold.

        `absent` has the names of those whose hardware is not there; `health_of` returns the health by
        clean-ups, by name. Devices of claims are Unhealthy, so that no scheduler allocates them to another
        claim.
        """
        if self._is_claimed:
            return _unhealthy(held_ids, REMOVED)
        here = [
            kubelet_device(one).with_health(health_of(name))
            for one in sorted(held_ids)
            if (name := self._name_of(one)) not in absent
        ]
        gone = [one for one in held_ids if self._name_of(one) in absent]
        return (*here, *_unhealthy(gone, "unplugged"))

    def present(self) -> dict[str, HostDevice]:
        """Return the devices that are present, by name."""
        return {name: one.found for name, one in self.known.items() if one.is_present}

    def ids_of(self, name: str) -> list[str]:
        """Return the device IDs that stand for a found device."""
        return device_ids(name, self._resource.share.replicas)

    def names_of(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the names of the found devices behind these device IDs."""
        return frozenset(map(self._name_of, ids))

    def _check_size(self) -> None:
        """Refuse a list that cannot fit, before a million devices are made."""
        replicas = self._resource.share.replicas
        if len(self.known) * replicas * LEAST_DEVICE_BYTES > LIST_LIMIT_BYTES:
            raise PluginError(
                f"{self._resource.name}: {replicas} replicas of {len(self.known)} devices are more than the "
                "kubelet takes in one list (4 MiB); write fewer of share.replicas, or a narrower selector"
            )

    def _certain(self, found: HostDevice, before: Mapping[str, KnownDevice]) -> HostDevice:
        """Return the health of a device of which nothing is known: as it was before.

        For one that was not there that would be an "unplugged" that is over.
        """
        known = before.get(found.name)
        if found.health.state is HealthState.UNKNOWN and not (known is not None and known.is_present):
            return replace(found, health=Health.healthy())
        return found

    def _held_by_name(self, scan: ScanResult) -> dict[str, list[str]]:
        found = {one.name for one in scan.found}
        held: dict[str, list[str]] = {}
        for device_id in scan.held_ids:
            name = self._name_of(device_id)
            if name not in found and (whole := device_id.rpartition(REPLICA_MARK)[0]) in found:
                name = whole
            held.setdefault(name, []).append(device_id)
        return held

    def is_listed(self, device_id: str) -> bool:
        """Whether an ID is in the list, or is one of a device that is not known."""
        made = self._made.get(self._name_of(device_id))
        return made is None or any(one.id == device_id for one in made.devices)

    def _listed_ids(self, name: str, held: Collection[str]) -> list[str]:
        """Return the IDs under which a device is listed; `held` are its held IDs.

        Held IDs of a former number of replicas take the places of others, so that the device counts as often
        as the file says. A device that is held as a whole has no replicas.
        """
        ids = self.ids_of(name)
        former = [one for one in held if one not in ids]
        if not former:
            return ids
        self.has_former = True
        free = [] if name in former else [one for one in ids if one not in held]
        return sorted([*held, *free[: max(0, len(ids) - len(held))]])

    def _device(self, name: str, scan: ScanResult, held: Collection[str]) -> _Made:
        known, last = self.known[name], self._made.get(name)
        if last is not None and last.known != known:
            last = None
        lack = last.lack if last else refusal_of(known.found, self._resource)
        health, ids = self._health(known, lack, scan), self._listed_ids(name, held)
        if last is not None and last.health == health and [one.id for one in last.devices] == ids:
            return last
        told = facts_for_claims(known.found) if self._is_claimed else NO_FACTS
        nodes = _node_paths(known.found) if self._is_claimed and known.is_present and not lack else ()
        return _Made(known, health, _devices_of(known.found, ids, self._resource, health, told, nodes), lack)

    def _health(self, known: KnownDevice, lack: str | None, scan: ScanResult) -> Health:
        """Return the health of a device: why it cannot be given out, else why its health is unknown."""
        name = known.found.name
        if name in scan.unchecked:
            return Health.unhealthy("not checked yet since it was plugged in")
        if not known.is_present:
            return Health.from_fault(scan.elsewhere.get(name, "unplugged"))
        if lack:
            return Health.unhealthy(lack)
        return combined((known.found.health, scan.health_of(name)))


def combined(healths: Iterable[Health]) -> Health:
    """Return one health for several opinions on one device: each must be good for it to be healthy.

    Unhealthy wins over unknown, which wins over healthy; the reasons of those that win are joined.
    """
    given = list(healths)
    for state, made in ((HealthState.UNHEALTHY, Health.unhealthy), (HealthState.UNKNOWN, Health.unknown)):
        reasons = dict.fromkeys(health.reason for health in given if health.state is state)
        if reasons:
            return made("; ".join(reasons))
    return Health.healthy()


def _renamed(
    known: Mapping[str, KnownDevice], found: Sequence[HostDevice], twins: Collection[str]
) -> frozenset[str]:
    """Return the names of known devices whose hardware was found under another name."""
    names = {one.name for one in found}
    gone = {name: one.found for name, one in known.items() if name not in names}
    if not gone:
        return frozenset()
    by_mark: dict[str, list[HostDevice]] = {}
    for one in found:
        for mark in (*marks(one.identity), *one.keys):
            by_mark.setdefault(mark, []).append(one)
    return frozenset(
        name
        for name, one in gone.items()
        if any(
            one.identity is None or other.identity is None or one.identity.is_same(other.identity, twins)
            for mark in (marks(one.identity) or one.keys)
            for other in by_mark.get(mark, ())
        )
    )


def _unhealthy(ids: Iterable[str], reason: str) -> tuple[Device, ...]:
    return tuple(kubelet_device(one).with_health(Health.unhealthy(reason)) for one in sorted(ids))


# ── the status ────────────────────────────────────────────────────────────────────────────────────


class Answered(Struct, frozen=True):
    """The device nodes and variables that the container of a held device got."""

    resource: Resource
    found: HostDevice

    def is_outdated(self, resource: Resource, found: HostDevice) -> bool:
        """Whether a container would get something else now."""
        return self.resource.expose != resource.expose or self.found.nodes != found.nodes


class Knowledge(Struct, frozen=True):
    """The daemon's facts about one resource's devices at one moment."""

    resource: Resource
    known: Mapping[str, KnownDevice]
    """By found name."""
    holders: Mapping[str, tuple[Holder, ...]]
    """The holders of each device that a container may hold, by ID; empty where they are not known."""
    since_boot_to_unix_seconds: float
    """The difference of a Unix time to a time of `known`, in seconds."""
    is_retired: bool = False
    is_waiting: bool = False
    """Whether it is not advertised because the file says so: `whenNone: wait`."""
    answered: Mapping[str, Answered] = field(default_factory=dict)
    """By device ID."""

    def is_same_as(self, other: Knowledge) -> bool:
        """Whether the devices' statuses are the same; compared by identity, as the parts are immutable."""
        return self.known is other.known and self.answered is other.answered and self.holders == other.holders


def described(status: ResourceStatus, knowledge: Knowledge) -> ResourceStatus:
    """Return a resource's status with the daemon's facts about the resource."""
    return replace(
        status,
        fault="" if knowledge.is_waiting else status.fault,
        replicas=knowledge.resource.share.replicas,
        is_retired=knowledge.is_retired,
    )


def merged(statuses: Iterable[ResourceStatus]) -> tuple[ResourceStatus, ...]:
    """Return one status for each resource, by name: one that moves also has what it gave out before."""
    by_name: dict[str, list[ResourceStatus]] = {}
    for one in sorted(statuses, key=lambda one: (one.name, one.is_retired)):
        by_name.setdefault(one.name, []).append(one)
    return tuple(first if not others else _with(first, others) for first, *others in by_name.values())


def _with(status: ResourceStatus, others: Sequence[ResourceStatus]) -> ResourceStatus:
    devices = {device.id: device for one in (*others, status) for device in one.devices}
    times = [one.given_at for one in (status, *others) if one.given_at is not None]
    return replace(
        status,
        devices=tuple(devices[device_id] for device_id in sorted(devices)),
        given_at=max(times, default=None),
        takeover=next((one.takeover for one in (status, *others) if one.takeover), None),
    )


def device_statuses(
    devices: Iterable[Device], since: Mapping[str, float], knowledge: Knowledge
) -> tuple[DeviceStatus, ...]:
    """Return the statuses of a resource's devices; `since` says since when each has its health."""
    replicas = knowledge.resource.share.replicas
    found_facts: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}

    def status(device: Device) -> DeviceStatus:
        is_held = device.id in knowledge.holders
        name = found_name(device.id, replicas)
        if name not in knowledge.known:  # it was given when the device had another number of replicas
            name = device.id.rpartition(REPLICA_MARK)[0] or name
        known = knowledge.known.get(name)
        if name not in found_facts:  # once for all replicas
            found_facts[name] = _nodes_and_attributes(known)
        device_nodes, attributes = found_facts[name]
        return DeviceStatus(
            id=device.id,
            health=health_word(device),
            reason=device.health.reason,
            since=since.get(device.id),
            numa_nodes=device.numa_nodes,
            device_nodes=device_nodes,
            attributes=attributes,
            is_held=is_held,
            holders=knowledge.holders.get(device.id, ()),
            leaves_at=None if known is None or is_held else _leaves_at(known, knowledge),
            is_outdated=is_held and known is not None and _is_outdated(device.id, known, knowledge),
        )

    return tuple(map(status, devices))


def _nodes_and_attributes(known: KnownDevice | None) -> tuple[tuple[str, ...], dict[str, str]]:
    if known is None:
        return (), {}
    facts = known.found.facts
    attributes = {name: str(facts[name]) for name in facts if not name.startswith(ATTRIBUTE_PREFIX)}
    return _node_paths(known.found) if known.is_present else (), attributes


def _is_outdated(device_id: str, known: KnownDevice, knowledge: Knowledge) -> bool:
    answered = knowledge.answered.get(device_id)
    return answered is not None and answered.is_outdated(knowledge.resource, known.found)


def _node_paths(found: HostDevice) -> tuple[str, ...]:
    return tuple(node.real_path or node.host_path for node in found.nodes)


def _leaves_at(known: KnownDevice, knowledge: Knowledge) -> float | None:
    keep_seconds = knowledge.resource.when_unplugged.keep_unhealthy_for_seconds
    leaves_at = known.leaves_at(keep_seconds)
    return None if math.isinf(leaves_at) else leaves_at + knowledge.since_boot_to_unix_seconds


def _devices_of(
    found: HostDevice,
    ids: Iterable[str],
    resource: Resource,
    health: Health,
    told: ClaimFacts,
    nodes: Sequence[str],
) -> tuple[Device, ...]:
    """Return what is advertised of a found device: itself, or each of its replicas.

    A request of a claim gets a device once, whatever shares it has (dra.md D86). So to claims the replicas
    are shares of one device only where a container may have one of them.
    """
    numa_nodes = () if found.numa_node is None else (found.numa_node,)
    share = resource.share
    is_one_device = resource.serve == "dra" and share.replicas > 1 and share.max_per_container == 1
    share_of = found.name if is_one_device else ""
    device = Device(
        stable_id(found.name),
        health=health,
        numa_nodes=numa_nodes,
        attributes=told.attributes,
        capacity=told.capacity,
        share_of=share_of,
        device_nodes=nodes,
        partition=told.partition if share.replicas == 1 else None,
    )
    # A held ID may be of another plugin, which had the resource name before.
    return tuple(kubelet_device(id_, device) for id_ in ids)


# ── what claims can know of a found device ──


NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""Names that all drivers share, so that one claim can ask for devices of two drivers at one root or node
(k8s.io/dynamic-resource-allocation/deviceattribute; numaNode by KEP-6072, as one integer)."""

_FACTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "vendor": ("attr.idVendor", "attr.vendor"),
    "product": ("attr.idProduct", "attr.device"),
    "manufacturer": ("attr.manufacturer",),
    "model": ("model",),
    "serial": ("serial",),
    "uuid": ("uuid",),
    "driver": ("attr.driver",),
    "interface": ("interface",),
    "pciAddress": ("pciAddress",),
}
"""The facts of an attribute, of which the first that a device has counts. Names of files are none of them:
the kernel gives them anew at each re-plug."""

_PCIE_ROOT: Final = r"(?:^|/)(pci[0-9a-f]{4,}:[0-9a-f]{2})(?=/)"
_PCI_ADDRESS: Final = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_NUMBER: Final = r"0x[0-9a-f]+"


SECTOR_BYTES: Final = 512
"""In which the kernel counts the size of a disk, whatever its own sectors are."""


class ClaimFacts(Struct, frozen=True):
    """What claims can know of a device."""

    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, int]
    partition: Partition | None = None


NO_FACTS: Final = ClaimFacts({}, {})


def facts_for_claims(found: HostDevice) -> ClaimFacts:
    """Return all that claims can know of a device."""
    return ClaimFacts(attributes_of(found), _capacity_of(found), found.partition)


def _capacity_of(found: HostDevice) -> Mapping[str, int]:
    """Return the numbers that a source knows, and the `size` of a disk in bytes."""
    sectors = str(found.facts.get("attr.size", ""))
    if sectors.isdecimal() and any(node.is_block for node in found.nodes):
        return {**found.capacity, "size": int(sectors) * SECTOR_BYTES}
    return found.capacity


def attributes_of(found: HostDevice) -> dict[str, AttributeValue]:
    """Return what a source knows of a device; its numbers have no `0x`, as in the selectors of the file."""
    attributes: dict[str, AttributeValue] = {"id": found.name}
    for name, facts in _FACTS_OF.items():
        if (value := next((found.facts[one] for one in facts if one in found.facts), None)) is not None:
            attributes[name] = _plain(str(value))
    if found.numa_node is not None:
        attributes["numaNode"] = attributes[NUMA_NODE] = found.numa_node
    if address := re.fullmatch(_PCI_ADDRESS, str(found.facts.get("pciAddress", ""))):
        attributes[PCI_BUS_ID] = address[0]
    if root := re.search(_PCIE_ROOT, found.hardware):
        attributes[PCIE_ROOT] = root[1]
    return attributes


def _plain(text: str) -> str:
    return text.removeprefix("0x") if re.fullmatch(_NUMBER, text) else text
