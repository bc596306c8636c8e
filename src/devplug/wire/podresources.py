"""The API that tells who holds which resources of the node: messages and methods of its versions.

Apart from the device plugin API, because a plugin neither serves nor calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.exchange import (
    AllocatableResources,
    ClaimResource,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    DynamicResource,
    PodName,
    PodResources,
)
from devplug.wire.codecs import Fields, codec, empty_codec, fill_topology, topology_value
from devplug.wire.methods import Method

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devplug.wire.codecs import Codec

    _FillContainer = Callable[[Fields, ContainerResources], None]
    _ContainerValue = Callable[[Fields], ContainerResources]

__all__ = ["GET", "GET_ALLOCATABLE_RESOURCES", "LIST", "V1ALPHA1_LIST"]


# ── what v1 says of a container and of the node ───────────────────────────────────────────────────


def _add_devices(entries: Fields, devices: Iterable[ContainerDevices]) -> None:
    for one in devices:
        entry = entries.add(resource_name=one.resource_name, device_ids=one.device_ids)
        fill_topology(entry, one.numa_nodes)


def _devices_value(entries: Iterable[Fields]) -> tuple[ContainerDevices, ...]:
    return tuple(
        ContainerDevices(entry.resource_name, tuple(entry.device_ids), topology_value(entry))
        for entry in entries
    )


def _add_memory(entries: Fields, memory: Iterable[ContainerMemory]) -> None:
    for one in memory:
        fill_topology(entries.add(memory_type=one.memory_type, size=one.size_bytes), one.numa_nodes)


def _memory_value(entries: Iterable[Fields]) -> tuple[ContainerMemory, ...]:
    return tuple(ContainerMemory(entry.memory_type, entry.size, topology_value(entry)) for entry in entries)


def _add_dynamic_resources(entries: Fields, claims: Iterable[DynamicResource]) -> None:
    for claim in claims:
        entry = entries.add(claim_name=claim.claim_name, claim_namespace=claim.claim_namespace)
        for resource in claim.claim_resources:
            part = entry.claim_resources.add(
                driver_name=resource.driver_name,
                pool_name=resource.pool_name,
                device_name=resource.device_name,
                share_id=resource.share_id,
            )
            for name in resource.cdi_devices:
                part.cdi_devices.add(name=name)


def _claim_resource_value(message: Fields) -> ClaimResource:
    return ClaimResource(
        message.driver_name,
        message.pool_name,
        message.device_name,
        tuple(device.name for device in message.cdi_devices),
        message.share_id if message.HasField("share_id") else None,
    )


def _dynamic_resources_value(entries: Iterable[Fields]) -> tuple[DynamicResource, ...]:
    return tuple(
        DynamicResource(
            entry.claim_name,
            entry.claim_namespace,
            tuple(_claim_resource_value(part) for part in entry.claim_resources),
        )
        for entry in entries
    )


def _fill_container(message: Fields, container: ContainerResources) -> None:
    message.name = container.name
    _add_devices(message.devices, container.devices)
    message.cpu_ids.extend(container.cpu_ids)
    _add_memory(message.memory, container.memory)
    _add_dynamic_resources(message.dynamic_resources, container.dynamic_resources)


def _container_value(message: Fields) -> ContainerResources:
    return ContainerResources(
        message.name,
        _devices_value(message.devices),
        tuple(message.cpu_ids),
        _memory_value(message.memory),
        _dynamic_resources_value(message.dynamic_resources),
    )


def _fill_allocatable(message: Fields, allocatable: AllocatableResources) -> None:
    _add_devices(message.devices, allocatable.devices)
    message.cpu_ids.extend(allocatable.cpu_ids)
    _add_memory(message.memory, allocatable.memory)


def _allocatable_value(message: Fields) -> AllocatableResources:
    return AllocatableResources(
        _devices_value(message.devices),
        tuple(message.cpu_ids),
        _memory_value(message.memory),
    )


# ── what v1alpha1 says of a container: IDs of devices ─────────────────────────────────────────────


def _fill_container_v1alpha1(message: Fields, container: ContainerResources) -> None:
    message.name = container.name
    for one in container.devices:
        message.devices.add(resource_name=one.resource_name, device_ids=one.device_ids)


def _container_value_v1alpha1(message: Fields) -> ContainerResources:
    return ContainerResources(
        message.name,
        tuple(ContainerDevices(entry.resource_name, tuple(entry.device_ids)) for entry in message.devices),
    )


# ── pods, around the containers of either version ─────────────────────────────────────────────────


def _fill_pod(message: Fields, pod: PodResources, fill_container: _FillContainer) -> None:
    message.name = pod.name
    message.namespace = pod.namespace
    for container in pod.containers:
        fill_container(message.containers.add(), container)


def _pod_value(message: Fields, container_value: _ContainerValue) -> PodResources:
    containers = tuple(container_value(container) for container in message.containers)
    return PodResources(message.name, message.namespace, containers)


def _pods_codec(
    name: str,
    fill_container: _FillContainer,
    container_value: _ContainerValue,
) -> Codec[Sequence[PodResources]]:
    def fill(message: Fields, pods: Sequence[PodResources]) -> None:
        for pod in pods:
            _fill_pod(message.pod_resources.add(), pod, fill_container)

    return codec(
        name,
        fill,
        lambda message: tuple(_pod_value(pod, container_value) for pod in message.pod_resources),
    )


# ── Get, of v1 only ───────────────────────────────────────────────────────────────────────────────


def _fill_pod_name(message: Fields, pod: PodName) -> None:
    message.pod_name = pod.name
    message.pod_namespace = pod.namespace


def _fill_one_pod(message: Fields, pod: PodResources) -> None:
    message.pod_resources.SetInParent()
    _fill_pod(message.pod_resources, pod, _fill_container)


# ── methods ───────────────────────────────────────────────────────────────────────────────────────

_V1 = "v1.PodResourcesLister"
_V1ALPHA1 = "v1alpha1.PodResourcesLister"

LIST: Final[Method[None, Sequence[PodResources]]] = Method(
    _V1,
    "List",
    empty_codec("v1.ListPodResourcesRequest"),
    _pods_codec("v1.ListPodResourcesResponse", _fill_container, _container_value),
)
GET: Final[Method[PodName, PodResources]] = Method(
    _V1,
    "Get",
    codec(
        "v1.GetPodResourcesRequest",
        _fill_pod_name,
        lambda message: PodName(message.pod_name, message.pod_namespace),
    ),
    codec(
        "v1.GetPodResourcesResponse",
        _fill_one_pod,
        lambda message: _pod_value(message.pod_resources, _container_value),
    ),
)
GET_ALLOCATABLE_RESOURCES: Final[Method[None, AllocatableResources]] = Method(
    _V1,
    "GetAllocatableResources",
    empty_codec("v1.AllocatableResourcesRequest"),
    codec("v1.AllocatableResourcesResponse", _fill_allocatable, _allocatable_value),
)
V1ALPHA1_LIST: Final[Method[None, Sequence[PodResources]]] = Method(
    _V1ALPHA1,
    "List",
    empty_codec("v1alpha1.ListPodResourcesRequest"),
    _pods_codec(
        "v1alpha1.ListPodResourcesResponse",
        _fill_container_v1alpha1,
        _container_value_v1alpha1,
    ),
)
"""The version before v1, which kubelets still serve; it leaves out all but the IDs of devices."""
