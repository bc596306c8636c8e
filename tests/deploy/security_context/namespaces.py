"""How a process gets what a container is granted: the system calls of a container runtime, without one.

Each function does one step for the calling process, in the order in which they stand here. Root only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.deploy.security_context import seccomp

NODES: Final = ("null", "zero", "full", "random", "urandom", "tty")
"""The device nodes that each container has (OCI runtime specification, config-linux)."""

PERMITTED: Final = frozenset({(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)})
"""What a container's device cgroup lets it open, besides all terminals of a devpts: null, zero, full, random,
urandom, tty, console, ptmx (containerd oci/spec_opts.go, `WithDefaultUnixDevices`)."""

READ_ONLY_PROC: Final = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""What is read-only below /proc (containerd pkg/oci/spec.go, `readonlyPaths`)."""

# linux/sched.h, linux/mount.h, linux/prctl.h, linux/capability.h, asm-generic/unistd.h
_NEW: Final = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000}
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND = 1, 2, 4, 32, 4096
_RECURSIVE, _PRIVATE = 16384, 1 << 18
_DETACH: Final = 2
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_MOUNT_SETATTR: Final = 442
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_TIOCSPTLCK: Final = 0x40045431
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 24, 38, 47
_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION: Final = 0x20080522

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _checked(what: str, call: Callable[..., int], *arguments: object) -> None:
    if call(*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _mount(source: str, target: Path | str, kind: str, flags: int, options: str = "") -> None:
    words = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(f"mount {source} {target}", _libc.mount, *words)


def own_namespaces() -> None:
    """Leave the machine's namespaces; processes that are started from now on are in an empty PID namespace.

    The network is the loopback interface alone.
    """
    _checked("unshare", _libc.unshare, sum(_NEW.values()))
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def mount_below(dev: Path) -> int:
    """Mount what a machine has below its /dev, for this mount namespace alone, each with something of root's.

    Returns the end of a terminal that root has logged in on: the terminal lives as long as it is open.
    """
    for name in ("shm", "mqueue", "hugepages"):
        _mount("tmpfs", dev / name, "tmpfs", _NO_SUID | _NO_DEVICES)
        (dev / name / "secret").touch(0o600)
    _mount("devpts", dev / "pts", "devpts", _NO_SUID, "newinstance,mode=620,ptmxmode=666")
    end = os.open(dev / "pts" / "ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(end, _TIOCSPTLCK, struct.pack("i", 0))
    return end


class Root:
    """A file system that is put together from mounts, to become `/` with `enter`; for one process.

    What it is made of is opened first: it is built over /tmp, where some of it may lie.
    """

    def __init__(self, sources: Sequence[Path]) -> None:
        self._opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sources}
        self._nodes = {name: os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC) for name in NODES}
        self._top = Path("/tmp")
        _mount("rootfs", self._top, "tmpfs", _NO_SUID, "mode=755")

    def _at(self, path: str, *, is_folder: bool = True) -> Path:
        target = self._top / path.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir() if is_folder else target.touch()
        return target

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link, as /lib is one to usr/lib."""
        (self._top / path.lstrip("/")).symlink_to(target)

    def bind(
        self, source: Path, path: str, *, read_only: bool, recursive: bool = True, below: bool = True
    ) -> None:
        """Show `source` at `path`, `below` with what is mounted below; its device nodes cannot be opened.

        Terminals can: in a devpts is nothing else. Without `recursive`, only the mount itself is read-only,
        not what is mounted below: so do runtimes.
        """
        origin = f"/proc/self/fd/{self._opened[source]}"
        target = self._at(path, is_folder=Path(origin).is_dir())
        _mount(origin, target, "", _BIND | (_RECURSIVE if below else 0))
        self._set(target, _NO_SUID | _NO_DEVICES, recursive=True)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, *_ = line.split()
            if kind == "devpts" and Path(place).is_relative_to(target):
                self._set(Path(place), 0, recursive=False, cleared=_NO_DEVICES)
        if read_only:
            self._set(target, _READ_ONLY, recursive=recursive)

    def _set(self, target: Path, flags: int, *, recursive: bool, cleared: int = 0) -> None:
        attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", flags, cleared, 0, 0))
        words = (
            -100,
            os.fsencode(target),
            _AT_RECURSIVE if recursive else 0,
            attributes,
            ctypes.c_size_t(32),
        )
        _checked(f"mount_setattr {target}", _libc.syscall, _MOUNT_SETATTR, *words)

    def empty(self, path: str, size_bytes: int, *, read_only: bool) -> None:
        """Put an empty folder in memory at `path`."""
        flags = _NO_SUID | _NO_DEVICES | (_READ_ONLY if read_only else 0)
        _mount("tmpfs", self._at(path), "tmpfs", flags, f"size={size_bytes},mode=1777")

    def proc(self) -> None:
        """Show the processes of this PID namespace at /proc, as runtimes do."""
        target = self._at("/proc")
        _mount("proc", target, "proc", _NO_SUID | _NO_DEVICES)
        for name in READ_ONLY_PROC:
            if (target / name).exists():
                _mount(str(target / name), target / name, "", _BIND | _RECURSIVE)
                self._set(target / name, _READ_ONLY, recursive=True)

    def sys(self) -> None:
        """Show the kernel's devices at /sys, read-only, with the interfaces of this network namespace."""
        _mount("sysfs", self._at("/sys"), "sysfs", _NO_SUID | _NO_DEVICES | _READ_ONLY)

    def nodes(self) -> None:
        """Make `PERMITTED` nodes of a mounted /dev usable; or make `NODES` in one of the runtime's own."""
        dev = self._at("/dev")
        if not dev.is_mount():
            for name, descriptor in self._nodes.items():
                _mount(f"/proc/self/fd/{descriptor}", self._at(f"/dev/{name}", is_folder=False), "", _BIND)
        made = self._top / "node"
        for path in filter(Path.is_char_device, dev.iterdir()):
            status = path.lstat()
            if (os.major(status.st_rdev), os.minor(status.st_rdev)) in PERMITTED:
                os.mknod(made, status.st_mode, status.st_rdev)
                _mount(str(made), path, "", _BIND)
                made.unlink()

    def enter(self, *, read_only: bool) -> None:
        """Make this the only file system that the process sees."""
        os.chdir(self._top)
        number = _PIVOT_ROOT[os.uname().machine]
        _checked("pivot_root", _libc.syscall, number, b".", b".")
        _checked("umount2", _libc.umount2, b".", _DETACH)
        os.chdir("/")
        if read_only:
            _mount("rootfs", "/", "", _REMOUNT | _BIND | _READ_ONLY | _NO_SUID)


def drop(*, no_new_privileges: bool, filtered: bool) -> None:
    """Give up all capabilities for good; end with the parent."""
    _checked("prctl", _libc.prctl, _PR_SET_PDEATHSIG, 9, 0, 0, 0)
    os.setgroups([])
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        _checked("bounding set", _libc.prctl, _PR_CAPBSET_DROP, capability, 0, 0, 0)
    _checked("ambient set", _libc.prctl, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    if no_new_privileges:
        _checked("no_new_privs", _libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if filtered:
        seccomp.install()
    head, nothing = struct.pack("=Ii", _CAPABILITY_VERSION, 0), struct.pack("=6I", *[0] * 6)
    _checked("capset", _libc.syscall, _CAPSET[os.uname().machine], head, nothing)
