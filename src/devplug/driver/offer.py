"""What a driver serves: its resources, the devices that they list, and the shares of those that claims have.

A slice has a shared device as one entry where the API server supports that, and else each share as a device.
Claims of both kinds are prepared at any time, as the API server may be another one by then. A share of the
one entry becomes the ID of one of its shares, so that nothing else has to know the difference.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from devplug.devices import Health
from devplug.driver.device_entries import device_name
from devplug.linux.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from devplug.cdi.spec import CdiOwner
    from devplug.devices import ContainerResponse, Device
    from devplug.dra.taints import Toleration
    from devplug.driver.claims import ClaimUse, DeviceUse
    from devplug.holds.hardware import Use
    from devplug.k8s.objects import Object

FIRST_SECONDS: Final = 30.0
"""How long the first list of a resource is waited for; until then its devices of before stay in slices."""

GATHER_SECONDS: Final = 1.0
"""How long changes wait for such a first list, so that an edit of many resources is one change of slices."""

EARLY_SECONDS: Final = 0.001
"""By how much a timer may come too early: the loop's clock has steps."""


class ClaimRequest(Struct, frozen=True):
    """The devices of one resource that one request of a claim has."""

    device_ids: tuple[str, ...]
    tolerations: tuple[Toleration, ...] = ()
    """The taints with which the request takes an unhealthy device."""
    first_index: int = 0
    """The `{index}` of its first device; a container may have further devices by other requests."""


class DriverResource(Protocol):
    """One resource of a driver: what prepares and releases its devices."""

    @property
    def resource_name(self) -> str:
        """Its name, as in `example.com/serial`."""

    @property
    def node_owner(self) -> CdiOwner:
        """Who owns the device nodes in containers."""

    async def prepare(self, requests: Sequence[ClaimRequest]) -> Sequence[Sequence[ContainerResponse]]:
        """Return what containers get of each device; called when a claim's use of them begins.

        The result has the devices of each of the claim's requests, in order: a container gets those of one
        request or of all. What belongs to a request as a whole comes with its first device. An unhealthy
        device whose taint the request tolerates is prepared, if it is there.

        It is called again for the same use after a reboot, and where a call failed or this process ended
        before the claim was prepared. Raises `NotReadyError` for what passes within seconds: it is tried
        again. Any other `AllocationError` refuses the claim, with its text.
        """

    def uses(self, device_ids: Sequence[str]) -> Mapping[str, Use]:
        """Return what containers get of devices, by ID, as far as it is known."""

    async def current(
        self, device_ids: Sequence[str], first_index: int
    ) -> Mapping[str, ContainerResponse | None]:
        """Return what containers get now of each device of a request; None where it is not there.

        One of which that is not known now is left out, as where it is sick. It is asked for claims that are
        prepared, and changes nothing. Raises `AllocationError` where it cannot be known, to be asked again.
        """

    async def release(self, device_ids: Sequence[str], *, is_again: bool = False) -> None:
        """Clean up devices that no claim uses any more; called once a use, again only after a failure.

        A failure is an error, or the end of this process before it was noted that the use is over. Raises
        `AllocationError` to be called again by the kubelet, after some 10 s; until then the pod stays. Raises
        `NotCleanedError` for devices that cannot be cleaned now: the claim has ended, and this is called
        again for them, with `is_again`.
        """


class ClaimReader(Protocol):
    """What has the ResourceClaims of the cluster."""

    async def get_claim(self, namespace: str, name: str) -> Object:
        """Return a claim's object, of any version. Raises `NotThereError`, and else `ClusterError`."""


class OfferedDevice(Struct, frozen=True):
    """A device that there is now, whatever its health."""

    resource_name: str
    device: Device
    share_ids: tuple[str, ...] = ()
    """Of what is shared out, the IDs of its shares, of which `device` is one; else none."""


class SharesInUse(Struct, frozen=True):
    """The shares of devices that claims use, by resource and device ID."""

    alone: frozenset[tuple[str, str]] = frozenset()
    """Those that were allocated as devices of their own."""
    shared: frozenset[tuple[str, str]] = frozenset()
    """Those that were allocated as part of the shared device."""


class Offer:
    """The devices of a driver by their names in slices; lives as long as the driver."""

    def __init__(self) -> None:
        self.devices: Mapping[str, OfferedDevice] = MappingProxyType({})
        self.listed: frozenset[str] = frozenset()
        """The names of the resources that have listed their devices."""
        self.changed = Notifier()
        """Notified when the devices change, and when a claim begins or ends to use some."""

    def devices_of(self, uses: Iterable[DeviceUse]) -> Sequence[Device | None]:
        """Return the devices that claims use as they are now; None for each that is not offered.

        One may be offered by another name than that by which it was allocated (`held_by_former_names`).
        """
        found = (
            self.devices.get(one.name) or self.devices.get(device_name(one.resource_name, one.device_id))
            for one in uses
        )
        return [None if one is None else one.device for one in found]

    def replace(self, devices: Mapping[str, OfferedDevice], listed: Iterable[str] = ()) -> None:
        """Offer exactly these devices from now on; `listed` are the resources that have a list."""
        self.listed = frozenset(listed)
        self.devices = MappingProxyType(dict(devices))
        self.changed.notify()


class ResourceLists:
    """The latest list of each resource, and when slices may have them. Pure: `now` is the time in seconds.

    At first nothing may be published until every resource has listed its devices, and while some resources
    are `undecided`: those of an earlier process stay. Later a resource that is replaced keeps its devices
    until its successor has listed some, and all other changes wait only for `GATHER_SECONDS`. A resource that
    lists nothing for `FIRST_SECONDS` has none.
    """

    def __init__(self) -> None:
        self.devices: dict[str, Collection[Device]] = {}
        """By resource name; of one that is awaited, those of before."""
        self.undecided: Collection[str] = ()
        """The names of resources of which it is not known yet whether this node serves them."""
        self.again_at: float | None = None
        """When to call `advance` again if nothing changes before; None for never."""
        self._awaited: dict[str, float] = {}
        """Until when the first list of a resource is waited for, by its name."""
        self._put_off_until: float | None = None
        self._is_first = True

    def expect(self, resource_name: str, now: float) -> None:
        """Wait for the first list of a resource; its devices stay until then."""
        self._awaited[resource_name] = now + FIRST_SECONDS

    def take(self, resource_name: str, devices: Collection[Device]) -> None:
        """Take a list."""
        self.devices[resource_name] = devices
        self._awaited.pop(resource_name, None)

    def drop(self, resource_name: str) -> None:
        """Forget the devices of a resource."""
        self.devices.pop(resource_name, None)
        self._awaited.pop(resource_name, None)

    def advance(self, now: float) -> bool:
        """Give up what was waited for too long; return whether `devices` may be published now."""
        now += EARLY_SECONDS
        for name in [name for name, until in self._awaited.items() if now >= until]:
            self.drop(name)
        if self._is_first and self.undecided:
            self._put_off_until, self.again_at = None, min(self._awaited.values(), default=None)
            return False
        if self._put_off_until is None:
            self._put_off_until = now + (FIRST_SECONDS if self._is_first else GATHER_SECONDS)
        is_due = not self._awaited or now >= self._put_off_until
        if is_due:
            self._put_off_until, self._is_first = None, False
        moments = [*self._awaited.values(), *(() if self._put_off_until is None else (self._put_off_until,))]
        self.again_at = min(moments, default=None)
        return is_due


# ── shares ──


def offered_devices(lists: Mapping[str, Collection[Device]]) -> dict[str, OfferedDevice]:
    """Return what claims may be for, by name in slices: each device, and what some are shares of.

    `lists` has the devices of each resource.
    """
    found: dict[str, OfferedDevice] = {}
    for resource_name, devices in lists.items():
        shares: dict[str, list[Device]] = {}
        for device in devices:
            found[device_name(resource_name, device.id)] = OfferedDevice(resource_name, device)
            if device.share_of:
                shares.setdefault(device.share_of, []).append(device)
        for name, of_one in shares.items():
            ids = tuple(device.id for device in of_one)
            found[device_name(resource_name, name)] = OfferedDevice(resource_name, of_one[0], ids)
    return found


def held_by_former_names(claims: Iterable[ClaimUse]) -> dict[tuple[str, str], str]:
    """Return the holders of devices that claims use by a former name, by resource name and device ID.

    An edit renamed these devices between the allocation and the prepare.
    """
    return {
        (one.resource_name, one.device_id): f"held by ResourceClaim {claim} as {one.name}"
        for claim in claims
        for one in claim.devices
        if not (one.share_id or one.has_admin_access)
        if one.name != device_name(one.resource_name, one.device_id)
    }


def with_holders(
    lists: Mapping[str, Collection[Device]], held: Mapping[tuple[str, str], str]
) -> dict[str, Collection[Device]]:
    """Return what slices show: devices that are held by a former name are Unhealthy by their name of now.

    The scheduler takes both names for two devices.
    """
    shown = dict(lists)
    for name in {name for name, _ in held} & lists.keys():
        shown[name] = [
            one.with_health(Health.unhealthy(held[name, one.id])) if (name, one.id) in held else one
            for one in lists[name]
        ]
    return shown


def with_shares(
    use: ClaimUse, offered: Mapping[str, OfferedDevice], claims: Mapping[str, ClaimUse]
) -> ClaimUse:
    """Return a use with the IDs of the shares that it gets: those that it has, else free ones.

    `claims` are all uses, by UID. If none is free, some claim has let go of its share, and is unprepared only
    later (dra.md D28): then two have one ID for that time. A share that is used as a device is never taken.
    """
    if not any(one.share_ids for one in map(offered.get, _names(use)) if one is not None):
        return use
    others = [one for uid, claim in claims.items() if uid != use.uid for one in claim.devices]
    before = claims.get(use.uid)
    kept = {_result(one): one.device_id for one in before.devices} if before is not None else {}
    used = {one for one in others if not one.has_admin_access}
    taken = {(one.resource_name, one.device_id) for one in used}
    alone = {(one.resource_name, one.device_id) for one in used if one.share_id is None}
    devices = []
    for device in use.devices:
        ids = _share_ids(device, offered)
        if ids:
            free = [one for one in ids if (device.resource_name, one) not in taken]
            usable = free or [one for one in ids if (device.resource_name, one) not in alone] or ids
            own = kept.get(_result(device))
            device = replace(device, device_id=own if own in ids else usable[0])  # noqa: PLW2901
            if not device.has_admin_access:
                taken.add((device.resource_name, device.device_id))
        devices.append(device)
    return replace(use, devices=tuple(devices))


def shares_in_use(claims: Iterable[ClaimUse], offered: Mapping[str, OfferedDevice]) -> SharesInUse:
    """Return the shares that claims use now, in the one way and in the other."""
    alone: set[tuple[str, str]] = set()
    shared: set[tuple[str, str]] = set()
    for device in (device for claim in claims for device in claim.devices):
        one = offered.get(device.name)
        if one is not None and one.device.share_of and not device.has_admin_access:
            (shared if one.share_ids else alone).add((device.resource_name, device.device_id))
    return SharesInUse(frozenset(alone), frozenset(shared))


def _names(use: ClaimUse) -> Iterable[str]:
    return (device.name for device in use.devices)


def _share_ids(device: DeviceUse, offered: Mapping[str, OfferedDevice]) -> Sequence[str]:
    one = offered.get(device.name)
    return one.share_ids if one is not None else ()


def _result(device: DeviceUse) -> tuple[object, ...]:
    """Return what identifies a result of an allocation."""
    return device.request, device.name, device.share_id
