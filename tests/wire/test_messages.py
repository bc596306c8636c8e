"""Values ⇄ bytes: what goes in comes out, strange bytes are refused, newer fields are let through."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.wire import deviceplugin, pluginregistration, podresources
from devplug.wire.codecs import Codec, MalformedMessageError
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


CODECS = [codec for codec, _ in VALUES.values()]

TRUNCATED = b"\x0a\x05ab"
BAD_VARINT = b"\xff" * 11
BAD_UTF8 = b"\x0a\x01\xff"
DEEP_GROUPS = b"\xbb\x06" * 200
FIELD_99 = b"\x9a\x06\x03new"


def pod(*containers: ContainerResources) -> PodResources:
    return PodResources("uses-resource", "default", containers)


# What a kubelet 1.36 answered, to List of either version and to GetAllocatableResources.
LISTED = (
    pod(ContainerResources("c", devices=(ContainerDevices("example.com/resource", ("Dev-1",)),))),
    PodResources("w-one", "default", (ContainerResources("c"),)),
)
LISTED_BYTES = (
    b"\x0a\x3c\x0a\x0duses-resource\x12\x07default"
    b"\x1a\x22\x0a\x01c\x12\x1d\x0a\x14example.com/resource\x12\x05Dev-1"
    b"\x0a\x15\x0a\x05w-one\x12\x07default\x1a\x03\x0a\x01c"
)
ALLOCATABLE = AllocatableResources(
    devices=tuple(ContainerDevices("example.com/resource", (name,)) for name in ("Dev-1", "Dev-2"))
)
ALLOCATABLE_BYTES = (
    b"\x0a\x1d\x0a\x14example.com/resource\x12\x05Dev-1\x0a\x1d\x0a\x14example.com/resource\x12\x05Dev-2"
)

# What that kubelet had none of.
ALL_FIELDS = pod(
    ContainerResources(
        "c",
        cpu_ids=(1, 2),
        memory=(ContainerMemory("hugepages-2Mi", 2**63, (1,)),),
        dynamic_resources=(
            DynamicResource("claim", "default", (ClaimResource("d", "p", "x", ("v/c=x",), "s"),)),
        ),
    )
)
ALL_FIELDS_BYTES = (
    b"\x0a\x6c\x0a\x0duses-resource\x12\x07default\x1a\x52\x0a\x01c\x1a\x02\x01\x02"
    b"\x22\x20\x0a\x0dhugepages-2Mi\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x1a\x04\x0a\x02\x08\x01"
    b"\x2a\x27\x12\x05claim\x1a\x07default"
    b"\x22\x15\x0a\x07\x0a\x05v/c=x\x12\x01d\x1a\x01p\x22\x01x\x2a\x01s"
)


@pytest.mark.parametrize("message", VALUES)
@given(data=st.data())
def test_what_is_encoded_is_decoded_the_same_also_from_a_newer_api(message: str, data: st.DataObject) -> None:
    codec, values = VALUES[message]
    value = data.draw(values)
    content = codec.encode(value)
    assert codec.decode(content) == value
    assert codec.encode(codec.decode(content)) == content, "equal values have equal bytes"
    assert codec.decode(content + FIELD_99) == value


@pytest.mark.parametrize("codec", CODECS, ids=list(VALUES))
@given(content=st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(codec: Codec[Any], content: bytes) -> None:
    try:
        codec.decode(content)
    except MalformedMessageError as error:
        assert str(error) == f"malformed {codec.message}"  # noqa: PT017 -- both ends of the claim are fine


@pytest.mark.parametrize("codec", CODECS, ids=list(VALUES))
@pytest.mark.parametrize("content", [TRUNCATED, BAD_VARINT, DEEP_GROUPS])
def test_broken_bytes_are_malformed(codec: Codec[Any], content: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=f"^malformed {codec.message}$"):
        codec.decode(content)


@pytest.mark.parametrize(
    "codec",
    [deviceplugin.REGISTER_REQUEST, deviceplugin.PRE_START_REQUEST, podresources.GET.request],
    ids=lambda codec: codec.message,
)
def test_text_that_is_not_utf8_is_malformed(codec: Codec[Any]) -> None:
    with pytest.raises(MalformedMessageError):
        codec.decode(BAD_UTF8)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (
            deviceplugin.DEVICE_LIST,
            (AdvertisedDevice("a", "Healthy", None), AdvertisedDevice("b", "Healthy", ())),
        ),
        (
            podresources.GET_ALLOCATABLE_RESOURCES.response,
            AllocatableResources(
                devices=(ContainerDevices("a.io/b", ("a",), None), ContainerDevices("a.io/b", ("b",), ())),
                memory=(ContainerMemory("memory", 1, None), ContainerMemory("memory", 1, ())),
            ),
        ),
    ],
    ids=lambda value: value.message if isinstance(value, Codec) else "",
)
def test_a_missing_topology_differs_from_an_empty_one(codec: Codec[Any], value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


def test_a_missing_share_id_differs_from_an_empty_one() -> None:
    resources = (ClaimResource("d", "p", "a", share_id=None), ClaimResource("d", "p", "b", share_id=""))
    sent = pod(ContainerResources("c", dynamic_resources=(DynamicResource("claim", "ns", resources),)))
    assert podresources.GET.response.decode(podresources.GET.response.encode(sent)) == sent


def test_the_first_version_of_pod_resources_leaves_out_all_but_device_ids() -> None:
    sent = pod(
        ContainerResources(
            "c",
            devices=(ContainerDevices("a.io/b", ("x",), (0,)),),
            cpu_ids=(1,),
            memory=(ContainerMemory("memory", 1),),
            dynamic_resources=(DynamicResource("claim", "ns"),),
        )
    )
    codec = podresources.V1ALPHA1_LIST.response
    (received,) = codec.decode(codec.encode([sent]))
    assert received == pod(ContainerResources("c", devices=(ContainerDevices("a.io/b", ("x",)),)))
    assert podresources.LIST.response.decode(codec.encode([sent])) == (received,)


@pytest.mark.parametrize(
    ("codec", "value", "content"),
    [
        (deviceplugin.EMPTY, None, b""),
        (deviceplugin.OPTIONS, PluginOptions(pre_start_required=True), b"\x08\x01"),
        (deviceplugin.OPTIONS, PluginOptions(preferred_allocation_available=True), b"\x10\x01"),
        (
            deviceplugin.REGISTER_REQUEST,
            RegisterRequest("v1beta1", "x.sock", "a.io/b"),
            b"\x0a\x07v1beta1\x12\x06x.sock\x1a\x06a.io/b\x22\x00",
        ),
        (
            deviceplugin.DEVICE_LIST,
            (AdvertisedDevice("a", "Healthy", (0, 1)),),
            b"\x0a\x14\x0a\x01a\x12\x07Healthy\x1a\x06\x0a\x00\x0a\x02\x08\x01",
        ),
        (deviceplugin.ALLOCATE_REQUEST, (("a", "b"),), b"\x0a\x06\x0a\x01a\x0a\x01b"),
        (
            deviceplugin.CONTAINER_RESPONSE,
            ContainerResponse(device_nodes=[DeviceNode("/dev/a", "/dev/b", "r")], envs={"K": "v"}),
            b"\x0a\x06\x0a\x01K\x12\x01v\x1a\x13\x0a\x06/dev/b\x12\x06/dev/a\x1a\x01r",
        ),
        (
            pluginregistration.GET_INFO.response,
            PluginInfo("DevicePlugin", "a.io/b", "/p.sock", ("v1beta1",)),
            b"\x0a\x0cDevicePlugin\x12\x06a.io/b\x1a\x07/p.sock\x22\x07v1beta1",
        ),
        (
            pluginregistration.NOTIFY_REGISTRATION_STATUS.request,
            RegistrationStatus(plugin_registered=False, error="no"),
            b"\x12\x02no",
        ),
        (podresources.GET.request, PodName("x", "default"), b"\x0a\x01x\x12\x07default"),
        (podresources.LIST.response, LISTED, LISTED_BYTES),
        (podresources.V1ALPHA1_LIST.response, LISTED, LISTED_BYTES),
        (podresources.GET_ALLOCATABLE_RESOURCES.response, ALLOCATABLE, ALLOCATABLE_BYTES),
        (podresources.GET.response, ALL_FIELDS, ALL_FIELDS_BYTES),
    ],
)
def test_a_value_has_these_bytes_on_the_wire(codec: Codec[Any], value: Any, content: bytes) -> None:
    assert codec.encode(value) == content
    assert codec.decode(content) == value


def test_a_received_container_response_is_not_judged() -> None:
    sent = ContainerResponse.as_received(
        device_nodes=(DeviceNode.as_received(host_path="x", container_path="", permissions="zz"),),
        mounts=(Mount.as_received(host_path="", container_path="..", read_only=True),),
        envs={"A=B": "\0"},
        annotations={"": ""},
        cdi_devices=("not a CDI name",),
    )
    assert deviceplugin.CONTAINER_RESPONSE.decode(deviceplugin.CONTAINER_RESPONSE.encode(sent)) == sent


def test_a_plugin_makes_no_messages_of_other_apis() -> None:
    """They would cost each plugin time at its start, and memory for as long as it runs."""
    program = "import sys, devplug.plugin.serving; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "devplug.wire.deviceplugin" in loaded
    assert loaded & {"devplug.wire.podresources", "devplug.wire.pluginregistration"} == set()


def test_a_long_list_is_written_without_a_second_copy_of_its_pieces() -> None:
    """Pieces that are joined at the end take 80 bytes each while they are, beside their own."""
    devices = [AdvertisedDevice(f"device-{number:05}", "Healthy") for number in range(20_000)]
    tracemalloc.start()
    try:
        content = deviceplugin.DEVICE_LIST.encode(devices)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(content)
