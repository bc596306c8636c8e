"""The page on the checks, docs/checks.md, with the faults they try: `python -m devplug.conformance.page`.

The faults are those that a kubelet, a caller or the machine can cause a plugin.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.conformance.checks import all_checks
from devplug.conformance.dra.checks import all_driver_checks
from devplug.conformance.verdicts import Check, Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FAULTS", "Fault", "driver_part", "page"]

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

# ── faults ──


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and the checks that try it, or why none can."""

    number: str
    """In the catalogue: L for lists, A for Allocate, C for the other calls, X for what else happens."""
    what: str
    checks: tuple[str, ...] = ()
    why_not: str = ""


def _fault(number: str, what: str, *checks: str) -> Fault:
    return Fault(number, what, checks)


def _untried(number: str, what: str, why_not: str) -> Fault:
    return Fault(number, what, why_not=why_not)


FAULTS: Final = (
    # What a plugin may send: ListAndWatch as the kubelet gets it.
    _fault("L1", "the first list is late, or never comes", "STR01"),
    _fault("L2", "the list is empty where devices are", "STR02"),
    _fault("L3", "an ID appears twice in a list, perhaps with another health", "STR04"),
    _fault("L4", "an ID is empty, too long, or no text", "STR03", "STR06", "STR15"),
    _fault("L5", "the list is larger than 4 MiB", "STR10"),
    _fault("L6", "lists come in thousands a second", "STR17"),
    _fault("L7", "the same list comes again and again", "STR07"),
    _fault("L8", "the stream ends, with or without an error", "STR14", "RES04"),
    _fault("L9", "the ID of a device that a pod has leaves the list", "STR22"),
    _fault(
        "L10",
        "NUMA nodes that no machine has, or not this one, or an empty topology",
        "STR08",
        "STR09",
        "STR16",
    ),
    # What a plugin may be asked: Allocate.
    _fault("A1", "Allocate: an empty message, no container requests", "ALL08"),
    _fault("A2", "Allocate: a container request without IDs", "ALL09"),
    _fault("A3", "Allocate: an ID that is not known", "ALL05"),
    _fault("A4", "Allocate: a device that is Unhealthy", "ALL06"),
    _fault("A5", "Allocate: the node is gone or is another file than before", "ALL14", "STR22"),
    _fault("A6", "Allocate: an ID twice", "ALL07"),
    _fault("A7", "Allocate: the same IDs again later", "ALL10"),
    _fault(
        "A8",
        "Allocate: very many IDs, an ID of a megabyte, bytes that are no text",
        "ALL32",
        "HOS04",
        "HOS11",
        "HOS01",
    ),
    _fault("A9", "Allocate: a path that no container should have", "ALL16", "ALL17", "ALL18"),
    _fault(
        "A10",
        "Allocate: the plugin's code fails, or gives the wrong number of answers",
        "ALL02",
        "ALL03",
        "ALL04",
        "ALL28",
    ),
    _fault("A11", "Allocate: the plugin's code takes too long", "ALL12", "ALL13"),
    _untried(
        "A12",
        "Allocate: before the first look at the hardware, or while the plugin ends",
        "nobody outside can hit that moment without a race; REG02 and END01 judge the time around it",
    ),
    _fault("A13", "Allocate: very many calls a second", "ALL11", "ALL13", "HOS13"),
    _fault("A14", "Allocate: an answer of more than 4 MiB", "ALL32"),
    # What a plugin may be asked: the other calls.
    _fault(
        "C1", "GetPreferredAllocation or PreStartContainer is called and was not announced", "PRE09", "PST05"
    ),
    _fault(
        "C2",
        "a preference with odd sizes, or with IDs that must be included",
        "PRE01",
        "PRE02",
        "PRE03",
        "PRE04",
        "PRE05",
    ),
    _fault("C3", "the plugin's preference fails or is slow", "PRE05", "PRE06"),
    _fault("C4", "PreStartContainer: an unknown ID, none, or slow code", "PST02", "PST04"),
    _fault("C5", "many ListAndWatch streams", "STR11", "ALL27", "HOS09"),
    _untried(
        "C6",
        "GetInfo and NotifyRegistrationStatus of plugins_registry",
        "a plugin that is only found there calls nobody, and is not judged yet",
    ),
    _fault("C7", "an unknown method or service, HTTP/1", "HOS03", "HOS05"),
    _fault("C8", "bytes that are no message", "HOS01", "HOS02", "HOS10"),
    _untried(
        "C9",
        "a small compressed message that is huge when it is unpacked",
        "the gRPC library refuses it or limits its size; the plugin's code is not called",
    ),
    _fault("C10", "headers of many kilobytes", "HOS12"),
    _fault("C11", "more calls at once than a server accepts", "HOS13"),
    _fault("C12", "a deadline that has passed, a call that was cancelled", "ALL31"),
    # What a kubelet may do.
    _fault(
        "X01", "the kubelet is restarted, once and many times", "RES01", "RES02", "RES03", "RES11", "RES22"
    ),
    _fault("X02", "the kubelet is killed in the middle of a call", "RES01", "RES04", "ALL31", "REG15"),
    _fault("X03", "two restarts within 50 ms", "RES10"),
    _fault("X04", "the plugin's socket is deleted", "RES06"),
    _fault("X05", "the plugin folder is removed and created again", "RES23"),
    _fault("X06", "kubelet.sock is there and nobody listens", "REG15"),
    _fault("X07", "the kubelet is away, at the start or later", "REG10", "REG11", "RES08", "RES09"),
    _fault(
        "X08",
        "Register is refused, answered late, or followed by no stream; two calls of it at once",
        *("REG08", "REG09", "REG12", "REG13", "REG14", "RES04", "RES05", "RES22"),
    ),
    _fault("X09", "streams are opened and closed at random", "STR13", "STR24", "HOS09"),
    _untried(
        "X10",
        "the kubelet stops reading a stream that is open",
        "the judge's own gRPC reads as long as a connection is open",
    ),
    _fault("X11", "an old stream lingers beside the new one", "STR24", "STR25"),
    _fault("X12", "the end of an old stream takes the new one down (1.36)", "RES16"),
    # What may happen to the plugin.
    _fault("X13", "the plugin is killed", "RES18", "RES19"),
    _fault(
        "X14",
        "the plugin gets SIGTERM or SIGINT",
        "END01",
        "END02",
        "END03",
        "END04",
        "END07",
        "END08",
    ),
    _fault("X15", "the plugin is stopped for a while (SIGSTOP)", "RES21"),
    _untried(
        "X16",
        "the plugin's own loop is blocked by its code",
        "it cannot be caused from outside; ALL12 and PRE06 see its effects",
    ),
    _fault("X17", "no descriptors are left for a while", "HOS14"),
    _untried(
        "X17",
        "disks are full or read-only, memory is short",
        "it needs file systems and limits that only the plugin's own tests can make",
    ),
    _fault("X18", "events are lost, and the plugin has to look by itself", "RES21", "RES07", "RES06"),
    _untried(
        "X19",
        "the clock is set",
        "a time namespace does not change CLOCK_REALTIME, and the judge must not set the machine's clock",
    ),
    _fault(
        "X20",
        "sockets of dead plugins, of other programs and of a second copy are in the folder",
        "END05",
        "END06",
        "RES18",
        "RES20",
    ),
    _fault("X21", "a successor starts before, or after, its predecessor has ended", "RES17", "RES20"),
    # What may happen to devices.
    _fault("X22", "a device is unplugged, and plugged in again", "STR20", "STR21", "STR22", "STR23"),
    _fault("X23", "a node is replaced by another file", "ALL14", "ALL19"),
    _fault("X24", "devices flap", "STR17", "STR18"),
    _untried(
        "X25",
        "a hundred thousand devices come and go",
        "no node has so many, and no command makes them for every kind of device",
    ),
    _fault("X26", "there are more devices than a list may hold", "STR10"),
    _untried(
        "X27",
        "a storm of events",
        "it needs a kernel or a folder for the plugin alone; STR17 sees its effects",
    ),
    _untried("X28", "a thousand resources in one plugin", "one resource is judged at a time (--resource)"),
    _untried(
        "X29",
        "two hundred plugins at one kubelet",
        "it concerns a node, not one plugin; RES22 judges the part of each plugin",
    ),
    # What may come over the socket.
    _fault("X30", "HTTP/2 frames that are invalid, cut short or in the wrong order", "HOS05", "HOS08"),
    _fault("X31", "bytes that are no valid message", "HOS01", "HOS02"),
    _fault("X32", "messages of many megabytes", "HOS04"),
    _fault("X33", "very many connections, silent ones and short ones", "HOS06", "HOS07"),
    _fault(
        "X34",
        "many calls of Allocate at once, with every mixture of IDs",
        "ALL05",
        "ALL06",
        "ALL07",
        "ALL11",
        "HOS13",
    ),
    _fault("X35", "callers that give up during a call", "ALL31", "HOS08"),
    _fault("X36", "GetPreferredAllocation with sizes at their limits", "PRE01", "PRE02", "PRE03", "PRE05"),
)
"""In the order of a plugin's calls, then of what happens to processes, devices and connections."""

# ── the page ──


def page(checks: Sequence[Check], faults: Iterable[Fault]) -> str:
    """Return the whole page as Markdown."""
    counts = [sum(one.severity.value == word for one in checks) for word in ("must", "should", "note")]
    must, should, note = counts
    parts = [_INTRODUCTION.format(count=len(checks), must=must, should=should, note=note)]
    for group in (one for one in Group if one is not Group.DRA):
        parts.append(f"## {group.value.capitalize()} ({group.name})\n")
        parts += [_entry(one) for one in checks if one.group is group]
    rows = [
        f"| {fault.number} | {fault.what} | {', '.join(fault.checks) or fault.why_not} |\n"
        for fault in faults
    ]
    return "\n".join(parts) + "\n" + _ON_FAULTS + "".join(rows)


def driver_part(checks: Sequence[Check]) -> str:
    """Return the part of the page on DRA drivers."""
    return "\n".join(["", _ON_DRIVERS.format(count=len(checks)), *map(_entry, checks)])


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
    sys.stdout.write(page(all_checks(), FAULTS) + driver_part(all_driver_checks()))
