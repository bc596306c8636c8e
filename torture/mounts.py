"""File systems of this process alone: small ones, full ones, ones that may only be read."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bind_mount", "fill", "private_mounts", "remount_bound", "tmpfs", "unmount"]

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 4096
_MNT_DETACH: Final = 2
_MS_REC, _MS_PRIVATE = 16384, 1 << 18


def private_mounts() -> bool:
    """Have mounts from now on concern this process and what it starts; False where that is not allowed.

    Call it before there is another thread: it concerns the calling one, and those that this one makes.
    """
    if _libc.unshare(_CLONE_NEWNS) != 0:
        return False
    return _mounted("none", "/", None, _MS_REC | _MS_PRIVATE, "") == 0


def tmpfs(path: Path, options: str) -> None:
    """Mount an empty file system in memory at `path`; `options` are its own, as `size=64k`."""
    _mount("tmpfs", str(path), "tmpfs", 0, options)


def bind_mount(source: Path, path: Path) -> None:
    """Have a folder at a second path, too."""
    _mount(str(source), str(path), None, _MS_BIND, "")


def remount_bound(path: Path, *, read_only: bool) -> None:
    """Let what is bound at `path` be read only, or written again, by way of that path."""
    _mount("none", str(path), None, _MS_REMOUNT | _MS_BIND | (_MS_RDONLY if read_only else 0), "")


def unmount(path: Path) -> None:
    """Take away what is mounted at `path`, also where somebody still has a file of it open."""
    _libc.umount2(os.fsencode(path), _MNT_DETACH)


def fill(folder: Path) -> Path:
    """Leave no room in the file system of a folder; return the file that takes it, which may be removed."""
    path = folder / ".full"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return path


def _mounted(source: str, target: str, kind: str | None, flags: int, options: str) -> int:
    words = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    result: int = _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options))
    return result


def _mount(source: str, target: str, kind: str | None, flags: int, options: str) -> None:
    if _mounted(source, target, kind, flags, options) != 0:
        code = ctypes.get_errno() or errno.EIO
        raise OSError(code, os.strerror(code), target)
