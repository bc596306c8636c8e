"""Whether somebody else could put another file where a path leads: who may write to the folders on the way.

A look says where a path leads at one moment, and the container runtime follows it later, again at each start
of the container. In between it stays the same only if none but root, or the user of this process, may change
it.
"""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.daemon.sources.host import Host

__all__ = ["open_to"]

_LINKS_LIMIT: Final = 40
"""As many links as the kernel follows in one path (path_resolution(7))."""

_OVERFLOW: Final = 65534
"""What a user namespace calls users from outside it, root among them (user_namespaces(7))."""


def open_to(host: Host, path: str) -> str:
    """Return who else could have `path` of the host lead elsewhere, as a text; "" if nobody could.

    What is not there can be made by who may write to its folder, so the way is judged as far as it goes.
    """
    rest = _parts(path)
    way = ""
    links = 0
    while rest:
        name, rest = rest[0], rest[1:]
        if name == "..":
            way = way.rpartition("/")[0]
            continue
        if fault := _open_entry(host, way or "/", name):
            return fault
        step = f"{way}/{name}"
        try:
            target = os.readlink(host.inside(step))  # noqa: PTH115 -- within each Allocate
        except OSError:
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


def _open_entry(host: Host, folder: str, name: str) -> str:
    """Return who else may replace an entry of a folder; "" for nobody."""
    try:
        above = os.lstat(host.inside(folder))
    except OSError:
        return ""
    if not _is_trusted(above.st_uid):
        return f"user {above.st_uid}, who owns the folder {folder}"
    others = above.st_mode & stat.S_IWOTH
    if not others and not (above.st_mode & stat.S_IWGRP and not _is_trusted_group(above.st_gid)):
        return ""
    whom = "everybody" if others else f"group {above.st_gid}"
    if not above.st_mode & stat.S_ISVTX:
        return f"{whom}, who may write to the folder {folder}"
    try:
        owner = os.lstat(host.inside(f"{folder.rstrip('/')}/{name}")).st_uid
    except OSError:
        return f"{whom}, who may write to the folder {folder}"
    return "" if _is_trusted(owner) else f"user {owner}, who owns {folder.rstrip('/')}/{name}"


def _is_trusted(user: int) -> bool:
    return user in {0, os.geteuid()} or (user == _OVERFLOW and _is_namespaced())


def _is_trusted_group(group: int) -> bool:
    return group in {0, os.getegid()} or (group == _OVERFLOW and _is_namespaced())


@cache
def _is_namespaced() -> bool:
    """Whether this process is in a user namespace, in which the machine's own root has no number."""
    try:
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]
    except OSError:
        return False
