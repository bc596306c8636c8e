"""The page on the checks, docs/checks.md, with the faults they try: `python -m devplug.conformance.page`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from devplug.conformance.checks import all_checks
from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.faults import DRIVER_FAULTS, FAULTS, Fault
from devplug.conformance.verdicts import Check, Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_INTRODUCTION = """\
# What the checks mean

`devplug verify -- COMMAND` starts a device plugin, in any language, where we are the kubelet, and judges
it by the {count} rules below: {must} *must* (a plugin that breaks one harms pods or the node), {should}
*should* (such a plugin works, but not in every situation) and {note} *notes* (advice, which never fails
a run). How to run it, in a terminal, in CI and as pytest items, is explained in
[Judge any plugin](verify.md).

An ID never gets another rule. `devplug verify --explain ID` prints a rule's part
of this page. *Quick* checks are those of `--quick`; *attach* marks those that are harmless enough for
`--attach SOCKET`, a plugin that serves a real node.
"""
_ON_FAULTS = """\
## Which faults are tried

What can go wrong between a kubelet and a plugin, and the checks that try it, or why no check does.

| number | fault | checks |
|---|---|---|
"""
_ON_DRIVERS = """\
## DRA drivers (DRA)

`devplug verify --dra -- COMMAND` starts a driver of Dynamic Resource Allocation on a node with a kubelet and
an API server, and judges it by these {count} rules.
"""

_ON_DRIVER_FAULTS = """\
### Which faults of drivers are tried

What users of drivers have suffered from, and the checks that try it, or why no check does.

| number | fault | checks |
|---|---|---|
"""


def page(checks: Sequence[Check], faults: Iterable[Fault]) -> str:
    """Return the whole page as Markdown."""
    counts = [sum(one.severity.value == word for one in checks) for word in ("must", "should", "note")]
    must, should, note = counts
    parts = [_INTRODUCTION.format(count=len(checks), must=must, should=should, note=note)]
    for group in (one for one in Group if one is not Group.DRA):
        parts.append(f"## {group.value.capitalize()} ({group.name})\n")
        parts += [_entry(one) for one in checks if one.group is group]
    return "\n".join(parts) + "\n" + _ON_FAULTS + _rows(faults)


def driver_part(checks: Sequence[Check], faults: Iterable[Fault]) -> str:
    """Return the part of the page on DRA drivers."""
    parts = ["", _ON_DRIVERS.format(count=len(checks)), *map(_entry, checks), _ON_DRIVER_FAULTS]
    return "\n".join(parts) + _rows(faults)


def _rows(faults: Iterable[Fault]) -> str:
    return "".join(
        f"| {fault.number} | {fault.what} | {', '.join(fault.checks) or fault.why_not} |\n"
        for fault in faults
    )


def _entry(one: Check) -> str:
    sets = "".join(f", {word}" for word, holds in (("quick", one.quick), ("attach", one.harmless)) if holds)
    return (
        f"### {one.id}: {one.rule}\n\n"
        f"*{one.severity.value}{sets}.* {' '.join(one.how.split())}\n\n"
        f"- because {one.why}\n"
        f"- change: {one.change}\n"
        f"- source: {one.source}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page(all_checks(), FAULTS) + driver_part(all_driver_checks(), DRIVER_FAULTS))
