"""The last look before anything is given out: every path leads where the configuration may lead, right now.

What the file names is judged when it is read; links, templates and who else may write to a folder decide
where a path leads in the end.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from devplug.daemon.grammar.loading import DEVICE_ROOTS
from devplug.daemon.grammar.mounts import danger_of
from devplug.daemon.sources.host import MEMORY_NUMBERS, NotADeviceNodeError
from devplug.daemon.sources.replaceable import open_to
from devplug.daemon.sources.resolving import resolved
from devplug.devices import Device
from devplug.errors import ForbiddenPathError, UnhealthyDeviceError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.daemon.grammar.config import Resource
    from devplug.daemon.responses import Share
    from devplug.daemon.sources.found import Found, FoundNode
    from devplug.daemon.sources.host import Host
    from devplug.daemon.sources.resolving import Resolved

__all__ = ["check_shares", "faulty_node", "node_fault", "nodes_below", "real_path_of"]


def node_fault(host: Host, node: FoundNode) -> str | None:
    """Return why a container cannot have this node right now: it went, or is another one; None if it can.

    Raises `ForbiddenPathError` if its path leads elsewhere than to device nodes, or others could have it do
    so after this look.
    """
    looked = _looked_at(host, node)
    return looked if isinstance(looked, str) else None


def real_path_of(host: Host, node: FoundNode, found: Found) -> str:
    """Return where the path of a device's node leads, by the same look that finds it to be that node.

    Raises `UnhealthyDeviceError` for a node that a container cannot have, and `ForbiddenPathError`.
    """
    looked = _looked_at(host, node)
    if isinstance(looked, str):
        raise UnhealthyDeviceError(looked, Device(found.name))
    return looked.real_path


def _looked_at(host: Host, node: FoundNode) -> Resolved | str:
    """Return where the path of a node leads, or why a container cannot have it."""
    place = _place(host, node.host_path)
    if place is None:
        return "node missing"
    is_block = stat.S_ISBLK(place.mode)
    if not (is_block or stat.S_ISCHR(place.mode)):
        return "its node is no device node any more"
    if (place.number, is_block) != (node.number, node.is_block):
        return "its node is another device now"
    if not _is_below(place.real_path, DEVICE_ROOTS) or (place.number in MEMORY_NUMBERS and not is_block):
        raise ForbiddenPathError(f"{quoted(node.host_path)} leads to {quoted(place.real_path)}")
    _check_way(host, node.host_path)
    return place


def _check_way(host: Host, path: str) -> None:
    if whom := open_to(host, path):
        raise ForbiddenPathError(f"{quoted(path)} could be replaced by {whom}")


def check_shares(host: Host, shares: Sequence[Share], resource: Resource) -> None:
    """Look at the folders and mounts that a container would get; raises `ForbiddenPathError` for a bad one.

    A host path that this process cannot see is left to the runtime: it was judged as it is written.
    """
    if "hostMounts" not in resource.allow:
        for share in shares:
            for mount in share.mounts:
                place = _place(host, mount.host_path)
                path = place.real_path if place is not None else mount.host_path
                if danger := danger_of(path):
                    raise ForbiddenPathError(f"the mount {quoted(mount.host_path)} {danger}")
                if place is not None and stat.S_ISSOCK(place.mode):
                    raise ForbiddenPathError(f"the mount {quoted(mount.host_path)} is a socket")
                _check_way(host, mount.host_path)
    for folder in resource.expose.directories:
        _check_folder(host, folder, resource)


def _check_folder(host: Host, folder: str, resource: Resource) -> None:
    place = _place(host, folder)
    if place is None:
        raise UnhealthyDeviceError(f"the folder {folder} is missing")
    if not stat.S_ISDIR(place.mode) or not _is_below(place.real_path, ["/dev"]):
        raise ForbiddenPathError(f"{quoted(folder)} leads to {quoted(place.real_path)}, no folder below /dev")
    _check_way(host, folder)
    for path in host.nodes_in(place.real_path):
        _check_node_below(host, path, resource)


def _check_node_below(host: Host, path: str, resource: Resource) -> None:
    try:
        node = host.node(path)
    except NotADeviceNodeError as error:
        raise ForbiddenPathError(str(error)) from error
    if "rawDisks" not in resource.allow and node is not None and node.is_block:
        raise ForbiddenPathError(f"{quoted(path)} is a disk; allow: [rawDisks] permits it")


def nodes_below(host: Host, folder: str, resource: Resource) -> list[str]:
    """Return the device nodes below a folder of the file, sorted; raises as `check_shares` does."""
    _check_folder(host, folder, resource)
    return host.nodes_in(folder)


def _place(host: Host, path: str) -> Resolved | None:
    try:
        return resolved(host, path)
    except PermissionError as error:
        raise ForbiddenPathError(f"{quoted(path)} {error.strerror}") from error


def _is_below(path: str, roots: Iterable[str]) -> bool:
    return any(os.path.commonpath((path, root)) == root and path != root for root in roots)


def faulty_node(host: Host, found: Found) -> str | None:
    """Return what `node_fault` says of the first node of a device that a container cannot have."""
    return next((fault for node in found.nodes if (fault := node_fault(host, node))), None)
