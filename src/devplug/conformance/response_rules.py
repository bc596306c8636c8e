"""Rules on one container response, and on a refusal: decisions on values, in sentences. Pure.

No file is read here: the caller passes the kind of the file at each path.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from devplug.devices import ContainerResponse
from devplug.errors import PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
"""The most bytes that all annotations of an object may have (apimachinery, TotalAnnotationSizeLimitB)."""

REFUSAL_LIMIT_BYTES: Final = 200
"""How long the text of an error may be: it ends in a pod's status, after the kubelet's own words."""

_PERMISSIONS = frozenset("rwm")
_CDI_ANNOTATION = "cdi.k8s.io/"
# What runc lets a container's mounts cover below /proc (libcontainer/rootfs_linux.go, checkProcMount).
_PROC_FILES = frozenset(
    (
        "/proc/cpuinfo",
        "/proc/diskstats",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/net/dev",
        "/proc/slabinfo",
        "/proc/stat",
        "/proc/swaps",
        "/proc/sys/crypto/fips_enabled",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/uptime",
    )
)
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_ANNOTATION_KEY = re.compile(rf"(?P<prefix>{_LABEL}(\.{_LABEL})*/)?(?P<name>[a-z0-9]([a-z0-9_.-]*[a-z0-9])?)")
_WORD = re.compile(r"[A-Za-z0-9_.:-]+")
_CRASH = re.compile(
    r"Traceback \(most recent|goroutine \d+ \[|panic:|runtime error:|\.(?:go|py|rs|cc|cpp|c):\d+|"
    r"File \"[^\"]+\", line \d|Exception calling application"  # grpcio's words for what a handler raised
)
# YAML is not parsed here: its flow style and both kinds of quotes are found as they stand.
_YAML_FIELD = r"""(?:^|[{{,\s-])["']?{}["']?\s*:\s*["']?([^"'\s,}}#]+)"""
_YAML_KIND = re.compile(_YAML_FIELD.format("kind"), re.MULTILINE)
_YAML_NAME = re.compile(_YAML_FIELD.format("name"), re.MULTILINE)


class FileKind(Enum):
    """The kind of file at a path of the host, with links followed."""

    NODE = "a device node"
    NODES = "a folder with device nodes in it"
    FOLDER = "a folder without a device node in it"
    FILE = "no device node"
    NOTHING = "not there"
    HIDDEN = "not readable for this user"


# ── what a container gets ─────────────────────────────────────────────────────────────────────────


def items(response: ContainerResponse) -> frozenset[tuple[str, ...]]:
    """Return all that the container would get, each part as a tuple that starts with its kind.

    The key of a CDI annotation is left out: only its value matters, and a plugin may make another key for
    each call (NVIDIA's has a UUID in it).
    """
    return frozenset(
        (
            *hardware(response),
            *(
                ("mount", mount.container_path, mount.host_path, str(mount.read_only))
                for mount in response.mounts
            ),
            *(("env", name, value) for name, value in response.envs.items()),
            *(
                ("annotation", key, value)
                for key, value in response.annotations.items()
                if not key.startswith(_CDI_ANNOTATION)
            ),
        )
    )


def hardware(response: ContainerResponse) -> frozenset[tuple[str, ...]]:
    """Return the device nodes and CDI names alone: what decides which hardware the container has."""
    return frozenset(
        (
            *(
                ("device node", node.container_path, node.host_path, node.permissions)
                for node in response.device_nodes
            ),
            *(("CDI name", name) for name in cdi_names(response)),
        )
    )


def cdi_names(response: ContainerResponse) -> tuple[str, ...]:
    """Return the CDI names in the order of the response: those of the field, and those of annotations."""
    annotated = [
        name
        for key, value in response.annotations.items()
        if key.startswith(_CDI_ANNOTATION)
        for name in value.split(",")
    ]
    return tuple(dict.fromkeys((*response.cdi_devices, *annotated)))


# ── device nodes and mounts ───────────────────────────────────────────────────────────────────────


def permission_faults(response: ContainerResponse) -> Iterator[str]:
    """Yield the device nodes with permissions that are none."""
    for node in response.device_nodes:
        letters = Counter(node.permissions)
        if not letters or set(letters) - _PERMISSIONS or max(letters.values()) > 1:
            yield f"{quoted(node.container_path)} has the permissions {quoted(node.permissions)}"


def container_path_faults(response: ContainerResponse) -> Iterator[str]:
    """Yield the container paths that are no paths, and those that stand for two different things.

    The same node twice under the same path is left alone: the kubelet drops the second (pod_devices.go,
    deviceRunContainerOptions), and plugins whose devices share a control node rely on that.
    """
    taken: dict[str, tuple[str, str]] = {}
    targets = [("device node", node.container_path, node.host_path) for node in response.device_nodes]
    targets += [("mount", mount.container_path, mount.host_path) for mount in response.mounts]
    for kind, path, host_path in targets:
        if not path.startswith("/"):
            yield f"the container path {quoted(path)} of the {kind} {quoted(host_path)} is not absolute"
            continue
        parts = [part for part in path.split("/") if part]
        if {".", ".."} & set(parts):
            yield f"the container path {quoted(path)} of the {kind} {quoted(host_path)} has dots"
        first = taken.setdefault("/".join(parts), (kind, host_path))
        if first != (kind, host_path):
            yield (
                f"{quoted(path)} in the container stands for the {first[0]} {quoted(first[1])} "
                f"and for the {kind} {quoted(host_path)}"
            )


def covering_path_faults(response: ContainerResponse) -> Iterator[str]:
    """Yield the container paths that would hide what every container needs, or that runc refuses."""
    targets = [(node.container_path, node.host_path) for node in response.device_nodes]
    targets += [(mount.container_path, mount.host_path) for mount in response.mounts]
    for container_path, host_path in targets:
        path = "/" + "/".join(part for part in container_path.split("/") if part)
        in_proc = path == "/proc" or (path.startswith("/proc/") and path not in _PROC_FILES)
        if in_proc or path in {"/", "/dev"}:
            yield f"{quoted(host_path)} would be put at {quoted(container_path)}"


def node_host_faults(response: ContainerResponse, kinds: Mapping[str, FileKind]) -> Iterator[str]:
    """Yield the device nodes whose host path leads to no node.

    A folder with nodes in it is right: containerd and CRI-O take all of them.
    """
    for node in response.device_nodes:
        kind = kinds[node.host_path]
        if not node.host_path.startswith("/"):
            yield f"the host path {quoted(node.host_path)} of a device node is not absolute"
        elif kind not in {FileKind.NODE, FileKind.NODES, FileKind.HIDDEN}:
            yield f"{quoted(node.host_path)} is {kind.value}"


def mount_host_faults(response: ContainerResponse, kinds: Mapping[str, FileKind]) -> Iterator[str]:
    """Yield the mounts of what is not there."""
    for mount in response.mounts:
        if not mount.host_path.startswith("/"):
            yield f"the host path {quoted(mount.host_path)} of a mount is not absolute"
        elif kinds[mount.host_path] is FileKind.NOTHING:
            yield f"{quoted(mount.host_path)} is {FileKind.NOTHING.value}"


def mounted_nodes(response: ContainerResponse, kinds: Mapping[str, FileKind]) -> Iterator[str]:
    """Yield the mounts of device nodes."""
    for mount in response.mounts:
        if kinds[mount.host_path] is FileKind.NODE:
            yield f"{quoted(mount.host_path)} is a device node and is given as a mount"


# ── environment and annotations ───────────────────────────────────────────────────────────────────


def env_faults(response: ContainerResponse) -> Iterator[str]:
    """Yield the environment variables that no process can have."""
    for name, value in response.envs.items():
        if not name:
            yield f"a variable with the value {quoted(value)} has no name"
        elif "=" in name or "\0" in name:
            yield f"the name {quoted(name)} has '=' or NUL in it"
        elif "\0" in value:
            yield f"the value of {quoted(name)} has NUL in it"


def loader_envs(response: ContainerResponse) -> Iterator[str]:
    """Yield the variables that change which programs and libraries run (ld.so(8))."""
    for name, value in response.envs.items():
        if name == "PATH" or name.startswith("LD_"):
            yield f"{name} is set to {quoted(value)}"


def lost_values(
    first: ContainerResponse, second: ContainerResponse, both: ContainerResponse
) -> Iterator[str]:
    """Yield the variables that differ between two devices, where no variable of both names both values."""
    named = set().union(*map(_words, both.envs.values()))
    for name, value in first.envs.items():
        other = second.envs.get(name, value)
        if other == value:
            continue
        if not (_words(value) | _words(other)) <= named:
            yield (
                f"{quoted(name)} is {quoted(value)} for the one, {quoted(other)} for the other "
                f"and {quoted(both.envs.get(name, ''))} for both"
            )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text))


def annotation_faults(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys that Kubernetes would not take as such, and a total over the limit."""
    for key in annotations:
        match = _ANNOTATION_KEY.fullmatch(key.lower())  # as ValidateAnnotations does
        if match is None or len(match["prefix"] or "") > 254 or len(match["name"]) > 63:
            yield f"the key {quoted(key)} is no annotation key"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT_BYTES:
        yield f"the annotations have {size} bytes, and {ANNOTATIONS_LIMIT_BYTES} are allowed"


# ── CDI ───────────────────────────────────────────────────────────────────────────────────────────


def cdi_name_faults(response: ContainerResponse) -> Iterator[str]:
    """Yield the CDI names that are none."""
    for name in cdi_names(response):
        try:
            ContainerResponse(cdi_devices=[name])
        except PluginError:
            yield f"{quoted(name)} does not read vendor/class=device"


def defined_cdi_names(texts: Iterable[tuple[str, str]]) -> Collection[str]:
    """Return the names that spec files define, given as pairs of file name and text.

    What is no JSON is searched for `kind` and `name` only, so it may seem to define a name too many.
    """
    return {name for file_name, text in texts for name in _defined(file_name, text)}


def _defined(file_name: str, text: str) -> Iterator[str]:
    if file_name.endswith(".json"):
        try:
            spec: Any = json.loads(text)
            for device in spec["devices"]:
                yield f"{spec['kind']}={device['name']}"
        except (ValueError, LookupError, TypeError):
            return
    elif kind := _YAML_KIND.search(text):
        for match in _YAML_NAME.finditer(text):
            yield f"{kind[1]}={match[1]}"


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


def refusal_faults(text: str) -> Iterator[str]:
    """Yield what keeps an error's text from being read in a pod's status."""
    if not text.strip():
        yield "a refusal says nothing"
    if "\n" in text.strip():
        yield f"a refusal has {len(text.strip().splitlines())} lines: {quoted(text)}"
    if len(text.encode()) > REFUSAL_LIMIT_BYTES:
        yield f"a refusal has {len(text.encode())} bytes: {quoted(text)}"
    if found := _CRASH.search(text):
        yield f"a refusal shows the plugin's code ({quoted(found[0])})"
