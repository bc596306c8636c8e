"""Tables over the nodes and pods of a cluster, made from what the API server has. Pure.

Nodes have counts; devices have names only where a pod's status tells them (`allocatedResourcesStatus`,
KEP-4680).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, fields, maps, text
from devplug.k8s.pod_requests import device_counts, device_requests, devices_by_container, has_ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "NODE_COLUMNS",
    "NODE_COLUMNS_WIDE",
    "POD_COLUMNS",
    "POD_COLUMNS_WIDE",
    "HeldDevice",
    "NodeCount",
    "PodDevices",
    "device_statuses",
    "holder_name",
    "is_ready",
    "node_counts",
    "pod_devices",
]

NODE_COLUMNS: Final = ("NODE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED", "FREE", "UNHEALTHY")
NODE_COLUMNS_WIDE: Final = (*NODE_COLUMNS, "READY", "REQUESTED BY")
POD_COLUMNS: Final = ("NAMESPACE", "POD", "NODE", "CONTAINER", "RESOURCE", "COUNT", "DEVICES", "HEALTH")
POD_COLUMNS_WIDE: Final = (*POD_COLUMNS, "PHASE", "REASON")

_NOTHING: Final = "-"
_HEALTHY: Final = "Healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCount:
    """One resource of one node, as the scheduler counts it."""

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
    """How many each pod of the node asks for, by `NAMESPACE/NAME`."""

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
            "requestedBy": [{"pod": name, "count": number} for name, number in self.pods.items()],
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
    """The request of one container for one resource, and the devices that it holds."""

    namespace: str
    pod: str
    node: str
    """Empty while the pod has none."""
    container: str
    resource: str
    count: int
    devices: tuple[HeldDevice, ...] | None
    """By ID; None where the pod's status does not name them."""
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
            "phase": self.phase,
            "reason": self.reason,
        }

    def row(self) -> tuple[str, ...]:
        """Return the texts of `POD_COLUMNS_WIDE`."""
        devices = ",".join(one.id for one in self.devices or ())
        texts = (self.namespace, self.pod, self.node, self.container, self.resource, str(self.count))
        return tuple(one or _NOTHING for one in (*texts, devices, self.health, self.phase, self.reason))


def _of_device(device: HeldDevice) -> dict[str, object]:
    document: dict[str, object] = {"id": device.id, "health": device.health}
    return {**document, "message": device.message} if device.message else document


def node_counts(nodes: Iterable[Object], pods: Iterable[Object]) -> tuple[NodeCount, ...]:
    """Return each node's resources, by node and name; also those that only a pod of the node asks for."""
    asked: dict[str, dict[str, dict[str, int]]] = {}
    for pod in sorted(pods, key=holder_name):
        if not has_ended(pod) and (node := text(pod, "spec", "nodeName")):
            for resource, number in device_requests(pod).items():
                asked.setdefault(node, {}).setdefault(resource, {})[holder_name(pod)] = number
    return tuple(
        one
        for node in sorted(nodes, key=lambda node: text(node, "metadata", "name"))
        for one in _of_node(node, asked.get(text(node, "metadata", "name"), {}))
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


def pod_devices(pods: Iterable[Object]) -> tuple[PodDevices, ...]:
    """Return what the containers of pods ask for, by namespace and pod, in start order.

    Pods that have ended hold nothing, and are left out.
    """
    return tuple(
        PodDevices(
            namespace=text(pod, "metadata", "namespace"),
            pod=text(pod, "metadata", "name"),
            node=text(pod, "spec", "nodeName"),
            container=text(container, "name"),
            resource=resource,
            count=number,
            devices=held.get((text(container, "name"), resource)),
            phase=text(pod, "status", "phase"),
            reason=text(pod, "status", "reason"),
        )
        for pod in sorted(pods, key=holder_name)
        if not has_ended(pod)
        for held in [device_statuses(pod)]
        for container, asked in devices_by_container(pod)
        for resource, number in sorted(asked.items())
        if number
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
