"""Rules on CDI spec files, as functions on their content; each returns faults in sentences. Pure.

By the CDI specification (cncf-tags/container-device-interface, SPEC.md and pkg/cdi/validate).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.errors import ConfigError, quoted
from devplug.k8s.objects import Object, entries, fields, part, text
from devplug.kubelet.manifests import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"(0\.[3-9]\.0|1\.\d+\.\d+)")


def is_spec_file(name: str) -> bool:
    """Whether runtimes read a file of that name: they pass over those that end otherwise."""
    return name.endswith((".json", ".yaml"))


def read_by_runtimes(files: Mapping[str, bytes]) -> dict[str, Object]:
    """Return the objects in spec files, by the name of the file; what is none is left out."""
    found = {name: document_of(content) for name, content in files.items() if is_spec_file(name)}
    return {name: one for name, one in found.items() if one is not None}


def document_of(content: bytes) -> Object | None:
    """Return a file's object, in YAML or in JSON, which is a part of it; or None."""
    try:
        return dict(read_object(content.decode(), file="CDI"))
    except (ConfigError, UnicodeError):
        return None


def defined_names(documents: Iterable[Object]) -> list[str]:
    """Return the fully qualified names of the devices in these documents."""
    return [
        f"{text(one, 'kind')}={text(device, 'name')}"
        for one in documents
        for device in entries(one, "devices")
    ]


def qualified_name_fault(name: str) -> str:
    """Return what is wrong with a fully qualified name, `vendor.com/class=device`; empty if nothing is."""
    kind, equals, device = name.partition("=")
    if not equals or not _KIND.fullmatch(kind) or not _DEVICE.fullmatch(device):
        return f"{quoted(name)} is no name as vendor.com/class=device"
    return ""


def file_faults(name: str, content: bytes) -> list[str]:
    """Return what is wrong with a spec file."""
    document = document_of(content)
    if document is None:
        return [f"{name} is no object in JSON or YAML"]
    found = []
    if not _VERSION.fullmatch(text(document, "cdiVersion")):
        found.append(f"{name} has the cdiVersion {quoted(text(document, 'cdiVersion'))}")
    if not _KIND.fullmatch(text(document, "kind")):
        found.append(f"{name} has the kind {quoted(text(document, 'kind'))}")
    devices = entries(document, "devices")
    if not devices:
        found.append(f"{name} has no devices")
    for device in devices:
        found += [f"{name}: {fault}" for fault in _device_faults(device)]
    return found


def _device_faults(device: object) -> Iterable[str]:
    name = text(device, "name")
    if not _DEVICE.fullmatch(name):
        yield f"the device name {quoted(name)} is none"
    edits = fields(device, "containerEdits")
    if not edits:
        yield f"device {quoted(name)} has no containerEdits"
    for node in entries(edits, "deviceNodes"):
        if not text(node, "path").startswith("/"):
            yield f"device {quoted(name)} has a node at {quoted(text(node, 'path'))}, which is not absolute"
        if not set(text(node, "permissions")) <= set("rwm"):
            yield f"device {quoted(name)} has the permissions {quoted(text(node, 'permissions'))}"
    for line in entries(edits, "env"):
        if not isinstance(line, str) or "=" not in line.lstrip("="):
            yield f"device {quoted(name)} has the environment line {quoted(str(line))}"
    for mount in entries(edits, "mounts"):
        if not part(mount, "hostPath") or not part(mount, "containerPath"):
            yield f"device {quoted(name)} has a mount without both paths"
