"""The check of host paths at each Allocate: a path may lead only where the configuration permits it.

What the file names is checked when it is read; links, templates and who else may write to a folder decide
where a path leads in the end. Every link is followed, none of them out of the host's root folder. The check
says where a path leads at one moment, and the container runtime follows it later, again at each start of the
container. In between it stays the same only if none but root, or the user of this process, may change it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.daemon.config.host_paths import danger_of
from devplug.daemon.config.loader import DEVICE_ROOTS
from devplug.daemon.sources.host import MEMORY_NUMBERS, NotADeviceNodeError
from devplug.devices import Device
from devplug.errors import ForbiddenPathError, UnhealthyDeviceError, quoted
from devplug.linux.trust import open_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.daemon.config.types import Resource
    from devplug.daemon.container_response import Share
    from devplug.daemon.sources.device import HostDevice, HostDeviceNode
    from devplug.daemon.sources.host import Host

_OPENAT2: Final = 437
"""Number of the system call, the same on every architecture (linux/unistd)."""

_HOW: Final = struct.Struct("QQQ")
_NOT_TO_BE_HAD: Final = frozenset({errno.ENOSYS, errno.EPERM})
"""A kernel before 5.6, or a seccomp filter that does not know the call."""

_libc = ctypes.CDLL(None, use_errno=True)

_OPENAT2_TRIES: Final = 1000
"""A `..` in the path fails with EAGAIN when anything on the machine is renamed or mounted (openat2(2))."""

_BUSY: Final = "could not be looked up: something renames or mounts files on this machine without pause"


_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x02, 0x04, 0x10
"""linux/openat2.h. Magic links are those of /proc, as /proc/self/fd/3: they lead to what is open there. Who
follows no symlinks follows none of them, either."""


# ── where a path leads ────────────────────────────────────────────────────────────────────────────


class _Resolved(Struct, frozen=True):
    """The file to which a path leads now."""

    real_path: str
    """On the host, without links."""
    mode: int
    """Type and permission bits, as in `stat`."""
    number: tuple[int, int]
    """Major and minor of a device node, else (0, 0)."""


def resolved(host: Host, path: str) -> _Resolved | None:
    """Return what `path` of the host leads to; None if that cannot be seen from here.

    An absolute link leads into the host's root and not into ours, and nothing leads out of it. Nothing is
    opened but the place itself (O_PATH), which no device notices. Raises `PermissionError` for a path through
    a magic link, and `BlockingIOError` if the kernel has asked for another try each time.
    """
    place: int | None
    root = os.open(host.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        place, real_path = _opened(root, path)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PermissionError(errno.EPERM, "leads through a link of /proc, or in a circle") from error
        if error.errno not in _NOT_TO_BE_HAD:
            return None
        place, real_path = _by_name(host, path), None
    finally:
        os.close(root)
    if place is None:
        return None
    try:
        status = os.fstat(place)
        if real_path is None:
            link = f"/proc/self/fd/{place}"
            real_path = host.outside(os.readlink(link))  # noqa: PTH115 -- a link that leads nowhere by name
    finally:
        os.close(place)
    return _Resolved(real_path, status.st_mode, (os.major(status.st_rdev), os.minor(status.st_rdev)))


def _opened(root: int, path: str) -> tuple[int, str | None]:
    """Return a descriptor of the file, and its path if no step of `path` is a link: then it is `path` itself.

    Raises `OSError`.
    """
    name = path.lstrip("/") or "."
    if os.path.normpath(path) == path:
        try:
            return _openat2(root, name, _NO_SYMLINKS), path
        except OSError:
            pass  # the look that follows links says why
    return _openat2(root, name, _NO_MAGICLINKS), None


def _openat2(root: int, path: str, resolve: int) -> int:
    how = _HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, resolve | _IN_ROOT)
    code = 0
    for _ in range(_OPENAT2_TRIES):
        place: int = _libc.syscall(_OPENAT2, root, os.fsencode(path), how, _HOW.size)
        if place >= 0:
            return place
        code = ctypes.get_errno()
        if code != errno.EAGAIN:
            break
    raise OSError(code, os.strerror(code), path)


def _by_name(host: Host, path: str) -> int | None:
    """Return a descriptor of the file without openat2; a link may change between two steps of this."""
    try:
        return os.open(host.inside(host.real_path(path)), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


# ── the check ─────────────────────────────────────────────────────────────────────────────────────


def node_fault(host: Host, node: HostDeviceNode) -> str | None:
    """Return why a container cannot get this node now: it is missing, or another one; None if it can.

    Raises `ForbiddenPathError` if its path leads to something else than a device node, or if a user other
    than root and the daemon's could make it do so later.
    """
    looked = _looked_at(host, node)
    return looked if isinstance(looked, str) else None


def real_path_of(host: Host, node: HostDeviceNode, found: HostDevice) -> str:
    """Return the path without links of a device's node, from the same lookup that compares its number.

    Raises `UnhealthyDeviceError` for what `node_fault` returns, and `ForbiddenPathError`.
    """
    looked = _looked_at(host, node)
    if isinstance(looked, str):
        raise UnhealthyDeviceError(looked, Device(found.name))
    return looked.real_path


def _looked_at(host: Host, node: HostDeviceNode) -> _Resolved | str:
    """Return the file to which the path of a node leads, or why a container cannot get it."""
    try:
        place = _place(host, node.host_path)
    except UnhealthyDeviceError as error:
        return error.reason
    if place is None:
        return "node missing"
    is_block = stat.S_ISBLK(place.mode)
    if not (is_block or stat.S_ISCHR(place.mode)):
        return "its node is no device node any more"
    if (place.number, is_block) != (node.number, node.is_block):
        return "its node is another device now"
    if not _is_below(place.real_path, DEVICE_ROOTS) or (place.number in MEMORY_NUMBERS and not is_block):
        raise ForbiddenPathError(f"{quoted(node.host_path)} leads to {quoted(place.real_path)}")
    _check_way(host, node.host_path, place)
    return place


def _check_way(host: Host, path: str, place: _Resolved | None) -> None:
    # The kernel came to where the path says: there is no link on the way, so each step need not be asked.
    if whom := open_to(path, above=host.inside(""), has_links=place is None or place.real_path != path):
        raise ForbiddenPathError(f"{quoted(path)} could be replaced by {whom}")


def check_shares(host: Host, shares: Sequence[Share], resource: Resource) -> None:
    """Check the folders and mounts that a container would get; raises `ForbiddenPathError` for a bad one.

    A host path that is not there for this process is left to the runtime: only its text was checked.
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
                _check_way(host, mount.host_path, place)
    for folder in resource.expose.directories:
        _check_folder(host, folder, resource)


def _check_folder(host: Host, folder: str, resource: Resource) -> None:
    place = _place(host, folder)
    if place is None:
        raise UnhealthyDeviceError(f"the folder {folder} is missing")
    if not stat.S_ISDIR(place.mode) or not _is_below(place.real_path, ["/dev"]):
        raise ForbiddenPathError(f"{quoted(folder)} leads to {quoted(place.real_path)}, no folder below /dev")
    _check_way(host, folder, place)
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


def _place(host: Host, path: str) -> _Resolved | None:
    try:
        return resolved(host, path)
    except BlockingIOError as error:
        raise UnhealthyDeviceError(f"{quoted(path)} {_BUSY}") from error
    except PermissionError as error:
        raise ForbiddenPathError(f"{quoted(path)} {error.strerror}") from error


def _is_below(path: str, roots: Iterable[str]) -> bool:
    """Whether a path in normal form lies below one of these folders."""
    return any(path.startswith(f"{root}/") for root in roots)


def faulty_node(host: Host, found: HostDevice) -> str | None:
    """Return what `node_fault` says of the first node of a device that a container cannot have."""
    return next((fault for node in found.nodes if (fault := node_fault(host, node))), None)
