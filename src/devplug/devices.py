"""Devices and what containers get of them: the values that plugin and kubelet exchange. Pure.

What an author or a file makes is validated here, once, with every fault named. What a peer sent is kept as
it came (`ContainerResponse.as_received`, and all of `wire.values`), because the kubelet validates none of it.
"""

from __future__ import annotations

import enum
import hashlib
import os
import posixpath
import re
from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from devplug.attribute_rules import attribute_faults, capacity_faults
from devplug.errors import PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from devplug.attributes import AttributeValue, Partition

__all__ = [
    "DEVICE_ID_LIMIT_BYTES",
    "HEALTHY",
    "UNHEALTHY",
    "ContainerResponse",
    "Device",
    "DeviceNode",
    "Health",
    "HealthState",
    "Mount",
    "StrPath",
    "device_id_fault",
    "kubelet_device",
    "stable_id",
]

StrPath: TypeAlias = "str | os.PathLike[str]"

DEVICE_ID_LIMIT_BYTES: Final = 63
"""The longest device ID that the API text allows; the kubelet itself enforces nothing."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
"""The two health words of the API (deviceplugin v1beta1 constants); the kubelet compares byte for byte."""

_NUMA_LIMIT = 1023
_ID_UNWANTED = re.compile(r"[^!-~]|[,=/%\"'\\]")
_ENV_NAME = re.compile(r"[!-<>-~]+")
_CDI_NAME = (
    r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)


# ── devices ───────────────────────────────────────────────────────────────────────────────────────


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Half a character: Python makes these of file names and sysfs values that are not UTF-8."""


def _is_text(value: object) -> bool:
    """Whether a value is a string; authors may not use a type checker."""
    return isinstance(value, str)


def device_id_fault(text: str) -> str | None:
    """Return what keeps `text` from being a device ID, or None.

    At most 63 bytes of printable ASCII, without what breaks lists in environment variables and file names:
    space, comma, `=`, `/`, `%`, quotes, backslash, a leading `-`.
    """
    if not _is_text(text):
        return "is not a string"
    if not text:
        return "is empty"
    if found := _ID_UNWANTED.search(text):
        return f"contains {quoted(found.group())}; use devplug.stable_id to make an ID of any text"
    if text.startswith("-"):
        return "starts with '-'; use devplug.stable_id to make an ID of any text"
    if len(text) > DEVICE_ID_LIMIT_BYTES:
        return (
            f"is {len(text)} bytes long; at most {DEVICE_ID_LIMIT_BYTES} fit: "
            "use devplug.stable_id, which cuts it and adds a hash"
        )
    return None


def stable_id(text: str) -> str:
    """Return a device ID made of `text`: itself if it is one, else a readable part of it and a hash.

    The same text gives the same ID on every host, for ever; different texts give different ones (40 bits).
    """
    tame = re.sub(r"[^A-Za-z0-9._:@+-]", "_", text).lstrip("-")
    if tame == text and 0 < len(text) <= DEVICE_ID_LIMIT_BYTES:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{tame[: DEVICE_ID_LIMIT_BYTES - 11]}-{digest}" if tame else f"id-{digest}"


PATH_LIMIT_BYTES = 4095
FILE_NAME_LIMIT_BYTES = 255
"""PATH_MAX, which counts the end mark, and NAME_MAX (linux/limits.h)."""

VARIABLE_LIMIT_BYTES = 131_071
"""Longest variable with its name, without the end mark: MAX_ARG_STRLEN, 32 pages (execve(2))."""


class HealthState(enum.Enum):
    """What is known of a device's health."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"
    """The health could not be read; the advertised health stays (Healthy if there was none)."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one device, with the reason that people see. Make one with the four class methods."""

    state: HealthState
    reason: str = ""

    @classmethod
    def healthy(cls) -> Health:
        """The device works."""
        return _HEALTHY

    @classmethod
    def unhealthy(cls, reason: str) -> Health:
        """The device must not be given out, because of `reason`."""
        return cls(HealthState.UNHEALTHY, reason or "no reason given")

    @classmethod
    def unknown(cls, reason: str) -> Health:
        """Nothing could be learned this time, because of `reason`."""
        return cls(HealthState.UNKNOWN, reason or "no reason given")

    @classmethod
    def from_fault(cls, fault: str | None) -> Health:
        """Unhealthy with `fault` as its reason; healthy if there is none."""
        return cls.unhealthy(fault) if fault else _HEALTHY


_HEALTHY = Health(HealthState.HEALTHY)
_NO_ITEMS: Mapping[str, Any] = MappingProxyType({})


def _path_fault(what: str, path: str) -> Iterator[str]:
    """Yield what is wrong with an absolute path in normal form."""
    if not path.startswith("/"):
        yield f"{what} {quoted(path)} is not absolute"
    elif not path.isprintable():
        yield f"{what} {quoted(path)} has control characters"
    elif path != posixpath.normpath(path):
        yield f"{what} {quoted(path)} is not in normal form; write {quoted(posixpath.normpath(path))}"
    elif path.startswith("//"):  # which POSIX leaves as it is, and CDI refuses
        yield f"{what} {quoted(path)} is not in normal form; write {quoted(path[1:])}"
    elif len(name := path.encode()) > PATH_LIMIT_BYTES:
        yield f"{what} {quoted(path)} has {len(name)} bytes; Linux takes {PATH_LIMIT_BYTES}"
    elif len(longest := max(name.split(b"/"), key=len)) > FILE_NAME_LIMIT_BYTES:
        yield f"{what} {quoted(path)} has a part of {len(longest)} bytes; Linux takes {FILE_NAME_LIMIT_BYTES}"


def _path_pair(host_path: StrPath, container_path: StrPath | None) -> tuple[str, str, list[str]]:
    """Return both paths as text, and what is wrong with them; a path that stands for both is named once."""
    host = os.fspath(host_path)
    faults = [*_path_fault("host path", host)]
    if container_path is None:
        return host, host, faults
    container = os.fspath(container_path)
    return host, container, [*faults, *_path_fault("container path", container)]


class _Received:
    """Values that a peer may have sent: they can be made as they came, without our rules."""

    __slots__ = ()

    @classmethod
    def as_received(cls, **fields: object) -> Self:
        """Return the value with exactly these fields. The kubelet checks nothing of it, so neither do we."""
        value = object.__new__(cls)
        for name, content in fields.items():
            object.__setattr__(value, name, content)
        return value


@dataclass(frozen=True, slots=True, init=False)
class DeviceNode(_Received):
    """A file in /dev that a container gets: the API's DeviceSpec.

    `host_path` may be a link (by-id): the runtime resolves it at every container start. `container_path` is
    the same path if not given. `permissions` are any of `r`, `w` and `m` (mknod). A node that is `shared`
    belongs to the driver of several devices, as /dev/vfio/vfio: containers may have it at the same time.
    """

    host_path: str
    container_path: str
    permissions: str
    is_shared: bool = field(compare=False)

    def __init__(
        self,
        host_path: StrPath,
        container_path: StrPath | None = None,
        permissions: str = "rw",
        *,
        shared: bool = False,
    ) -> None:
        """Validate; raises `PluginError` naming every fault."""
        host, container, faults = _path_pair(host_path, container_path)
        if not permissions or set(permissions) - set("rwm") or len(set(permissions)) != len(permissions):
            faults.append(f"permissions {quoted(permissions)} must be some of r, w and m, each once")
        if faults:
            raise PluginError(*(f"device node: {fault}" for fault in faults))
        object.__setattr__(self, "host_path", host)
        object.__setattr__(self, "container_path", container)
        object.__setattr__(self, "permissions", permissions)
        object.__setattr__(self, "is_shared", shared)


@dataclass(frozen=True, slots=True, init=False)
class Mount(_Received):
    """A host file or folder mounted into a container. Not for device nodes: those need a DeviceNode."""

    host_path: str
    container_path: str
    read_only: bool

    def __init__(
        self, host_path: StrPath, container_path: StrPath | None = None, *, read_only: bool = False
    ) -> None:
        """Validate; raises `PluginError` naming every fault."""
        host, container, faults = _path_pair(host_path, container_path)
        if faults:
            raise PluginError(*(f"mount: {fault}" for fault in faults))
        object.__setattr__(self, "host_path", host)
        object.__setattr__(self, "container_path", container)
        object.__setattr__(self, "read_only", read_only)


def _is_health(value: object) -> bool:
    return isinstance(value, Health)


def _is_node_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= _NUMA_LIMIT


@dataclass(frozen=True, slots=True, init=False)
class Device:
    """One thing that a plugin advertises and a container can hold. Frozen; equal if all fields are.

    `numa_nodes` are kernel node numbers; -1 means none, as in sysfs. `device_nodes` are what the default
    `allocate` gives to the container. `attributes` are for templates and for claims, which select by them:
    bools, integers of 64 bits, texts and `devplug.Version`s. A ResourceSlice takes 31 (docs/dra.md), with
    the `capacity`: numbers of which a claim can ask for at least so many, such as bytes of `memory`.
    `share_of` names what several devices are equal shares of; to claims they are one device with shares.
    `partition` says what it takes of something larger, so that no claims get more of that than there is.
    """

    id: str
    health: Health
    numa_nodes: tuple[int, ...]
    device_nodes: tuple[DeviceNode, ...]
    attributes: Mapping[str, Any] = field(hash=False)
    capacity: Mapping[str, int] = field(hash=False)
    share_of: str
    partition: Partition | None

    def __init__(
        self,
        id: str,  # noqa: A002 -- the API's own word for it
        *,
        health: Health = _HEALTHY,
        numa_nodes: Iterable[int] = (),
        device_nodes: Iterable[DeviceNode | StrPath] = (),
        attributes: Mapping[str, AttributeValue] = _NO_ITEMS,
        capacity: Mapping[str, int] = _NO_ITEMS,
        share_of: str = "",
        partition: Partition | None = None,
    ) -> None:
        """Validate; raises `PluginError` naming every fault."""
        faults: list[str] = []
        if fault := device_id_fault(id):
            faults.append(f"device ID {quoted(id)} {fault}")
        if share_of and (fault := device_id_fault(share_of)):
            faults.append(f"device {quoted(id)}: share_of {quoted(share_of)} {fault}")
        told = (*attribute_faults(attributes), *capacity_faults(capacity))
        faults += [f"device {quoted(id)}: {fault}" for fault in told]
        if not _is_health(health):
            faults.append(f"device {quoted(id)}: health {quoted(health)} is not a devplug.Health")
        numa = tuple(numa_nodes)
        faults += [
            f"device {quoted(id)}: NUMA node {node!r} is not a node number (0 to {_NUMA_LIMIT}, -1 for none)"
            for node in numa
            if not _is_node_number(node)
        ]
        if isinstance(device_nodes, str | os.PathLike):
            device_nodes = [device_nodes]
        nodes: list[DeviceNode] = []
        for node in device_nodes:
            try:
                nodes.append(node if isinstance(node, DeviceNode) else DeviceNode(node))
            except PluginError as error:
                faults += [f"device {quoted(id)}: {fault}" for fault in error.faults]
        if faults:
            raise PluginError(*faults)
        if clashes := [*_clashes("device nodes", [(n.container_path, n.host_path) for n in nodes])]:
            raise PluginError(*(f"device {quoted(id)}: {clash}" for clash in clashes))
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "health", health)
        object.__setattr__(self, "numa_nodes", tuple(sorted(set(numa) - {-1})))
        object.__setattr__(self, "device_nodes", tuple(nodes))
        object.__setattr__(self, "attributes", _frozen(attributes))
        object.__setattr__(self, "capacity", _frozen(capacity))
        object.__setattr__(self, "share_of", share_of)
        object.__setattr__(self, "partition", partition)

    def with_health(self, health: Health) -> Device:
        """Return this device with another health."""
        if not _is_health(health):
            raise PluginError(f"device {quoted(self.id)}: health {quoted(health)} is not a devplug.Health")
        return _with(self, health=health)


def kubelet_device(device_id: str, like: Device | None = None) -> Device:
    """Return a device with an ID that the kubelet names, and all else as `like` has it.

    The ID may be of another plugin that had the resource name before, and that makes IDs by other rules. A
    held device must stay listed: the kubelet crashes at the next start of its container otherwise.
    """
    return _with(like or Device("any"), id=device_id)


def _with(device: Device, **changes: object) -> Device:
    """Return a device with other fields, which are valid."""
    other = copy(device)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other


def _text_faults(what: str, items: Mapping[str, str]) -> Iterator[str]:
    """Yield the names and values that are not text; protobuf would refuse them later, without a name."""
    for name, value in items.items():
        if not (_is_text(name) and _is_text(value)):
            yield f"{what} {quoted(name)} is {value!r}; names and values must be strings"
        elif _SURROGATE.search(name + value):
            yield f"{what} {quoted(name)} is {quoted(value)}, which UTF-8 cannot encode"


def _frozen(items: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(items)) if items else _NO_ITEMS


@dataclass(frozen=True, slots=True, init=False)
class ContainerResponse(_Received):
    """What a plugin gives to one container: the API's ContainerAllocateResponse.

    The kubelet keeps it for as long as the container exists and never asks again at a restart.
    """

    device_nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]
    envs: Mapping[str, str] = field(hash=False)
    annotations: Mapping[str, str] = field(hash=False)
    cdi_devices: tuple[str, ...]

    def __init__(
        self,
        *,
        device_nodes: Iterable[DeviceNode | StrPath] = (),
        mounts: Iterable[Mount] = (),
        envs: Mapping[str, str] = _NO_ITEMS,
        annotations: Mapping[str, str] = _NO_ITEMS,
        cdi_devices: Iterable[str] = (),
    ) -> None:
        """Validate; raises `PluginError` naming every fault."""
        nodes = tuple(
            dict.fromkeys(node if isinstance(node, DeviceNode) else DeviceNode(node) for node in device_nodes)
        )
        mounted = tuple(dict.fromkeys(mounts))
        cdi = tuple(dict.fromkeys(cdi_devices))
        faults = [*_text_faults("environment variable", envs), *_text_faults("annotation", annotations)]
        faults += [
            f"environment variable name {quoted(name)} must be printable ASCII without '='"
            for name in map(str, envs)
            if not _ENV_NAME.fullmatch(name)
        ]
        faults += [
            f"environment variable {quoted(name)} has a NUL byte"
            for name, value in envs.items()
            if "\0" in str(value)
        ]
        faults += [
            f"environment variable {quoted(name)} has {size} bytes; Linux takes {VARIABLE_LIMIT_BYTES}"
            for name, value in envs.items()
            if (size := len(f"{name}={value}".encode("utf-8", "surrogatepass"))) > VARIABLE_LIMIT_BYTES
        ]
        faults += ["an annotation has an empty name"] if "" in annotations else []
        faults += [
            f"CDI device name {quoted(name)} must read vendor/class=device"
            for name in cdi
            if not re.fullmatch(_CDI_NAME, name)
        ]
        faults += _clashes("device nodes", [(n.container_path, n.host_path) for n in nodes])
        faults += _clashes("mounts", [(m.container_path, m.host_path) for m in mounted])
        if faults:
            raise PluginError(*faults)
        object.__setattr__(self, "device_nodes", nodes)
        object.__setattr__(self, "mounts", mounted)
        object.__setattr__(self, "envs", _frozen(envs))
        object.__setattr__(self, "annotations", _frozen(annotations))
        object.__setattr__(self, "cdi_devices", cdi)

    def __await__(self) -> Generator[None, None, Self]:
        """Return itself: `await super().allocate(devices)` works for a `def` and an `async def` above."""
        yield from ()
        return self

    @classmethod
    def of(
        cls,
        devices: Iterable[Device],
        *,
        device_nodes: Iterable[DeviceNode | StrPath] = (),
        mounts: Iterable[Mount] = (),
        envs: Mapping[str, str] = _NO_ITEMS,
        annotations: Mapping[str, str] = _NO_ITEMS,
        cdi_devices: Iterable[str] = (),
    ) -> ContainerResponse:
        """Return the devices' own nodes, plus whatever else is given."""
        return cls(
            device_nodes=[*(node for device in devices for node in device.device_nodes), *device_nodes],
            mounts=mounts,
            envs=envs,
            annotations=annotations,
            cdi_devices=cdi_devices,
        )


def _clashes(what: str, pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the container paths that two host paths want: a runtime would keep only one of them."""
    taken: dict[str, str] = {}
    for container_path, host_path in pairs:
        first = taken.setdefault(container_path, host_path)
        if first != host_path:
            yield f"two {what} want {quoted(container_path)}: {quoted(first)} and {quoted(host_path)}"
