"""The entries of smarter-device-manager as resources of ours. Pure.

Each node that an entry matches is a resource of its own there, called after its path below /dev, with
`nummaxdevices` devices that are all the same node (smarter:main.go:185-206, server.go:154-172).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.importing.drafts import FOLDERS, Draft
from devplug.daemon.importing.fields import Fields, items_of
from devplug.daemon.importing.goglobs import literal
from devplug.daemon.importing.regexes import REPEATS, covered_by
from devplug.devices import resource_name_fault
from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.daemon.importing.regexes import Covered
    from devplug.daemon.importing.remarks import At, Remarks

__all__ = ["smarter_drafts"]

SMARTER: Final = "smarter-device-manager"

_DOMAIN: Final = "smarter-devices"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
"""smarter:main.go:95-112: everything else becomes `_`."""


def smarter_drafts(config: At, remarks: Remarks) -> Iterator[Draft]:
    """Yield the resources for each entry that can be said here."""
    names: set[str] = set()
    entries = items_of(config)
    if not entries:
        remarks.warn(config, "is not a list of devicematch and nummaxdevices; left out")
    for at in entries:
        fields = Fields(at, remarks, SMARTER)
        regex, count = fields.text("devicematch"), fields.number("nummaxdevices", 0)
        fields.rest()
        if not regex:
            message = "has no devicematch, so smarter-device-manager gives out everything in /dev; left out"
            remarks.warn(at, message)
        elif count == 0:
            remarks.warn(at, "has no nummaxdevices, so it makes no device; left out")
        elif regex == "nvidia-gpu":  # smarter:main.go:161-183: the GPUs of Jetson boards
            message = (
                "the GPU of a Jetson is not known here; for a graphics card write discover: {nvidia: {}}; "
                "left out"
            )
            remarks.warn(at, message)
        else:
            yield from _drafts(at, regex, count, names, remarks)


def _drafts(at: At, regex: str, count: int, names: set[str], remarks: Remarks) -> Iterator[Draft]:
    try:
        covered = covered_by(regex)
    except ValueError as error:
        advice = "write the globs that you mean under discover.path"
        remarks.warn(at, f"the regular expression {quoted(regex)} {error}; {advice}; left out")
        return
    drafts = [_of_one_node(at, path, remarks) for path in covered.names]
    if len(drafts) > 1:
        for draft in drafts:
            draft.others["whenNone"] = "wait"
        message = (
            "each of these nodes is a resource, as before; one that does not exist yet is not registered"
        )
        remarks.note(at, message)
    if covered.globs:
        drafts = [_of_many(at, covered, names, remarks)]
    for draft in drafts:
        if count > 1:
            draft.share["replicas"] = count
        fault = resource_name_fault(draft.name)
        if fault:
            remarks.warn(at, f"{quoted(draft.name)} {fault}; the kubelet refuses it; left out")
        elif draft.name in names:
            remarks.warn(at, f"{draft.name} comes from an entry before this one, too; left out")
        else:
            names.add(draft.name)
            yield draft


def _of_one_node(at: At, path: str, remarks: Remarks) -> Draft:
    name = f"{_DOMAIN}/{_NOT_IN_NAMES.sub('_', path)}"
    node = f"/dev/{path}"
    if node not in FOLDERS:
        return Draft(at, name, "path", [(literal(node), at)])
    remarks.note(at, f"{node} is a folder: a container gets every device node that is in it")
    draft = Draft(at, name, "sysfs", [(FOLDERS[node], at)])
    draft.expose = {"deviceNodes": [], "directories": [node]}
    return draft


def _of_many(at: At, covered: Covered, names: set[str], remarks: Remarks) -> Draft:
    """Return one resource for nodes whose names are not known beforehand."""
    base = _NOT_IN_NAMES.sub("_", covered.prefix).strip("_-") or "device"
    name = f"{_DOMAIN}/{base}"
    number = 2
    while name in names:
        name, number = f"{_DOMAIN}/{base}-{number}", number + 1
    message = (
        f"{SMARTER} makes a resource of each node; here all are devices of {name}: let pods ask for that, "
        "or write a resource for each node that they name"
    )
    remarks.warn(at, message)
    if covered.is_bounded:
        remarks.note_once(
            at, f"repetitions are taken as at most {REPEATS} characters, as in numbers below 1,000"
        )
    if covered.is_flat:
        remarks.note_once(at, "a wildcard of a glob covers no /, so what is in folders is not found")
    return Draft(at, name, "path", [(f"/dev/{glob}", at) for glob in covered.globs])
