"""The importer for squat/generic-device-plugin: its devices as resources of ours. Pure.

One device of squat's may have several groups; a resource of ours has one kind of discovery, one container
path, one set of permissions and one number of replicas. Groups that differ from the first are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.tree import RefusedNode
from devplug.daemon.importers.draft import Draft, Fields, as_template
from devplug.daemon.importers.squat_groups import SQUAT, unit_of
from devplug.errors import quoted
from devplug.k8s.resource_names import resource_name_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devplug.daemon.importers.draft import At, Remarks
    from devplug.daemon.importers.squat_groups import Form, Member, Unit
    from devplug.k8s.yaml import Value

DEFAULT_DOMAIN: Final = "squat.ai"
"""squat:config.go:30."""

_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9]*[a-z0-9]")
"""squat:main.go:87."""
_OTHER_KEYS: Final = ("plugin-directory", "log-level", "listen", "config", "version")
_FORM_ORDER: Final = ("host", "folder", "fixed")


def squat_devices(config: At, remarks: Remarks) -> tuple[list[At], str]:
    """Return the devices of a configuration file, and its domain, which may be empty."""
    fields = Fields(config, remarks, SQUAT)
    if isinstance(config.node, RefusedNode) or fields.take("name") is not None:  # of one --device flag
        return [config], ""
    devices = [*fields.items("devices"), *fields.items("device")]
    domain = fields.text("domain")
    for key in _OTHER_KEYS:
        if (at := fields.take(key)) is not None:
            remarks.note(at, "is a flag of devplug run here, or not needed (devplug run --help); left out")
    fields.rest()
    return devices, domain


def squat_drafts(devices: Iterable[At], domain: str, remarks: Remarks) -> Iterator[Draft]:
    """Yield a resource for each device of which at least one group can be said here."""
    for at in devices:
        if isinstance(at.node, RefusedNode):
            remarks.warn(at, "is not YAML; left out")
            continue
        fields = Fields(at, remarks, SQUAT)
        name = fields.text("name").strip()
        groups = fields.items("groups")
        fields.rest()
        if not _NAME.fullmatch(name):
            message = f"{quoted(name)} is no name of a device, with which squat's plugin does not start"
            remarks.warn(at, f"{message}; left out")
            continue
        if fault := resource_name_fault(f"{domain}/{name}"):
            remarks.warn(at, f"{quoted(f'{domain}/{name}')} {fault}; left out")
            continue
        units = [unit for group in groups if (unit := unit_of(group, name, remarks)) is not None]
        kept = _agreeing(units, remarks)
        if kept.units:
            yield _draft(at, f"{domain}/{name}", kept, remarks)
        else:
            remarks.warn(at, f"{name}: no group is left, so this resource is left out")


# ── groups that go together ───────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Kept:
    """Groups that one resource can say, and what they have in common."""

    kind: str
    units: list[Unit]
    forms: set[Form]
    permissions: str


def _agreeing(units: Sequence[Unit], remarks: Remarks) -> _Kept:
    """Return the groups that agree with the first of them; the others are reported."""
    said = set[str | None]().union(*(unit.permissions for unit in units))
    unsaid = "rwm" if "rwm" in said else "rw"  # the file means rwm where it says nothing, too
    sound = []
    for unit in units:
        if fault := _own_fault(unit, unsaid):
            remarks.warn(unit.at, f"{fault}; this group is left out")
        else:
            sound.append(unit)
    if not sound:
        return _Kept("", [], set(), "")
    first = sound[0]
    is_bundle = first.may_be_bundle and any(unit.kind == "bundle" for unit in sound)
    kind = "bundle" if is_bundle else first.kind
    kept = _Kept(kind, [], first.forms, _permissions(first, unsaid))
    for unit in sound:
        if differs := _difference(unit, kept, first, unsaid):
            message = f"{differs}; this group is left out; give it a resource name of its own"
            remarks.warn(unit.at, message)
        else:
            kept.units.append(unit)
            kept.forms &= unit.forms
    return kept


def _own_fault(unit: Unit, unsaid: str) -> str:
    """Return why a group can be said by no resource, or ""."""
    if unit.nodes and not unit.forms:
        return (
            "the nodes of a bundle have their host's paths here, or one folder for all, and these mountPaths "
            "are neither; discover.sysfs or .usb with expose.deviceNodes gives each node a containerPath"
        )
    if len({one or unsaid for one in unit.permissions}) > 1:
        return "all nodes of a device have the same permissions here"
    return ""


def _permissions(unit: Unit, unsaid: str) -> str:
    return next(iter(unit.permissions), None) or unsaid


def _difference(unit: Unit, kept: _Kept, first: Unit, unsaid: str) -> str:
    """Return what a resource has once and this group has otherwise, or ""."""
    if unit.kind != kept.kind and not (kept.kind == "bundle" and unit.may_be_bundle):
        return f"a resource has one kind under discover, here {kept.kind}"
    if unit.nodes and not kept.forms & unit.forms:
        return "a resource has one containerPath for all its devices"
    if unit.kind not in {"usb", "static"} and _permissions(unit, unsaid) != kept.permissions:
        return f"a resource has the same permissions for all its devices, here {kept.permissions}"
    if unit.count != first.count:
        return f"a resource has one number of replicas, here {first.count}"
    if _things(unit) != _things(first):
        return "a resource has the same mounts and folders for all its devices"
    if unit is not first and unit.kind in {"sysfs", "static"}:
        return "a folder or mount is one device in one resource"
    return ""


def _things(unit: Unit) -> list[tuple[str, str, bool]]:
    return [(one.path, one.container_path, one.is_read_only) for one in (*unit.mounts, *unit.folders)]


# ── the resource ──────────────────────────────────────────────────────────────────────────────────


def _draft(at: At, name: str, kept: _Kept, remarks: Remarks) -> Draft:
    first = kept.units[0]
    draft = Draft(at, name, kept.kind, _all_selectors(kept))
    if kept.kind == "usb":
        draft.expose["deviceNodes"] = ["usb"]  # the node in /dev/bus/usb and no other, as with squat's
    elif kept.kind == "sysfs":
        draft.expose["deviceNodes"] = []
    if first.count > 1:
        draft.share["replicas"] = first.count
    _place(draft, kept, remarks)
    if kept.kind not in {"usb", "static"}:
        if kept.permissions != "rw":
            draft.expose["permissions"] = kept.permissions
        if "m" in kept.permissions:
            draft.allow.add("mknod")
    if first.folders:
        draft.expose["directories"] = [folder.path for folder in first.folders]
    if first.mounts:
        draft.expose["mounts"] = [_mount(mount) for mount in first.mounts]
    return draft


def _all_selectors(kept: _Kept) -> list[tuple[Value, At]]:
    selectors: list[tuple[Value, At]] = []
    for selector, place in (one for unit in kept.units for one in _selectors(unit, kept.kind)):
        if selector not in [seen for seen, _ in selectors]:
            selectors.append((selector, place))
    return selectors


def _place(draft: Draft, kept: _Kept, remarks: Remarks) -> None:
    """Say where the nodes are in the container."""
    if not kept.forms:
        return
    form, path = min(kept.forms, key=lambda one: (_FORM_ORDER.index(one[0]), one[1]))
    if form != "host":
        draft.expose["containerPath"] = as_template(path)
    may_be_several = len(draft.selectors) > 1 or any(
        node.is_glob for unit in kept.units for node in unit.nodes
    )
    if form == "fixed" and may_be_several:
        draft.share["maxPerContainer"] = 1
        message = (
            f"every device is {path} in its container, so a container can have one: "
            "with squat's plugin a second one would take its place"
        )
        remarks.note(draft.at, message)


def _selectors(unit: Unit, kind: str) -> Iterator[tuple[Value, At]]:
    if kind == "bundle":
        paths: list[Value] = [
            {"path": node.path, "optional": True} if node.is_optional and len(unit.nodes) > 1 else node.path
            for node in unit.nodes
        ]
        yield {"paths": paths}, unit.at
    elif kind == "path":
        for node in unit.nodes:
            yield node.path, node.at
    else:
        yield from unit.selectors


def _mount(mount: Member) -> Value:
    value: dict[str, Value] = {"hostPath": as_template(mount.path)}
    inside = mount.container_path
    if inside.endswith("/"):
        inside += mount.path.rpartition("/")[2]
    if inside and inside != mount.path:
        value["containerPath"] = as_template(inside)
    if mount.is_read_only:
        value["readOnly"] = True
    return value
