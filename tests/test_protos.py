"""The contract's bytes: the descriptors follow the .proto texts, and both follow the tables of the API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import devplug
from devplug.wire import deviceplugin, pluginregistration, podresources

PROTOS = Path(devplug.__file__).parent / "wire" / "protos"

DESCRIPTORS = Path(__file__).parent / "wire" / "descriptors.binpb"

Field = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class Api:
    """One file of the API in Kubernetes 1.36: names and types read well, numbers decide."""

    package: str
    services: dict[str, list[str]]
    messages: dict[str, list[str]]


DEVICE_PLUGIN = Api(
    package="v1beta1",
    services={
        "Registration": ["Register(RegisterRequest) -> Empty"],
        "DevicePlugin": [
            "GetDevicePluginOptions(Empty) -> DevicePluginOptions",
            "ListAndWatch(Empty) -> stream ListAndWatchResponse",
            "GetPreferredAllocation(PreferredAllocationRequest) -> PreferredAllocationResponse",
            "Allocate(AllocateRequest) -> AllocateResponse",
            "PreStartContainer(PreStartContainerRequest) -> PreStartContainerResponse",
        ],
    },
    messages={
        "Empty": [],
        "DevicePluginOptions": ["bool pre_start_required = 1", "bool get_preferred_allocation_available = 2"],
        "RegisterRequest": [
            "string version = 1",
            "string endpoint = 2",
            "string resource_name = 3",
            "DevicePluginOptions options = 4",
        ],
        "ListAndWatchResponse": ["repeated Device devices = 1"],
        "Device": ["string ID = 1", "string health = 2", "TopologyInfo topology = 3"],
        "TopologyInfo": ["repeated NUMANode nodes = 1"],
        "NUMANode": ["int64 ID = 1"],
        "PreferredAllocationRequest": ["repeated ContainerPreferredAllocationRequest container_requests = 1"],
        "ContainerPreferredAllocationRequest": [
            "repeated string available_deviceIDs = 1",
            "repeated string must_include_deviceIDs = 2",
            "int32 allocation_size = 3",
        ],
        "PreferredAllocationResponse": [
            "repeated ContainerPreferredAllocationResponse container_responses = 1"
        ],
        "ContainerPreferredAllocationResponse": ["repeated string deviceIDs = 1"],
        "AllocateRequest": ["repeated ContainerAllocateRequest container_requests = 1"],
        "ContainerAllocateRequest": ["repeated string devices_ids = 1"],
        "AllocateResponse": ["repeated ContainerAllocateResponse container_responses = 1"],
        "ContainerAllocateResponse": [
            "repeated EnvsEntry envs = 1",
            "repeated Mount mounts = 2",
            "repeated DeviceSpec devices = 3",
            "repeated AnnotationsEntry annotations = 4",
            "repeated CDIDevice cdi_devices = 5",
        ],
        "ContainerAllocateResponse.EnvsEntry": ["string key = 1", "string value = 2"],
        "ContainerAllocateResponse.AnnotationsEntry": ["string key = 1", "string value = 2"],
        "Mount": ["string container_path = 1", "string host_path = 2", "bool read_only = 3"],
        "DeviceSpec": ["string container_path = 1", "string host_path = 2", "string permissions = 3"],
        "CDIDevice": ["string name = 1"],
        "PreStartContainerRequest": ["repeated string devices_ids = 1"],
        "PreStartContainerResponse": [],
    },
)

PLUGIN_REGISTRATION = Api(
    package="pluginregistration",
    services={
        "Registration": [
            "GetInfo(InfoRequest) -> PluginInfo",
            "NotifyRegistrationStatus(RegistrationStatus) -> RegistrationStatusResponse",
        ]
    },
    messages={
        "InfoRequest": [],
        "PluginInfo": [
            "string type = 1",
            "string name = 2",
            "string endpoint = 3",
            "repeated string supported_versions = 4",
        ],
        "RegistrationStatus": ["bool plugin_registered = 1", "string error = 2"],
        "RegistrationStatusResponse": [],
    },
)

POD_RESOURCES = Api(
    package="v1",
    services={
        "PodResourcesLister": [
            "List(ListPodResourcesRequest) -> ListPodResourcesResponse",
            "GetAllocatableResources(AllocatableResourcesRequest) -> AllocatableResourcesResponse",
            "Get(GetPodResourcesRequest) -> GetPodResourcesResponse",
        ]
    },
    messages={
        "AllocatableResourcesRequest": [],
        "AllocatableResourcesResponse": [
            "repeated ContainerDevices devices = 1",
            "repeated int64 cpu_ids = 2",
            "repeated ContainerMemory memory = 3",
        ],
        "ListPodResourcesRequest": [],
        "ListPodResourcesResponse": ["repeated PodResources pod_resources = 1"],
        "GetPodResourcesRequest": ["string pod_name = 1", "string pod_namespace = 2"],
        "GetPodResourcesResponse": ["PodResources pod_resources = 1"],
        "PodResources": [
            "string name = 1",
            "string namespace = 2",
            "repeated ContainerResources containers = 3",
        ],
        "ContainerResources": [
            "string name = 1",
            "repeated ContainerDevices devices = 2",
            "repeated int64 cpu_ids = 3",
            "repeated ContainerMemory memory = 4",
            "repeated DynamicResource dynamic_resources = 5",
        ],
        "ContainerDevices": [
            "string resource_name = 1",
            "repeated string device_ids = 2",
            "TopologyInfo topology = 3",
        ],
        "ContainerMemory": ["string memory_type = 1", "uint64 size = 2", "TopologyInfo topology = 3"],
        "TopologyInfo": ["repeated NUMANode nodes = 1"],
        "NUMANode": ["int64 ID = 1"],
        "DynamicResource": [
            "string claim_name = 2",
            "string claim_namespace = 3",
            "repeated ClaimResource claim_resources = 4",
        ],
        "ClaimResource": [
            "repeated CDIDevice cdi_devices = 1",
            "string driver_name = 2",
            "string pool_name = 3",
            "string device_name = 4",
            "optional string share_id = 5",
        ],
        "CDIDevice": ["string name = 1"],
    },
)

POD_RESOURCES_V1ALPHA1 = Api(
    package="v1alpha1",
    services={"PodResourcesLister": ["List(ListPodResourcesRequest) -> ListPodResourcesResponse"]},
    messages={
        "ListPodResourcesRequest": [],
        "ListPodResourcesResponse": ["repeated PodResources pod_resources = 1"],
        "PodResources": [
            "string name = 1",
            "string namespace = 2",
            "repeated ContainerResources containers = 3",
        ],
        "ContainerResources": ["string name = 1", "repeated ContainerDevices devices = 2"],
        "ContainerDevices": ["string resource_name = 1", "repeated string device_ids = 2"],
    },
)

APIS = {
    "deviceplugin_v1beta1.proto": DEVICE_PLUGIN,
    "pluginregistration_v1.proto": PLUGIN_REGISTRATION,
    "podresources_v1.proto": POD_RESOURCES,
    "podresources_v1alpha1.proto": POD_RESOURCES_V1ALPHA1,
}


def committed() -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString((DESCRIPTORS).read_bytes())


def compiled(name: str) -> descriptor_pb2.FileDescriptorProto:
    (file,) = (file for file in committed().file if file.name == name)
    return file


def short(type_name: str) -> str:
    return type_name.rpartition(".")[2]


def written(field: Field) -> str:
    repeated = "repeated " if field.label == Field.LABEL_REPEATED else ""
    optional = "optional " if field.proto3_optional else ""
    kind = short(field.type_name) or Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"{repeated}{optional}{kind} {field.name} = {field.number}"


def test_the_descriptors_follow_the_proto_texts(tmp_path: Path) -> None:
    """If this fails: `make protos`."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    fresh = tmp_path / "fresh.binpb"
    texts = [str(file) for file in sorted(PROTOS.glob("*.proto"))]
    assert protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={fresh}", *texts]) == 0
    assert descriptor_pb2.FileDescriptorSet.FromString(fresh.read_bytes()) == committed()


def test_the_files_are_those_of_the_api() -> None:
    assert {file.name: file.package for file in committed().file} == {
        name: api.package for name, api in APIS.items()
    }
    assert {file.syntax for file in committed().file} == {"proto3"}


@pytest.mark.parametrize("name", APIS)
def test_the_messages_are_those_of_the_api(name: str) -> None:
    found = {}
    for message in compiled(name).message_type:
        found[message.name] = [written(field) for field in message.field]
        for entry in message.nested_type:
            assert entry.options.map_entry
            found[f"{message.name}.{entry.name}"] = [written(field) for field in entry.field]
    assert found == APIS[name].messages


@pytest.mark.parametrize("name", APIS)
def test_the_services_are_those_of_the_api(name: str) -> None:
    assert {
        service.name: [
            f"{method.name}({short(method.input_type)}) -> "
            f"{'stream ' if method.server_streaming else ''}{short(method.output_type)}"
            for method in service.method
        ]
        for service in compiled(name).service
    } == APIS[name].services


def test_every_method_of_the_api_has_its_row() -> None:
    rows = {
        row.path: (row.request.message, row.response.message, row.is_stream)
        for module in (deviceplugin, pluginregistration, podresources)
        for row in vars(module).values()
        if isinstance(row, deviceplugin.Method)
    }
    assert rows == {
        f"/{file.package}.{service.name}/{method.name}": (
            short(method.input_type),
            short(method.output_type),
            method.server_streaming,
        )
        for file in committed().file
        for service in file.service
        for method in service.method
    }
