"""The groups of squat/generic-device-plugin as what `discover` and `expose` can say of them. Pure.

squat:deviceplugin/path.go:74-154 decides what a group is: each path has its matches, sorted and repeated
`limit` times, and the n-th device has the n-th match of every path. As many devices are made as the shortest
of these lists allows, at most as many as the path with most matches has, and each of them `count` times.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from devplug.daemon.config.tree import ScalarNode
from devplug.daemon.importers.draft import FOLDERS, Fields, text_of
from devplug.daemon.importers.go_globs import glob_of, literal
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.daemon.importers.draft import At, Remarks
    from devplug.k8s.yaml import Value

_HEX: Final = re.compile(r"[0-9A-Fa-f]{1,4}")

SQUAT: Final = "squat's plugin"

Form: TypeAlias = tuple[Literal["host", "folder", "fixed"], str]
"""Where a node is in the container: under its host path, in a folder, or at one fixed path."""

_CHANGED: Final = (
    "squat's plugin lets containers also make device nodes (m) unless permissions say otherwise; here they "
    "read and write; where that is not enough, write permissions: rwm and allow: [mknod]"
)


# ── USB devices ───────────────────────────────────────────────────────────────────────────────────


def _usb_selectors(group: At, specs: Sequence[At], remarks: Remarks) -> list[tuple[Value, At]]:
    """Return a selector for each spec that can match something; remarks say what works differently.

    All USB devices that any spec of the group matches are one device of squat's plugin (squat:deviceplugin/
    usb.go:258-297). Here each is a device of its own.
    """
    selectors: list[tuple[Value, At]] = [
        (selector, at) for at in specs if (selector := _selector(at, remarks)) is not None
    ]
    if len(specs) > 1:
        message = (
            "squat's plugin makes one device of all these USB devices together; here each is a device of "
            "its own, so a pod that needs several asks for several"
        )
        remarks.warn(group, message)
    elif selectors:
        message = (
            "squat's plugin makes one device of all USB devices with these IDs together; here each is a "
            "device of its own"
        )
        remarks.note(group, message)
    return selectors


def _selector(at: At, remarks: Remarks) -> Value | None:
    fields = Fields(at, remarks, "squat's plugin")
    ids: dict[str, Value] = {}
    for key in ("vendor", "product"):
        found = _usb_id(fields.take(key), at, key, remarks)
        if found is None:
            return None
        ids[key] = found
    if serial := fields.text("serial"):
        ids["serial"] = literal(serial)
    fields.rest()
    return ids


def _usb_id(at: At | None, spec: At, key: str, remarks: Remarks) -> str | None:
    """Return an ID as 4 hex digits, or None, with a warning, if squat's plugin would match nothing by it.

    Without quotes YAML makes a number of it, of which the flag and the file of squat's plugin make different
    IDs (squat:deviceplugin/usb.go:58-93); what the digits say is what was meant.
    """
    node = at.node if at is not None else None
    text = node.text if isinstance(node, ScalarNode) and node.kind != "null" else ""
    if at is None or not text:  # squat:deviceplugin/usb.go:245: both are compared, whatever they are
        message = f"has no {key}, and squat's plugin matches nothing without one; left out"
        remarks.warn(at or spec, message)
        return None
    if not _HEX.fullmatch(text):
        remarks.warn(at, f"{quoted(text)} is not 1 to 4 hex digits; left out")
        return None
    if isinstance(node, ScalarNode) and node.kind != "text":
        remarks.note(at, f"YAML makes a number of {text}; taken as the ID {text.zfill(4)}")
    return text.lower().zfill(4)


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Member:
    """One path of a group."""

    at: At
    path: str
    """A glob of ours, or a path."""
    is_glob: bool
    container_path: str
    """squat's `mountPath`; empty: the host's path."""
    permissions: str | None
    """Letters of `rwm`; None where the file does not say."""
    is_mount: bool
    is_read_only: bool
    is_optional: bool
    limit: int

    def forms(self) -> set[Form]:
        """Return all the ways in which our `containerPath` can say where this node is in the container."""
        folder, _, name = self.path.rpartition("/")
        inside = self.container_path or self.path
        forms: set[Form] = set()
        if not self.container_path:
            forms.add(("host", ""))
        elif not self.container_path.endswith("/"):
            forms.add(("fixed", inside))
        if not self.is_glob and inside == self.path:
            forms.add(("host", ""))
        if inside.endswith("/"):
            forms.add(("folder", inside))
        elif not self.is_glob and posixpath.basename(inside) == name:
            forms.add(("folder", inside.removesuffix(name)))
        elif not self.container_path and not any(mark in folder for mark in "*?["):
            forms.add(("folder", f"{folder}/"))
        if ("folder", f"{folder}/") in forms and not self.is_glob:
            forms.add(("host", ""))
        return forms


@dataclass(frozen=True, slots=True)
class Unit:
    """One group, as far as it can be said here."""

    at: At
    kind: Literal["path", "bundle", "usb", "sysfs", "static"]
    count: int
    nodes: tuple[Member, ...] = ()
    selectors: tuple[tuple[Value, At], ...] = ()
    """Of the kinds that are not made of `nodes`."""
    mounts: tuple[Member, ...] = ()
    folders: tuple[Member, ...] = ()

    @property
    def forms(self) -> set[Form]:
        """The ways in which one `containerPath` can say where all of its nodes are."""
        common: set[Form] = set.intersection(*(node.forms() for node in self.nodes)) if self.nodes else set()
        return {form for form in common if form[0] != "fixed" or len(self.nodes) == 1}

    @property
    def permissions(self) -> set[str | None]:
        """What its nodes and folders say of permissions."""
        return {member.permissions for member in (*self.nodes, *self.folders)}

    @property
    def may_be_bundle(self) -> bool:
        """Whether it is one device at most, of nodes that are known by their paths."""
        return self.kind in {"path", "bundle"} and not any(node.is_glob for node in self.nodes)


def unit_of(at: At, name: str, remarks: Remarks) -> Unit | None:
    """Return a group as one of ours, or None, with a warning, if it cannot be said here."""
    fields = Fields(at, remarks, SQUAT)
    paths, usb = fields.items("paths"), fields.items("usb")
    count = fields.number("count", 1) or 1
    fields.rest()
    if paths and usb:  # squat:main.go:104-109
        remarks.warn(at, "has both paths and usb, with which squat's plugin does not start; left out")
        return None
    if usb:
        selectors = _usb_selectors(at, usb, remarks)
        return Unit(at, "usb", count, selectors=tuple(selectors)) if selectors else None
    members = [_member(one, remarks) for one in paths]
    if not members:
        remarks.warn(at, "has neither paths nor usb, so squat's plugin finds nothing; left out")
        return None
    whole = [member for member in members if member is not None]
    return _unit(at, name, count, whole, remarks) if len(whole) == len(members) else None


def _member(at: At, remarks: Remarks) -> Member | None:
    fields = Fields(at, remarks, SQUAT)
    pattern, type_ = fields.text("path").strip(), fields.text("type") or "Device"
    container_path = fields.text("mountPath").strip()
    permissions_at = fields.take("permissions")
    is_read_only, is_optional = fields.flag("readOnly", default=False), fields.flag("optional", default=False)
    limit = fields.number("limit", 1) or 1
    fields.rest()
    try:
        path, is_glob = glob_of(pattern)
    except ValueError as error:
        remarks.warn(at, f"{quoted(pattern)} {error}; its group is left out")
        return None
    if type_ not in {"Device", "Mount"}:
        message = f"the type {quoted(type_)} is neither Device nor Mount; its group is left out"
        remarks.warn(at, message)
        return None
    letters = text_of(permissions_at) or None
    if letters is not None and type_ == "Device":
        wrong = set(letters) - set("rwm")
        if wrong or not set(letters) & set("rw"):
            message = f"permissions {quoted(letters)} are not possible here; write r, w, rw or rwm"
            remarks.warn(at, f"{message}; its group is left out")
            return None
        if set(letters) in ({"r", "m"}, {"w", "m"}):
            remarks.warn(at, f"permissions {quoted(letters)}: m goes only with rw here; m is left out")
            letters = letters.replace("m", "")
        letters = "".join(letter for letter in "rwm" if letter in letters)
    elif type_ == "Device":
        remarks.note_once(at, _CHANGED)
    return Member(
        at,
        path,
        is_glob,
        container_path,
        letters,
        is_mount=type_ == "Mount",
        is_read_only=bool(is_read_only),
        is_optional=bool(is_optional),
        limit=limit,
    )


def _unit(at: At, name: str, count: int, members: Sequence[Member], remarks: Remarks) -> Unit | None:
    mounts = [member for member in members if member.is_mount]
    folders = [one for one in members if not one.is_mount and not one.is_glob and one.path in FOLDERS]
    nodes = [member for member in members if member not in mounts and member not in folders]
    if not _can_be_had(mounts, folders, remarks):
        return None
    unit = Unit(at, "path", count, mounts=tuple(mounts), folders=tuple(folders))
    if not nodes:
        return _without_nodes(unit, name)
    nodes = _once(nodes, remarks)
    return _of_one_node(unit, nodes[0], remarks) if len(nodes) == 1 else _bundle(unit, nodes, remarks)


def _can_be_had(mounts: Sequence[Member], folders: Sequence[Member], remarks: Remarks) -> bool:
    """Whether a resource can have these mounts and folders; remarks say what is different."""
    for mount in mounts:
        if mount.is_glob:
            remarks.warn(mount.at, "a mount whose path is a glob is not possible here; its group is left out")
            return False
    for folder in folders:
        if folder.container_path.rstrip("/") not in {"", folder.path}:
            message = f"{folder.path} is a folder, which keeps its path here; its group is left out"
            remarks.warn(folder.at, message)
            return False
        remarks.note(
            folder.at, f"{folder.path} is a folder: a container gets every device node that is in it"
        )
    if mounts:
        message = "a mount is given with every device here, whether or not the path exists"
        remarks.note(mounts[0].at, message)
    return True


def _bundle(unit: Unit, nodes: list[Member], remarks: Remarks) -> Unit | None:
    """Return a group of several nodes, which is one device."""
    if any(node.is_glob for node in nodes):
        message = (
            "squat's plugin joins the n-th match of each path to a device, which is not possible here; write "
            "usb or sysfs under discover, which find all nodes of a USB device, or list bundles; left out"
        )
        remarks.warn(unit.at, message)
        return None
    if all(node.is_optional for node in nodes):
        message = "all paths are optional; here one must say that the device is there: this one, now required"
        remarks.warn(nodes[0].at, message)
        nodes = [replace(nodes[0], is_optional=False), *nodes[1:]]
    links = [node for node in nodes if "/by-" in node.path and not node.container_path]
    if links:
        message = "is a link: the container has the node of a bundle under the kernel's path"
        remarks.note(links[0].at, message)
    return replace(unit, kind="bundle", nodes=tuple(nodes))


def _without_nodes(unit: Unit, name: str) -> Unit:
    """Return a group of folders or mounts only: it is one device."""
    if unit.folders:
        first = unit.folders[0]
        return replace(unit, kind="sysfs", selectors=((FOLDERS[first.path], first.at),))
    selector: Value = {"ids": [name]}
    return replace(unit, kind="static", selectors=((selector, unit.at),))


def _once(nodes: Sequence[Member], remarks: Remarks) -> list[Member]:
    kept: dict[str, Member] = {}
    for node in nodes:
        if kept.setdefault(node.path, node) is not node:
            remarks.warn(node.at, f"{quoted(node.path)} stands twice in its group; the second is left out")
    return list(kept.values())


def _of_one_node(unit: Unit, node: Member, remarks: Remarks) -> Unit:
    others = (*unit.mounts, *unit.folders)
    if others and node.is_optional:
        message = "is optional in a group; here the device is there only with this node"
        remarks.warn(node.at, message)
    least = min((one.limit for one in others), default=0)
    if node.is_glob and least:
        message = (
            f"squat's plugin gives at most {least} of the matches, for each has a {_word(others[0])} with "
            f"limit {least}; here all of them are devices"
        )
        remarks.note(node.at, message)
    return replace(unit, nodes=(node,))


def _word(member: Member) -> str:
    return "mount" if member.is_mount else "folder"
