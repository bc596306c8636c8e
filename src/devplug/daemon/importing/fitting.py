"""Drafts made into what our loader takes: dangers are allowed by name, the impossible is left out. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.claims import claim_findings
from devplug.daemon.grammar.dangerous import MEMORY_NODES, dangerous_fault
from devplug.daemon.grammar.globs import covers, covers_whole_root, device_glob_fault, has_wildcard
from devplug.daemon.grammar.loading import DEVICE_ROOTS, read
from devplug.daemon.grammar.mounts import danger_of
from devplug.yamltext import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.daemon.importing.drafts import Draft
    from devplug.daemon.importing.remarks import Remarks
    from devplug.errors import Problem
    from devplug.yamltext import Value

__all__ = ["fitted"]

_OF_SELECTOR: Final = re.compile(r"resources\[0\]\.discover\.[a-z]+\[(\d+)\]")
_FIRST: Final = "resources[0]."


def fitted(drafts: Iterable[Draft], remarks: Remarks) -> list[Draft]:
    """Return the drafts that load together, changed as far as that needs; tells of each change."""
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
        if danger_of(mount["hostPath"].replace("{{", "{").replace("}}", "}")):
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
