"""The host that sources look at: its device nodes, and the time that a scan takes.

Its root folder is a parameter.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from devplug.daemon.sources.device import HostDeviceNode
from devplug.errors import PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.daemon.sources.device import HostDevice

logger = logging.getLogger(__name__)

MEMORY_NUMBERS: Final = frozenset({(1, 1), (1, 2), (1, 4)})
"""The numbers of /dev/mem, /dev/kmem and /dev/port, which give access to all memory: never allocated."""

TERMINAL_MAJORS: Final = range(136, 144)
"""Majors of pseudo-terminals (the kernel's devices.txt, Unix98 PTY slaves)."""


# ── device nodes ──────────────────────────────────────────────────────────────────────────────────


class NotADeviceNodeError(PluginError):
    """A path that the configuration names is no device node; the text says what it is instead."""


class Host(Struct, frozen=True):
    """The machine below a root folder: `/`, or another folder in tests and in containers."""

    root: Path = Path("/")
    on_look: Callable[[float], None] = lambda _: None
    """Called after each look of a source with the seconds that it took."""
    _above: str = ""
    """What stands before a path of the host here; nothing in production."""

    def __post_init__(self) -> None:
        force_setattr(self, "_above", str(self.root).removesuffix("/"))

    def inside(self, path: str) -> str:
        """Return where `path` of the host is for this process."""
        return self._above + path

    def outside(self, path: str) -> str:
        """Return what a path of this process is on the host: the reverse of `inside`."""
        return path.removeprefix(self._above)

    def node(self, path: str) -> HostDeviceNode | None:
        """Return the device node at `path`, links followed; None if nothing is there.

        Only looks: opening a node can do harm (watchdogs arm, block nodes come back). Raises
        `NotADeviceNodeError` for anything else than a character or block device.
        """
        try:
            status = os.stat(self.inside(path))  # noqa: PTH116 -- within each Allocate, a Path costs as much again
        except OSError:
            return None
        if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            raise NotADeviceNodeError(f"{quoted(path)} is {_kind_of(status.st_mode)}, not a device node")
        number = (os.major(status.st_rdev), os.minor(status.st_rdev))
        is_block = stat.S_ISBLK(status.st_mode)
        if number in MEMORY_NUMBERS and not is_block:
            raise NotADeviceNodeError(f"{quoted(path)} is the machine's own memory, which is never given out")
        return HostDeviceNode(path, number, is_block)

    def real_path(self, path: str) -> str:
        """Return where `path` of the host leads, with all links followed."""
        return self.outside(os.path.realpath(self.inside(path)))

    def plugged(self, folder: str) -> int:
        """Return the inode of a device's folder in sysfs; 0 if it is not there.

        A folder that the kernel makes anew has another inode, also at the same path.
        """
        try:
            return os.stat(self.inside(folder)).st_ino if folder else 0  # noqa: PTH116 -- within each Allocate
        except OSError:
            return 0

    def nodes_in(self, folder: str) -> list[str]:
        """Return the device nodes below a folder, in its own folders too, sorted; links are left out."""
        found = []
        for parent, _, names in os.walk(self.inside(folder)):
            for name in names:
                path = f"{parent}/{name}"
                try:
                    mode = os.lstat(path).st_mode
                except OSError:
                    continue
                if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                    found.append(self.outside(path))
        return sorted(found)


def unusable_in_containers(node: HostDeviceNode) -> str:
    """Return why no container can open a node that programs on the host can; empty if it can. Pure.

    The kernel finds a pseudo-terminal by the devpts that its node lies in and not by its number
    (drivers/tty/pty.c, pts_unix98_lookup). A runtime makes a node elsewhere, which opens with EIO; in the
    container's own /dev/pts it cannot make one, and the container does not start.
    """
    if node.is_block or node.number[0] not in TERMINAL_MAJORS:
        return ""
    return (
        f"{quoted(node.host_path)} is a pseudo-terminal: it opens only below the machine's own /dev/pts, so "
        "no container of a runtime can open it"
    )


def log_once(logged: set[str], message: str, resource_name: str, path: str, reason: str) -> None:
    """Log why a path is left out, or cannot be used, unless that is in `logged`; add it there."""
    if path not in logged:
        logged.add(path)
        logger.warning(message, extra={"resource_name": resource_name, "path": path, "reason": reason})


def _kind_of(mode: int) -> str:
    kinds = (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "something else")


# ── how long scans take ───────────────────────────────────────────────────────────────────────────


class _OnHost(Protocol):
    @property
    def host(self) -> Host:
        """The machine that is looked at."""


Source = TypeVar("Source", bound=_OnHost)


def timed(look: Callable[[Source], tuple[HostDevice, ...]]) -> Callable[[Source], tuple[HostDevice, ...]]:
    """Return a source's `look` that passes the seconds it took to `Host.on_look`, also if it raises."""

    @wraps(look)
    def timed_look(source: Source) -> tuple[HostDevice, ...]:
        started = time.perf_counter()
        try:
            return look(source)
        finally:
            source.host.on_look(time.perf_counter() - started)

    return timed_look
