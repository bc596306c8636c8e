"""A CDI spec as values: names, lowest version, rules and text. Pure.

The rules are those of the CDI specification 1.1.0 (SPEC.md) and of the library that the container runtimes
read with (pkg/parser/parser.go, pkg/cdi/container-edits.go), which drops the whole file for one fault.
"""

# Without `from __future__ import annotations`: msgspec would evaluate every text at each start.

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from devplug.errors import quoted

if TYPE_CHECKING:
    from devplug.devices import ContainerResponse

NAME_LEAST: Final = 2
"""A class of one letter panics the library up to 1.1.0, and containerd or CRI-O with it, at every look into
the folder (validateVendorOrClassName in pkg/parser/parser.go); before 0.5.0 a device name did so, too."""

CLASS_LIMIT: Final = 63
VENDOR_LIMIT: Final = 253
ID_LIMIT: Final = 2**32 - 1
MODE_LIMIT: Final = 0o777

# Patterns as texts: `re` compiles and keeps them at their first use, which most daemons never have.
_VENDOR: Final = r"[a-z]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_CLASS: Final = r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_DEVICE_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?"

VENDOR_PREFIX: Final = "devplug."
"""Before the domain of the resource: 252 characters at most, of the 253 that a vendor may have."""

UNPLUGGED_PATH: Final = "/dev/.devplug/unplugged"
"""A path without a node: the runtime puts it into its error, and the pod's events show it."""

DEVICE_NAME_LIMIT: Final = 80
"""A device ID of 63 characters and a hash; CDI itself sets no limit."""

_HASH_LENGTH: Final = 16
_HASHED: Final = rf"-[0-9a-f]{{{_HASH_LENGTH}}}\Z"
_NO_ENVS: Final[Mapping[str, str]] = MappingProxyType({})


# ── values ────────────────────────────────────────────────────────────────────────────────────────


class CdiOwner(msgspec.Struct, frozen=True):
    """Who owns device nodes in a container; None is the container's user, or as on the host."""

    uid: int | None = None
    gid: int | None = None
    file_mode: int | None = None


class CdiNode(msgspec.Struct, frozen=True):
    """A device node in the container.

    Its number is left out on purpose: the runtime looks at the host's node at every container start, so a
    node that is gone stops the start, and one with a new number works again.
    """

    path: str
    """In the container."""
    host_path: str
    """The kernel's own node: CDI follows no link and enters no folder."""
    permissions: str = "rw"
    uid: int | None = None
    gid: int | None = None
    file_mode: int | None = None


class CdiMount(msgspec.Struct, frozen=True):
    """A host file or folder in the container, with mount options as `bind_options` gives them."""

    host_path: str
    container_path: str
    options: tuple[str, ...]


class CdiDevice(msgspec.Struct, frozen=True):
    """One device by its CDI name, and what a container gets with it; never empty."""

    name: str
    nodes: tuple[CdiNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    envs: Mapping[str, str] = msgspec.field(default_factory=lambda: _NO_ENVS)

    def __hash__(self) -> int:
        """Return the hash of what identifies it: mappings have none."""
        return hash(self.name)


class CdiSpec(msgspec.Struct, frozen=True):
    """All devices of one kind: the content of one file."""

    kind: str
    devices: tuple[CdiDevice, ...]


def response_device(name: str, response: "ContainerResponse", owner: CdiOwner) -> CdiDevice:
    """Return the CDI device that gives a container what a response gives it, but for its CDI names."""
    return CdiDevice(
        name,
        tuple(
            CdiNode(one.container_path, one.host_path, one.permissions, owner.uid, owner.gid, owner.file_mode)
            for one in response.device_nodes
        ),
        tuple(
            CdiMount(one.host_path, one.container_path, bind_options(read_only=one.read_only))
            for one in response.mounts
        ),
        response.envs,
    )


def bind_options(*, read_only: bool = False) -> tuple[str, ...]:
    """Return the options of a bind mount that brings neither set-user-ID programs nor device nodes along."""
    return ("rbind", "rprivate", "nosuid", "nodev", "ro" if read_only else "rw")


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


def kind_of(resource_name: str) -> str:
    """Return the CDI kind of a resource, as in `devplug.example.com/fpga`; no two resources share one.

    A class starts with a letter, one letter alone crashes readers, and a dot in it would shut out those
    before 0.6.0. So a kind such as `3d.card` becomes a readable part and a hash.
    """
    domain, _, kind = resource_name.partition("/")
    tame = re.sub(r"[^A-Za-z0-9_-]", "_", kind)
    if tame != kind or not _is_class(kind) or re.search(_HASHED, kind):
        tame = _hashed(tame if tame[:1].isalpha() else f"x{tame}", kind, CLASS_LIMIT)
    return f"{VENDOR_PREFIX}{domain}/{tame}"


def device_name(device_id: str) -> str:
    """Return the CDI name of a device: its ID where that can be one, else a readable part and a hash.

    The same for ever, and different IDs have different names (64 bits). What already looks hashed is hashed
    again, so that no ID can take the name of another.
    """
    is_name = _is_device_name(device_id) and not re.search(_HASHED, device_id)
    if is_name and len(device_id) <= DEVICE_NAME_LIMIT:
        return device_id
    tame = re.sub(r"[^A-Za-z0-9._:-]", "_", device_id).lstrip("._:-")
    return _hashed(tame or "id", device_id, DEVICE_NAME_LIMIT)


def _hashed(readable: str, original: str, limit: int) -> str:
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{readable[: limit - _HASH_LENGTH - 1]}-{digest}"


def qualified_name(kind: str, name: str) -> str:
    """Return the name for a container response: `vendor/class=name`."""
    return f"{kind}={name}"


# ── devices that are gone ─────────────────────────────────────────────────────────────────────────


def unplugged(device: CdiDevice) -> CdiDevice:
    """Return the device with its name and without its nodes on the host.

    Its node files may be another device's by now, and a container that restarts must not get that one. It
    cannot start before the device is back; the runtime's error names `UNPLUGGED_PATH`.
    """
    return replace(device, nodes=tuple(replace(node, host_path=UNPLUGGED_PATH) for node in device.nodes))


# ── version ───────────────────────────────────────────────────────────────────────────────────────


def minimum_version(spec: CdiSpec) -> str:
    """Return the lowest version that has all that `spec` uses (specs-go/version.go)."""
    if "." in spec.kind.partition("/")[2]:
        return "0.6.0"
    needs_host_path = any(node.host_path != node.path for device in spec.devices for node in device.nodes)
    if needs_host_path or any("0" <= device.name[:1] <= "9" for device in spec.devices):
        return "0.5.0"
    return "0.3.0"


# ── text ──────────────────────────────────────────────────────────────────────────────────────────


class _Node(msgspec.Struct, rename="camel", omit_defaults=True):
    path: str
    host_path: str = ""
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None
    file_mode: int | None = None


class _Mount(msgspec.Struct, rename="camel", omit_defaults=True):
    host_path: str
    container_path: str
    options: list[str] = []


class _Edits(msgspec.Struct, rename="camel", omit_defaults=True):
    env: list[str] = []
    device_nodes: list[_Node] = []
    mounts: list[_Mount] = []


class _Device(msgspec.Struct, rename="camel"):
    name: str
    container_edits: _Edits


class _File(msgspec.Struct, rename="camel"):
    cdi_version: str
    kind: str
    devices: list[_Device]


_JSON_STRING: Final = r"[^ -~\U00010000-\U0010ffff]"
"""What must be escaped, because readers take the JSON as YAML: it forbids DEL and others in a file, takes
U+2028 for the end of a line, and does not put two escaped surrogates together again."""


def text(spec: CdiSpec) -> str:
    """Return the content of the file: JSON, one device a line, the same for the same devices in any order.

    Only for a spec without `faults`.
    """
    devices = ",\n".join(
        _escaped(_Device(one.name, _edits(one))) for one in sorted(spec.devices, key=lambda one: one.name)
    )
    version, kind = _escaped(minimum_version(spec)), _escaped(spec.kind)
    return f'{{"cdiVersion":{version},"kind":{kind},"devices":[\n{devices}\n]}}\n'


def _escaped(value: object) -> str:
    encoded = msgspec.json.encode(value).decode()
    return re.sub(_JSON_STRING, lambda found: f"\\u{ord(found.group()):04x}", encoded)


def _edits(device: CdiDevice) -> _Edits:
    nodes = [
        _Node(one.path, host, one.permissions, one.uid, one.gid, one.file_mode)
        for one in device.nodes
        for host in ["" if one.host_path == one.path else one.host_path]
    ]
    mounts = [_Mount(mount.host_path, mount.container_path, list(mount.options)) for mount in device.mounts]
    return _Edits([f"{name}={value}" for name, value in sorted(device.envs.items())], nodes, mounts)


def parse(content: str | bytes, vendor: str = VENDOR_PREFIX) -> CdiSpec | None:
    """Return the spec in a file that devplug wrote; None for any other file. Never raises.

    `vendor` is what its kind begins with. Fields that this release does not know are passed over: another
    release of ours may have written them.
    """
    try:
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not file.kind.startswith(vendor) or any(kind_faults(file.kind)):
        return None
    return CdiSpec(file.kind, tuple(_device(one.name, one.container_edits) for one in file.devices))


def _device(name: str, edits: _Edits) -> CdiDevice:
    nodes = tuple(
        CdiNode(
            node.path,
            node.host_path or node.path,
            node.permissions or "rwm",  # which is what CDI takes it for
            node.uid,
            node.gid,
            node.file_mode,
        )
        for node in edits.device_nodes
    )
    mounts = tuple(CdiMount(one.host_path, one.container_path, tuple(one.options)) for one in edits.mounts)
    return CdiDevice(name, nodes, mounts, _envs(edits.env))


def _envs(lines: Iterable[str]) -> Mapping[str, str]:
    parts = (line.partition("=") for line in lines)
    return {name: value for name, _, value in parts}


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────


def _is_class(name: str) -> bool:
    """Whether `name` can be a class: the second half of a kind."""
    return NAME_LEAST <= len(name) <= CLASS_LIMIT and re.fullmatch(_CLASS, name) is not None


def _is_device_name(name: str) -> bool:
    """Whether `name` can be the name of a device within its kind."""
    return len(name) >= NAME_LEAST and re.fullmatch(_DEVICE_NAME, name) is not None


def faults(spec: CdiSpec) -> list[str]:
    """Return every rule that `spec` breaks, in words; empty if runtimes take it.

    Also what CDI allows and is always a mistake: links out of a path, a mount that binds nothing, two things
    at one path, and no permissions, which CDI reads as all of them.
    """
    found = [*kind_faults(spec.kind)]
    if not spec.devices:
        found.append("it has no devices; remove the file instead")
    seen: set[str] = set()
    for device in spec.devices:
        if not _is_device_name(device.name):
            found.append(
                f"device name {quoted(device.name)} must be {NAME_LEAST} or more letters, digits, '_', '-', "
                "'.' and ':', with a letter or digit at both ends"
            )
        if device.name in seen:
            found.append(f"device name {quoted(device.name)} is there twice")
        seen.add(device.name)
        found += [f"device {quoted(device.name)}: {fault}" for fault in device_faults(device)]
    return found


def kind_faults(kind: str) -> Iterator[str]:
    """Yield every rule that a kind breaks."""
    vendor, slash, name = kind.partition("/")
    if not slash:
        yield f"kind {quoted(kind)} needs a vendor and a class, as in example.com/fpga"
        return
    if not re.fullmatch(_VENDOR, vendor) or not NAME_LEAST <= len(vendor) <= VENDOR_LIMIT:
        yield (
            f"vendor {quoted(vendor)} must be a domain of {NAME_LEAST} to {VENDOR_LIMIT} characters "
            "that starts with a letter"
        )
    if not _is_class(name):
        yield (
            f"class {quoted(name)} must be {NAME_LEAST} to {CLASS_LIMIT} letters, digits, '_', '-' and '.', "
            "with a letter first and a letter or digit last"
        )


def device_faults(device: CdiDevice) -> Iterator[str]:
    """Yield every rule that a device breaks, other than those of its name."""
    if not (device.nodes or device.mounts or device.envs):
        yield "it gives nothing to a container"
    places = [node.path for node in device.nodes] + [mount.container_path for mount in device.mounts]
    for place in sorted({place for place in places if places.count(place) > 1}):
        yield f"container path {quoted(place)} is there twice"
    for node in device.nodes:
        yield from _node_faults(node)
    for mount in device.mounts:
        yield from _path_faults("host path", mount.host_path)
        yield from _path_faults("container path", mount.container_path)
        if not {"bind", "rbind"} & set(mount.options):
            yield f"mount {quoted(mount.container_path)} needs the option bind or rbind"
        if not all(option.isprintable() and option for option in mount.options):
            yield f"mount {quoted(mount.container_path)} has an option that is no text"
    for name, value in device.envs.items():
        if not name or "=" in name or not _is_plain(name):
            yield f"environment variable {quoted(name)} must have a name without '=' and NUL"
        if not _is_plain(value):
            yield f"environment variable {quoted(name)} has a value that is no text, or has a NUL"


def _node_faults(node: CdiNode) -> Iterator[str]:
    yield from _path_faults("container path", node.path)
    yield from _path_faults("host path", node.host_path)
    chosen = set(node.permissions)
    if not chosen or chosen - set("rwm") or len(chosen) != len(node.permissions):
        yield f"permissions {quoted(node.permissions)} must be some of r, w and m, each once"
    for what, number, limit in (
        ("uid", node.uid, ID_LIMIT),
        ("gid", node.gid, ID_LIMIT),
        ("file mode", node.file_mode, MODE_LIMIT),
    ):
        if number is not None and not 0 <= number <= limit:
            yield f"{what} {number} must be from 0 to {limit}"


def _path_faults(what: str, path: str) -> Iterator[str]:
    if not path.startswith("/") or path.startswith("//"):
        yield f"{what} {quoted(path)} is not absolute"
    elif not path.isprintable():
        yield f"{what} {quoted(path)} has characters that do not print"
    elif path != posixpath.normpath(path):
        yield f"{what} {quoted(path)} is not in normal form; write {quoted(posixpath.normpath(path))}"


def _is_plain(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
