"""Tables over the nodes and pods of a cluster, made from what the API server has. Pure.

Nodes have counts; devices of device plugins have names only where a pod's status tells them
(`allocatedResourcesStatus`, KEP-4680), those of claims where an allocation does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.devices import UNHEALTHY
from devplug.k8s.objects import Object, fields, maps, text
from devplug.k8s.pod_requests import device_counts, device_requests, devices_by_container, has_ended
from devplug.monitor.cluster_claims import claimed_requests, claims_on, limits_by_claim, slice_devices
from devplug.monitor.node_view import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from devplug.monitor.cluster_claims import ClaimedRequest, SliceDevice

NODE_COLUMNS: Final = ("NODE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED", "FREE", "UNHEALTHY")
NODE_COLUMNS_WIDE: Final = (*NODE_COLUMNS, "READY", "REQUESTED BY")
POD_COLUMNS: Final = (
    "NAMESPACE",
    "POD",
    "NODE",
    "CONTAINER",
    "RESOURCE",
    "COUNT",
    "DEVICES",
    "HEALTH",
    "CLAIM",
)
POD_COLUMNS_WIDE: Final = (*POD_COLUMNS, "PHASE", "REASON", "SINCE")

_NOTHING: Final = "-"
_HEALTHY: Final = "Healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCount:
    """One resource of one node, or one DRA driver's devices there, as the scheduler counts it."""

    node: str
    resource: str
    capacity: int
    """All devices that the node has."""
    allocatable: int
    """Those that are healthy."""
    is_known: bool = True
    """Whether the node has ever heard of the resource."""
    is_ready: bool = True
    """Whether the node's kubelet answers."""
    pods: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many each pod of the node asks for, by `NAMESPACE/NAME`; of a driver's, how many each claim has."""

    @property
    def requested(self) -> int:
        """How many are asked for by pods of the node."""
        return sum(self.pods.values())

    @property
    def free(self) -> int:
        """How many more the scheduler may give away here."""
        return max(0, self.allocatable - self.requested)

    @property
    def unhealthy(self) -> int:
        """How many of its devices the node cannot allocate."""
        return max(0, self.capacity - self.allocatable)

    def value(self) -> dict[str, object]:
        """Return it in values that JSON has."""
        return {
            "node": self.node,
            "resource": self.resource,
            "capacity": self.capacity,
            "allocatable": self.allocatable,
            "requested": self.requested,
            "free": self.free,
            "unhealthy": self.unhealthy,
            "ready": self.is_ready,
            "requested_by": [{"pod": name, "count": number} for name, number in self.pods.items()],
        }

    def row(self) -> tuple[str, ...]:
        """Return the texts of `NODE_COLUMNS_WIDE`."""
        numbers = (self.capacity, self.allocatable, self.requested, self.free, self.unhealthy)
        by = ", ".join(f"{name} ({number})" for name, number in self.pods.items())
        return (
            self.node,
            self.resource,
            *map(str, numbers),
            "yes" if self.is_ready else "no",
            by or _NOTHING,
        )


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that a container holds, as its pod's status tells."""

    id: str
    health: str
    """`Healthy`, `Unhealthy` or `Unknown`."""
    message: str = ""
    """Why it is not healthy, where its driver says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """The request of one container for one resource, or of a claim that it uses, and the devices it holds."""

    namespace: str
    pod: str
    node: str
    """Empty while the pod has none."""
    container: str
    resource: str
    """An extended resource; of a claim's request, its device class."""
    count: int
    devices: tuple[HeldDevice, ...] | None
    """By ID; None where they are not named. Those of a claim are named as in their ResourceSlice."""
    claim: str = ""
    """Of devices by a claim: `NAME/REQUEST`; it is in the pod's namespace."""
    since: str = ""
    """When they were allocated to that, as RFC 3339 writes it; empty where that is not known."""
    phase: str = ""
    reason: str = ""

    @property
    def health(self) -> str:
        """The health of all devices in one word; empty where they are not known."""
        sick = sorted({one.health for one in self.devices or ()} - {_HEALTHY})
        return ",".join(sick) if sick else _HEALTHY if self.devices else ""

    def value(self) -> dict[str, object]:
        """Return it in values that JSON has; `devices` is null where they are not known."""
        devices = None
        if self.devices is not None:
            devices = [_of_device(one) for one in self.devices]
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "node": self.node,
            "container": self.container,
            "resource": self.resource,
            "count": self.count,
            "devices": devices,
            "health": self.health,
            "claim": self.claim,
            "since": self.since,
            "phase": self.phase,
            "reason": self.reason,
        }

    def row(self) -> tuple[str, ...]:
        """Return the texts of `POD_COLUMNS_WIDE`."""
        devices = ",".join(one.id for one in self.devices or ())
        texts = (self.namespace, self.pod, self.node, self.container, self.resource, str(self.count))
        more = (devices, self.health, self.claim, self.phase, self.reason, self.since)
        return tuple(one or _NOTHING for one in (*texts, *more))


def _of_device(device: HeldDevice) -> dict[str, object]:
    document: dict[str, object] = {"id": device.id, "health": device.health}
    return {**document, "message": device.message} if device.message else document


def node_counts(
    nodes: Iterable[Object],
    pods: Iterable[Object],
    claims: Iterable[Object] = (),
    slices: Iterable[Object] = (),
) -> tuple[NodeCount, ...]:
    """Return each node's resources, by node and name; also those that only a pod of the node asks for.

    With its DRA drivers: what their ResourceSlices have there, and what claims have of it. What a pod has by
    the claim that the scheduler made of its limits is counted there.
    """
    asked: dict[str, dict[str, dict[str, int]]] = {}
    for pod in sorted(pods, key=holder_name):
        if not has_ended(pod) and (node := text(pod, "spec", "nodeName")):
            by_claim = {resource for _, resource in limits_by_claim(pod, {})}
            for resource, number in device_requests(pod).items():
                if resource not in by_claim:
                    asked.setdefault(node, {}).setdefault(resource, {})[holder_name(pod)] = number
    devices, allocated = slice_devices(slices), [*claims]
    counts = (
        one
        for node in nodes
        for name in [text(node, "metadata", "name")]
        for one in (
            *_of_node(node, asked.get(name, {})),
            *_of_drivers(node, devices.get(name, {}), allocated),
        )
    )
    return tuple(sorted(counts, key=lambda one: (one.node, one.resource)))


def _of_drivers(
    node: Object, devices: Mapping[SliceDevice, bool], claims: Iterable[Object]
) -> Iterator[NodeCount]:
    taken = claims_on(devices, claims)
    for driver in sorted({device.driver for device in devices}):
        of_driver = [is_free for device, is_free in devices.items() if device.driver == driver]
        yield NodeCount(
            node=text(node, "metadata", "name"),
            resource=driver,
            capacity=len(of_driver),
            allocatable=sum(of_driver),
            is_ready=is_ready(node),
            pods=dict(sorted(taken.get(driver, {}).items())),
        )


def _of_node(node: Object, asked: Mapping[str, Mapping[str, int]]) -> Iterator[NodeCount]:
    capacity = device_counts(node, "status", "capacity")
    allocatable = device_counts(node, "status", "allocatable")
    for resource in sorted({*capacity, *allocatable, *asked}):
        yield NodeCount(
            node=text(node, "metadata", "name"),
            resource=resource,
            capacity=capacity.get(resource, 0),
            allocatable=allocatable.get(resource, 0),
            is_known=resource in capacity or resource in allocatable,
            is_ready=is_ready(node),
            pods=asked.get(resource, {}),
        )


def holder_name(pod: Object) -> str:
    """Return `NAMESPACE/NAME` of a pod."""
    return f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'name')}"


def is_ready(node: Object) -> bool:
    """Whether a node says that it is ready; a node without that condition counts as ready."""
    statuses = [
        text(one, "status") for one in maps(node, "status", "conditions") if text(one, "type") == "Ready"
    ]
    return statuses in ([], ["True"])


def pod_devices(
    pods: Iterable[Object], claims: Iterable[Object] = (), slices: Iterable[Object] = ()
) -> tuple[PodDevices, ...]:
    """Return what the containers of pods ask for, by namespace and pod, in start order; then their claims.

    Pods that have ended hold nothing, and are left out.
    """
    named = {(text(one, "metadata", "namespace"), text(one, "metadata", "name")): one for one in claims}
    usable = {
        device: is_free for devices in slice_devices(slices).values() for device, is_free in devices.items()
    }
    return tuple(
        one
        for pod in sorted(pods, key=holder_name)
        if not has_ended(pod)
        for one in (*_by_limits(pod, named, usable), *_by_claims(pod, named, usable))
    )


def _by_limits(
    pod: Object, claims: Mapping[tuple[str, str], Object], usable: Mapping[SliceDevice, bool]
) -> Iterator[PodDevices]:
    """Yield a pod's extended resources, whoever serves them."""
    held, by_claim = device_statuses(pod), limits_by_claim(pod, claims)
    for container, asked in devices_by_container(pod):
        for resource, number in sorted(asked.items()):
            place = text(container, "name"), resource
            used = by_claim.get(place)
            devices = held.get(place)
            if used is not None and used.devices:
                devices = tuple(_held_by_claim(device, (), usable) for device in used.devices)
            if number:
                yield _row(pod, place[0], resource, number, devices, used)


def _by_claims(
    pod: Object, claims: Mapping[tuple[str, str], Object], usable: Mapping[SliceDevice, bool]
) -> Iterator[PodDevices]:
    """Yield the requests of claims that a pod's containers use."""
    held = device_statuses(pod)
    for used, word in claimed_requests(pod, claims):
        said = [
            one
            for (container, name), devices in held.items()
            if container == used.container and name.partition("/")[0] == f"claim:{word}"
            for one in devices
        ]
        devices = tuple(_held_by_claim(device, said, usable) for device in used.devices)
        yield _row(pod, used.container, used.device_class, len(devices), devices, used)


def _held_by_claim(
    device: SliceDevice, said: Iterable[HeldDevice], usable: Mapping[SliceDevice, bool]
) -> HeldDevice:
    """Return a device with its health: as the pod's status says (D37), else by the taints in its slice."""
    for one in said:
        # It is named by its first CDI name, which ends so with ours, or by driver, pool and name.
        if (
            one.id.endswith((f"-{device.name}", f"={device.name}", f"/{device.name}"))
            and one.health != UNKNOWN
        ):
            return HeldDevice(device.name, one.health, one.message)
    if device not in usable:
        return HeldDevice(device.name, UNKNOWN, "it is in no ResourceSlice")
    return HeldDevice(device.name, _HEALTHY if usable[device] else UNHEALTHY)


def _row(
    pod: Object,
    container: str,
    resource: str,
    count: int,
    devices: tuple[HeldDevice, ...] | None,
    used: ClaimedRequest | None,
) -> PodDevices:
    return PodDevices(
        namespace=text(pod, "metadata", "namespace"),
        pod=text(pod, "metadata", "name"),
        node=text(pod, "spec", "nodeName"),
        container=container,
        resource=resource,
        count=count,
        devices=devices,
        claim=f"{used.claim}/{used.request}" if used else "",
        since=used.since if used else "",
        phase=text(pod, "status", "phase"),
        reason=text(pod, "status", "reason"),
    )


def device_statuses(pod: Object) -> dict[tuple[str, str], tuple[HeldDevice, ...]]:
    """Return the devices that a pod's status names, by container and resource, sorted by ID.

    The kubelet names those of app containers only, and only with the gate ResourceHealthStatus.
    """
    return {
        (text(container, "name"), text(resource, "name")): tuple(
            sorted(
                (
                    HeldDevice(text(one, "resourceID"), text(one, "health") or _HEALTHY, text(one, "message"))
                    for one in maps(resource, "resources")
                ),
                key=lambda device: device.id,
            )
        )
        for container in maps(fields(pod, "status"), "containerStatuses")
        for resource in maps(container, "allocatedResourcesStatus")
    }
