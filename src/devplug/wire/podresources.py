"""The PodResources API, which lists the devices of each pod: messages and methods of its versions. Pure.

Apart from the device plugin API, because a plugin neither serves nor calls it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from devplug.wire.codecs import TOPOLOGY, codec, empty_codec, many, names, number, one, text, texts
from devplug.wire.deviceplugin import Method
from devplug.wire.protobuf import Kind, Layout
from devplug.wire.values import (
    AllocatableResources,
    ClaimResource,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    DynamicResource,
    PodName,
    PodResources,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


# ── what v1 says of a container and of the node ───────────────────────────────────────────────────

_DEVICES: Final[Layout[ContainerDevices]] = Layout(
    "ContainerDevices",
    (text(1, "resource_name"), texts(2, "device_ids"), one(3, "topology", TOPOLOGY)),
    attrgetter("resource_name", "device_ids", "numa_nodes"),
    lambda resource_name, ids, nodes: ContainerDevices(resource_name, tuple(ids), nodes),
)
_MEMORY: Final[Layout[ContainerMemory]] = Layout(
    "ContainerMemory",
    (text(1, "memory_type"), number(2, "size", Kind.UINT64), one(3, "topology", TOPOLOGY)),
    attrgetter("memory_type", "size_bytes", "numa_nodes"),
    ContainerMemory,
)
_CLAIM_RESOURCE: Final[Layout[ClaimResource]] = Layout(
    "ClaimResource",
    (
        many(1, "cdi_devices", names("CDIDevice", text(1, "name"))),
        text(2, "driver_name"),
        text(3, "pool_name"),
        text(4, "device_name"),
        text(5, "share_id", is_optional=True),
    ),
    attrgetter("cdi_devices", "driver_name", "pool_name", "device_name", "share_id"),
    lambda cdi_devices, driver, pool, device, share_id: ClaimResource(
        driver, pool, device, tuple(cdi_devices), share_id
    ),
)
_DYNAMIC_RESOURCE: Final[Layout[DynamicResource]] = Layout(
    "DynamicResource",
    (text(2, "claim_name"), text(3, "claim_namespace"), many(4, "claim_resources", _CLAIM_RESOURCE)),
    attrgetter("claim_name", "claim_namespace", "claim_resources"),
    lambda name, namespace, resources: DynamicResource(name, namespace, tuple(resources)),
)
_CONTAINER: Final[Layout[ContainerResources]] = Layout(
    "ContainerResources",
    (
        text(1, "name"),
        many(2, "devices", _DEVICES),
        number(3, "cpu_ids", Kind.INT64, is_repeated=True),
        many(4, "memory", _MEMORY),
        many(5, "dynamic_resources", _DYNAMIC_RESOURCE),
    ),
    attrgetter("name", "devices", "cpu_ids", "memory", "dynamic_resources"),
    lambda name, devices, cpu_ids, memory, claims: ContainerResources(
        name, tuple(devices), tuple(cpu_ids), tuple(memory), tuple(claims)
    ),
)
_ALLOCATABLE: Final[Layout[AllocatableResources]] = Layout(
    "AllocatableResourcesResponse",
    (
        many(1, "devices", _DEVICES),
        number(2, "cpu_ids", Kind.INT64, is_repeated=True),
        many(3, "memory", _MEMORY),
    ),
    attrgetter("devices", "cpu_ids", "memory"),
    lambda devices, cpu_ids, memory: AllocatableResources(tuple(devices), tuple(cpu_ids), tuple(memory)),
)


# ── what v1alpha1 says of a container: IDs of devices ─────────────────────────────────────────────

_DEVICES_V1ALPHA1: Final[Layout[ContainerDevices]] = Layout(
    "ContainerDevices",
    (text(1, "resource_name"), texts(2, "device_ids")),
    attrgetter("resource_name", "device_ids"),
    lambda resource_name, ids: ContainerDevices(resource_name, tuple(ids)),
)
_CONTAINER_V1ALPHA1: Final[Layout[ContainerResources]] = Layout(
    "ContainerResources",
    (text(1, "name"), many(2, "devices", _DEVICES_V1ALPHA1)),
    attrgetter("name", "devices"),
    lambda name, devices: ContainerResources(name, tuple(devices)),
)


# ── pods, around the containers of either version ─────────────────────────────────────────────────


def _pod(container: Layout[ContainerResources]) -> Layout[PodResources]:
    return Layout(
        "PodResources",
        (text(1, "name"), text(2, "namespace"), many(3, "containers", container)),
        attrgetter("name", "namespace", "containers"),
        lambda name, namespace, containers: PodResources(name, namespace, tuple(containers)),
    )


def _pods(container: Layout[ContainerResources]) -> Layout[Sequence[PodResources]]:
    return Layout(
        "ListPodResourcesResponse",
        (many(1, "pod_resources", _pod(container)),),
        lambda pods: (pods,),
        tuple,
    )


_PODS: Final = _pods(_CONTAINER)
_PODS_V1ALPHA1: Final = _pods(_CONTAINER_V1ALPHA1)


# ── Get, of v1 only ───────────────────────────────────────────────────────────────────────────────

_POD_NAME: Final[Layout[PodName]] = Layout(
    "GetPodResourcesRequest",
    (text(1, "pod_name"), text(2, "pod_namespace")),
    attrgetter("name", "namespace"),
    PodName,
)
_ONE_POD: Final[Layout[PodResources]] = Layout(
    "GetPodResourcesResponse",
    (one(1, "pod_resources", _pod(_CONTAINER)),),
    lambda pod: (pod,),
    lambda pod: pod or PodResources("", ""),
)


# ── methods ───────────────────────────────────────────────────────────────────────────────────────

_V1 = "v1.PodResourcesLister"
_V1ALPHA1 = "v1alpha1.PodResourcesLister"

LIST: Final[Method[None, Sequence[PodResources]]] = Method(
    _V1, "List", empty_codec("ListPodResourcesRequest"), codec(_PODS)
)
GET: Final[Method[PodName, PodResources]] = Method(_V1, "Get", codec(_POD_NAME), codec(_ONE_POD))
GET_ALLOCATABLE_RESOURCES: Final[Method[None, AllocatableResources]] = Method(
    _V1, "GetAllocatableResources", empty_codec("AllocatableResourcesRequest"), codec(_ALLOCATABLE)
)
V1ALPHA1_LIST: Final[Method[None, Sequence[PodResources]]] = Method(
    _V1ALPHA1, "List", empty_codec("ListPodResourcesRequest"), codec(_PODS_V1ALPHA1)
)
"""The version before v1, which kubelets still serve; it leaves out all but the IDs of devices."""

LAYOUTS: Final = (_PODS, _ALLOCATABLE, _POD_NAME, _ONE_POD)
V1ALPHA1_LAYOUTS: Final = (_PODS_V1ALPHA1,)
"""The layouts of messages that cross a socket by themselves and have fields."""
