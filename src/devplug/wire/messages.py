"""The messages of the device plugin API, v1beta1: our values ⇄ bytes, one codec per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse, DeviceNode, Mount
from devplug.exchange import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest
from devplug.wire.codecs import (
    Codec,
    Fields,
    codec,
    empty_codec,
    fill_topology,
    topology_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
]

Ids = tuple[str, ...]

EMPTY: Final = empty_codec("v1beta1.Empty")


# ── DevicePluginOptions, RegisterRequest ──────────────────────────────────────────────────────────


def _fill_options(message: Fields, options: PluginOptions) -> None:
    message.pre_start_required = options.pre_start_required
    message.get_preferred_allocation_available = options.preferred_allocation_available


def _options_value(message: Fields) -> PluginOptions:
    return PluginOptions(message.pre_start_required, message.get_preferred_allocation_available)


OPTIONS: Final = codec("v1beta1.DevicePluginOptions", _fill_options, _options_value)


def _fill_register(message: Fields, request: RegisterRequest) -> None:
    message.version = request.version
    message.endpoint = request.endpoint
    message.resource_name = request.resource_name
    message.options.SetInParent()
    _fill_options(message.options, request.options)


def _register_value(message: Fields) -> RegisterRequest:
    return RegisterRequest(
        message.version,
        message.endpoint,
        message.resource_name,
        _options_value(message.options),
    )


REGISTER_REQUEST: Final = codec("v1beta1.RegisterRequest", _fill_register, _register_value)


# ── ListAndWatchResponse ──────────────────────────────────────────────────────────────────────────


def _fill_list(message: Fields, devices: Iterable[AdvertisedDevice]) -> None:
    for device in devices:
        fill_topology(message.devices.add(ID=device.id, health=device.health), device.numa_nodes)


_WORDS = {HEALTHY: HEALTHY, UNHEALTHY: UNHEALTHY}


def _list_value(message: Fields) -> tuple[AdvertisedDevice, ...]:
    return tuple(
        AdvertisedDevice(device.ID, _WORDS.get(device.health, device.health), topology_value(device))
        for device in message.devices
    )


DEVICE_LIST: Final[Codec[Sequence[AdvertisedDevice]]] = codec(
    "v1beta1.ListAndWatchResponse",
    _fill_list,
    _list_value,
)


# ── preferred allocation ──────────────────────────────────────────────────────────────────────────


def _fill_preference(message: Fields, requests: Sequence[PreferenceRequest]) -> None:
    for request in requests:
        message.container_requests.add(
            available_deviceIDs=request.available,
            must_include_deviceIDs=request.must_include,
            allocation_size=request.size,
        )


def _preference_value(message: Fields) -> tuple[PreferenceRequest, ...]:
    return tuple(
        PreferenceRequest(
            tuple(request.available_deviceIDs),
            tuple(request.must_include_deviceIDs),
            request.allocation_size,
        )
        for request in message.container_requests
    )


PREFERENCE_REQUEST: Final[Codec[Sequence[PreferenceRequest]]] = codec(
    "v1beta1.PreferredAllocationRequest",
    _fill_preference,
    _preference_value,
)


def _fill_preferred(message: Fields, containers: Sequence[Ids]) -> None:
    for ids in containers:
        message.container_responses.add(deviceIDs=ids)


PREFERENCE_RESPONSE: Final[Codec[Sequence[Ids]]] = codec(
    "v1beta1.PreferredAllocationResponse",
    _fill_preferred,
    lambda message: tuple(tuple(one.deviceIDs) for one in message.container_responses),
)


# ── allocation ────────────────────────────────────────────────────────────────────────────────────


def _fill_allocate(message: Fields, containers: Sequence[Ids]) -> None:
    for ids in containers:
        message.container_requests.add(devices_ids=ids)


ALLOCATE_REQUEST: Final[Codec[Sequence[Ids]]] = codec(
    "v1beta1.AllocateRequest",
    _fill_allocate,
    lambda message: tuple(tuple(one.devices_ids) for one in message.container_requests),
)


def _fill_container(message: Fields, response: ContainerResponse) -> None:
    message.envs.update(response.envs)
    message.annotations.update(response.annotations)
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


def _container_value(message: Fields) -> ContainerResponse:
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


CONTAINER_RESPONSE: Final = codec("v1beta1.ContainerAllocateResponse", _fill_container, _container_value)


def _fill_allocated(message: Fields, containers: Sequence[ContainerResponse]) -> None:
    for one in containers:
        _fill_container(message.container_responses.add(), one)


ALLOCATE_RESPONSE: Final[Codec[Sequence[ContainerResponse]]] = codec(
    "v1beta1.AllocateResponse",
    _fill_allocated,
    lambda message: tuple(_container_value(one) for one in message.container_responses),
)


# ── pre-start ─────────────────────────────────────────────────────────────────────────────────────


def _fill_pre_start(message: Fields, device_ids: Ids) -> None:
    message.devices_ids.extend(device_ids)


PRE_START_REQUEST: Final[Codec[Ids]] = codec(
    "v1beta1.PreStartContainerRequest",
    _fill_pre_start,
    lambda message: tuple(message.devices_ids),
)
PRE_START_RESPONSE: Final = empty_codec("v1beta1.PreStartContainerResponse")
