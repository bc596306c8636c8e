"""What a driver serves: the resources that prepare devices, and the devices that there are now."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from devplug.k8s.client import CLAIMS
from devplug.linux.notifier import Notifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.devices import ContainerResponse, Device
    from devplug.k8s.client import ApiServer
    from devplug.k8s.objects import Object

__all__ = ["ClaimReader", "ClusterClaims", "DriverResource", "Offer", "OfferedDevice"]


class DriverResource(Protocol):
    """One resource of a driver: what prepares and releases its devices."""

    @property
    def resource_name(self) -> str:
        """Its name, as in `example.com/serial`."""

    async def prepare(self, requests: Sequence[Sequence[str]]) -> Sequence[Sequence[ContainerResponse]]:
        """Return what containers get of each device; called when a claim's use of them begins.

        `requests` has the device IDs of each of the claim's requests, in order, and so has the result: a
        container gets those of one request or of all. What belongs to a request as a whole comes with its
        first device.

        It is called again for the same use after a reboot, and where a call failed or this process ended
        before the claim was prepared. Raises `NotReadyError` for what passes within seconds: it is tried
        again. Any other `AllocationError` refuses the claim, with its text.
        """

    async def release(self, device_ids: Sequence[str]) -> None:
        """Clean up devices that no claim uses any more; called once a use, again only after a failure.

        A failure is an error, or the end of this process before it was noted that the use is over. Raises
        `AllocationError` to be called again by the kubelet, after some 10 s; until then the pod stays.
        """


class ClaimReader(Protocol):
    """What has the ResourceClaims of the cluster."""

    async def get_claim(self, namespace: str, name: str) -> Object:
        """Return a claim's object, of any version. Raises `NotThereError`, and else `ClusterError`."""


class ClusterClaims:
    """The claims as an API server has them, in one version of resource.k8s.io."""

    def __init__(self, server: ApiServer, version: str = CLAIMS.version) -> None:
        self._server = server
        self._kind = replace(CLAIMS, version=version)

    async def get_claim(self, namespace: str, name: str) -> Object:
        """Return a claim's object. Raises `NotThereError`, and else `ClusterError`."""
        return await self._server.get(
            self._kind, name, namespace=namespace, rights="get resourceclaims.resource.k8s.io"
        )


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
        self.changed = Notifier()
        """Notified when the devices change, and when a claim begins or ends to use some."""

    def replace(self, devices: Mapping[str, OfferedDevice]) -> None:
        """Offer exactly these devices from now on."""
        self.devices = MappingProxyType(dict(devices))
        self.changed.notify()
