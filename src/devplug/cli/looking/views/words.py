"""How times, device nodes, holders and states of a node's devices are worded for people. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from devplug.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.status.values import DeviceStatus, Holder, ResourceStatus

__all__ = [
    "NOTHING",
    "Cell",
    "Tone",
    "age",
    "capacity",
    "clock",
    "files",
    "holder",
    "holders",
    "kubelet",
    "left",
    "numa",
    "printable",
    "timestamp",
    "why_unhealthy",
]

NOTHING: Final = "-"
REFRESH: Final = "restart to refresh"
MAY_BE_HELD: Final = "may be held"

FILES_LIMIT: Final = 4
"""Most device nodes of one device that fit into a table; `-o wide` has all."""

HOLDERS_LIMIT: Final = 3
"""Most holders of one device that fit into a table; `-o wide` has all."""

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_DEV: Final = "/dev/"


class Tone(enum.Enum):
    """What a text is to its reader; the terminal has a colour for it. No text depends on its colour."""

    PLAIN = enum.auto()
    HEAD = enum.auto()
    GOOD = enum.auto()
    WARN = enum.auto()
    BAD = enum.auto()
    DIM = enum.auto()
    CHOSEN = enum.auto()
    """The row that the next key acts upon."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text of a table."""

    text: str
    tone: Tone = Tone.PLAIN


def printable(text: str) -> str:
    """Return a text that cannot move the cursor: other plugins' names are theirs, and nobody checks them."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def age(now: float, since: float | None) -> str:
    """Return how long ago a Unix time was, in its largest unit; `-` for None. A clock may have gone back."""
    if since is None:
        return NOTHING
    seconds = max(0, int(now - since))
    for unit, word in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{word}"
    return f"{seconds}s"


def clock(at: float) -> str:
    """Return the time of day here of a Unix time."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")


def timestamp(at: float | None) -> str:
    """Return a Unix time as RFC 3339 writes it; empty for None."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def left(seconds: float) -> str:
    """Return how long something still lasts, in its two largest units: `9m19s`."""
    whole = max(0, int(seconds))
    for unit, small, words in ((_DAY, _HOUR, "dh"), (_HOUR, _MINUTE, "hm"), (_MINUTE, 1, "ms")):
        if whole >= unit:
            more = whole % unit // small
            return f"{whole // unit}{words[0]}" + (f"{more}{words[1]}" if more else "")
    return f"{whole}s"


def files(paths: Sequence[str], *, limit: int = FILES_LIMIT) -> str:
    """Return device nodes by their names; for one that is a mere number, the path below `/dev`."""
    names = [_file(path) for path in paths[:limit]]
    more = [f"{len(paths) - limit} more"] if len(paths) > limit else []
    return printable(", ".join([*names, *more])) or NOTHING


def _file(path: str) -> str:
    name = path.rpartition("/")[2]
    return path.removeprefix(_DEV) if name.isdecimal() else name


def numa(nodes: Iterable[int]) -> str:
    """Return NUMA nodes."""
    return ",".join(map(str, nodes)) or NOTHING


def holder(one: Holder) -> str:
    """Return a holder as `NAMESPACE/POD (CONTAINER)`."""
    return printable(f"{one.namespace}/{one.pod} ({one.container})")


def holders(devices: Sequence[DeviceStatus], *, limit: int = HOLDERS_LIMIT) -> Cell:
    """Return who holds a device; of replicas, how many of them are held, too."""
    held = [device for device in devices if device.is_held]
    named = dict.fromkeys(holder(one) for device in held for one in device.holders)
    words = [*named][:limit]
    if len(named) > limit:
        words.append(f"{len(named) - limit} more")
    if held and not all(device.holders for device in held):
        words.append(MAY_BE_HELD)
    text = ", ".join(words) or NOTHING
    if held and len(devices) > 1:
        text = f"held {len(held)} of {len(devices)}: {text}"
    is_outdated = any(device.is_outdated for device in held)
    return Cell(f"{text}; {REFRESH}" if is_outdated else text, Tone.WARN if is_outdated else Tone.PLAIN)


def why_unhealthy(device: DeviceStatus, now: float) -> str:
    """Return what there is to say below a device: why it is not healthy, and when it goes; maybe nothing."""
    said = [one_line(device.reason)] if device.reason else []
    if device.leaves_at is not None:
        said.append(f"leaves the list in {left(device.leaves_at - now)} unless it comes back")
    return "; ".join(said)


def capacity(resource: ResourceStatus) -> str:
    """Return how many devices there are; `1+` where the kubelet does not tell of those that are unhealthy."""
    return f"{resource.capacity}{'' if resource.is_whole else '+'}"


def kubelet(resource: ResourceStatus, now: float) -> Cell:
    """Return how a resource stands with the kubelet."""
    retired = "; no longer in the config, kept for its holders" if resource.is_retired else ""
    if resource.is_registered is None:
        fault = one_line(resource.fault)
        return Cell(fault, Tone.BAD) if fault else Cell("of another plugin", Tone.DIM)
    if resource.fault:
        word = "registered, but" if resource.is_registered else "NOT REGISTERED:"
        return Cell(f"{word} {one_line(resource.fault)}{retired}", Tone.BAD)
    if not resource.is_registered:
        return Cell(f"waits for its first device{retired}", Tone.DIM)
    if resource.takeover is not None:
        return Cell(f"registered, but {one_line(resource.takeover.reason)}{retired}", Tone.BAD)
    since = "" if resource.registered_at is None else f" {age(now, resource.registered_at)} ago"
    return Cell(f"registered{since}, listening{retired}", Tone.WARN if retired else Tone.PLAIN)
