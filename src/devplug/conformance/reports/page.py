"""The page on what the checks mean, from the registry: `python -m devplug.conformance.reports.page`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from devplug.conformance.coverage import FAULTS, Fault
from devplug.conformance.registry import Check, Group, all_checks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["page"]

_INTRODUCTION = """\
# What the checks mean

`devplug verify -- COMMAND` starts a device plugin, in any language, where we are the kubelet, and judges
it by the {count} rules below: {must} *must* (pods or the node suffer where one is broken), {should}
*should* (it works, and somebody will be surprised one day) and {note} *notes* (advice, which never fails
a run). How to run it, in a terminal, in CI and as pytest items, stands in [Judge any plugin](verify.md).

An ID is a promise: it is never used for another rule. `devplug verify --explain ID` prints a rule's part
of this page. *Quick* checks are those of `--quick`; *attach* marks those that are harmless enough for
`--attach SOCKET`, a plugin that serves a real node.
"""
_ON_FAULTS = """\
## Which faults are tried

What can go wrong between a kubelet and a plugin, and the checks that try it; where there is none, why.

| number | fault | checks |
|---|---|---|
"""


def page(checks: Sequence[Check], faults: Iterable[Fault]) -> str:
    """Return the whole page as Markdown."""
    counts = [sum(one.severity.value == word for one in checks) for word in ("must", "should", "note")]
    must, should, note = counts
    parts = [_INTRODUCTION.format(count=len(checks), must=must, should=should, note=note)]
    for group in Group:
        parts.append(f"## {group.value.capitalize()} ({group.name})\n")
        parts += [_entry(one) for one in checks if one.group is group]
    rows = [
        f"| {fault.number} | {fault.what} | {', '.join(fault.checks) or fault.why_not} |\n"
        for fault in faults
    ]
    return "\n".join(parts) + "\n" + _ON_FAULTS + "".join(rows)


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
    sys.stdout.write(page(all_checks(), FAULTS))
