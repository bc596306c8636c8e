"""Where a path of the host really leads: every link followed, none of them out of the host's root folder."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.daemon.sources.host import Host

__all__ = ["Resolved", "resolved"]

_OPENAT2: Final = 437
"""Number of the system call, the same on every architecture (linux/unistd)."""
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
"""linux/openat2.h. Magic links are those of /proc, as /proc/self/fd/3: they lead to what is open there."""
_HOW: Final = struct.Struct("QQQ")
_NOT_TO_BE_HAD: Final = frozenset({errno.ENOSYS, errno.EPERM})
"""A kernel before 5.6, or a seccomp filter that does not know the call."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What lies at the end of a path now."""

    real_path: str
    """On the host, without links."""
    mode: int
    """Type and permission bits, as in `stat`."""
    number: tuple[int, int]
    """Major and minor of a device node, else (0, 0)."""


def resolved(host: Host, path: str) -> Resolved | None:
    """Return what `path` of the host leads to; None if that cannot be seen from here.

    An absolute link leads into the host's root and not into ours, and nothing leads out of it. Nothing is
    opened but the place itself (O_PATH), which no device notices. Raises `PermissionError` for a path through
    a magic link.
    """
    place: int | None
    root = os.open(host.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        place = _openat2(root, path.lstrip("/") or ".")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PermissionError(errno.EPERM, "leads through a link of /proc, or in a circle") from error
        if error.errno not in _NOT_TO_BE_HAD:
            return None
        place = _by_name(host, path)
    finally:
        os.close(root)
    if place is None:
        return None
    try:
        status = os.fstat(place)
        real_path = os.readlink(f"/proc/self/fd/{place}")  # noqa: PTH115 -- a link that leads nowhere by name
    finally:
        os.close(place)
    return Resolved(
        host.outside(real_path), status.st_mode, (os.major(status.st_rdev), os.minor(status.st_rdev))
    )


def _openat2(root: int, path: str) -> int:
    how = _HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _IN_ROOT)
    place: int = _libc.syscall(_OPENAT2, root, os.fsencode(path), how, _HOW.size)
    if place < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return place


def _by_name(host: Host, path: str) -> int | None:
    """Open a place as well as it goes without that system call: between two looks a link may change."""
    try:
        return os.open(host.inside(host.real_path(path)), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
