"""How well devices are connected with each other, and which of them are so best. Pure."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from devplug.daemon.preference.heaviest import Weights, heaviest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

__all__ = ["Wired", "best_connected", "closeness"]

LINK: Final = 100
SAME_BOARD: Final = 60
SAME_SWITCH: Final = 50
SAME_ROOT_PORT: Final = 40
SAME_HOST_BRIDGE: Final = 30
SAME_NUMA_NODE: Final = 20
ACROSS: Final = 10
"""What a pair of devices scores: for each link, and for the nearest thing on PCIe that they share. The ladder
is NVML's (nvmlGpuTopologyLevel_t), the scores are those of NVIDIA's best-effort policy (go-gpuallocator,
gpuallocator/besteffort_policy.go), so that people who come from there get what they had."""

_POOL_LIMIT: Final = 128
"""So many devices are compared with each other, or twice as many as are asked for. Of more, those in the
fullest places; who asks for more gets those."""

_HELD_LIMIT: Final = 256
"""So many of those that are held already are compared with them."""

_PCI: Final = re.compile(
    r"/(pci[0-9a-f]{4,}:[0-9a-f]{2}|[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])(?=/|$)"
)


class Wired(Protocol):
    """What is asked of a device here."""

    @property
    def found(self) -> str:
        """The name of the found device behind it."""

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes it is near to."""

    @property
    def hardware(self) -> str:
        """Its folder below /sys/devices, or nothing."""

    @property
    def links(self) -> Mapping[str, int]:
        """How strong its links to other found devices are, by name."""


W = TypeVar("W", bound=Wired)


# ── what a pair scores ────────────────────────────────────────────────────────────────────────────


class _Spot(NamedTuple):
    """Where on the machine a device is. Devices in one slot have equal ones."""

    above: tuple[str, ...]
    """The host bridge and the ports down to it, from the top; empty for what is not on PCI."""
    numa_nodes: frozenset[int]


def _spot(device: Wired) -> _Spot:
    return _Spot(tuple(_PCI.findall(device.hardware)[:-1]), frozenset(device.numa_nodes))


def closeness(one: Wired, other: Wired) -> int:
    """Return what two devices score for being near to each other on PCIe; links come on top."""
    return _closeness(_spot(one), _spot(other))


def _closeness(one: _Spot, other: _Spot) -> int:
    above, below = one.above, other.above
    if not above or not below or above[0] != below[0]:
        return ACROSS if one.numa_nodes.isdisjoint(other.numa_nodes) else SAME_NUMA_NODE
    longer, shorter = max(len(above), len(below)), min(len(above), len(below))
    shared = 1
    while shared < shorter and above[shared] == below[shared]:
        shared += 1
    if shared == 1:
        return SAME_HOST_BRIDGE
    # A port leads to one slot. A switch is a port up and ports down: what hangs on it shares the port up.
    apart = longer - shared
    return (SAME_BOARD, SAME_SWITCH)[apart] if apart < 2 else SAME_ROOT_PORT


def _scores(devices: Sequence[Wired]) -> list[list[int]]:
    """Return what each pair scores, as rows. Replicas of one found device score nothing together."""
    spots: dict[_Spot, int] = {}
    kinds = [spots.setdefault(_spot(one), len(spots)) for one in devices]
    table = [[0] * len(spots) for _ in spots]
    for (one, row), (other, column) in combinations_with_replacement(spots.items(), 2):
        table[row][column] = table[column][row] = _closeness(one, other)
    rows = [[near[kind] for kind in kinds] for near in (table[kind] for kind in kinds)]
    replicas = _indexes(devices)
    for (first, second), strength in _links(devices, replicas).items():
        rows[first][second] += LINK * strength
        rows[second][first] += LINK * strength
    for same in replicas.values():
        for first, second in product(same, same):
            rows[first][second] = 0
    return rows


def _links(devices: Sequence[Wired], replicas: Mapping[str, Sequence[int]]) -> dict[tuple[int, int], int]:
    """Return the strength of each link between two devices; what either end says, if they do not agree."""
    links: dict[tuple[int, int], int] = {}
    for index, one in enumerate(devices):
        for name, strength in one.links.items():
            for other in replicas.get(name, ()):
                pair = min(index, other), max(index, other)
                links[pair] = max(links.get(pair, 0), strength)
    return links


def _indexes(devices: Iterable[Wired]) -> dict[str, list[int]]:
    """Return where the replicas of each found device are."""
    indexes: dict[str, list[int]] = {}
    for index, one in enumerate(devices):
        indexes.setdefault(one.found, []).append(index)
    return indexes


# ── which devices ─────────────────────────────────────────────────────────────────────────────────


def best_connected(held: Sequence[W], free: Sequence[W], count: int, in_use: Mapping[str, int]) -> list[W]:
    """Return the `count` devices of `free` that are connected best with `held` and among themselves.

    In this order: no found device twice, as far as possible; the most points over all pairs; found devices
    with the fewest replicas in use (`in_use`, by name); the most points over all pairs of what is left free.
    Exact for all sizes among 16 found devices, and among 128 as long as there are at most 13,000 sets.
    `count` is at least 1, and at most what is free.
    """
    taken, pool = _rounds(held, free, count)
    held, count = [*held, *taken], count - len(taken)
    limit = max(_POOL_LIMIT, 2 * count) if count <= _POOL_LIMIT else count
    if len(pool) > limit:
        pool = _neighbours(held, pool, limit)
    if count < len(pool):
        weights = _weighed(held[:_HELD_LIMIT], pool, in_use)
        pool = [pool[index] for index in heaviest(weights, count)]
    return [*taken, *pool]


def _rounds(held: Sequence[W], free: Sequence[W], count: int) -> tuple[list[W], list[W]]:
    """Return what is taken anyway, and then one replica each of the found devices that there is a choice of.

    Replicas are dealt out in rounds, one of each found device, or else some would be taken twice too early.
    """
    dealt = Counter(one.found for one in held)
    rounds: list[int] = []
    for one in free:
        dealt[one.found] += 1
        rounds.append(dealt[one.found])
    last = sorted(rounds)[count - 1]
    numbered = [*zip(rounds, free, strict=True)]
    return [one for at, one in numbered if at < last], [one for at, one in numbered if at == last]


def _neighbours(held: Sequence[W], free: Sequence[W], limit: int) -> list[W]:
    """Return so many devices from where most of them are near to each other, and first from where `held` is.

    Most: by links, then NUMA nodes, then the folders below which they are, each within the one before.
    """
    islands = _islands([*held, *free])

    def places(devices: Sequence[Wired]) -> list[list[Hashable]]:
        folders = [one.hardware.split("/", 5) for one in devices]
        return [
            [islands.get(one.found) for one in devices],
            [one.numa_nodes for one in devices],
            [folder[3] if len(folder) > 3 else None for folder in folders],
            [folder[4] if len(folder) > 4 else None for folder in folders],
            [one.hardware.rsplit("/", 2)[0] for one in devices],
        ]

    ranks: list[list[int]] = []
    for mine, column in zip(places(held), places(free), strict=True):
        mine_of, size_of = Counter(mine), Counter(column)
        best_first = sorted(size_of, key=lambda place: (-mine_of[place], place is None, -size_of[place]))
        rank_of = {place: rank for rank, place in enumerate(best_first)}
        ranks.append([rank_of[place] for place in column])
    order = sorted(zip(*ranks, range(len(free)), strict=True))
    return [free[rank[-1]] for rank in order[:limit]]


def _islands(devices: Sequence[Wired]) -> dict[str, str]:
    """Return of each linked found device the first from which links lead to it, in any number of steps."""
    links = {one.found: one.links.keys() for one in devices}
    apart = {*links}
    islands: dict[str, str] = {}
    for first, others in links.items():
        if others and first in apart:
            island = [first]
            apart.discard(first)
            for name in island:
                new = apart & links[name]
                apart -= new
                island += new
            islands.update(dict.fromkeys(island, first))
    return islands


def _weighed(held: Sequence[Wired], free: Sequence[Wired], in_use: Mapping[str, int]) -> Weights:
    """Return what sets weigh: three parts, so far apart that they are compared one after the other."""
    rows = _scores([*free, *held])
    count = len(free)
    inner = [row[:count] for row in rows[:count]]
    degrees = [*map(sum, inner)]
    loads = [in_use.get(one.found, 0) for one in free]
    use_unit = sum(degrees) // 2 + 1
    score_unit = use_unit * (sum(loads) + 1)
    # What is left scores all pairs, less those of each member, which takes away pairs of members twice.
    own = [
        score_unit * sum(row[count:]) - use_unit * load - degree
        for row, load, degree in zip(rows, loads, degrees, strict=False)
    ]
    return Weights(own, [[(score_unit + 1) * score for score in row] for row in inner])
