"""The status of a driver: what the kubelet and the API server have of it, and of each device. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from devplug.status import DeviceClaim, DriverStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.driver.claim_uses import ClaimUse
    from devplug.driver.counters import ClaimCounters


class PublisherStatus(Struct, frozen=True):
    """What is published, as far as the publisher knows."""

    generation: int | None = None
    """That of the pool; None before it was published for the first time, and while there are no devices."""
    slices: int = 0
    devices: int = 0
    """How many devices the slices have."""
    stale_since: float | None = None
    """Since when the slices may not say what is offered, as a Unix time in seconds; None if they say it."""
    error: str = ""
    """Why they do not, or may not for long; empty if they do, or will in a moment."""
    version: str = ""
    """The version of resource.k8s.io."""
    conflict: str = ""
    """What to do, where another instance of the driver has published for longer than a rollout lasts."""


def driver_status(
    name: str,
    published: PublisherStatus,
    counters: ClaimCounters,
    *,
    is_registered: bool,
    fault: str,
    claims: int,
) -> DriverStatus:
    """Return the status of a driver from what its parts know; `claims` is how many use devices."""
    return DriverStatus(
        name=name,
        is_registered=is_registered,
        fault=fault,
        kubelet_api=counters.kubelet_api,
        resource_api=published.version,
        slices=published.slices,
        devices=published.devices,
        generation=published.generation,
        stale_since=published.stale_since,
        claims=claims,
    )


def device_claims(uses: Iterable[ClaimUse], resource_name: str) -> Mapping[str, tuple[DeviceClaim, ...]]:
    """Return the claims that use each of a resource's devices, by device ID, the oldest first."""
    found: dict[str, list[DeviceClaim]] = {}
    for use in sorted(uses, key=lambda use: (use.since, use.namespace, use.name, use.uid)):
        for device in use.devices:
            if device.resource_name == resource_name:
                found.setdefault(device.device_id, []).append(
                    DeviceClaim(
                        namespace=use.namespace,
                        name=use.name,
                        request=device.request,
                        device=device.name,
                        uid=use.uid,
                        since=use.since or None,
                        prepared_for=use.pods,
                        has_admin_access=device.has_admin_access,
                    )
                )
    return {device_id: tuple(claims) for device_id, claims in found.items()}
