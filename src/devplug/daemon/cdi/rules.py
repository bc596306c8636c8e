"""The rules that a CDI spec must keep. No I/O.

They are those of the CDI specification 1.1.0 (SPEC.md) and of the library that the container runtimes read
with (pkg/parser/parser.go, pkg/cdi/container-edits.go): one fault, and it drops the whole file.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.cdi.spec import CdiDevice, CdiNode, CdiSpec

__all__ = ["CLASS_LIMIT", "faults", "is_class", "is_device_name", "kind_faults"]

NAME_LEAST: Final = 2
"""A class of one letter panics the library up to 1.1.0, and containerd or CRI-O with it, at every look into
the folder (validateVendorOrClassName in pkg/parser/parser.go); before 0.5.0 a device name did so, too."""

CLASS_LIMIT: Final = 63
VENDOR_LIMIT: Final = 253
ID_LIMIT: Final = 2**32 - 1
MODE_LIMIT: Final = 0o777

_VENDOR: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_CLASS: Final = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")


def is_class(name: str) -> bool:
    """Whether `name` can be a class: the second half of a kind."""
    return NAME_LEAST <= len(name) <= CLASS_LIMIT and _CLASS.fullmatch(name) is not None


def is_device_name(name: str) -> bool:
    """Whether `name` can be the name of a device within its kind."""
    return len(name) >= NAME_LEAST and _DEVICE_NAME.fullmatch(name) is not None


def faults(spec: CdiSpec) -> list[str]:
    """Return every rule that `spec` breaks, in words; empty if runtimes take it.

    Also what CDI leaves open and nobody can mean: links out of a path, a mount that binds nothing, two things
    at one place, and no permissions, which CDI reads as all of them.
    """
    found = [*kind_faults(spec.kind)]
    if not spec.devices:
        found.append("it has no devices; remove the file instead")
    seen: set[str] = set()
    for device in spec.devices:
        if not is_device_name(device.name):
            found.append(
                f"device name {quoted(device.name)} must be {NAME_LEAST} or more letters, digits, '_', '-', "
                "'.' and ':', with a letter or digit at both ends"
            )
        if device.name in seen:
            found.append(f"device name {quoted(device.name)} is there twice")
        seen.add(device.name)
        found += [f"device {quoted(device.name)}: {fault}" for fault in _device_faults(device)]
    return found


def kind_faults(kind: str) -> Iterator[str]:
    """Yield every rule that a kind breaks."""
    vendor, slash, name = kind.partition("/")
    if not slash:
        yield f"kind {quoted(kind)} needs a vendor and a class, as in example.com/fpga"
        return
    if not _VENDOR.fullmatch(vendor) or not NAME_LEAST <= len(vendor) <= VENDOR_LIMIT:
        yield (
            f"vendor {quoted(vendor)} must be a domain of {NAME_LEAST} to {VENDOR_LIMIT} characters "
            "that starts with a letter"
        )
    if not is_class(name):
        yield (
            f"class {quoted(name)} must be {NAME_LEAST} to {CLASS_LIMIT} letters, digits, '_', '-' and '.', "
            "with a letter first and a letter or digit last"
        )


def _device_faults(device: CdiDevice) -> Iterator[str]:
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
    elif path != os.path.normpath(path):
        yield f"{what} {quoted(path)} is not in normal form; write {quoted(os.path.normpath(path))}"


def _is_plain(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
