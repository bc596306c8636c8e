"""Every codec, with the values that its messages may carry: any text in any field, as a peer may send it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.wire import deviceplugin, pluginregistration, podresources
from devplug.wire.codecs import Codec
from devplug.wire.values import (
    AdvertisedDevice,
    AllocatableResources,
    ClaimResource,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    DynamicResource,
    PluginInfo,
    PluginOptions,
    PodName,
    PodResources,
    PreferenceRequest,
    RegisterRequest,
    RegistrationStatus,
)

Row = tuple[Codec[Any], st.SearchStrategy[Any]]

int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20)
ids = st.lists(texts, max_size=5).map(tuple)
options = st.builds(PluginOptions, st.booleans(), st.booleans())
numa_nodes = st.none() | st.lists(int64s, max_size=4).map(tuple)


def as_received(value_class: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values as a peer may send them: any text in any field."""
    return st.fixed_dictionaries(fields).map(lambda found: value_class.as_received(**found))


nodes = as_received(DeviceNode, host_path=texts, container_path=texts, permissions=texts)
mounts = as_received(Mount, host_path=texts, container_path=texts, read_only=st.booleans())
responses = as_received(
    ContainerResponse,
    device_nodes=st.lists(nodes, max_size=3).map(tuple),
    mounts=st.lists(mounts, max_size=3).map(tuple),
    envs=st.dictionaries(texts, texts, max_size=3),
    annotations=st.dictionaries(texts, texts, max_size=3),
    cdi_devices=ids,
)


DEVICE_PLUGIN_VALUES: dict[str, Row] = {
    "Empty": (deviceplugin.EMPTY, st.none()),
    "DevicePluginOptions": (deviceplugin.OPTIONS, options),
    "RegisterRequest": (
        deviceplugin.REGISTER_REQUEST,
        st.builds(RegisterRequest, texts, texts, texts, options),
    ),
    "ListAndWatchResponse": (
        deviceplugin.DEVICE_LIST,
        st.lists(st.builds(AdvertisedDevice, texts, texts, numa_nodes), max_size=5).map(tuple),
    ),
    "PreferredAllocationRequest": (
        deviceplugin.PREFERENCE_REQUEST,
        st.lists(st.builds(PreferenceRequest, ids, ids, st.integers(-(2**31), 2**31 - 1)), max_size=3).map(
            tuple
        ),
    ),
    "PreferredAllocationResponse": (deviceplugin.PREFERENCE_RESPONSE, st.lists(ids, max_size=3).map(tuple)),
    "AllocateRequest": (deviceplugin.ALLOCATE_REQUEST, st.lists(ids, max_size=3).map(tuple)),
    "AllocateResponse": (deviceplugin.ALLOCATE_RESPONSE, st.lists(responses, max_size=3).map(tuple)),
    "ContainerAllocateResponse": (deviceplugin.CONTAINER_RESPONSE, responses),
    "PreStartContainerRequest": (deviceplugin.PRE_START_REQUEST, ids),
    "PreStartContainerResponse": (deviceplugin.PRE_START_RESPONSE, st.none()),
}

cpu_ids = st.lists(int64s, max_size=4).map(tuple)
container_devices = st.lists(st.builds(ContainerDevices, texts, ids, numa_nodes), max_size=3).map(tuple)
memory = st.lists(st.builds(ContainerMemory, texts, st.integers(0, 2**64 - 1), numa_nodes), max_size=3).map(
    tuple
)
claim_resources = st.builds(ClaimResource, texts, texts, texts, ids, st.none() | texts)
claims = st.builds(DynamicResource, texts, texts, st.lists(claim_resources, max_size=3).map(tuple))
containers = st.builds(
    ContainerResources, texts, container_devices, cpu_ids, memory, st.lists(claims, max_size=2).map(tuple)
)
pods = st.builds(PodResources, texts, texts, st.lists(containers, max_size=2).map(tuple))

POD_RESOURCES_VALUES: dict[str, Row] = {
    "v1 ListPodResourcesRequest": (podresources.LIST.request, st.none()),
    "v1 ListPodResourcesResponse": (podresources.LIST.response, st.lists(pods, max_size=2).map(tuple)),
    "v1 GetPodResourcesRequest": (podresources.GET.request, st.builds(PodName, texts, texts)),
    "v1 GetPodResourcesResponse": (podresources.GET.response, pods),
    "v1 AllocatableResourcesRequest": (podresources.GET_ALLOCATABLE_RESOURCES.request, st.none()),
    "v1 AllocatableResourcesResponse": (
        podresources.GET_ALLOCATABLE_RESOURCES.response,
        st.builds(AllocatableResources, container_devices, cpu_ids, memory),
    ),
}

pods_v1alpha1 = st.builds(
    PodResources,
    texts,
    texts,
    st.lists(
        st.builds(
            ContainerResources,
            texts,
            st.lists(st.builds(ContainerDevices, texts, ids), max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)

POD_RESOURCES_V1ALPHA1_VALUES: dict[str, Row] = {
    "v1alpha1 ListPodResourcesRequest": (podresources.V1ALPHA1_LIST.request, st.none()),
    "v1alpha1 ListPodResourcesResponse": (
        podresources.V1ALPHA1_LIST.response,
        st.lists(pods_v1alpha1, max_size=2).map(tuple),
    ),
}

PLUGIN_REGISTRATION_VALUES: dict[str, Row] = {
    "InfoRequest": (pluginregistration.GET_INFO.request, st.none()),
    "PluginInfo": (pluginregistration.GET_INFO.response, st.builds(PluginInfo, texts, texts, texts, ids)),
    "RegistrationStatus": (
        pluginregistration.NOTIFY_REGISTRATION_STATUS.request,
        st.builds(RegistrationStatus, st.booleans(), texts),
    ),
    "RegistrationStatusResponse": (pluginregistration.NOTIFY_REGISTRATION_STATUS.response, st.none()),
}

VALUES = {
    **DEVICE_PLUGIN_VALUES,
    **POD_RESOURCES_VALUES,
    **POD_RESOURCES_V1ALPHA1_VALUES,
    **PLUGIN_REGISTRATION_VALUES,
}
