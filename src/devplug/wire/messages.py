"""Values ⇄ protobuf bytes, one pair of functions per message; the only module that sees a protobuf class.

The messages come from `protos/descriptors.binpb`, compiled from the .proto texts beside it and loaded into a
private pool: nothing here clashes with another package's `v1beta1`, nor depends on the protobuf release
that generated code.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse, DeviceNode, Mount
from devplug.errors import DevplugError
from devplug.exchange import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.protobuf.message import Message

__all__ = [
    "ALLOCATE_REQUEST",
    "ALLOCATE_RESPONSE",
    "CONTAINER_RESPONSE",
    "DEVICE_LIST",
    "EMPTY",
    "OPTIONS",
    "PREFERENCE_REQUEST",
    "PREFERENCE_RESPONSE",
    "PRE_START_REQUEST",
    "PRE_START_RESPONSE",
    "REGISTER_REQUEST",
    "Codec",
    "MalformedMessageError",
]

Value = TypeVar("Value")

Ids = tuple[str, ...]


class MalformedMessageError(DevplugError):
    """Bytes that are not the message they should be; says nothing about their content."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(f"malformed {message}")


@dataclass(frozen=True, slots=True)
class Codec(Generic[Value]):
    """One message of the API: its name, and the pair of functions between our value and its bytes."""

    message: str
    encode: Callable[[Value], bytes]
    decode: Callable[[bytes], Value]
    """Raises `MalformedMessageError` for bytes that are not this message."""


def _load_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    compiled = resources.files("devplug.wire").joinpath("protos", "descriptors.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


_POOL = _load_pool()


def _message(name: str) -> Any:  # noqa: ANN401 -- a class made at run time has no static type
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


_Empty = _message("v1beta1.Empty")
_Options = _message("v1beta1.DevicePluginOptions")
_RegisterRequest = _message("v1beta1.RegisterRequest")
_DeviceList = _message("v1beta1.ListAndWatchResponse")
_PreferenceRequest = _message("v1beta1.PreferredAllocationRequest")
_PreferenceResponse = _message("v1beta1.PreferredAllocationResponse")
_AllocateRequest = _message("v1beta1.AllocateRequest")
_AllocateResponse = _message("v1beta1.AllocateResponse")
_ContainerResponse = _message("v1beta1.ContainerAllocateResponse")
_PreStartRequest = _message("v1beta1.PreStartContainerRequest")
_PreStartResponse = _message("v1beta1.PreStartContainerResponse")


def _codec(
    message_class: Any,  # noqa: ANN401 -- see _message
    to_message: Callable[[Value], Message],
    to_value: Callable[[Any], Value],
) -> Codec[Value]:
    name = message_class.DESCRIPTOR.name

    def encode(value: Value) -> bytes:
        return to_message(value).SerializeToString(deterministic=True)

    def decode(content: bytes) -> Value:
        try:
            return to_value(message_class.FromString(content))
        except DecodeError as error:
            raise MalformedMessageError(name) from error

    return Codec(name, encode, decode)


# ── Empty and the like ────────────────────────────────────────────────────────────────────────────

EMPTY: Final[Codec[None]] = _codec(_Empty, lambda _: _Empty(), lambda _: None)
PRE_START_RESPONSE: Final[Codec[None]] = _codec(
    _PreStartResponse, lambda _: _PreStartResponse(), lambda _: None
)


# ── DevicePluginOptions, RegisterRequest ──────────────────────────────────────────────────────────


def _options_message(options: PluginOptions) -> Message:
    message: Message = _Options(
        pre_start_required=options.pre_start_required,
        get_preferred_allocation_available=options.preferred_allocation_available,
    )
    return message


def _options_value(message: Any) -> PluginOptions:  # noqa: ANN401 -- see _message
    return PluginOptions(message.pre_start_required, message.get_preferred_allocation_available)


OPTIONS: Final = _codec(_Options, _options_message, _options_value)


def _register_message(request: RegisterRequest) -> Message:
    message: Message = _RegisterRequest(
        version=request.version,
        endpoint=request.endpoint,
        resource_name=request.resource_name,
        options=_options_message(request.options),
    )
    return message


def _register_value(message: Any) -> RegisterRequest:  # noqa: ANN401 -- see _message
    return RegisterRequest(
        message.version,
        message.endpoint,
        message.resource_name,
        _options_value(message.options),
    )


REGISTER_REQUEST: Final = _codec(_RegisterRequest, _register_message, _register_value)


# ── ListAndWatchResponse ──────────────────────────────────────────────────────────────────────────


def _list_message(devices: Iterable[AdvertisedDevice]) -> Message:
    """`topology` is left out where None: the kubelet treats an empty one differently (kubelet.md 3.2)."""
    message = _DeviceList()
    for device in devices:
        entry = message.devices.add(ID=device.id, health=device.health)
        if device.numa_nodes is not None:
            entry.topology.SetInParent()
            for node in device.numa_nodes:
                entry.topology.nodes.add(ID=node)
    result: Message = message
    return result


_WORDS = {HEALTHY: HEALTHY, UNHEALTHY: UNHEALTHY}


def _list_value(message: Any) -> tuple[AdvertisedDevice, ...]:  # noqa: ANN401 -- see _message
    return tuple(
        AdvertisedDevice(
            device.ID,
            _WORDS.get(device.health, device.health),
            tuple(node.ID for node in device.topology.nodes) if device.HasField("topology") else None,
        )
        for device in message.devices
    )


DEVICE_LIST: Final[Codec[Sequence[AdvertisedDevice]]] = _codec(_DeviceList, _list_message, _list_value)


# ── preferred allocation ──────────────────────────────────────────────────────────────────────────


def _preference_message(requests: Sequence[PreferenceRequest]) -> Message:
    message = _PreferenceRequest()
    for request in requests:
        message.container_requests.add(
            available_deviceIDs=request.available,
            must_include_deviceIDs=request.must_include,
            allocation_size=request.size,
        )
    result: Message = message
    return result


def _preference_value(message: Any) -> tuple[PreferenceRequest, ...]:  # noqa: ANN401 -- see _message
    return tuple(
        PreferenceRequest(
            tuple(request.available_deviceIDs),
            tuple(request.must_include_deviceIDs),
            request.allocation_size,
        )
        for request in message.container_requests
    )


PREFERENCE_REQUEST: Final[Codec[Sequence[PreferenceRequest]]] = _codec(
    _PreferenceRequest,
    _preference_message,
    _preference_value,
)


def _preferred_message(containers: Sequence[Ids]) -> Message:
    message = _PreferenceResponse()
    for ids in containers:
        message.container_responses.add(deviceIDs=ids)
    result: Message = message
    return result


PREFERENCE_RESPONSE: Final[Codec[Sequence[Ids]]] = _codec(
    _PreferenceResponse,
    _preferred_message,
    lambda message: tuple(tuple(one.deviceIDs) for one in message.container_responses),
)


# ── allocation ────────────────────────────────────────────────────────────────────────────────────


def _allocate_message(containers: Sequence[Ids]) -> Message:
    message = _AllocateRequest()
    for ids in containers:
        message.container_requests.add(devices_ids=ids)
    result: Message = message
    return result


ALLOCATE_REQUEST: Final[Codec[Sequence[Ids]]] = _codec(
    _AllocateRequest,
    _allocate_message,
    lambda message: tuple(tuple(one.devices_ids) for one in message.container_requests),
)


def _container_message(response: ContainerResponse) -> Message:
    message = _ContainerResponse(envs=response.envs, annotations=response.annotations)
    for mount in response.mounts:
        message.mounts.add(
            container_path=mount.container_path,
            host_path=mount.host_path,
            read_only=mount.read_only,
        )
    for node in response.device_nodes:
        message.devices.add(
            container_path=node.container_path,
            host_path=node.host_path,
            permissions=node.permissions,
        )
    for name in response.cdi_devices:
        message.cdi_devices.add(name=name)
    result: Message = message
    return result


def _container_value(message: Any) -> ContainerResponse:  # noqa: ANN401 -- see _message
    return ContainerResponse.as_received(
        device_nodes=tuple(
            DeviceNode.as_received(
                host_path=node.host_path,
                container_path=node.container_path,
                permissions=node.permissions,
            )
            for node in message.devices
        ),
        mounts=tuple(
            Mount.as_received(
                host_path=mount.host_path,
                container_path=mount.container_path,
                read_only=mount.read_only,
            )
            for mount in message.mounts
        ),
        envs=dict(message.envs),
        annotations=dict(message.annotations),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
    )


CONTAINER_RESPONSE: Final = _codec(_ContainerResponse, _container_message, _container_value)


def _allocated_message(containers: Sequence[ContainerResponse]) -> Message:
    message: Message = _AllocateResponse(container_responses=[_container_message(one) for one in containers])
    return message


ALLOCATE_RESPONSE: Final[Codec[Sequence[ContainerResponse]]] = _codec(
    _AllocateResponse,
    _allocated_message,
    lambda message: tuple(_container_value(one) for one in message.container_responses),
)


# ── pre-start ─────────────────────────────────────────────────────────────────────────────────────


def _pre_start_message(device_ids: Ids) -> Message:
    message: Message = _PreStartRequest(devices_ids=device_ids)
    return message


PRE_START_REQUEST: Final[Codec[Ids]] = _codec(
    _PreStartRequest,
    _pre_start_message,
    lambda message: tuple(message.devices_ids),
)
