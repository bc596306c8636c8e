"""The containers that hold devices by ResourceClaims, as the kubelet lists them (PodResources v1). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from devplug.status import Holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.status import DeviceStatus, ResourceStatus
    from devplug.wire.values import PodResources


class ClaimHold(Struct, frozen=True):
    """A device that a container holds by a claim."""

    driver: str
    pool: str
    device: str
    """Its name in its ResourceSlice."""
    claim_namespace: str
    claim_name: str
    holder: Holder


def claim_holds(pods: Iterable[PodResources]) -> Iterator[ClaimHold]:
    """Yield what containers hold by claims; a kubelet before 1.34 may list none of it."""
    for pod in pods:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for claim in container.dynamic_resources:
                for one in claim.claim_resources:
                    yield ClaimHold(
                        one.driver_name,
                        one.pool_name,
                        one.device_name,
                        claim.claim_namespace,
                        claim.claim_name,
                        holder,
                    )


def with_claim_holders(resource: ResourceStatus, holds: Sequence[ClaimHold]) -> ResourceStatus:
    """Return a resource of ours whose devices that claims use have the containers that hold them."""
    found: dict[str, set[Holder]] = {}
    for hold in holds:
        if resource.driver and hold.driver == resource.driver:
            found.setdefault(hold.device, set()).add(hold.holder)
    if not found:
        return resource
    return replace(resource, devices=tuple(_held_by(device, found) for device in resource.devices))


def _held_by(device: DeviceStatus, holders: Mapping[str, set[Holder]]) -> DeviceStatus:
    held = {holder for claim in device.claims for holder in holders.get(claim.device, ())}
    return replace(device, holders=tuple(sorted(held))) if held else device
