"""The initrd of the guest's kernel: one static program, the kernel modules in order, and a script.

The script makes this machine's root folder the guest's, read-only.
"""

from __future__ import annotations

import lzma
import shlex
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lab.packages import Kernel

__all__ = ["initrd", "load_order", "packed"]

MODULES: Final = ("virtio_pci", "9pnet_virtio", "9p")
"""What it takes to see a folder of the machine outside."""

_SCRIPT: Final = """\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
for file in {modules}; do
	/bin/busybox insmod "/$file" || echo "initrd: $file cannot be loaded"
done
# What changes outside meanwhile does not concern the guest, so it may keep what it has read.
options=trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro
/bin/busybox mount -t 9p -o $options host /root || exec /bin/busybox poweroff -f
/bin/busybox mount -t proc proc /root/proc
/bin/busybox mount -t sysfs sysfs /root/sys
/bin/busybox mount -t devtmpfs devtmpfs /root/dev
# The only place to write to; /tmp may be where this repository is.
/bin/busybox mount -t tmpfs tmpfs /root/run
/bin/busybox chroot /root /usr/bin/env -i {command}
/bin/busybox poweroff -f
"""
_REGULAR: Final = stat.S_IFREG | 0o755
_FOLDER: Final = stat.S_IFDIR | 0o755


# ── kernel modules ──


def load_order(modules_dep: str, names: Iterable[str]) -> list[str]:
    """Return the files of `names` and of all that they need, as `modules.dep` has them, in loading order.

    In names `-` and `_` are the same. A module that is not there is built into the kernel, or unknown; the
    drivers that a scenario misses then show which.
    """
    needs: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    for line in modules_dep.splitlines():
        file, colon, needed = line.partition(":")
        if colon:
            needs[file] = needed.split()
            files[_name(file)] = file
    order: dict[str, None] = {}

    def add(file: str) -> None:
        for needed in needs.get(file, ()):
            if needed not in order:
                add(needed)
        order[file] = None

    for name in names:
        found = files.get(_name(name))
        if found is not None and found not in order:
            add(found)
    return list(order)


def _name(file: str) -> str:
    return file.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


# ── the archive ──


def initrd(kernel: Kernel, drivers: Sequence[str], command: Sequence[str]) -> bytes:
    """Return the archive that the kernel unpacks; `command` is run in this machine's root folder.

    `drivers` are modules that are loaded before. The guest is switched off when the command ends.
    """
    order = load_order((kernel.modules / "modules.dep").read_text(), [*MODULES, *drivers])
    modules = {_plain(file): _content(kernel.modules / file) for file in order}
    busybox = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    script = _SCRIPT.format(modules=" ".join(modules), command=shlex.join(command))
    return packed({**modules, "bin/busybox": busybox, "init": script.encode()}, ["proc", "sys", "root"])


def packed(files: Mapping[str, bytes], folders: Sequence[str] = ()) -> bytes:
    """Return files and empty folders as a cpio archive, in the format that the kernel takes (newc).

    The fields are those of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    parents = {str(parent): None for name in files for parent in reversed(Path(name).parents)}
    parents.pop(".", None)
    entries: list[tuple[str, int, bytes]] = [
        (name, _FOLDER, b"") for name in {**parents, **dict.fromkeys(folders)}
    ]
    entries += [(name, _REGULAR, content) for name, content in files.items()]
    archive = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        archive += b"\0" * (-len(archive) % 4) + content
        archive += b"\0" * (-len(archive) % 4)
    return bytes(archive)


def _plain(file: str) -> str:
    return file.removesuffix(".xz")


def _content(file: Path) -> bytes:
    # Debian compresses modules from release 13 on, and busybox unpacks none.
    content = file.read_bytes()
    return lzma.decompress(content) if file.suffix == ".xz" else content
