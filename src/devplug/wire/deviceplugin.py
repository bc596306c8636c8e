"""The device plugin API, v1beta1: its messages with our values for them, and every method with its path.

A new version of the API is a new row. The other APIs have theirs in `pluginregistration` and
`podresources`, which a plugin does not load. Pure.
"""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from devplug.devices import HEALTHY, UNHEALTHY, ContainerResponse, DeviceNode, Mount
from devplug.wire import protobuf
from devplug.wire.codecs import (
    TOPOLOGY,
    Codec,
    codec,
    empty_codec,
    flag,
    many,
    names,
    number,
    one,
    pairs,
    text,
    texts,
)
from devplug.wire.protobuf import Kind, Layout
from devplug.wire.values import AdvertisedDevice, PluginOptions, PreferenceRequest, RegisterRequest
from devplug.wire.wireformat import MalformedError, varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# ── messages ──────────────────────────────────────────────────────────────────────────────────────


Ids = tuple[str, ...]

EMPTY: Final = empty_codec("Empty")


# ── DevicePluginOptions, RegisterRequest ──────────────────────────────────────────────────────────


_OPTIONS: Final[Layout[PluginOptions]] = Layout(
    "DevicePluginOptions",
    (flag(1, "pre_start_required"), flag(2, "get_preferred_allocation_available")),
    attrgetter("pre_start_required", "preferred_allocation_available"),
    PluginOptions,
)
_REGISTER: Final[Layout[RegisterRequest]] = Layout(
    "RegisterRequest",
    (text(1, "version"), text(2, "endpoint"), text(3, "resource_name"), one(4, "options", _OPTIONS)),
    attrgetter("version", "endpoint", "resource_name", "options"),
    lambda version, endpoint, name, options: RegisterRequest(
        version, endpoint, name, options or PluginOptions()
    ),
)

OPTIONS: Final = codec(_OPTIONS)
REGISTER_REQUEST: Final = codec(_REGISTER)


# ── ListAndWatchResponse ──────────────────────────────────────────────────────────────────────────


_FIRST_TEXT: Final = 0x0A
"""The tag of field 1, where that has a length."""

_PIECE_DEVICES: Final = 500

_WORDS: Final[dict[str, str]] = {HEALTHY: HEALTHY, UNHEALTHY: UNHEALTHY}
"""The healths by themselves, so that all devices of a list share one text."""

_DEVICE: Final[Layout[AdvertisedDevice]] = Layout(
    "Device",
    (text(1, "ID"), text(2, "health"), one(3, "topology", TOPOLOGY)),
    attrgetter("id", "health", "numa_nodes"),
    lambda id_, health, nodes: AdvertisedDevice(id_, str(_WORDS.get(health, health)), nodes),
)
_LIST: Final[Layout[Sequence[AdvertisedDevice]]] = Layout(
    "ListAndWatchResponse",
    (many(1, "devices", _DEVICE),),
    lambda devices: (devices,),
    tuple,
)


def list_pieces(devices: Iterable[AdvertisedDevice]) -> Iterator[bytes]:
    """Yield a list as `protobuf.encode` writes it, in pieces of some devices each, which may be very many.

    It is faster, as most devices differ in nothing but their IDs.
    """
    rests: dict[tuple[str, tuple[int, ...] | None], bytes] = {}
    left = iter(devices)
    while part := tuple(islice(left, _PIECE_DEVICES)):
        out: list[bytes] = []
        for device in part:
            key = (device.health, device.numa_nodes)
            rest = rests.get(key)
            if rest is None:
                rest = rests[key] = protobuf.encode(
                    _DEVICE, AdvertisedDevice("", device.health, device.numa_nodes)
                )
            id_ = device.id.encode()
            if id_:
                head = b"\x0a" + varint(len(id_))
                out += (b"\x0a", varint(len(head) + len(id_) + len(rest)), head, id_, rest)
            else:
                out += (b"\x0a", varint(len(rest)), rest)
        yield b"".join(out)


def _encode_list(devices: Iterable[AdvertisedDevice]) -> bytes:
    return b"".join(list_pieces(devices))


def _decode_list(content: bytes, elements: int) -> Sequence[AdvertisedDevice]:
    """Read a list as `protobuf.decode` does, but faster, for the same reason.

    What follows the ID is read once for all devices that share it. That holds where it has no other ID in it.
    """
    rests: dict[bytes, tuple[str, tuple[int, ...] | None]] = {}
    devices: list[AdvertisedDevice] = []
    start, end = 0, len(content)
    while start + 4 <= end and len(devices) <= elements:
        size, id_size = content[start + 1], content[start + 3]
        stop = start + 2 + size
        id_stop = start + 4 + id_size
        is_plain = content[start] == content[start + 2] == _FIRST_TEXT and size < 0x80 and id_size < 0x80
        if not is_plain or stop > end or id_stop > stop:
            break
        rest = content[id_stop:stop]
        known = rests.get(rest)
        if known is None:
            one, other = (protobuf.decode(_DEVICE, bytes((_FIRST_TEXT, 1, name)) + rest) for name in b"ab")
            if (one.id, other.id) != ("a", "b"):
                break
            known = rests[rest] = one.health, one.numa_nodes
        try:
            devices.append(AdvertisedDevice(content[start + 4 : id_stop].decode(), *known))
        except UnicodeDecodeError as error:
            raise MalformedError(str(error)) from error
        start = stop
    return (*devices, *protobuf.decode(_LIST, content[start:], elements - len(devices)))


DEVICE_LIST: Final[Codec[Sequence[AdvertisedDevice]]] = codec(_LIST, _encode_list, _decode_list)


# ── preferred allocation ──────────────────────────────────────────────────────────────────────────


_CONTAINER_PREFERENCE: Final[Layout[PreferenceRequest]] = Layout(
    "ContainerPreferredAllocationRequest",
    (
        texts(1, "available_deviceIDs"),
        texts(2, "must_include_deviceIDs"),
        number(3, "allocation_size", Kind.INT32),
    ),
    attrgetter("available", "must_include", "size"),
    lambda available, must_include, size: PreferenceRequest(tuple(available), tuple(must_include), size),
)
_PREFERENCE: Final[Layout[Sequence[PreferenceRequest]]] = Layout(
    "PreferredAllocationRequest",
    (many(1, "container_requests", _CONTAINER_PREFERENCE),),
    lambda requests: (requests,),
    tuple,
)


def _ids(layout: str, field: str) -> Layout[Ids]:
    """Return a message of device IDs, each API's spelling for them."""
    return Layout(layout, (texts(1, field),), lambda ids: (ids,), tuple)


def _containers(layout: str, field: str, container: Layout[Ids]) -> Layout[Sequence[Ids]]:
    """Return a message of device IDs for several containers."""
    return Layout(layout, (many(1, field, container),), lambda all_ids: (all_ids,), tuple)


_PREFERRED: Final = _containers(
    "PreferredAllocationResponse",
    "container_responses",
    _ids("ContainerPreferredAllocationResponse", "deviceIDs"),
)

PREFERENCE_REQUEST: Final = codec(_PREFERENCE)
PREFERENCE_RESPONSE: Final = codec(_PREFERRED)


# ── allocation ────────────────────────────────────────────────────────────────────────────────────


_ALLOCATE: Final = _containers(
    "AllocateRequest", "container_requests", _ids("ContainerAllocateRequest", "devices_ids")
)

_MOUNT: Final[Layout[Mount]] = Layout(
    "Mount",
    (text(1, "container_path"), text(2, "host_path"), flag(3, "read_only")),
    attrgetter("container_path", "host_path", "read_only"),
    lambda container_path, host_path, read_only: Mount.as_received(
        host_path=host_path, container_path=container_path, read_only=read_only
    ),
)
_DEVICE_SPEC: Final[Layout[DeviceNode]] = Layout(
    "DeviceSpec",
    (text(1, "container_path"), text(2, "host_path"), text(3, "permissions")),
    attrgetter("container_path", "host_path", "permissions"),
    lambda container_path, host_path, permissions: DeviceNode.as_received(
        host_path=host_path, container_path=container_path, permissions=permissions, is_shared=False
    ),
)
_CONTAINER: Final[Layout[ContainerResponse]] = Layout(
    "ContainerAllocateResponse",
    (
        pairs(1, "envs"),
        many(2, "mounts", _MOUNT),
        many(3, "devices", _DEVICE_SPEC),
        pairs(4, "annotations"),
        many(5, "cdi_devices", names("CDIDevice", text(1, "name"))),
    ),
    attrgetter("envs", "mounts", "device_nodes", "annotations", "cdi_devices"),
    lambda envs, mounts, nodes, annotations, cdi_devices: ContainerResponse.as_received(
        device_nodes=tuple(nodes),
        mounts=tuple(mounts),
        envs=envs,
        annotations=annotations,
        cdi_devices=tuple(cdi_devices),
    ),
)
_ALLOCATED: Final[Layout[Sequence[ContainerResponse]]] = Layout(
    "AllocateResponse",
    (many(1, "container_responses", _CONTAINER),),
    lambda containers: (containers,),
    tuple,
)

ALLOCATE_REQUEST: Final = codec(_ALLOCATE)
CONTAINER_RESPONSE: Final = codec(_CONTAINER)
ALLOCATE_RESPONSE: Final = codec(_ALLOCATED)


# ── pre-start ─────────────────────────────────────────────────────────────────────────────────────


_PRE_START: Final = _ids("PreStartContainerRequest", "devices_ids")

PRE_START_REQUEST: Final = codec(_PRE_START)
PRE_START_RESPONSE: Final = empty_codec("PreStartContainerResponse")

LAYOUTS: Final = (_OPTIONS, _REGISTER, _LIST, _PREFERENCE, _PREFERRED, _ALLOCATE, _ALLOCATED, _PRE_START)
"""The layouts of messages that cross a socket by themselves and have fields."""


# ── methods ───────────────────────────────────────────────────────────────────────────────────────


Request = TypeVar("Request")
Response = TypeVar("Response")

DEVICE_PLUGIN_VERSION: Final = "v1beta1"
"""The one version of the device plugin API that kubelets since 1.10 serve (constants.go)."""


class Method(Struct, Generic[Request, Response], frozen=True):
    """One remote call: where it is and what goes in and out."""

    service: str
    name: str
    request: Codec[Request]
    response: Codec[Response]
    is_stream: bool = False
    """Whether the answer is a stream of responses."""

    @property
    def path(self) -> str:
        """The HTTP/2 path, `/package.Service/Method`."""
        return f"/{self.service}/{self.name}"


_REGISTRATION = f"{DEVICE_PLUGIN_VERSION}.Registration"
_DEVICE_PLUGIN = f"{DEVICE_PLUGIN_VERSION}.DevicePlugin"

REGISTER: Final[Method[RegisterRequest, None]] = Method(
    _REGISTRATION,
    "Register",
    REGISTER_REQUEST,
    EMPTY,
)
GET_OPTIONS: Final[Method[None, PluginOptions]] = Method(
    _DEVICE_PLUGIN,
    "GetDevicePluginOptions",
    EMPTY,
    OPTIONS,
)
LIST_AND_WATCH: Final[Method[None, Sequence[AdvertisedDevice]]] = Method(
    _DEVICE_PLUGIN,
    "ListAndWatch",
    EMPTY,
    DEVICE_LIST,
    is_stream=True,
)
GET_PREFERRED_ALLOCATION: Final[Method[Sequence[PreferenceRequest], Sequence[tuple[str, ...]]]] = Method(
    _DEVICE_PLUGIN,
    "GetPreferredAllocation",
    PREFERENCE_REQUEST,
    PREFERENCE_RESPONSE,
)
ALLOCATE: Final[Method[Sequence[tuple[str, ...]], Sequence[ContainerResponse]]] = Method(
    _DEVICE_PLUGIN,
    "Allocate",
    ALLOCATE_REQUEST,
    ALLOCATE_RESPONSE,
)
PRE_START_CONTAINER: Final[Method[tuple[str, ...], None]] = Method(
    _DEVICE_PLUGIN,
    "PreStartContainer",
    PRE_START_REQUEST,
    PRE_START_RESPONSE,
)
