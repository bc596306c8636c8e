"""Which nodes hand out the machine itself, memory and disks, and which globs would cover one. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.globs import covers, covers_whole_root, has_wildcard
from devplug.daemon.grammar.overlap import name_in_both
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DISK_NODES", "MEMORY_NODES", "dangerous_fault"]

MEMORY_NODES: Final = ("mem", "kmem", "port")
"""Nodes directly below a root that hand out the machine itself. No key allows them."""

DISK_NODES: Final = (
    "sd[a-z]*",
    "vd[a-z]*",
    "xvd[a-z]*",
    "nvme[0-9]*n[0-9]*",
    "mmcblk[0-9]*",
    "dm-[0-9]*",
    "md[0-9]*",
)
"""Globs of whole disks and partitions directly below a root; they need `allow: [rawDisks]`."""

_NUMBERS: Final = ("[0-9]", "[0-9][0-9]", "[0-9][0-9][0-9]")
_PARTS: Final = ("[1-9]", "[1-9][0-9]")
_DISKS: Final = tuple(f"{kind}{letters}" for kind in ("sd", "vd") for letters in ("[a-z]", "[a-z][a-z]"))
_NUMBERED_DISKS: Final = (
    *(f"nvme{number}n[1-9]" for number in _NUMBERS),
    *(f"mmcblk{number}" for number in _NUMBERS),
)
_REAL_DISKS: Final = (
    *_DISKS,
    *(f"{disk}{part}" for disk in _DISKS for part in _PARTS),
    *_NUMBERED_DISKS,
    *(f"{disk}p{part}" for disk in _NUMBERED_DISKS for part in _PARTS),
    *(f"{kind}{number}" for kind in ("dm-", "md") for number in _NUMBERS),
)
"""Globs of the names that Linux gives, as exact as a glob can be: `*video*` covers `sdvideo`, and no disk.

Without Xen's: else `/dev/x*` would be refused everywhere for a disk that is on few machines.
"""

_DISK_SAMPLES: Final = (
    *("sda", "sda1", "sdb", "vda", "vda1", "nvme0n1", "nvme0n1p1", "nvme1n1"),
    *("mmcblk0", "mmcblk0p1", "dm-0", "dm-1", "md0", "md127"),
)


def dangerous_fault(
    glob: str,
    exclude: Iterable[str],
    roots: Iterable[str],
    *,
    raw_disks_allowed: bool,
) -> str | None:
    """Return which memory or disk nodes `glob` would hand out although nothing allows it, or None.

    A glob over a whole root is not judged here: it is allowed as such, and discovery leaves those nodes out.
    With `exclude`, disks are judged by the usual names and one odd one of each kind; discovery sees the rest.
    """
    exclude = list(exclude)
    for root in roots:
        if covers_whole_root(glob, [root]):
            continue
        level = glob.removeprefix(f"{root.rstrip('/')}/")
        names = [*MEMORY_NODES, *(() if raw_disks_allowed else _disks_of(level))]
        nodes = {f"{root.rstrip('/')}/{name}": name for name in names}
        found = [node for node in nodes if covers(glob, node)]
        for left_out in exclude if found else ():
            found = [node for node in found if not covers(left_out, node)]
        for node in found:
            if nodes[node] in MEMORY_NODES:
                what = f"{quoted(node)} is the machine's own memory, which is never given out"
                return f"{what}; exclude it" if has_wildcard(glob) else what
            advice = "exclude it, or write" if has_wildcard(glob) else "write"
            return f"{quoted(node)} is a whole disk; {advice} allow: [rawDisks]"
        disks = (f"{root.rstrip('/')}/{disk}" for disk in DISK_NODES)
        if not raw_disks_allowed and not has_wildcard(glob) and any(covers(disk, glob) for disk in disks):
            return f"{quoted(glob)} is a whole disk; write allow: [rawDisks]"
    return None


def _disks_of(glob: str) -> list[str]:
    """Return names of disks, the usual ones and what a glob of one level covers of the others."""
    if "/" in glob or not has_wildcard(glob):
        return list(_DISK_SAMPLES)
    odd = (name_in_both(glob, disk) for disk in _REAL_DISKS)
    return [*_DISK_SAMPLES, *(name for name in odd if name)]
