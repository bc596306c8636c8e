"""What the Node's condition `DevicesReady` says of a status, in a few words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.daemon.kubeevents.noticing import named
from devplug.daemon.kubeevents.values import MESSAGE_LIMIT_BYTES, Status
from devplug.errors import one_line
from devplug.plugin.statuses import faults_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from devplug.status.values import ProcessStatus, ResourceStatus

__all__ = ["Verdict", "verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition says, without its times."""

    status: Status
    reason: str
    message: str


def verdict(status: ProcessStatus, faulty: Collection[str]) -> Verdict | None:
    """Return what is to be said of a status; None while that is not clear yet, so that nothing new is.

    `faulty` are the resources that have not been ready for so long that it counts.
    """
    resources = [one for one in status.resources if not one.is_retired]
    lasting = [one for one in resources if one.fault and one.name in faulty]
    if unserved := [one for one in lasting if not one.is_registered or _is_lost(one)]:
        return _verdict(Status.FALSE, "ResourcesNotReady", faults_of(unserved))
    if ill := [one for one in resources if one.allocatable < one.capacity]:
        return _verdict(Status.FALSE, "DevicesUnhealthy", map(_ill, ill))
    if lasting:
        # It is registered, but what its list says may be over.
        return _verdict(Status.UNKNOWN, "DiscoveryFailing", faults_of(lasting))
    if any(one.fault for one in resources):
        return None
    if not resources:
        return Verdict(Status.TRUE, "NoResources", "no resource of the configuration is for this machine")
    return _verdict(Status.TRUE, "DevicesHealthy", (f"{one.name}: {one.capacity}" for one in resources))


def _verdict(status: Status, reason: str, parts: Iterable[str]) -> Verdict:
    return Verdict(status, reason, one_line("; ".join(parts), MESSAGE_LIMIT_BYTES))


def _is_lost(resource: ResourceStatus) -> bool:
    """Whether its name is another plugin's, though a kubelet still listens to us."""
    return resource.takeover is not None and resource.takeover.is_lost


def _ill(resource: ResourceStatus) -> str:
    devices = [device for device in resource.devices if not device.is_healthy]
    return f"{resource.name}: {len(devices)} of {resource.capacity} Unhealthy: {named(devices)}"
