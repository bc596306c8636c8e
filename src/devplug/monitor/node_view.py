"""A node's status: what each plugin says of itself, joined with what the kubelet says of all. Pure.

Here are also the devices that a person would count: all replicas that stand for one are taken together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.holds.claim_holders import claim_holds, with_claim_holders
from devplug.status import DeviceClaim, DeviceStatus, Holder, NodeStatus, ResourceStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from devplug.holds.claim_holders import ClaimHold
    from devplug.status import PodResourcesStatus, ProcessStatus
    from devplug.wire.values import AllocatableResources, ContainerDevices, PodResources


UNKNOWN: Final = "Unknown"
"""The health of a device that only the kubelet lists: it lists held devices, whatever their health."""

UNANSWERED: Final = "a devplug daemon served it, and no daemon answers now"
"""The fault of a resource that only the kubelet lists, and for which a daemon of ours left a ledger."""


def is_unanswered(resource: ResourceStatus) -> bool:
    """Whether only the kubelet tells of a resource because its devplug daemon does not answer."""
    return resource.fault == UNANSWERED


LISTED_WITHIN_SECONDS: Final = 1.0
"""How soon after it was given out a device is in the kubelet's answers."""

_Holders = dict[str, dict[str, list[Holder]]]
"""By resource name and device ID."""

_REPLICA: Final = re.compile(r"(?s)(.+)::[0-9]+")
"""Our IDs of replicas, and NVIDIA's (k8s-device-plugin internal/rm/device_map.go)."""


# ── status ────────────────────────────────────────────────────────────────────────────────────────


def joined(
    name: str,
    at: float,
    processes: Sequence[ProcessStatus],
    pods: Sequence[PodResources] | None,
    allocatable: AllocatableResources | None,
    pod_resources: PodResourcesStatus,
    problems: Sequence[str] = (),
    *,
    has_left: Callable[[str], bool] = lambda _: False,
) -> NodeStatus:
    """Return a node's status from what its processes say and what its kubelet lists.

    `pods` and `allocatable` are None where the kubelet did not tell. Of a resource that two processes serve,
    the one counts that is registered, else the older one. Who holds what is the kubelet's to say: to a
    process that asks it, which knows sooner since it knows when to ask, else to us. A device that it has just
    given out and has no name for yet gets ours. A process that asks nobody tells what it gave out and never
    what came free, so it is believed until the kubelet's next answer. `has_left` says whether a process of
    ours has left files of a resource name, or of a DRA driver, behind.
    """
    holders, holds = _holders(pods or ()), [*claim_holds(pods or ())]
    resources: dict[str, ResourceStatus] = {}
    in_order = sorted(processes, key=lambda process: (process.started_at, process.process))
    for process in in_order:
        for one in process.resources:
            if one.name not in resources or (one.is_registered and not resources[one.name].is_registered):
                resource = _with_nothing_held(one) if _is_outdated(process, one, pod_resources) else one
                named = _with_names if _knows_holders(process, pod_resources) else _with_holders
                known = one if pods is None else named(resource, holders.get(one.name, {}))
                resources[one.name] = with_claim_holders(known, holds)
    others = _allocatable(allocatable)
    for other in (others.keys() | holders.keys()) - resources.keys():
        resources[other] = _foreign(
            other, others.get(other, {}), holders.get(other, {}), knows_health=allocatable is not None
        )
        if has_left(other):
            resources[other] = replace(resources[other], fault=UNANSWERED)
    served = {one.driver for one in resources.values()}
    drivers = _foreign_drivers([hold for hold in holds if hold.driver not in served], name)
    for driver, known in drivers.items():
        resources[driver] = replace(known, fault=UNANSWERED) if has_left(driver) else known
    return NodeStatus(
        name=name,
        at=at,
        resources=tuple(resources[one] for one in sorted(resources)),
        processes=tuple(replace(process, resources=()) for process in in_order),
        pod_resources=pod_resources,
        problems=tuple(problems),
    )


def _knows_holders(process: ProcessStatus, ours: PodResourcesStatus) -> bool:
    """Whether a process has the kubelet's answer; one that gets none any more knows less than we, who do."""
    pod_resources = process.pod_resources
    return (
        pod_resources is not None
        and pod_resources.answered_at is not None
        and bool(not pod_resources.trouble or ours.trouble)
    )


def _is_outdated(process: ProcessStatus, resource: ResourceStatus, ours: PodResourcesStatus) -> bool:
    """Whether the kubelet told us who holds what after a process that never asks it gave something out."""
    if process.pod_resources is not None or resource.given_at is None or ours.answered_at is None:
        return False
    return ours.answered_at >= resource.given_at + LISTED_WITHIN_SECONDS


def _with_nothing_held(resource: ResourceStatus) -> ResourceStatus:
    """Return a resource without what its process says of devices that are held."""
    if not resource.held:
        return resource
    devices = tuple(replace(one, is_held=bool(one.claims)) for one in resource.devices)
    return replace(resource, devices=devices)


def _holders(pods: Iterable[PodResources]) -> _Holders:
    found: _Holders = defaultdict(lambda: defaultdict(list))
    for pod in pods:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for devices in container.devices:
                for device_id in devices.device_ids:
                    if holder not in found[devices.resource_name][device_id]:
                        found[devices.resource_name][device_id].append(holder)
    return found


def _with_names(resource: ResourceStatus, holders: Mapping[str, Sequence[Holder]]) -> ResourceStatus:
    """Return a resource whose process knows who holds what, but for what it has given out just now."""
    return replace(
        resource,
        devices=tuple(
            _held_by(device, tuple(sorted(holders.get(device.id, ()))))
            if device.is_held and not device.holders
            else device
            for device in resource.devices
        ),
    )


def _with_holders(resource: ResourceStatus, holders: Mapping[str, Sequence[Holder]]) -> ResourceStatus:
    listed = {device.id: device for device in resource.devices}
    for device_id in holders.keys() - listed.keys():
        reason = "held, but its plugin does not list it"
        listed[device_id] = DeviceStatus(id=device_id, health=UNKNOWN, reason=reason)
    return replace(
        resource,
        devices=tuple(
            _held_by(listed[device_id], tuple(sorted(holders.get(device_id, ()))))
            for device_id in sorted(listed)
        ),
    )


def _held_by(device: DeviceStatus, holders: tuple[Holder, ...]) -> DeviceStatus:
    """Return a device with these holders: itself if it has them, as most of ten thousand devices do."""
    if device.holders == holders and (device.is_held or not holders):
        return device
    return replace(device, holders=holders, is_held=device.is_held or bool(holders))


def _allocatable(allocatable: AllocatableResources | None) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the NUMA nodes of each device that the node can give, by resource name and ID."""
    found: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for devices in allocatable.devices if allocatable else ():
        for device_id in devices.device_ids:
            known = found[devices.resource_name].get(device_id, ())
            found[devices.resource_name][device_id] = tuple(sorted({*known, *_numa_nodes(devices)}))
    return found


def _numa_nodes(devices: ContainerDevices) -> tuple[int, ...]:
    return devices.numa_nodes or ()


def _foreign(
    name: str,
    listed: Mapping[str, tuple[int, ...]],
    holders: Mapping[str, Sequence[Holder]],
    *,
    knows_health: bool,
) -> ResourceStatus:
    """Return a resource that no process of ours serves, with what the kubelet says of it.

    GetAllocatableResources lists healthy devices only (podresources/server_v1.go), so one that is held and
    not in it is not healthy.
    """
    gone = "held, but no longer among the devices that the node can allocate" if knows_health else ""
    return ResourceStatus(
        name=name,
        devices=tuple(
            DeviceStatus(
                id=device_id,
                health=HEALTHY if device_id in listed else UNKNOWN,
                reason="" if device_id in listed else gone,
                numa_nodes=listed.get(device_id, ()),
                is_held=device_id in holders,
                holders=tuple(sorted(holders.get(device_id, ()))),
            )
            for device_id in sorted(listed.keys() | holders.keys())
        ),
    )


def _foreign_drivers(holds: Iterable[ClaimHold], node_name: str) -> dict[str, ResourceStatus]:
    """Return the devices of other DRA drivers that containers hold, by driver.

    More of them nobody tells here: free ones, their health, requests and times are known to the API server.
    """
    found: dict[str, dict[str, list[ClaimHold]]] = defaultdict(lambda: defaultdict(list))
    for hold in holds:
        device_id = hold.device if hold.pool == node_name else f"{hold.pool}/{hold.device}"
        found[hold.driver][device_id].append(hold)
    return {
        driver: ResourceStatus(
            name=driver,
            driver=driver,
            devices=tuple(_claimed(device_id, those) for device_id, those in sorted(devices.items())),
        )
        for driver, devices in found.items()
    }


def _claimed(device_id: str, holds: Sequence[ClaimHold]) -> DeviceStatus:
    claims = {
        DeviceClaim(namespace=one.claim_namespace, name=one.claim_name, device=one.device) for one in holds
    }
    return DeviceStatus(
        id=device_id,
        health=UNKNOWN,
        is_held=True,
        holders=tuple(sorted({one.holder for one in holds})),
        claims=tuple(sorted(claims, key=lambda one: (one.namespace, one.name))),
    )


# ── replicas ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """One device as a person counts: all replicas that stand for it."""

    id: str
    devices: tuple[DeviceStatus, ...]
    """At least one; several if it is shared."""
    worst: DeviceStatus
    """The one whose health counts: the first that is Unhealthy, or else of unknown health."""
    held: int
    """How many of them a container holds, or may hold."""

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Who holds any of them, each once."""
        return tuple(sorted({holder for device in self.devices for holder in device.holders}))


def _badness(device: DeviceStatus) -> int:
    return {UNHEALTHY: 0, HEALTHY: 2}.get(device.health, 1)


def physical_id(resource: ResourceStatus, device_id: str) -> str:
    """Return the ID without the number of a replica.

    Of a plugin that is not ours nobody tells whether it has replicas; its IDs are taken at their looks.
    """
    if resource.process is not None and resource.replicas == 1:
        return device_id
    replica = _REPLICA.fullmatch(device_id)
    return replica[1] if replica else device_id


def physical_devices(resource: ResourceStatus) -> tuple[PhysicalDevice, ...]:
    """Return a resource's devices, in the order in which they are listed first."""
    if resource.process is not None and resource.replicas == 1:
        return tuple(_found(device.id, (device,)) for device in resource.devices)
    together: dict[str, list[DeviceStatus]] = {}
    for device in resource.devices:
        together.setdefault(physical_id(resource, device.id), []).append(device)
    return tuple(_found(name, tuple(devices)) for name, devices in together.items())


def _found(name: str, devices: tuple[DeviceStatus, ...]) -> PhysicalDevice:
    if len(devices) == 1:
        return PhysicalDevice(name, devices, devices[0], int(devices[0].is_held))
    held = sum(device.is_held for device in devices)
    return PhysicalDevice(name, devices, min(devices, key=_badness), held)
