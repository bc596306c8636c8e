"""What a driver serves: its resources, the devices that they list, and those that there are now."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from devplug.linux.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from devplug.cdi.spec import CdiOwner
    from devplug.devices import ContainerResponse, Device
    from devplug.dra.taints import Toleration
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


class Offer:
    """The devices of a driver by their names in slices; lives as long as the driver."""

    def __init__(self) -> None:
        self.devices: Mapping[str, OfferedDevice] = MappingProxyType({})
        self.listed: frozenset[str] = frozenset()
        """The names of the resources that have listed their devices."""
        self.changed = Notifier()
        """Notified when the devices change, and when a claim begins or ends to use some."""

    def devices_of(self, names: Iterable[str]) -> Sequence[Device | None]:
        """Return the devices of these names as they are now; None for each that is not offered."""
        found = map(self.devices.get, names)
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
