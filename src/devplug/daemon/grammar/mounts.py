"""Which host paths may be mounted, and where in a container anything may be. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.globs import path_fault
from devplug.daemon.grammar.templates import Template
from devplug.daemon.grammar.tree import Finding
from devplug.daemon.grammar.variables import Place, template_faults
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.grammar.config import Expose, ExposedMount
    from devplug.daemon.grammar.tree import Keys

__all__ = ["container_path_faults", "danger_of", "mount_findings"]

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


def container_path_faults(
    template: Template,
    kind: str,
    place: Place = Place.CONTAINER_PATH,
) -> Iterator[str]:
    """Yield what keeps `template` from being a path in the container of a resource that discovers `kind`.

    That of a device node may end in `/`: it is a folder for the node then.
    """
    yield from template_faults(template, kind, place)
    text = _with_names(template)
    if place is Place.CONTAINER_PATH and text != "/":
        text = text.removesuffix("/")
    if fault := path_fault(text):
        yield fault
    elif text == "/" or text.split("/")[1] in {"proc", "sys"}:
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
            for fault in container_path_faults(mount.container_path, kind, Place.ONE):
                yield Finding((*own, "containerPath"), fault)
        target = mount.container_path or mount.host_path
        first = taken.setdefault(target.source, own)
        if target.source and first != own:
            yield Finding((*own, "containerPath"), f"{quoted(target)} is taken in the container", first)


def _host_path_findings(
    mount: ExposedMount, at: Keys, kind: str, allow: tuple[str, ...]
) -> Iterator[Finding]:
    template = mount.host_path
    for fault in template_faults(template, kind, Place.ONE):
        yield Finding((*at, "hostPath"), fault)
    if wrong := path_fault(_with_names(template)):
        yield Finding((*at, "hostPath"), wrong)
    elif "hostMounts" not in allow and (danger := _danger(template)):
        yield Finding(
            (*at, "hostPath"), f"{quoted(template)} {danger}; write allow: [hostMounts] if you must"
        )


def danger_of(path: str) -> str:
    """Return what a container could do with this host path, or ""."""
    return _danger(Template(path, (path,)))


def _danger(template: Template) -> str:
    """Return what a container could do with this host path, or "". A variable may be any one name."""
    levels = _levels(template)
    if template.source == "/":
        return "is the whole machine"
    if template.source.endswith(".sock"):
        return "is a socket, through which a service of the host obeys"
    for path in SYSTEM_PATHS:
        wanted = path.split("/")[1:]
        if len(levels) >= len(wanted) and all(map(_may_be, levels, wanted)):
            return f"may give away {path}"
    for path in _WHOLE_PATHS:
        wanted = path.split("/")[1:]
        if len(levels) == len(wanted) and all(map(_may_be, levels, wanted)):
            return f"may give away {path}"
    return ""


def _levels(template: Template) -> list[re.Pattern[str]]:
    pattern = "".join(
        re.escape(part) if isinstance(part, str) else r"[^/]+" for part in template.parts
    ).removeprefix("/")
    return [re.compile(level) for level in re.split(r"(?<!\^)/", pattern)]


def _may_be(level: re.Pattern[str], name: str) -> bool:
    return bool(level.fullmatch(name))
