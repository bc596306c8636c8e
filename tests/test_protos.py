"""The contract's bytes: the descriptors follow the .proto texts, and both follow the tables of the API."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import devplug

PROTOS = Path(devplug.__file__).parent / "wire" / "protos"

MESSAGES = {
    "Empty": [],
    "DevicePluginOptions": [
        "bool pre_start_required = 1",
        "bool get_preferred_allocation_available = 2",
    ],
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
    "PreferredAllocationResponse": ["repeated ContainerPreferredAllocationResponse container_responses = 1"],
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
}
"""deviceplugin v1beta1 of Kubernetes 1.36, field by field: names and types read well, numbers decide."""

METHODS = {
    "Registration": ["Register(RegisterRequest) -> Empty"],
    "DevicePlugin": [
        "GetDevicePluginOptions(Empty) -> DevicePluginOptions",
        "ListAndWatch(Empty) -> stream ListAndWatchResponse",
        "GetPreferredAllocation(PreferredAllocationRequest) -> PreferredAllocationResponse",
        "Allocate(AllocateRequest) -> AllocateResponse",
        "PreStartContainer(PreStartContainerRequest) -> PreStartContainerResponse",
    ],
}

Field = descriptor_pb2.FieldDescriptorProto


def committed() -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString((PROTOS / "descriptors.binpb").read_bytes())


def device_plugin_file() -> descriptor_pb2.FileDescriptorProto:
    (file,) = (file for file in committed().file if file.name == "deviceplugin_v1beta1.proto")
    return file


def short(type_name: str) -> str:
    return type_name.rpartition(".")[2]


def written(field: Field) -> str:
    repeated = "repeated " if field.label == Field.LABEL_REPEATED else ""
    kind = short(field.type_name) or Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"{repeated}{kind} {field.name} = {field.number}"


def test_the_descriptors_follow_the_proto_texts(tmp_path: Path) -> None:
    """If this fails: `make protos`."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    fresh = tmp_path / "fresh.binpb"
    texts = [str(file) for file in sorted(PROTOS.glob("*.proto"))]
    assert protoc.main(["protoc", f"-I{PROTOS}", f"--descriptor_set_out={fresh}", *texts]) == 0
    assert descriptor_pb2.FileDescriptorSet.FromString(fresh.read_bytes()) == committed()


def test_the_messages_are_those_of_the_api() -> None:
    found = {}
    for message in device_plugin_file().message_type:
        found[message.name] = [written(field) for field in message.field]
        for entry in message.nested_type:
            assert entry.options.map_entry
            found[f"{message.name}.{entry.name}"] = [written(field) for field in entry.field]
    assert found == MESSAGES


def test_the_services_are_those_of_the_api() -> None:
    assert device_plugin_file().package == "v1beta1"
    assert {
        service.name: [
            f"{method.name}({short(method.input_type)}) -> "
            f"{'stream ' if method.server_streaming else ''}{short(method.output_type)}"
            for method in service.method
        ]
        for service in device_plugin_file().service
    } == METHODS
