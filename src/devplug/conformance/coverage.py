"""Which faults the checks try: every way in which a kubelet, a caller or the machine can wrong a plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, and the checks that try it, or why none can."""

    what: str
    checks: tuple[str, ...] = ()
    why_not: str = ""


def _fault(what: str, *checks: str) -> Fault:
    return Fault(what, checks)


def _untried(what: str, why_not: str) -> Fault:
    return Fault(what, why_not=why_not)


FAULTS: Final = (
    # What a plugin may send: ListAndWatch as the kubelet gets it.
    _fault("the first list is late, or never comes", "STR01"),
    _fault("the list is empty where devices are", "STR02"),
    _fault("an ID stands twice in a list, perhaps with another health", "STR04"),
    _fault("an ID is empty, too long, or no text", "STR03", "STR06", "STR15"),
    _fault("the list is larger than 4 MiB", "STR10"),
    _fault("lists come in thousands a second", "STR17"),
    _fault("the same list comes again and again", "STR07"),
    _fault("the stream ends, with or without an error", "STR14", "RES04"),
    _fault("the ID of a device that a pod has leaves the list", "STR22"),
    _fault(
        "NUMA nodes that no machine has, or not this one, or an empty topology", "STR08", "STR09", "STR16"
    ),
    # What a plugin may be asked: Allocate.
    _fault("Allocate: an empty message, no container requests", "ALL08"),
    _fault("Allocate: a container request without IDs", "ALL09"),
    _fault("Allocate: an ID that is not known", "ALL05"),
    _fault("Allocate: a device that is Unhealthy", "ALL06"),
    _fault("Allocate: the node is gone or is another file than before", "ALL14", "STR22"),
    _fault("Allocate: an ID twice", "ALL07"),
    _fault("Allocate: the same IDs again later", "ALL10"),
    _fault(
        "Allocate: very many IDs, an ID of a megabyte, bytes that are no text",
        "ALL32",
        "HOS04",
        "HOS11",
        "HOS01",
    ),
    _fault("Allocate: a path that no container should have", "ALL16", "ALL17", "ALL18"),
    _fault(
        "Allocate: the plugin's code fails, or gives the wrong number of answers",
        "ALL02",
        "ALL03",
        "ALL04",
        "ALL28",
    ),
    _fault("Allocate: the plugin's code takes too long", "ALL12", "ALL13"),
    _untried(
        "Allocate: before the first look at the hardware, or while the plugin ends",
        "the moment cannot be met from outside without a race; REG02 and END01 stand at its two ends",
    ),
    _fault("Allocate: very many calls a second", "ALL11", "ALL13", "HOS13"),
    _fault("Allocate: an answer of more than 4 MiB", "ALL32"),
    # What a plugin may be asked: the other calls.
    _fault("a preference or a pre-start call that was not announced", "PRE09", "PST05"),
    _fault(
        "a preference with odd sizes, or with IDs that must be included",
        "PRE01",
        "PRE02",
        "PRE03",
        "PRE04",
        "PRE05",
    ),
    _fault("the plugin's preference fails or is slow", "PRE05", "PRE06"),
    _fault("PreStartContainer: an unknown ID, none, or slow code", "PST02", "PST04"),
    _fault("many ListAndWatch streams", "STR11", "ALL27", "HOS09"),
    _untried(
        "GetInfo and NotifyRegistrationStatus of plugins_registry",
        "a plugin that is only found there calls nobody, and is not judged yet",
    ),
    _fault("an unknown method or service, HTTP/1", "HOS03", "HOS05"),
    _fault("bytes that are no message", "HOS01", "HOS02", "HOS10"),
    _untried(
        "a compressed bomb",
        "gRPC libraries refuse or bound it by themselves; nothing of the plugin's is asked",
    ),
    _fault("headers of many kilobytes", "HOS12"),
    _fault("more calls at once than a server takes", "HOS13"),
    _fault("a deadline that has passed, a call that was cancelled", "ALL31"),
    # What a kubelet may do.
    _fault("the kubelet is restarted, once and many times", "RES01", "RES02", "RES03", "RES11", "RES22"),
    _fault("the kubelet is killed in the middle of a call", "RES01", "RES04", "ALL31", "REG15"),
    _fault("two restarts within 50 ms", "RES10"),
    _fault("the plugin's socket is deleted", "RES06"),
    _fault("the whole plugin folder is removed and made anew", "RES23"),
    _fault("kubelet.sock is there and nobody listens", "REG15"),
    _fault("the kubelet is away, at the start or later", "REG10", "REG11", "RES08", "RES09"),
    _fault(
        "Register is refused, answered late, or followed by no stream",
        "REG08",
        "REG12",
        "REG13",
        "RES04",
        "RES05",
    ),
    _fault("streams are opened and closed at random", "STR13", "STR24", "HOS09"),
    _fault("an old stream lingers beside the new one", "STR24", "STR25"),
    _fault("the end of an old stream takes the new one down (1.36)", "RES16"),
    _fault("two registrations of one plugin at once, or one too many", "REG09", "REG14", "RES22"),
    # What may happen to the plugin.
    _fault("the plugin is killed", "RES18", "RES19"),
    _fault(
        "the plugin is told to end: SIGTERM, SIGINT", "END01", "END02", "END03", "END04", "END07", "END08"
    ),
    _fault("the plugin stands still for a while (SIGSTOP)", "RES21"),
    _untried(
        "the plugin's own loop is blocked by its code",
        "nothing from outside makes foreign code block; ALL12 and PRE06 see what comes of it",
    ),
    _fault("no descriptors are left for a while", "HOS14"),
    _untried(
        "disks are full or read-only, memory is short",
        "needs file systems and limits around the plugin that only its own tests can make",
    ),
    _fault("events are lost: the plugin looks by itself", "RES21", "RES07", "RES06"),
    _untried(
        "the clock steps",
        "a time namespace moves no CLOCK_REALTIME, and the machine's clock is not ours to move",
    ),
    _fault(
        "sockets of the dead, of strangers and of a twin are in the folder",
        "END05",
        "END06",
        "RES18",
        "RES20",
    ),
    _fault("a successor starts before, or after, its predecessor has ended", "RES17", "RES20"),
    # What may happen to devices.
    _fault("a device is unplugged, and plugged in again", "STR20", "STR21", "STR22", "STR23"),
    _fault("a node is replaced by another file", "ALL14", "ALL19"),
    _fault("devices flap", "STR17", "STR18"),
    _fault("there are more devices than a list may hold", "STR10"),
    # What may come over the socket.
    _fault("frames that are none, cut short or in the wrong order", "HOS05", "HOS08"),
    _fault("messages that are none", "HOS01", "HOS02"),
    _fault("messages of many megabytes", "HOS04"),
    _fault("very many connections, silent ones and short ones", "HOS06", "HOS07"),
)
"""In the order of a plugin's calls, then of what happens to processes, devices and connections."""
