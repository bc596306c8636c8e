"""The needs of devplug's own pod: what a configuration needs it to be allowed, and why. Pure.

The pod gets the least that works: nothing stands here that no rule needs.

Opening a device node takes a permission of the container's device cgroup, which neither uid 0 nor a hostPath
volume brings: Linux asks the cgroup's program at each open (Documentation/admin-guide/cgroup-v2.rst, "Device
controller"). A pod gets permissions from a device plugin, which this pod is itself; from CDI, which the
kubelet passes on for devices of plugins and of DRA only; or by `privileged: true`. So a rule that opens
devices makes the container privileged. NVIDIA's runtime class is the exception: it permits its devices for
the environment variable NVIDIA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.daemon.footprint import LIMIT_MEBIBYTES, advised_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.config.types import Config, Resource

_GLOB: Final = re.compile(r"[*?\[]")
_OWN_FOLDERS: Final = re.compile(
    r"/|/(bin|boot|dev|etc|home|lib\w*|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)"
)
"""Folders that a container has of its own, so that the machine's cannot stand in their place."""

_OWN_TREES: Final = (
    "/bin",
    "/dev",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt/devplug",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
"""Trees in which all is the container's own, or (/dev, /sys, /proc) is granted or there otherwise."""

_MOUNTED: Final = ("/etc/devplug", "/run/cdi", "/var/run", "/var/run/cdi", "/var/lib", "/var/lib/kubelet")
"""Folders in which the pod has volumes already."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What is needed: for each thing the places in the file that need it; not needed if there are none."""

    dev: tuple[str, ...] = ()
    """/dev of the machine, read-only: finding devices takes no permission to open them."""
    device_access: tuple[str, ...] = ()
    """The right to open devices."""
    cdi_folder: tuple[str, ...] = ()
    """To write to /var/run/cdi."""
    nvidia: tuple[str, ...] = ()
    """To ask the NVIDIA driver."""
    mig: tuple[str, ...] = ()
    """To see MIG instances."""
    host_network: tuple[str, ...] = ()
    """The machine's network namespace: the kernel shows and tells of interfaces in their own only."""
    node_labels: tuple[str, ...] = ()
    """To read the labels of the Node: a token, and the right to."""
    dra: tuple[tuple[str, str], ...] = ()
    """The resources that a DRA driver serves, each with its place in the file."""
    driver: str = ""
    """The name of that driver; empty if the file names none. What a driver needs is granted as soon as it is
    named, so that `serve: dra` and back are edits without a rollout."""
    memory_mebibytes: int = LIMIT_MEBIBYTES
    """The memory limit for the resources and devices that the file shows."""
    may_surge: bool = False
    """Whether two pods may serve one machine during an update: no resource is a device plugin's, and the
    ports are the pod's own."""
    folders: tuple[tuple[str, str], ...] = ()
    """Other folders of the machine, each with the place that reads a file there."""
    left: tuple[str, ...] = ()
    """Places that name files in folders which cannot be mounted as a whole: their author has to."""


@dataclass(slots=True)
class _Collected:
    """The needs of the rules read so far."""

    dev: list[str] = field(default_factory=list)
    device_access: list[str] = field(default_factory=list)
    cdi_folder: list[str] = field(default_factory=list)
    nvidia: list[str] = field(default_factory=list)
    mig: list[str] = field(default_factory=list)
    host_network: list[str] = field(default_factory=list)
    node_labels: list[str] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def needs_of(config: Config | None) -> Needs:
    """Return what the pod needs for a configuration; for an unknown one, what finding devices takes."""
    if config is None:
        return Needs(dev=("any way to find devices",))
    found = _Collected()
    for index, resource in enumerate(config.resources):
        _discovery(resource, f"resources[{index}]", found)
        _rules(resource, f"resources[{index}]", found)
    dra = tuple(
        (resource.name, f"resources[{index}].serve")
        for index, resource in enumerate(config.resources)
        if resource.serve == "dra"
    )
    return Needs(
        dev=tuple(found.dev),
        device_access=tuple(found.device_access),
        cdi_folder=tuple(found.cdi_folder),
        nvidia=tuple(found.nvidia),
        mig=tuple(found.mig),
        host_network=tuple(found.host_network),
        node_labels=tuple(found.node_labels),
        dra=dra,
        driver=config.driver or "",
        memory_mebibytes=advised_for(config),
        may_surge=len(dra) == len(config.resources) and not found.host_network,
        folders=_outermost(found.folders),
        left=tuple(found.left),
    )


def _discovery(resource: Resource, at: str, found: _Collected) -> None:
    discover = resource.discover
    place = f"{at}.discover.{discover.kind}"
    paths = [
        *(one.glob for one in discover.path),
        *(node.path for one in discover.bundle for node in one.paths),
    ]
    elsewhere = [path for path in paths if not path.startswith("/dev/")]
    if not discover.static and (not paths or len(elsewhere) < len(paths)):
        found.dev.append(place)
    for path in elsewhere:
        _read(path[: match.start()] if (match := _GLOB.search(path)) else path, place, found)
    if discover.net:
        found.host_network.append(place)
    if discover.nvidia:
        found.nvidia.append(place)
    if any(one.mig != "none" for one in discover.nvidia):
        found.mig.append(place)
    if resource.expose.strategy == "cdi":
        found.cdi_folder.append(f"{at}.expose.strategy")
    if resource.node_selector:
        found.node_labels.append(f"{at}.nodeSelector")


def _rules(resource: Resource, at: str, found: _Collected) -> None:
    """Record what health rules and commands need. A command may open the device: nobody knows it does not."""
    for number, rule in enumerate(resource.health):
        place = f"{at}.health[{number}]"
        if rule.open:
            found.device_access.append(f"{place}.open")
        if rule.exec is not None:
            found.device_access.append(f"{place}.exec")
        if rule.file is not None:
            parts = rule.file.parts
            _read(parts[0] if parts and isinstance(parts[0], str) else "/", f"{place}.file", found)
    for key, action in (("onRelease", resource.on_release), ("onLost", resource.on_lost)):
        if action is not None:
            found.device_access.append(f"{at}.{key}.exec")


def _read(start: str, place: str, found: _Collected) -> None:
    """Record that files are read whose paths begin so: in the last whole folder of it, or below."""
    folder = posixpath.normpath(start[: start.rfind("/")] or "/")
    if folder == "/dev" or folder.startswith("/dev/"):
        found.dev.append(place)
    elif folder.startswith(("/sys/", "/proc/")):
        return  # the runtime shows both to each container, read-only
    elif (
        folder in _MOUNTED
        or _OWN_FOLDERS.fullmatch(folder)
        or any(folder.startswith(f"{tree}/") for tree in _OWN_TREES)
    ):
        found.left.append(place)
    else:
        found.folders.setdefault(folder, place)


def _outermost(folders: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the folders without those within others."""

    def parents(folder: str) -> Iterator[str]:
        while (folder := posixpath.dirname(folder)) != "/":
            yield folder

    return tuple(
        (folder, place)
        for folder, place in sorted(folders.items())
        if not folders.keys() & {*parents(folder)}
    )
