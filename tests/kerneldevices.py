"""Devices of the real kernel, made as root and gone after their block; a test skips where that is refused.

Their events are the kernel's own. Tests of several processes do not meet: each has numbers of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

# linux/loop.h, linux/vt.h, linux/if_tun.h, linux/sched.h
_LOOP_CTL_ADD, _LOOP_CTL_REMOVE = 0x4C80, 0x4C81
_VT_DISALLOCATE = 0x5608
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x2, 0x1000
_CLONE_NEWNET = 0x40000000

# linux/rtnetlink.h, linux/netlink.h, linux/if_link.h, linux/veth.h
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 0x1, 0x4, 0x200, 0x400
_IFLA_IFNAME, _IFLA_LINK, _IFLA_LINKINFO = 3, 5, 18
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFINFO = struct.Struct("=BxHiII")

_REFUSALS = {
    errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP, errno.ENOTTY,
    errno.EROFS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelDevice:
    """A device that is there until its block is left."""

    name: str
    sys_path: str
    """Its folder of the kernel, without links: `/sys/devices/virtual/block/loop7`."""
    node: str = ""
    """Its device node; empty if it has none."""


@contextmanager
def _skips(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        pytest.skip(f"cannot make {what} here: {error}")


@contextmanager
def _opened(path: str, flags: int = os.O_RDWR) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _until_free(remove: Callable[[], object]) -> None:
    """Remove what udev, or the kernel itself, may still have open for a moment."""
    end = time.monotonic() + 5
    while True:
        try:
            remove()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
            os.sched_yield()
        else:
            return


@contextmanager
def loop_device() -> Iterator[KernelDevice]:
    """A block device without content, as in `/dev/loop7`."""
    with _skips("a loop device"):
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        with _skips("a loop device"):
            number = fcntl.ioctl(control, _LOOP_CTL_ADD, -1)
        try:
            name = f"loop{number}"
            yield KernelDevice(name, f"/sys/devices/virtual/block/{name}", f"/dev/{name}")
        finally:
            _until_free(lambda: fcntl.ioctl(control, _LOOP_CTL_REMOVE, number))
    finally:
        os.close(control)


@contextmanager
def vcs_device() -> Iterator[KernelDevice]:
    """A character device without a parent: the memory of a console, as in `/dev/vcs40`."""
    with _skips("a console"):
        # Opening a console makes it; the lock keeps two tests from the same one.
        number, console = _free_console()
    try:
        name = f"vcs{number}"
        yield KernelDevice(name, f"/sys/devices/virtual/vc/{name}", f"/dev/{name}")
    finally:
        os.close(console)
        with _opened("/dev/tty0") as first:
            _until_free(lambda: fcntl.ioctl(first, _VT_DISALLOCATE, number))


def _free_console() -> tuple[int, int]:
    for number in (20 + (os.getpid() + at) % 40 for at in range(40)):
        if Path(f"/sys/devices/virtual/vc/vcs{number}").exists():
            continue
        console = os.open(f"/dev/tty{number}", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            fcntl.flock(console, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(console)
        else:
            return number, console
    raise OSError(errno.ENODEV, "every console from 20 to 59 is in use")


@contextmanager
def zram_device() -> Iterator[KernelDevice]:
    """A block device in memory, without content, as in `/dev/zram0`."""
    control = Path("/sys/class/zram-control")
    with _skips("a zram device"):
        number = (control / "hot_add").read_text().strip()
    try:
        name = f"zram{number}"
        yield KernelDevice(name, f"/sys/devices/virtual/block/{name}", f"/dev/{name}")
    finally:
        _until_free(lambda: (control / "hot_remove").write_text(number))


@contextmanager
def tap_device(name: str = "") -> Iterator[KernelDevice]:
    """A network interface of this network namespace; its frames go to nobody."""
    name = name or _own_name("t")
    with _skips("a tap interface"), contextlib.ExitStack() as stack:
        tun = stack.enter_context(_opened("/dev/net/tun"))
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        kept = stack.pop_all()
    with kept:
        yield KernelDevice(name, f"/sys/devices/virtual/net/{name}")


@contextmanager
def veth_device(name: str = "") -> Iterator[KernelDevice]:
    """One end of a virtual cable of this network namespace; the other end has its name with a `p`."""
    name = name or _own_name("v")
    peer = _IFINFO.pack(0, 0, 0, 0, 0) + _attribute(_IFLA_IFNAME, f"{name}p".encode() + b"\0")
    with _interface(name, b"veth", _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, peer))):
        yield KernelDevice(name, f"/sys/devices/virtual/net/{name}")


@contextmanager
def macvtap_device(lower: KernelDevice, name: str = "") -> Iterator[KernelDevice]:
    """A character device on top of a network interface, as in `/dev/tap7`. Minors are used again at once."""
    name = name or _own_name("m")
    link = _attribute(_IFLA_LINK, struct.pack("=I", socket.if_nametoindex(lower.name)))
    with _interface(name, b"macvtap", more=link):
        tap = f"tap{socket.if_nametoindex(name)}"
        yield KernelDevice(tap, f"/sys/devices/virtual/net/{name}/macvtap/{tap}", f"/dev/{tap}")


@contextmanager
def own_network_namespace() -> Iterator[None]:
    """Move this thread to a network namespace of its own; what was opened before stays in the old one.

    /sys goes on showing the interfaces of the namespace in which it was mounted.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    with _opened("/proc/thread-self/ns/net", os.O_RDONLY) as before:
        with _skips("a network namespace"):
            # First, whether there will be a way back.
            call(libc.setns(before, _CLONE_NEWNET))
            call(libc.unshare(_CLONE_NEWNET))
        try:
            yield
        finally:
            call(libc.setns(before, _CLONE_NEWNET))


def announce(sys_path: str, action: str = "change") -> None:
    """Have the kernel tell of a device as if something had happened to it (its `uevent` attribute)."""
    with _skips("an event"):
        Path(sys_path, "uevent").write_text(action)


def _hears_an_event() -> bool:
    """Whether we may have the kernel tell something, and hear it in a network namespace of our own."""
    try:
        with own_network_namespace(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as ear:
            ear.setblocking(False)
            ear.bind((0, 1))
            announce("/sys/devices/virtual/mem/null")
            return bool(ear.recv(4096))
    except (OSError, pytest.skip.Exception):
        return False


needs_uevents = pytest.mark.skipif(
    not _hears_an_event(), reason="only root hears what it has the kernel announce"
)


_names = 0


def _own_name(kind: str) -> str:
    global _names  # noqa: PLW0603 -- unlike an id, it must not come back at once
    _names += 1
    return f"dp{kind}{os.getpid() % 100_000}x{_names}"


@contextmanager
def _interface(name: str, kind: bytes, data: bytes = b"", more: bytes = b"") -> Iterator[None]:
    blank = _IFINFO.pack(0, 0, 0, 0, 0)
    naming = _attribute(_IFLA_IFNAME, name.encode() + b"\0")
    info = _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, kind) + data)
    with _skips(f"a {kind.decode()} interface"):
        _route(_RTM_NEWLINK, _NLM_F_CREATE | _NLM_F_EXCL, blank + naming + more + info)
    try:
        yield
    finally:
        _route(_RTM_DELLINK, 0, blank + naming)


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + b"\0" * (-len(content) % 4)


def _route(kind: int, flags: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.bind((0, 0))
        flags |= _NLM_F_REQUEST | _NLM_F_ACK
        route.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        (code,) = struct.unpack_from("=i", route.recv(4096), 16)
        if code:
            raise OSError(-code, os.strerror(-code))
