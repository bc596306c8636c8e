"""The translation of another plugin's file: our resources, their text, and the remarks. Pure.

Drafts are made into what our loader takes: dangers are allowed by name, the impossible is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.discover_rules import claim_findings
from devplug.daemon.config.globs import covers, covers_whole_root, device_glob_fault, has_wildcard
from devplug.daemon.config.host_paths import MEMORY_NODES, danger_of, dangerous_fault
from devplug.daemon.config.loader import DEVICE_ROOTS, read
from devplug.daemon.config.tree import path_text
from devplug.daemon.importers.draft import Grade, Remarks
from devplug.daemon.importers.nvidia import nvidia_drafts
from devplug.daemon.importers.peer_file import PEERS, parts_of
from devplug.daemon.importers.smarter import smarter_drafts
from devplug.daemon.importers.squat import DEFAULT_DOMAIN, squat_devices, squat_drafts
from devplug.errors import one_line
from devplug.k8s.yaml import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devplug.daemon.importers.draft import Draft, Remark
    from devplug.daemon.importers.peer_file import Part, Peer
    from devplug.errors import Problem
    from devplug.k8s.yaml import Value

_OF_SELECTOR: Final = re.compile(r"resources\[0\]\.discover\.[a-z]+\[(\d+)\]")
_FIRST: Final = "resources[0]."


# ── what the loader takes ─────────────────────────────────────────────────────────────────────────


def _fitted(drafts: Iterable[Draft], remarks: Remarks) -> list[Draft]:
    """Return the drafts that load together, changed as far as that needs, with a remark on each change."""
    kept: dict[str, Draft] = {}
    for draft in drafts:
        _leave_memory_out(draft, remarks)
        _allow(draft, remarks)
        if not _loads(draft, remarks):
            continue
        if kept.setdefault(draft.name, draft) is not draft:
            remarks.warn(draft.at, f"the resource {draft.name} comes from above, too; this one is left out")
    _share_what_overlaps(list(kept.values()), remarks)
    return list(kept.values())


def _globs(draft: Draft) -> Iterator[str]:
    """Yield the globs and paths of device nodes that a draft names."""
    for selector, _ in draft.selectors:
        match selector:
            case str():
                yield selector
            case {"glob": str(glob)}:
                yield glob
            case {"paths": [*members]}:
                for member in members:
                    match member:
                        case str():
                            yield member
                        case {"path": str(path)}:
                            yield path


def _leave_memory_out(draft: Draft, remarks: Remarks) -> None:
    """Exclude the machine's memory from globs: nothing here gives that out."""
    for number, (selector, at) in enumerate(draft.selectors):
        if not isinstance(selector, str) or not has_wildcard(selector):
            continue
        covered = [f"/dev/{name}" for name in MEMORY_NODES if covers(selector, f"/dev/{name}")]
        if covered and not covers_whole_root(selector, DEVICE_ROOTS):
            draft.selectors[number] = ({"glob": selector, "exclude": covered}, at)
            remarks.note(at, f"{', '.join(covered)}: the machine's own memory is never given out here")


def _allow(draft: Draft, remarks: Remarks) -> None:
    """Allow what the peer gives out without being asked, and say so."""
    wanted = {key for glob in _globs(draft) for key in _needs(glob)}
    mounts = draft.expose.get("mounts")
    for mount in mounts if isinstance(mounts, list) else []:
        places = [
            mount.get(key, "").replace("{{", "{").replace("}}", "}") for key in ("hostPath", "containerPath")
        ]
        host, inside = places
        if danger_of(host, inside or host):
            wanted.add("hostMounts")
    for key in sorted(wanted - draft.allow):
        why = {
            "rawDisks": "a container can write to whole disks",
            "wholeDev": "a container can have any device of the machine",
            "hostMounts": "a container gets a part of the host's system",
        }[key]
        remarks.note(draft.at, f"{draft.name}: {why}, which needs allow: [{key}] here; written as it was")
    draft.allow |= wanted


def _needs(glob: str) -> Iterator[str]:
    if device_glob_fault(glob, DEVICE_ROOTS):
        return
    if covers_whole_root(glob, DEVICE_ROOTS):
        yield "wholeDev"
        return
    exclude = [f"/dev/{name}" for name in MEMORY_NODES]
    if dangerous_fault(glob, exclude, DEVICE_ROOTS, raw_disks_allowed=False) and not dangerous_fault(
        glob, exclude, DEVICE_ROOTS, raw_disks_allowed=True
    ):
        yield "rawDisks"


def _loads(draft: Draft, remarks: Remarks) -> bool:
    """Leave out selectors that our loader refuses; return whether the rest loads."""
    while problems := _problems([draft.value(is_short=False)]):
        found = _OF_SELECTOR.match(problems[0].path)
        if found and len(draft.selectors) > 1:
            _, at = draft.selectors.pop(int(found[1]))
            remarks.warn(at, f"{problems[0].message}; left out of {draft.name}")
            continue
        at = draft.selectors[int(found[1])][1] if found else draft.at
        what = "" if found else f" ({problems[0].path.removeprefix(_FIRST)})"
        remarks.warn(at, f"{problems[0].message}{what}; {draft.name} is left out")
        return False
    return True


def _problems(resources: list[Value]) -> tuple[Problem, ...]:
    return read(yaml_text({"version": 1, "resources": resources})).problems


def _share_what_overlaps(drafts: list[Draft], remarks: Remarks) -> None:
    """Let resources that name the same nodes share them, as they do with every peer."""
    while drafts:
        text = yaml_text({"version": 1, "resources": [draft.value() for draft in drafts]})
        config = read(text).config
        findings = list(claim_findings(config, ())) if config is not None else []
        pairs = {(int(one.keys[1]), int(one.other[1])) for one in findings}
        if not pairs:
            return
        for later, earlier in sorted(pairs):
            drafts[later].is_overlapping = drafts[earlier].is_overlapping = True
            message = (
                f"{drafts[later].name} and {drafts[earlier].name} have the same device, which two containers "
                "can then hold at once: overlap: shared, as it was"
            )
            remarks.note(drafts[later].at, message)


# ── the whole file ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Translation:
    """A peer's configuration as ours, with all remarks."""

    peer: Peer
    config: Value
    """What our loader reads; None if nothing could be translated."""
    text: str
    """The same as a file with comments; empty if nothing could be translated."""
    remarks: tuple[Remark, ...]
    """In the order of the peer's file."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return self.config is not None and all(one.grade is Grade.NOTE for one in self.remarks)


def translated(
    source: bytes | str,
    file_name: str,
    *,
    peer: Peer | None = None,
    domain: str | None = None,
    key: str | None = None,
) -> Translation:
    """Return the configuration that `source` is, made into one of ours.

    Without `peer` it is recognised by its content. `domain` goes before that of the file (squat only). `key`
    chooses one of several configurations in a ConfigMap. Raises `ConfigError`, with `file_name` in its lines,
    if the file cannot be read or is no configuration of a known peer.
    """
    parts = parts_of(source, file_name, peer, key)
    remarks = Remarks()
    owner = parts[0].peer
    drafts = _fitted(list(_drafts(owner, parts, domain, remarks)), remarks)
    if not drafts:
        return Translation(owner, None, "", tuple(remarks))
    config: Value = {"version": 1, "resources": [draft.value() for draft in drafts]}
    return Translation(owner, config, _text(owner, file_name, drafts), tuple(remarks))


def _drafts(owner: Peer, parts: Sequence[Part], domain: str | None, remarks: Remarks) -> Iterator[Draft]:
    match owner:
        case "squat":
            devices = []
            said = domain or ""
            for part in sorted(parts, key=lambda one: not one.is_domain):  # flags go before the file
                if part.is_domain:
                    said = said or getattr(part.at.node, "text", "")
                    continue
                more, of_file = squat_devices(part.at, remarks)
                devices += more
                said = said or of_file
            yield from squat_drafts(devices, said.strip() or DEFAULT_DOMAIN, remarks)
        case "smarter":
            for part in parts:
                yield from smarter_drafts(part.at, remarks)
        case "nvidia":
            for part in parts:
                yield from nvidia_drafts(part.at, remarks)


def _text(owner: Peer, file_name: str, drafts: Sequence[Draft]) -> str:
    text = (
        f"# Translated by devplug import from {one_line(file_name)}, of {PEERS[owner]}.\n"
        "# Check it on a machine with: devplug validate FILE\n"
        "version: 1\nresources:\n"
    )
    for number, draft in enumerate(drafts):
        text += "\n" if number else ""
        where = path_text(draft.at.keys)
        comment = one_line(f"# from {f'{where}, ' if where else ''}line {draft.at.node.line}")
        lines = yaml_text([draft.value()]).splitlines()
        text += "".join(f"  {line}\n" for line in [comment, *lines])
    return text
