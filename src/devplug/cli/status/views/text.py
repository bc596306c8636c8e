"""Text for people: times, device nodes, holders and states in words, and tables as lines. Pure.

Rich lays out tables, too, but none with a sentence across the columns below a row.
"""

from __future__ import annotations

import enum
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.cells import cell_len, set_cell_size

from devplug.errors import one_line, printable
from devplug.k8s.times import stamp_at
from devplug.monitor.words import age as age_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.status import DeviceClaim, DeviceStatus, Holder, ResourceStatus


NOTHING: Final = "-"
REFRESH: Final = "restart to refresh"
MAY_BE_HELD: Final = "may be held"

FILES_LIMIT: Final = 4
"""Most device nodes of one device that fit into a table; `-o wide` has all."""

CLAIMS_LIMIT: Final = 3
"""Most claims of one device that fit into a table; `-o wide` has all."""

HOLDERS_LIMIT: Final = 3
"""Most holders of one device that fit into a table; `-o wide` has all."""

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_DEV: Final = "/dev/"

GAP: Final = 2
"""Spaces between columns."""

NARROWEST: Final = 12
"""A last column is not folded into less than this; the terminal breaks the line then."""

INDENT: Final = "    "
_ELLIPSIS: Final = "…"


# ── words ─────────────────────────────────────────────────────────────────────────────────────────


class Tone(enum.Enum):
    """The meaning of a text, for which the terminal has a colour. No text depends on its colour."""

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
    """Made printable here, once for all views: other plugins' names are theirs, and nobody checks them. Only
    in a last column it may have several lines."""
    tone: Tone = Tone.PLAIN

    def __post_init__(self) -> None:
        if not self.text.isprintable():
            object.__setattr__(self, "text", printable(self.text, keep="\n"))


def age(now: float, since: float | None) -> str:
    """Return how long ago a Unix time was, in its largest unit; `-` for None. A clock may have gone back."""
    if since is None:
        return NOTHING
    return age_since(now, since)


def clock(at: float) -> str:
    """Return the time of day here of a Unix time."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")


def timestamp(at: float | None) -> str:
    """Return a Unix time as RFC 3339 writes it; empty for None."""
    return "" if at is None else stamp_at(at)


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
    return ", ".join([*names, *more]) or NOTHING


def _file(path: str) -> str:
    name = path.rpartition("/")[2]
    return path.removeprefix(_DEV) if name.isdecimal() else name


def numa(nodes: Iterable[int]) -> str:
    """Return NUMA nodes."""
    return ",".join(map(str, nodes)) or NOTHING


def holder(one: Holder) -> str:
    """Return a holder as `NAMESPACE/POD (CONTAINER)`."""
    return f"{one.namespace}/{one.pod} ({one.container})"


def holders(devices: Sequence[DeviceStatus], *, limit: int = HOLDERS_LIMIT) -> Cell:
    """Return who holds a device; of replicas, how many of them are held, too."""
    held = [device for device in devices if device.is_held]
    named = dict.fromkeys(holder(one) for device in held for one in device.holders)
    words = [*named][:limit]
    if len(named) > limit:
        words.append(f"{len(named) - limit} more")
    unnamed = [device for device in held if not device.holders]
    words += dict.fromkeys(f"claim {_claim(claim)}" for device in unnamed for claim in device.claims)
    if not all(device.claims for device in unnamed):
        words.append(MAY_BE_HELD)
    text = ", ".join(words) or NOTHING
    if held and len(devices) > 1:
        text = f"held {len(held)} of {len(devices)}: {text}"
    is_outdated = any(device.is_outdated for device in held)
    return Cell(f"{text}; {REFRESH}" if is_outdated else text, Tone.WARN if is_outdated else Tone.PLAIN)


def claims(devices: Sequence[DeviceStatus], now: float, *, limit: int = CLAIMS_LIMIT) -> tuple[str, ...]:
    """Return what there is to say of each claim that uses a device, or its replicas."""
    said = [_use(claim, device, now) for device in devices for claim in device.claims]
    more = [f"{len(said) - limit} more claims"] if len(said) > limit else []
    return (*said[:limit], *more)


def _claim(claim: DeviceClaim) -> str:
    return f"{claim.namespace}/{claim.name}"


def _use(claim: DeviceClaim, device: DeviceStatus, now: float) -> str:
    words = [f"claim {_claim(claim)}"]
    if claim.request:
        words.append(f"request {claim.request}")
    if claim.device != device.id:
        words.append(f"device {claim.device}")
    if claim.since is not None:
        words.append(f"for {age(now, claim.since)}")
    if claim.has_admin_access:
        words.append("with admin access")
    return ", ".join(words)


def why_unhealthy(device: DeviceStatus, now: float) -> str:
    """Return what there is to say below a device: why it is not healthy, and when it goes; maybe nothing."""
    said = [one_line(device.reason)] if device.reason else []
    if device.taint:
        said.append(f"tainted {device.taint}")
    if device.leaves_at is not None:
        said.append(f"leaves the list in {left(device.leaves_at - now)} unless it comes back")
    return "; ".join(said)


def capacity(resource: ResourceStatus) -> str:
    """Return how many devices there are; `1+` where the kubelet does not tell of those that are unhealthy."""
    return f"{resource.capacity}{'' if resource.is_whole else '+'}"


def kubelet(resource: ResourceStatus, now: float) -> Cell:
    """Return the state of a resource's registration with the kubelet."""
    retired = "; not served this way any more, kept for its holders" if resource.is_retired else ""
    if resource.is_registered is None:
        fault = one_line(resource.fault)
        other = "of another driver" if resource.driver else "of another plugin"
        return Cell(fault, Tone.BAD) if fault else Cell(other, Tone.DIM)
    if resource.fault:
        word = "registered, but" if resource.is_registered else "NOT REGISTERED:"
        return Cell(f"{word} {one_line(resource.fault)}{retired}", Tone.BAD)
    if not resource.is_registered:
        return Cell(f"waits for its first device{retired}", Tone.DIM)
    if resource.takeover is not None:
        return Cell(f"registered, but {one_line(resource.takeover.reason)}{retired}", Tone.BAD)
    since = "" if resource.registered_at is None else f" {age(now, resource.registered_at)} ago"
    word = f"for claims on {resource.driver}" if resource.driver else "listening"
    return Cell(f"registered{since}, {word}{retired}", Tone.WARN if retired else Tone.PLAIN)


# ── tables ────────────────────────────────────────────────────────────────────────────────────────


Line: TypeAlias = tuple[Cell, ...]
"""Texts that stand side by side in one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with sentences that stand above and below it, across its columns."""

    cells: tuple[Cell, ...]
    below: tuple[Cell, ...] = ()
    above: tuple[Cell, ...] = ()


def plain(line: Line) -> str:
    """Return a line without its tones, and without spaces at its end."""
    return "".join(cell.text for cell in line).rstrip()


def widths(columns: Sequence[str], rows: Iterable[Row]) -> list[int]:
    """Return how wide each column has to be, in cells of a terminal."""
    found = [cell_len(column) for column in columns]
    for row in rows:
        for place, cell in enumerate(row.cells):
            found[place] = max(found[place], cell_len(cell.text))
    return found


def laid_out(columns: Sequence[str], rows: Sequence[Row], width: int | None) -> list[Line]:
    """Return a table with its headings; no wider than `width` if the last column can be folded so far.

    None is for readers that are no terminals: each row is one line then.
    """
    needed = widths(columns, rows)
    left = sum(needed[:-1]) + GAP * (len(needed) - 1)
    room = None if width is None or width - left < NARROWEST else width - left
    lines = [_line([Cell(column, Tone.HEAD) for column in columns], needed)]
    for row in rows:
        for note in row.above:
            lines += folded(note, width)
        last = row.cells[-1]
        parts = last.text.split("\n")
        first, *more = parts if room is None else [line for part in parts for line in _wrapped(part, room)]
        lines.append(_line([*row.cells[:-1], Cell(first, last.tone)], needed))
        lines += [(Cell(" " * left), Cell(text, last.tone)) for text in more]
        for note in row.below:
            lines += folded(Cell(INDENT + note.text, note.tone), width)
    return lines


def folded(cell: Cell, width: int | None) -> list[Line]:
    """Return a sentence as lines; what does not fit goes on four columns further right.

    So does what follows a line break of the text: a message of a pod cannot look like a sentence of ours.
    """
    indent = cell.text[: len(cell.text) - len(cell.text.lstrip())].replace("\n", "")
    first, *more = cell.text.strip("\n").split("\n")
    lines = [(first, indent + INDENT), *((indent + INDENT + line, indent + INDENT) for line in more)]
    return [
        (Cell(text, cell.tone),)
        for line, further in lines
        for text in (
            [line]
            if width is None or cell_len(line) <= width
            else _wrapped(line, max(width, NARROWEST), further)
        )
    ]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [text]


def _line(cells: Sequence[Cell], needed: Sequence[int]) -> Line:
    *most, last = cells
    padded = [
        Cell(set_cell_size(printable(cell.text), width) + " " * GAP, cell.tone)
        for cell, width in zip(most, needed, strict=False)
    ]
    return (*padded, last)


def cut(line: Line, width: int) -> Line:
    """Return a line that fits; where something was cut off stands an ellipsis."""
    fitting: list[Cell] = []
    room = width
    for cell in line:
        size = cell_len(cell.text)
        if size > room:
            text = set_cell_size(cell.text, max(0, room - 1)).rstrip() + _ELLIPSIS if room else ""
            fitting.append(Cell(text, cell.tone))
            break
        fitting.append(cell)
        room -= size
    return tuple(fitting)
