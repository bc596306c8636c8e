"""Host paths that need `allow`: memory and disks as nodes, folders of the system as mounts. Pure.

Also where in a container anything may be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.container_rules import container_path_fault, replaces_code
from devplug.daemon.config.globs import covers, covers_whole_root, has_wildcard, name_in_both, path_fault
from devplug.daemon.config.templates import Template, TemplatePlace, template_faults
from devplug.daemon.config.tree import Finding
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.daemon.config.tree import Keys
    from devplug.daemon.config.types import Expose, ExposedMount

SYSTEM_PATHS: Final = (
    "/proc",
    "/sys",
    "/etc",
    "/dev",
    "/run",
    "/var/run",
    "/var/lib/kubelet",
    "/boot",
    "/root",
)
"""Host paths that give away the machine; mounting them or anything below needs `allow: [hostMounts]`."""

_WHOLE_PATHS: Final = ("/var", "/var/lib", "/usr", "/lib", "/home")
"""Host paths that contain such a path or everybody's files; below them it depends."""

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


# ── mounts ────────────────────────────────────────────────────────────────────────────────────────


def container_path_faults(
    template: Template,
    kind: str,
    place: TemplatePlace = TemplatePlace.CONTAINER_PATH,
) -> Iterator[str]:
    """Yield what keeps `template` from being a path in the container of a resource that discovers `kind`.

    That of a device node may end in `/`: it is a folder for the node then.
    """
    yield from template_faults(template, kind, place)
    text = _with_names(template)
    if place is TemplatePlace.CONTAINER_PATH and text != "/":
        text = text.removesuffix("/")
    if fault := path_fault(text):
        yield fault
    elif text.split("/")[1] in {"proc", "sys"} or (
        not template.variables and container_path_fault(text, is_literal=True)
    ):
        yield f"{quoted(template)} is the container's own; write another path"


def _with_names(template: Template) -> str:
    """Return the text with a plain word for every variable, so that it can be judged as a path."""
    return "".join(part if isinstance(part, str) else part.name for part in template.parts)


def mount_findings(expose: Expose, at: Keys, kind: str, allow: tuple[str, ...]) -> Iterator[Finding]:
    """Yield what is wrong with the mounts of one resource."""
    taken: dict[str, Keys] = {}
    if expose.container_path is not None and not expose.container_path.source.endswith("/"):
        taken[expose.container_path.source] = (*at, "containerPath")
    for number, mount in enumerate(expose.mounts):
        own = (*at, "mounts", number)
        yield from _host_path_findings(mount, own, kind, allow)
        if mount.container_path is not None:
            for fault in container_path_faults(mount.container_path, kind, TemplatePlace.ONE):
                yield Finding((*own, "containerPath"), fault)
        target = mount.container_path or mount.host_path
        if mount.container_path and "hostMounts" not in allow and replaces_code(mount.container_path.source):
            fault = f"{quoted(target)} is a folder of the container's programs"
            yield Finding((*own, "containerPath"), f"{fault}; write allow: [hostMounts] if you must")
        first = taken.setdefault(target.source, own)
        if target.source and first != own:
            yield Finding((*own, "containerPath"), f"{quoted(target)} is taken in the container", first)


def _host_path_findings(
    mount: ExposedMount, at: Keys, kind: str, allow: tuple[str, ...]
) -> Iterator[Finding]:
    template = mount.host_path
    for fault in template_faults(template, kind, TemplatePlace.ONE):
        yield Finding((*at, "hostPath"), fault)
    if wrong := path_fault(_with_names(template)):
        yield Finding((*at, "hostPath"), wrong)
    elif "hostMounts" not in allow and (danger := _danger(template, inside=mount.container_path is None)):
        yield Finding(
            (*at, "hostPath"), f"{quoted(template)} {danger}; write allow: [hostMounts] if you must"
        )


def danger_of(path: str, container_path: str = "") -> str:
    """Return what a container could do with this host path, or what the mount of it replaces, or ""."""
    found = _danger(Template(path, (path,)))
    return found or ("replaces a folder of the container's programs" if replaces_code(container_path) else "")


def _danger(template: Template, *, inside: bool = False) -> str:
    """Return what a container could do with this host path, or "". A variable may be any one name.

    With `inside` it is the path in the container, too.
    """
    levels = _levels(template)
    if template.source == "/":
        return "is the whole machine"
    if template.source.endswith(".sock"):
        return "is a socket, through which a container can command a service of the host"
    for path in SYSTEM_PATHS:
        wanted = path.split("/")[1:]
        if len(levels) >= len(wanted) and all(map(_may_be, levels, wanted)):
            return f"may give access to {path}"
    for path in _WHOLE_PATHS:
        wanted = path.split("/")[1:]
        if len(levels) == len(wanted) and all(map(_may_be, levels, wanted)):
            return f"may give access to {path}"
    return (
        "replaces a folder of the container's programs" if inside and replaces_code(template.source) else ""
    )


def _levels(template: Template) -> list[re.Pattern[str]]:
    pattern = "".join(
        re.escape(part) if isinstance(part, str) else r"[^/]+" for part in template.parts
    ).removeprefix("/")
    return [re.compile(level) for level in re.split(r"(?<!\^)/", pattern)]


def _may_be(level: re.Pattern[str], name: str) -> bool:
    return bool(level.fullmatch(name))


# ── nodes that hand out the machine itself ────────────────────────────────────────────────────────


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
