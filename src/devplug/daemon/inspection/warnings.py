"""Warnings on a configuration: what is allowed but probably not meant, or goes wrong on this machine. Pure.

Errors are in `config.rules` and keep a file from being used; warnings never do. Which kinds
of device one program at a time can use is a table of what Linux's drivers do when a node is opened twice;
sharing such a device is allowed, since programs can agree on turns, but seldom meant.
"""

from __future__ import annotations

import re
import stat
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.tree import Finding
from devplug.daemon.footprint import LIMIT_MEBIBYTES, advised_mebibytes, devices_of
from devplug.devices import HealthState
from devplug.errors import quoted
from devplug.wire.values import LIST_LIMIT_BYTES, list_size_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.daemon.config.templates import Template
    from devplug.daemon.config.tree import Keys
    from devplug.daemon.config.types import Config, HealthRule, Resource
    from devplug.daemon.inspection.matches import Inspected, Match
    from devplug.daemon.sources.device import HostDevice

_REASONS: Final = {
    "tty": "two programs on one serial line take each other's data",
    "video4linux": "only one program can stream from a camera",
    "sound": "most sound hardware plays for one program only",
    "tpm": "/dev/tpm0 opens once; discover /dev/tpmrm0 instead, which takes turns",
    "vfio": "a VFIO group opens once",
    "usb": "only one program can claim a USB interface",
    "block": "two programs that write to one disk destroy its content",
    "watchdog": "a watchdog opens once",
    "rtc": "a clock opens once",
    "spidev": "transfers of two programs mix on the bus",
    "gpio": "each line has one owner",
}
"""By the kernel's subsystem."""

_SUBSYSTEM_OF_FILE: Final = tuple(
    (re.compile(pattern), subsystem)
    for pattern, subsystem in (
        (r"/dev/(tty(USB|ACM|S|AMA|XR|mxc|O)|serial/).*", "tty"),
        (r"/dev/(video|v4l/).*", "video4linux"),
        (r"/dev/snd/.*", "sound"),
        (r"/dev/tpm\d.*", "tpm"),
        (r"/dev/vfio/(?!vfio$).*", "vfio"),
        (r"/dev/bus/usb/.*", "usb"),
        (r"/dev/(sd|vd|xvd|hd|nvme\d+n|mmcblk|disk/).*", "block"),
        (r"/dev/watchdog.*", "watchdog"),
        (r"/dev/rtc.*", "rtc"),
        (r"/dev/spidev.*", "spidev"),
        (r"/dev/gpiochip.*", "gpio"),
    )
)
_ALIASES: Final = {"vfio-dev": "vfio", "scsi_generic": "block", "serial": "tty"}

SOCKET_NAME_BYTES: Final = 40
"""The longest name of a socket of ours (`plugin.ownership.new_socket_name`)."""

_INDEX: Final = re.compile(r"\{index\}")


# ── devices for one program at a time ─────────────────────────────────────────────────────────────


def _reason_of_resource(resource: Resource) -> str:
    """Return why the devices of a resource should not be shared, as far as the file shows; else ""."""
    discover, asked = resource.discover, resource.expose.device_nodes or ()
    subsystems = [one.subsystem for one in asked if one.subsystem]
    subsystems += [one.subsystem for one in discover.sysfs]
    subsystems += [
        _subsystem(f"/dev/{one.file.replace('*', '0')}") for one in asked if one.file and not one.subsystem
    ]
    paths = [one.glob for one in discover.path] + [node.path for one in discover.bundle for node in one.paths]
    subsystems += [_subsystem(path.replace("*", "0").replace("?", "0")) for path in paths]
    subsystems += ["vfio" for one in discover.pci if one.driver in {"vfio-pci", "mlx5_vfio_pci"}]
    return next(_reasons(subsystems), "")


def _reasons_of_found(found: HostDevice) -> Iterator[str]:
    """Yield why a found device should not be shared, for each kind of its own nodes."""
    own = [node for node in found.nodes if not node.is_shared]
    yield from _reasons(
        "block" if node.is_block else node.subsystem or _subsystem(node.real_path or node.host_path)
        for node in own
        # The raw way to a USB device is given out only where there is no other.
        if node.subsystem != "usb" or len(own) == 1
    )


def _reasons(subsystems: Iterable[str]) -> Iterator[str]:
    known = (_REASONS.get(_ALIASES.get(one, one), "") for one in subsystems)
    return iter(dict.fromkeys(reason for reason in known if reason))


def _subsystem(path: str) -> str:
    return next((name for pattern, name in _SUBSYSTEM_OF_FILE if pattern.fullmatch(path)), "")


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NodeOwner:
    """Owner, group and mode of a device node on the machine (`stat`)."""

    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Remark:
    """A warning of a source in a scan: it left something out, and why."""

    message: str
    reason: str = ""
    path: str = ""
    """The path that it is about; empty if it is not about one."""


# ── what the file alone shows ─────────────────────────────────────────────────────────────────────


def file_findings(config: Config, sound: Collection[int]) -> Iterator[Finding]:
    """Yield what is probably not meant in the resources at the places `sound`, which have no problem."""
    resources = [(index, config.resources[index]) for index in sorted(sound)]
    yield from _container_path_findings(resources)
    for index, resource in resources:
        at: Keys = ("resources", index)
        if resource.share.replicas > 1 and (reason := _reason_of_resource(resource)):
            yield _shared_exclusive(at, resource, reason)
        yield from _access_findings(resource, at)
        if resource.discover.static and not _gives_anything(resource):
            message = "no hardware is behind these devices, and a pod gets nothing with them: for tests only"
            yield Finding((*at, "discover", "static"), message)


def _shared_exclusive(at: Keys, resource: Resource, reason: str) -> Finding:
    message = f"up to {resource.share.replicas} containers would have one device at once, and {reason}"
    return Finding((*at, "share", "replicas"), message)


def _container_path_findings(resources: Iterable[tuple[int, Resource]]) -> Iterator[Finding]:
    """Yield container paths of two resources: a pod may ask for devices of both."""
    first: dict[str, tuple[int, Keys]] = {}
    for index, resource in resources:
        for keys, template in _container_paths(resource, ("resources", index)):
            text = _INDEX.sub("0", template.source)
            if any(variable.name != "index" for variable in template.variables) or text.endswith("/"):
                continue
            other, other_keys = first.setdefault(text, (index, keys))
            if other != index:
                message = (
                    f"{quoted(text)} is a path of another resource, too; a container that asks for both "
                    "would get two devices under one path"
                )
                yield Finding(keys, message, other_keys)


def _container_paths(resource: Resource, at: Keys) -> Iterator[tuple[Keys, Template]]:
    expose = resource.expose
    nodes = expose.device_nodes or ()
    has_own = [one.container_path is not None for one in nodes]
    if expose.container_path is not None and not (has_own and all(has_own)):
        yield (*at, "expose", "containerPath"), expose.container_path
    for number, one in enumerate(nodes):
        if one.container_path is not None:
            yield (*at, "expose", "deviceNodes", number, "containerPath"), one.container_path


def _access_findings(resource: Resource, at: Keys) -> Iterator[Finding]:
    """Yield keys that work only if devplug's own pod may open devices, which by default it may not."""
    if resource.discover.nvidia:
        message = (
            "the NVIDIA driver can only be asked by a pod that has its devices: give devplug's pod the "
            "runtime class nvidia, or access to devices"
        )
        yield Finding((*at, "discover", "nvidia"), message)
    for number, rule in enumerate(resource.health):
        if what := _opening(rule):
            yield Finding((*at, "health", number), f"{what}; without access its answers are unknown")
    for key, action in (("onRelease", resource.on_release), ("onLost", resource.on_lost)):
        if action is not None:
            message = "a command that opens the device needs a devplug pod with access to devices"
            yield Finding((*at, key, "exec"), message)


def _opening(rule: HealthRule) -> str:
    if rule.open:
        return "opening the device needs a devplug pod with access to devices"
    return "a command that opens the device needs a devplug pod with access to devices" if rule.exec else ""


def _gives_anything(resource: Resource) -> bool:
    expose = resource.expose
    return bool(expose.mounts or expose.env or expose.annotations or expose.cdi_devices or expose.directories)


def folder_findings(plugin_dir: str, limit_bytes: int) -> Iterator[Finding]:
    """Yield that a plugin folder cannot have sockets, as their paths would be longer than `limit_bytes`."""
    folder = plugin_dir.rstrip("/").encode(errors="surrogateescape")
    length = len(folder) + 1 + SOCKET_NAME_BYTES
    if length > limit_bytes:
        message = (
            f"sockets in {plugin_dir} would have paths of up to {length} bytes; Unix sockets take "
            f"{limit_bytes}: choose another --plugin-dir"
        )
        yield Finding((), message)


def memory_findings(config: Config, inspected: Iterable[Inspected] = ()) -> Iterator[Finding]:
    """Yield that the daemon needs more memory than the DaemonSet gives; `inspected` has what was found."""
    capacities = {one.index: one.capacity for one in inspected}
    devices = sum(
        max(devices_of(resource), capacities.get(index) or 0)
        for index, resource in enumerate(config.resources)
    )
    advised = advised_mebibytes(len(config.resources), devices)
    if advised > LIMIT_MEBIBYTES:
        number = "1 resource" if len(config.resources) == 1 else f"{len(config.resources)} resources"
        message = (
            f"{number} with {devices} devices can take more than the {LIMIT_MEBIBYTES} MiB of memory that "
            f"the DaemonSet gives: set resources.limits.memory to {advised}Mi"
        )
        yield Finding(("resources",), message)


# ── what this machine makes of it ─────────────────────────────────────────────────────────────────


def host_findings(
    inspected: Iterable[Inspected],
    owners: Mapping[str, NodeOwner],
    remarks: Mapping[int, Collection[Remark]],
    numa_nodes: Sequence[int] = (),
) -> Iterator[Finding]:
    """Yield what would go wrong on the machine that was looked at.

    `owners` has the device nodes of the found devices by host path, `remarks` what the sources said, by the
    resource's place; `numa_nodes` are the machine's, none if they are not known.
    """
    for one in inspected:
        at: Keys = ("resources", one.index)
        yield from _remark_findings(remarks.get(one.index, ()), at)
        if one.matches is None:
            continue
        yield from _match_findings(one, at)
        yield from _numa_findings(one, at, numa_nodes)
        yield from _size_findings(one, at)
        yield from _owner_findings(one, at, owners)
        if one.resource.when_none == "fail" and not one.capacity:
            yield Finding(
                (*at, "whenNone"), "no device is here now, so devplug run would end with exit code 1"
            )
        if one.resource.share.replicas > 1 and not _reason_of_resource(one.resource):
            reasons = (reason for match in one.matches for reason in _reasons_of_found(match.found))
            if reason := next(reasons, ""):
                yield _shared_exclusive(at, one.resource, reason)


def _remark_findings(remarks: Collection[Remark], at: Keys) -> Iterator[Finding]:
    """Yield the warnings of a source, one for all paths with the same reason."""
    alike: dict[str, dict[str, None]] = {}
    for remark in remarks:
        text = remark.reason or remark.message
        about = text.replace(quoted(remark.path), "") if remark.path else text
        alike.setdefault(about, {})[text] = None
    for texts in alike.values():
        yield Finding((*at, "discover"), f"{next(iter(texts))}{_more(len(texts))}")


def _more(number: int) -> str:
    return f" (and {number - 1} more)" if number > 1 else ""


def _match_findings(one: Inspected, at: Keys) -> Iterator[Finding]:
    matches = one.matches or ()
    for owner, number in Counter(match.owner for match in matches if match.owner).items():
        first = next(match for match in matches if match.owner == owner)
        what = f"{quoted(first.found.name)} belongs" if number == 1 else f"{number} devices belong"
        message = (
            f"{what} to {owner} already, which stands first; write overlap: shared in both, or narrow one"
        )
        yield Finding((*at, "discover"), message)
    sick = [match for match in matches if match.health.state is HealthState.UNHEALTHY and not match.owner]
    for reason, number in Counter(match.health.reason for match in sick).items():
        first = next(match for match in sick if match.health.reason == reason)
        message = f"{quoted(first.found.name)} cannot be given out: {reason}{_more(number)}"
        yield Finding((*at, "discover"), message)


def _numa_findings(one: Inspected, at: Keys, numa_nodes: Sequence[int]) -> Iterator[Finding]:
    """Yield devices on a NUMA node that the machine lacks: with an alignment policy no pod can get them."""
    nowhere = [match.found for match in one.matches or () if match.found.numa_node not in {None, *numa_nodes}]
    if nowhere and numa_nodes:
        message = (
            f"{quoted(nowhere[0].name)} is on NUMA node {nowhere[0].numa_node}, which this machine does not "
            f"have (it has {', '.join(map(str, numa_nodes))}): with topologyManagerPolicy restricted or "
            f"single-numa-node the kubelet refuses each pod that asks for it{_more(len(nowhere))}"
        )
        yield Finding((*at, "discover"), message)


def _size_findings(one: Inspected, at: Keys) -> Iterator[Finding]:
    """Yield that the list of the found devices is larger than the kubelet takes."""
    devices = one.devices
    size = list_size_bytes(devices)
    if size > LIST_LIMIT_BYTES:
        fit = len(devices) * LIST_LIMIT_BYTES // size
        message = (
            f"{len(devices)} devices make a list of {size} bytes; the kubelet takes 4 MiB, which is some "
            f"{fit}: lower share.replicas, or discover less"
        )
        key = ("share", "replicas") if one.resource.share.replicas > 1 else ("discover",)
        yield Finding((*at, *key), message)


def _owner_findings(one: Inspected, at: Keys, owners: Mapping[str, NodeOwner]) -> Iterator[Finding]:
    """Yield that pods of other users than root cannot use the nodes, as their mode stays as on the host."""
    if one.resource.expose.strategy == "cdi":
        return
    closed = [path for match in one.matches or () for path in _closed_nodes(match, owners)]
    if not closed:
        return
    owner = owners[closed[0]]
    for_group = f"supplementalGroups: [{owner.gid}], or " if owner.gid and owner.mode & 0o060 == 0o060 else ""
    rights = f"mode {stat.S_IMODE(owner.mode):04o} and owner {owner.uid}:{owner.gid}"
    message = (
        f"{closed[0]} has {rights} here and in the pod; one that does not run as root needs "
        f"{for_group}expose.strategy: cdi with owner or mode"
        f"{_more(len(closed))}"
    )
    yield Finding((*at, "expose"), message)


def _closed_nodes(match: Match, owners: Mapping[str, NodeOwner]) -> Iterator[str]:
    for node in match.nodes:
        owner = owners.get(node.host_path)
        needed = sum(bit for letter, bit in (("r", 0o4), ("w", 0o2)) if letter in node.permissions)
        if owner is not None and owner.mode & needed != needed:
            yield node.host_path
