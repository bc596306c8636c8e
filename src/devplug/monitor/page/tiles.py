"""Which tiles are drawn, on which board, and in which order. Pure."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby, islice, zip_longest
from typing import TYPE_CHECKING, Final

from devplug.errors import one_line
from devplug.monitor.history import slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from devplug.monitor.found import FoundDevice
    from devplug.monitor.history import Segment
    from devplug.monitor.page.state import Board, Group, Tile
    from devplug.status.values import Holder

__all__ = ["TEXT_LIMIT_BYTES", "boards", "holder_text", "natural"]

TEXT_LIMIT_BYTES: Final = 300
"""Of a text that somebody else wrote; on the page there is little room, and an event has to stay small."""

_HOLDERS_SHOWN: Final = 3
_FILES_SHOWN: Final = 3
_NUMBER: Final = re.compile(r"([0-9]+)")

_Place = tuple[tuple[int, ...], str]
"""NUMA nodes and resource name."""

_RANKS: Final[tuple[Callable[[FoundDevice], bool], ...]] = (
    lambda device: not device.worst.is_healthy,
    lambda device: device.worst.is_healthy and device.held > 0,
    lambda device: device.worst.is_healthy and device.held == 0,
)
"""In which order tiles are drawn where not all can be."""


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return what sorts `tty10` after `tty9`."""
    return tuple(
        (int(part[:18]), part) if part.isascii() and part.isdigit() else (-1, part)
        for part in _NUMBER.split(text)
    )


def holder_text(holder: Holder) -> str:
    """Return a holder as people write it."""
    return f"{holder.namespace}/{holder.pod} ({holder.container})"


def boards(
    devices: Mapping[str, Sequence[FoundDevice]],
    strips: Mapping[tuple[str, str], tuple[Segment, ...]],
    now: float,
    *,
    limit: int,
    wanted: str = "",
) -> tuple[list[Board], int]:
    """Return the boards of a node with at most `limit` tiles, and how many more there would be.

    `devices` are by resource name. Where not all can be drawn, the unhealthy ones come first, then those that
    are held, and each resource has its turn. On its board a resource with an unhealthy device stands before
    the others, and in it that device. `wanted` leaves tiles out in which it does not stand, whatever
    the case of its letters.
    """
    found = {
        resource: [one for one in those if not wanted or wanted.casefold() in _searched(resource, one)]
        for resource, those in devices.items()
    }
    drawn: dict[_Place, list[FoundDevice]] = {}
    for resource, device in _chosen(found, limit):
        drawn.setdefault((_numa_nodes(device), resource), []).append(device)
    counts = Counter((_numa_nodes(one), resource) for resource, those in found.items() for one in those)
    made: list[Board] = []
    unwell = {place for place, those in drawn.items() if not all(one.worst.is_healthy for one in those)}
    ordered = sorted(
        counts, key=lambda place: (not place[0], len(place[0]), place[0], place not in unwell, place[1])
    )
    for numa_nodes, places in groupby(ordered, key=lambda place: place[0]):
        groups: list[Group] = []
        for place in places:
            resource = place[1]
            shown = sorted(drawn.get(place, ()), key=lambda one: (one.worst.is_healthy, natural(one.id)))
            tiles = [_tile(resource, one, strips.get((resource, one.id), ()), now) for one in shown]
            groups.append({"resource": resource, "tiles": tiles, "hidden": counts[place] - len(tiles)})
        made.append({"numa_nodes": list(numa_nodes), "title": _title(numa_nodes), "groups": groups})
    return made, counts.total() - sum(map(len, drawn.values()))


def _chosen(found: Mapping[str, Sequence[FoundDevice]], limit: int) -> Iterator[tuple[str, FoundDevice]]:
    """Yield what is drawn, with its resource's name."""
    left = limit
    for is_of_rank in _RANKS:
        of_rank = [[(name, one) for one in those if is_of_rank(one)] for name, those in sorted(found.items())]
        turns = (one for turn in zip_longest(*of_rank) for one in turn if one is not None)
        for one in islice(turns, left):
            left -= 1
            yield one


def _numa_nodes(device: FoundDevice) -> tuple[int, ...]:
    told = device.worst.numa_nodes
    return told if len(told) < 2 else tuple(sorted({*told}))


def _title(numa_nodes: Sequence[int]) -> str:
    match [str(node) for node in numa_nodes]:
        case []:
            return "No NUMA node"
        case [one]:
            return f"NUMA node {one}"
        case [*first, last]:
            return f"NUMA nodes {', '.join(first)} and {last}"
    return ""


def _searched(resource: str, device: FoundDevice) -> str:
    worst = device.worst
    texts: Iterable[str] = (
        device.id,
        resource,
        worst.health,
        worst.reason,
        *map(holder_text, device.holders),
        *worst.device_nodes,
    )
    return "\n".join(texts).casefold()


def _tile(resource: str, found: FoundDevice, segments: Sequence[Segment], now: float) -> Tile:
    worst = found.worst
    holders = found.holders
    leaving = [device.leaves_at for device in found.devices if device.leaves_at is not None]
    return {
        "id": found.id,
        "resource": resource,
        "health": worst.health,
        "reason": one_line(worst.reason, TEXT_LIMIT_BYTES),
        "since": worst.since,
        "leaves_at": min(leaving, default=None),
        "is_outdated": any(device.is_outdated for device in found.devices),
        "replicas": len(found.devices),
        "held": found.held,
        "holders": [holder_text(holder) for holder in holders[:_HOLDERS_SHOWN]],
        "more_holders": max(0, len(holders) - _HOLDERS_SHOWN),
        "files": [one_line(file, TEXT_LIMIT_BYTES) for file in worst.device_nodes[:_FILES_SHOWN]],
        "strip": slots(segments, now),
    }
