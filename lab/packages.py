"""The packages that the lab needs from Debian: programs, installed if this user may, and an unpacked kernel.

The kernel is not installed: this machine goes on booting its own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Kernel", "UnavailableError", "missing_packages", "prepare"]

PROGRAMS: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "swtpm": "swtpm",
    "busybox": "busybox-static",
}
"""Each program that the lab starts, and the package of Debian that has it."""

KERNEL_PACKAGE: Final = "linux-image-amd64"
"""Depends on the newest kernel of the release. Kernels for clouds lack the drivers."""

_VERSIONED: Final = re.compile(r"^\s*Depends: linux-image-(\S*\d\S*)$", re.MULTILINE)
_LOADER: Final = b"/ld-linux"
"""Part of the path that a program with shared libraries has near its beginning (ELF's PT_INTERP)."""


class UnavailableError(Exception):
    """The lab cannot be set up here. The text says what is missing and who can change that."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel package."""

    version: str
    """As `uname -r` says it."""
    folder: Path

    @property
    def image(self) -> Path:
        """What QEMU boots."""
        return self.folder / "boot" / f"vmlinuz-{self.version}"

    @property
    def modules(self) -> Path:
        """The folder of the modules, with `modules.dep`."""
        return self.folder / "lib" / "modules" / self.version


def prepare(folder: Path) -> Kernel:
    """Install what is missing, download and unpack the kernel once, and return it.

    `folder` keeps the kernel until somebody removes it. Raises `UnavailableError`.
    """
    kernel = _unpacked(folder)
    missing = missing_packages()
    if missing or kernel is None:
        _refuse_other_machines(missing)
    if missing:
        _install(missing)
    if kernel is None:
        kernel = _download(folder)
    return kernel


def missing_packages() -> list[str]:
    """Return the packages whose programs are not there, or are not of the needed kind."""
    found = {package: shutil.which(program) for program, package in PROGRAMS.items()}
    missing = [package for package, path in found.items() if path is None]
    # The guest starts with nothing but this program, so it must not need libraries.
    busybox = found["busybox-static"]
    if busybox is not None and _LOADER in Path(busybox).read_bytes()[:4096]:
        missing.append("busybox-static")
    return missing


def _refuse_other_machines(missing: Sequence[str]) -> None:
    needed = ", ".join([*missing, KERNEL_PACKAGE])
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the lab's guest is an x86-64 machine with Debian's kernel; needs {needed}")
    name = platform.freedesktop_os_release().get("ID", "") if Path("/etc/os-release").exists() else ""
    if name != "debian" or shutil.which("apt-get") is None:
        raise UnavailableError(
            f"the lab takes its kernel from Debian, with apt-get; needs {needed}, and this is no Debian",
        )


def _install(packages: Sequence[str]) -> None:
    if os.geteuid() != 0:
        names = " ".join(packages)
        raise UnavailableError(
            f"not root, so nothing is installed; as root: apt-get install --no-install-recommends {names}",
        )
    _apt("update", "--quiet")
    _apt("install", "--quiet", "--yes", "--no-install-recommends", *packages)


def _download(folder: Path) -> Kernel:
    """Download the newest kernel of the release, unless it lies in `folder` already, and unpack it."""
    folder.mkdir(parents=True, exist_ok=True)
    version = _newest_version()
    if version is None and os.geteuid() == 0:
        _apt("update", "--quiet")
        version = _newest_version()
    if version is None:
        raise UnavailableError(f"apt-get knows no {KERNEL_PACKAGE}; run apt-get update as root")
    package = f"linux-image-{version}"
    if not list(folder.glob(f"{package}_*.deb")):
        try:
            _run(["apt-get", "download", package], folder)
        except UnavailableError:
            # Older lists name a file that the mirror has no longer.
            if os.geteuid() != 0:
                raise
            _apt("update", "--quiet")
            return _download_again(folder)
    return _unpack(folder, version)


def _download_again(folder: Path) -> Kernel:
    version = _newest_version()
    if version is None:
        raise UnavailableError(f"apt-get knows no {KERNEL_PACKAGE} any more")
    _run(["apt-get", "download", f"linux-image-{version}"], folder)
    return _unpack(folder, version)


def _newest_version() -> str | None:
    asked = subprocess.run(
        ["apt-cache", "depends", KERNEL_PACKAGE], capture_output=True, text=True, check=False
    )
    found = _VERSIONED.search(asked.stdout)
    return found[1] if found else None


def _unpack(folder: Path, version: str) -> Kernel:
    kernel = Kernel(version, folder / f"kernel-{version}")
    # Under another name until it is whole, so that one that was interrupted is not taken for it.
    part = folder / f"part-{version}"
    shutil.rmtree(part, ignore_errors=True)
    newest = max(folder.glob(f"linux-image-{version}_*.deb"), key=lambda file: file.stat().st_mtime)
    _run(["dpkg-deb", "--extract", str(newest), str(part)], folder)
    # What maintainers' scripts do when the package is installed.
    _run(["busybox", "depmod", "-b", str(part), version], folder)
    part.rename(kernel.folder)
    newest.unlink()
    return kernel


def _unpacked(folder: Path) -> Kernel | None:
    """Return the newest kernel that lies in `folder`, or None."""
    found = sorted(folder.glob("kernel-*"), key=lambda path: path.stat().st_mtime)
    return Kernel(found[-1].name.removeprefix("kernel-"), found[-1]) if found else None


def _apt(*arguments: str) -> None:
    _run(["apt-get", *arguments], Path("/"))


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a command; its output is shown only where it fails. Raises `UnavailableError`."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, errors="replace"
    )
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        raise UnavailableError("\n  ".join([f"{' '.join(command)} failed:", *lines[-5:]]))
