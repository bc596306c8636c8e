"""The screen of `devplug top`, and what its keys do: a node and a view of it become lines. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.cli.status.views.problems import daemon_state, kubelet_state, problems_of
from devplug.cli.status.views.tables import DEVICE_COLUMNS, DeviceGroup, device_row, groups, reasons
from devplug.cli.status.views.text import (
    GAP,
    NOTHING,
    Cell,
    Line,
    Row,
    Tone,
    claims,
    clock,
    cut,
    holders,
    widths,
)
from devplug.monitor.words import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.monitor.history import Change
    from devplug.status import NodeStatus

CHANGES_LIMIT: Final = 10
"""Most of the last changes that are drawn; on a low terminal there are fewer."""

FIXED_LINES: Final = 8
"""Lines that show no device and no change: three on the node, two headings, two of details, one of keys."""

HELD_BY_COLUMNS: Final = 20
"""Other columns are cut to leave as much for the last one."""

NARROWEST: Final = 8
"""No column is cut further."""


class Sort(enum.StrEnum):
    """The order of the rows; ties are sorted by resource and device."""

    STATE = "state"
    """Unhealthy ones first, then held ones."""
    DEVICE = "device"
    AGE = "age"
    """The latest change first."""
    HOLDER = "holder"
    """Held ones first, by who holds them."""


@dataclass(frozen=True, slots=True)
class View:
    """The part of a node that is drawn, and its order."""

    sort: Sort = Sort.STATE
    unhealthy: bool = False
    """Whether only unhealthy devices are."""
    held: bool = False
    """Whether only devices are that a container holds, or may hold."""
    resource: str = ""
    """The only resource that is; empty for all."""
    row: int = 0
    """The row that is chosen, from 0; it is in sight."""
    node: int = 0
    """Which node, if there are several."""


def page_rows(height: int) -> int:
    """Return how many devices fit on a terminal."""
    return max(1, height - FIXED_LINES - _changes_shown(height))


def _changes_shown(height: int) -> int:
    return min(CHANGES_LIMIT, max(0, (height - FIXED_LINES) // 4))


def shown_groups(node: NodeStatus, view: View) -> list[DeviceGroup]:
    """Return the devices that a view shows, in its order."""
    found = [
        group
        for resource in node.resources
        if view.resource in {"", resource.name}
        for group in groups(resource)
        if (not view.unhealthy or not group.is_healthy) and (not view.held or group.is_held)
    ]
    match view.sort:
        case Sort.STATE:
            found.sort(key=lambda one: (one.is_healthy, not one.is_held))
        case Sort.AGE:
            found.sort(key=lambda one: -(one.since or 0))
        case Sort.HOLDER:
            found.sort(key=lambda one: (not one.is_held, not one.first_holder, one.first_holder))
        case Sort.DEVICE:
            found.sort(key=lambda one: (one.name, one.resource_name))
    return found


def after_key(
    view: View, key: str, *, resources: Sequence[str], rows: int, page: int, nodes: int = 1
) -> View | None:
    """Return the view after a key, a character or the name of a `Key`; None if the key ends it.

    `rows` is how many devices the view shows, `page` how many of them are in sight.
    """
    last = max(0, rows - 1)
    moves = {
        "UP": view.row - 1,
        "k": view.row - 1,
        "DOWN": view.row + 1,
        "j": view.row + 1,
        "PAGE_UP": view.row - page,
        "PAGE_DOWN": view.row + page,
        " ": view.row + page,
        "HOME": 0,
        "END": last,
    }
    if key in moves:
        return replace(view, row=min(max(0, moves[key]), last))
    match key:
        case "q" | "Q":
            return None
        case "u":
            return replace(view, unhealthy=not view.unhealthy, row=0)
        case "h":
            return replace(view, held=not view.held, row=0)
        case "r":
            return replace(view, resource=_next(["", *resources], view.resource), row=0)
        case "s":
            return replace(view, sort=Sort(_next([*Sort], view.sort)), row=0)
        case "n":
            return replace(view, node=(view.node + 1) % nodes, resource="", row=0)
    return view


def _next(choices: Sequence[str], now: str) -> str:
    return choices[(choices.index(now) + 1) % len(choices)] if now in choices else choices[0]


def screen_lines(
    node: NodeStatus,
    view: View,
    shown: Sequence[DeviceGroup],
    changes: Sequence[Change],
    now: float,
    *,
    width: int,
    height: int,
    nodes: int = 1,
) -> list[Line]:
    """Return the lines of a terminal, none longer than it is wide; `shown` is of `shown_groups`."""
    page = page_rows(height)
    row = min(view.row, max(0, len(shown) - 1))
    first = min(max(0, row - page // 2), max(0, len(shown) - page))
    table = _table(node, view, shown, range(first, min(first + page, len(shown))), row, now, width)
    recent = [*changes][-_changes_shown(height) :] if _changes_shown(height) else []
    lines = [
        *_head(node, row, len(shown), now),
        *table,
        *[()] * (page + 1 - len(table)),
        *_details(shown[row] if shown else None, now),
        (Cell("LAST CHANGES", Tone.HEAD), Cell("" if recent else "  none yet", Tone.DIM)),
        *((Cell(f"{clock(one.at)} {one.line}"),) for one in recent),
    ]
    lines += [()] * (height - 1 - len(lines))
    return [cut(line, width) for line in [*lines[: height - 1], _keys(view, nodes)]]


def _keys(view: View, nodes: int) -> Line:
    """Return the line of keys: what each does, and its present setting."""
    words = (
        "q quit",
        *["n node"] * (nodes > 1),
        f"u unhealthy only: {'on' if view.unhealthy else 'off'}",
        f"h held only: {'on' if view.held else 'off'}",
        f"s sort: {view.sort}",
        f"r resource: {view.resource or 'all'}",
    )
    return (Cell("  ".join(words), Tone.DIM),)


def _head(node: NodeStatus, row: int, count: int, now: float) -> list[Line]:
    devices = sum(one.capacity for one in node.resources)
    healthy = sum(one.allocatable for one in node.resources)
    held = sum(one.held for one in node.resources)
    counted = f"{many(len(node.resources), 'resource')}, {many(devices, 'device')}: {healthy} healthy, "
    counted += f"{devices - healthy} not, {held} held"
    place = f"; row {row + 1} of {count}" if count else "; no row"
    wrong = problems_of(node)
    more = f" (and {len(wrong) - 1} more: devplug status)" if len(wrong) > 1 else ""
    gap = Cell("  ")
    return [
        (Cell(node.name, Tone.HEAD), gap, daemon_state(node), gap, kubelet_state(node), gap,
         Cell(clock(now), Tone.DIM)),
        (Cell(counted), Cell(place, Tone.DIM)),
        (Cell(f"{wrong[0]}{more}", Tone.BAD) if wrong else Cell("nothing is wrong", Tone.GOOD),),
    ]  # fmt: skip


def _details(group: DeviceGroup | None, now: float) -> list[Line]:
    """Return two lines on the chosen device: what the table has no room for."""
    if group is None:
        return [(), ()]
    paths = ", ".join(dict.fromkeys(path for one in group.devices for path in one.device_nodes))
    said = "; ".join(one for one in reasons(group, now)) or "healthy"
    by = [one for one in (holders(group.devices).text, *claims(group.devices, now)) if one != NOTHING]
    first = f"{group.resource_name} {group.title}: {paths or 'no device node'}"
    return [
        (Cell(first, Tone.DIM),),
        (Cell("; ".join([said, *by]), Tone.DIM),),
    ]


def _table(
    node: NodeStatus,
    view: View,
    shown: Sequence[DeviceGroup],
    sight: range,
    row: int,
    now: float,
    width: int,
) -> list[Line]:
    has_resources = len(node.resources) > 1 and not view.resource
    names = _short_names([one.name for one in node.resources])
    columns = [*["RESOURCE"] * has_resources, *DEVICE_COLUMNS]
    rows = [
        Row((*[Cell(names[group.resource_name])] * has_resources, *device_row(group, now)))
        for group in (shown[place] for place in sight)
    ]
    sizes = widths(columns, rows)
    device = columns.index("DEVICE")
    # So the columns do not jump when rows come into sight.
    sizes[device] = max(sizes[device], max((len(group.title) for group in shown), default=0))
    sizes[-1] = max(0, sizes[-1])
    _squeeze(sizes, [device, device + 1, *range(device)], width)
    lines = [_line([Cell(column, Tone.HEAD) for column in columns], sizes)]
    for place, one in zip(sight, rows, strict=True):
        cells = [Cell(cell.text, Tone.CHOSEN) for cell in one.cells] if place == row else one.cells
        lines.append(_line(cells, sizes))
    return lines


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """Return resource names without their domains where that leaves them apart."""
    kinds = {name: name.rpartition("/")[2] for name in names}
    return kinds if len({*kinds.values()}) == len(names) else {name: name for name in names}


def _squeeze(sizes: list[int], order: Sequence[int], width: int) -> None:
    """Cut columns, one after the other, until there is room for the last one."""
    wanted = min(sizes[-1], HELD_BY_COLUMNS)
    for place in order:
        over = sum(sizes[:-1]) + GAP * (len(sizes) - 1) + wanted - width
        if over > 0:
            sizes[place] = max(min(sizes[place], NARROWEST), sizes[place] - over)


def _line(cells: Sequence[Cell], sizes: Sequence[int]) -> Line:
    line: list[Cell] = []
    for cell, size in zip(cells[:-1], sizes, strict=False):
        (fitting,) = cut((cell,), size) or (Cell(""),)
        line.append(Cell(fitting.text.ljust(size + GAP), cell.tone))
    return (*line, cells[-1])
