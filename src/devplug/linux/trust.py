"""The users who could change what a path leads to: by owners, modes, links and access control lists.

A file is believed only if none but root and the user of this process could have written it, or could have
put another one in its place. `check_trusted` decides that for every folder in which we look for files and
sockets, before the first of them is opened.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from devplug.errors import KubeletError

if TYPE_CHECKING:
    from collections.abc import Collection

_Path: TypeAlias = str | os.PathLike[str]

_LINKS_LIMIT: Final = 40
"""As many links as the kernel follows in one path (path_resolution(7))."""

_DEFAULT_ACL: Final = "system.posix_acl_default"


class UntrustedError(KubeletError):
    """A file or folder that other users could change; the text says who, and what to do."""


# ── public ────────────────────────────────────────────────────────────────────────────────────────


def check_trusted(
    path: _Path, advice: str, *, users: Collection[int] = (), trusts_read_only: bool = False
) -> None:
    """Raise `UntrustedError`, with `advice` at its end, if others could change what is at `path`."""
    if whom := untrusted_writer(path, users=users, trusts_read_only=trusts_read_only):
        raise UntrustedError(f"{path} is not trusted: it could be changed by {whom}; {advice}")


def untrusted_writer(path: _Path, *, users: Collection[int] = (), trusts_read_only: bool = False) -> str:
    """Return who else could change what is at `path`, or put something else there; "" for nobody.

    Links are followed. `users` are trusted too. With `trusts_read_only` only the owner counts on a mount that
    is read-only here, not the mode: the kubelet mounts ConfigMaps so, with mode 0777 (volume/configmap). An
    owner can still change the folder where it is not mounted read-only.
    """
    judge = _Judge("", (*_trusted_users(), *users), trusts_read_only)
    absolute = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 -- its `..` are left as they are
    if whom := judge.of_way(absolute):
        return whom
    try:
        status = os.stat(absolute)  # noqa: PTH116 -- once for each CDI file that is written
    except OSError:
        return ""  # judged by the folder in which it would be
    if status.st_uid not in judge.users:
        return f"user {status.st_uid}, who owns it"
    if judge.is_read_only(absolute):
        return ""
    whom = judge.other_writer(absolute, status, follows=True)
    return whom and f"{whom}, who may write to it"


def open_to(path: str, *, above: str = "", has_links: bool = True) -> str:
    """Return who else could have `path` lead elsewhere, as a text; "" if nobody could.

    What is not there can be made by who may write to its folder, so the way is judged as far as it goes.
    `above` is where the root folder of the path is. Without `has_links` no step is taken for a link.
    """
    return _Judge(above, _trusted_users(), trusts_read_only=False).of_way(path, has_links=has_links)


def sudo_users() -> tuple[int, ...]:
    """Return the user who runs this by sudo: root has the rights, and this user chose the command."""
    given = os.environ.get("SUDO_UID", "")
    return (int(given),) if os.geteuid() == 0 and given.isascii() and given.isdigit() else ()


# ── one path ──────────────────────────────────────────────────────────────────────────────────────


class _Judge(Struct, frozen=True):
    """The judge of paths below a root folder, with the users that are trusted."""

    above: str
    users: Collection[int]
    trusts_read_only: bool

    def of_way(self, path: str, *, has_links: bool = True) -> str:
        """Return who else could replace an entry on the way to `path`, the last one included."""
        rest = _parts(path)
        way = ""
        links = 0
        while rest:
            name, rest = rest[0], rest[1:]
            if name == "..":
                way = way.rpartition("/")[0]
                continue
            if fault := self._open_entry(way or "/", name):
                return fault
            step = f"{way}/{name}"
            if not has_links:
                way = step
                continue
            try:
                target = os.readlink(self.above + step)  # noqa: PTH115 -- within each Allocate
            except OSError as error:
                if error.errno == errno.ENOENT and (whom := self._acl_writer(way or "/", _DEFAULT_ACL)):
                    return (
                        f"{whom}, to whom the default ACL of the folder {way or '/'} gives what is made there"
                    )
                way = step
                continue
            links += 1
            if links > _LINKS_LIMIT:
                return "links in a circle"
            way = "" if target.startswith("/") else way
            rest = [*_parts(target), *rest]
        return ""

    def is_read_only(self, path: str) -> bool:
        """Whether the mode of `path` does not count: it is on a read-only mount, and those are trusted."""
        if not self.trusts_read_only:
            return False
        try:
            return bool(os.statvfs(self.above + path).f_flag & os.ST_RDONLY)
        except OSError:
            return False

    def _open_entry(self, folder: str, name: str) -> str:
        """Return who else may replace an entry of a folder; "" for nobody."""
        try:
            status = os.lstat(self.above + folder)
        except OSError:
            return ""
        if status.st_uid not in self.users:
            return f"user {status.st_uid}, who owns the folder {folder}"
        if self.is_read_only(folder):
            return ""
        whom = self.other_writer(folder, status)
        if not whom:
            return ""
        if not status.st_mode & stat.S_ISVTX:
            return f"{whom}, who may write to the folder {folder}"
        try:
            owner = os.lstat(f"{self.above}{folder.rstrip('/')}/{name}").st_uid
        except OSError:
            return f"{whom}, who may write to the folder {folder}"
        return "" if owner in self.users else f"user {owner}, who owns {folder.rstrip('/')}/{name}"

    def other_writer(self, path: str, status: os.stat_result, *, follows: bool = False) -> str:
        """Return who else may write to a file or folder, by its mode or its ACL; "" for nobody."""
        if status.st_mode & stat.S_IWOTH:
            return "everybody"
        if not status.st_mode & stat.S_IWGRP:
            return ""  # with an ACL these bits are its mask, which holds for all but the owner (acl(5))
        if status.st_gid not in _trusted_groups():
            return f"group {status.st_gid}"
        return self._acl_writer(path, "system.posix_acl_access", follows=follows)

    def _acl_writer(self, path: str, name: str, *, follows: bool = False) -> str:
        """Return who else an ACL lets write; "" for nobody, or without this ACL."""
        try:
            content = os.getxattr(self.above + path, name, follow_symlinks=follows)
        except OSError as error:
            return (
                "" if error.errno in _NO_ACL else f"somebody, as its ACL cannot be read ({error.strerror}),"
            )
        entries = content[_ACL_HEAD.size :]
        if _ACL_HEAD.unpack_from(content)[0] != _ACL_VERSION or len(entries) % _ACL_ENTRY.size:
            return "somebody, as its ACL cannot be read (unknown version),"
        found = [*_ACL_ENTRY.iter_unpack(entries)]
        mask = next((allowed for tag, allowed, _ in found if tag == _ACL_MASK), _ACL_WRITE)
        for tag, allowed, who in found:
            if tag == _ACL_OTHER and allowed & _ACL_WRITE:
                return "everybody"
            if tag == _ACL_USER and allowed & mask & _ACL_WRITE and who not in self.users:
                return f"user {who}"
            if tag == _ACL_GROUP and allowed & mask & _ACL_WRITE and who not in _trusted_groups():
                return f"group {who}"
        return ""


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


_ACL_HEAD: Final = struct.Struct("<I")
_ACL_ENTRY: Final = struct.Struct("<HHI")
_ACL_VERSION: Final = 2
_ACL_USER, _ACL_GROUP, _ACL_MASK, _ACL_OTHER = 0x02, 0x08, 0x10, 0x20
_ACL_WRITE: Final = 0x02
"""linux/posix_acl_xattr.h and linux/posix_acl.h"""

_NO_ACL: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.ENOENT, errno.ENOTDIR, errno.ENOSYS})


# ── trusted users and groups ──────────────────────────────────────────────────────────────────────


def _trusted_users() -> tuple[int, ...]:
    """Return root and the user of this process.

    Never the number 65534 of a user namespace: it stands for each user from outside (user_namespaces(7)).
    """
    return (0, os.geteuid())


def _trusted_groups() -> tuple[int, ...]:
    own = os.geteuid()
    return tuple(group for group in (0, os.getegid()) if _is_private(group, own))


@cache
def _is_private(group: int, user: int) -> bool:
    """Whether nobody but root and `user` is in a group, as far as this machine's lists of users say."""
    import grp  # only where a folder is writable for the group
    import pwd

    try:
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        members = set()
    users = {one.pw_name: one.pw_uid for one in pwd.getpwall()}
    ids = {one.pw_uid for one in pwd.getpwall() if one.pw_gid == group}
    return ids | {users.get(name, -1) for name in members} <= {0, user}
