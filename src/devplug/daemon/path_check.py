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
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.daemon.config.host_paths import danger_of
from devplug.daemon.config.loader import DEVICE_ROOTS
from devplug.daemon.sources.host import MEMORY_NUMBERS, NotADeviceNodeError
from devplug.devices import Device
from devplug.errors import ForbiddenPathError, UnhealthyDeviceError, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from devplug.daemon.config.types import Resource
    from devplug.daemon.container_response import Share
    from devplug.daemon.sources.device import HostDevice, HostDeviceNode
    from devplug.daemon.sources.host import Host

__all__ = ["check_shares", "faulty_node", "node_fault", "nodes_below", "open_to", "real_path_of", "resolved"]

_OPENAT2: Final = 437
"""Number of the system call, the same on every architecture (linux/unistd)."""

_HOW: Final = struct.Struct("QQQ")
_NOT_TO_BE_HAD: Final = frozenset({errno.ENOSYS, errno.EPERM})
"""A kernel before 5.6, or a seccomp filter that does not know the call."""

_libc = ctypes.CDLL(None, use_errno=True)

_LINKS_LIMIT: Final = 40
"""As many links as the kernel follows in one path (path_resolution(7))."""

_OPENAT2_TRIES: Final = 1000
"""A `..` in the path fails with EAGAIN when anything on the machine is renamed or mounted (openat2(2))."""

_BUSY: Final = "could not be looked up: something renames or mounts files on this machine without pause"

_DEFAULT_ACL: Final = "system.posix_acl_default"

_OVERFLOW: Final = 65534
"""What a user namespace calls users from outside it, root among them (user_namespaces(7))."""


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


# ── who else could change that ────────────────────────────────────────────────────────────────────


def open_to(host: Host, path: str, *, has_links: bool = True) -> str:
    """Return who else could have `path` of the host lead elsewhere, as a text; "" if nobody could.

    What is not there can be made by who may write to its folder, so the way is judged as far as it goes.
    Without `has_links` none of its steps is taken for a link.
    """
    rest = _parts(path)
    way = ""
    links = 0
    trusted = _trusted(os.geteuid())
    while rest:
        name, rest = rest[0], rest[1:]
        if name == "..":
            way = way.rpartition("/")[0]
            continue
        if fault := _open_entry(host, way or "/", name, trusted):
            return fault
        step = f"{way}/{name}"
        if not has_links:
            way = step
            continue
        try:
            target = os.readlink(host.inside(step))  # noqa: PTH115 -- within each Allocate
        except OSError as error:
            if error.errno == errno.ENOENT and (whom := _acl_writer(host, way or "/", _DEFAULT_ACL)):
                return f"{whom}, to whom the default ACL of the folder {way or '/'} gives what is made there"
            way = step
            continue
        links += 1
        if links > _LINKS_LIMIT:
            return "links in a circle"
        way = "" if target.startswith("/") else way
        rest = [*_parts(target), *rest]
    return ""


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _open_entry(host: Host, folder: str, name: str, trusted: Collection[int]) -> str:
    """Return who else may replace an entry of a folder; "" for nobody. `trusted` are users."""
    try:
        above = os.lstat(host.inside(folder))
    except OSError:
        return ""
    if above.st_uid not in trusted:
        return f"user {above.st_uid}, who owns the folder {folder}"
    whom = _other_writer(host, folder, above)
    if not whom:
        return ""
    if not above.st_mode & stat.S_ISVTX:
        return f"{whom}, who may write to the folder {folder}"
    try:
        owner = os.lstat(host.inside(f"{folder.rstrip('/')}/{name}")).st_uid
    except OSError:
        return f"{whom}, who may write to the folder {folder}"
    return "" if owner in trusted else f"user {owner}, who owns {folder.rstrip('/')}/{name}"


def _other_writer(host: Host, folder: str, status: os.stat_result) -> str:
    """Return who else may write to a folder, by its mode or its ACL; "" for nobody."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if not status.st_mode & stat.S_IWGRP:
        return ""  # with an ACL these bits are its mask, which holds for all but the owner (acl(5))
    if status.st_gid not in _trusted(os.getegid()):
        return f"group {status.st_gid}"
    return _acl_writer(host, folder, "system.posix_acl_access")


_ACL_HEAD: Final = struct.Struct("<I")
_ACL_ENTRY: Final = struct.Struct("<HHI")
_ACL_VERSION: Final = 2
_ACL_USER, _ACL_GROUP, _ACL_MASK, _ACL_OTHER = 0x02, 0x08, 0x10, 0x20
_ACL_WRITE: Final = 0x02
"""linux/posix_acl_xattr.h and linux/posix_acl.h"""


def _acl_writer(host: Host, folder: str, name: str) -> str:
    """Return who else an ACL of a folder lets write; "" for nobody, or without this ACL."""
    try:
        content = os.getxattr(host.inside(folder), name, follow_symlinks=False)
    except OSError as error:
        return "" if error.errno in _NO_ACL else f"somebody, as its ACL cannot be read ({error.strerror}),"
    entries = content[_ACL_HEAD.size :]
    if _ACL_HEAD.unpack_from(content)[0] != _ACL_VERSION or len(entries) % _ACL_ENTRY.size:
        return "somebody, as its ACL cannot be read (unknown version),"
    found = [*_ACL_ENTRY.iter_unpack(entries)]
    mask = next((allowed for tag, allowed, _ in found if tag == _ACL_MASK), _ACL_WRITE)
    for tag, allowed, who in found:
        if tag == _ACL_OTHER and allowed & _ACL_WRITE:
            return "everybody"
        if tag == _ACL_USER and allowed & mask & _ACL_WRITE and who not in _trusted(os.geteuid()):
            return f"user {who}"
        if tag == _ACL_GROUP and allowed & mask & _ACL_WRITE and who not in _trusted(os.getegid()):
            return f"group {who}"
    return ""


_NO_ACL: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.ENOENT, errno.ENOTDIR, errno.ENOSYS})


def _trusted(own: int) -> Collection[int]:
    """Return the users, or groups, that may lead paths elsewhere; one of them is this process's own."""
    return (0, own, _OVERFLOW) if _is_namespaced() else (0, own)


@cache
def _is_namespaced() -> bool:
    """Whether this process is in a user namespace, in which the machine's own root has no number."""
    try:
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]
    except OSError:
        return False


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
    if whom := open_to(host, path, has_links=place is None or place.real_path != path):
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
