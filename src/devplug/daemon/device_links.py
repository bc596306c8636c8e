"""Links between devices: how well they are connected, and which sets are connected best. Pure.

The best set is the heaviest one, where devices and pairs of them have weights: exact where there are few
enough sets to be tried; beyond that a search with a fixed number of steps, so that equal calls have equal
results.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate, combinations_with_replacement, product
from math import comb
from operator import add, sub
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

__all__ = ["Weights", "Wired", "best_connected", "closeness", "heaviest"]

_SETS_LIMIT: Final = 13_000
"""How many sets are tried at most: all of any size among 16 members."""

_SEEDS: Final = 8
_SWAPS_LIMIT: Final = 64
"""How many sets a search beyond the limit begins with, and how often it exchanges a member of the best."""

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


# ── the heaviest set ──────────────────────────────────────────────────────────────────────────────


class Weights(Struct, frozen=True):
    """The weights of sets: the sum over their members and over their pairs."""

    own: Sequence[int]
    pairs: Sequence[Sequence[int]]
    """Symmetric, and 0 for a member with itself."""

    def never(self) -> int:
        """Return a weight so low that no other weights outweigh it."""
        return -2 * (sum(map(abs, self.own)) + sum(sum(map(abs, row)) for row in self.pairs) + 1)


def heaviest(weights: Weights, count: int) -> list[int]:
    """Return the `count` members that weigh most together, ascending; all, if there are no more.

    Exact as long as there are at most 13,000 sets: for all counts among 16 members. Of several sets that
    weigh the same it is then the one that comes first in the order of members.
    """
    total = len(weights.own)
    if not 0 < count < total:
        return [*range(total)][: max(0, count)]
    good, weight = _bounded(weights, count)
    return _exact(weights, count, weight) if comb(total, count) <= _SETS_LIMIT else good


def _exact(weights: Weights, count: int, known: int) -> list[int]:
    """Try all sets but those that cannot weigh more than others do. One is known to weigh `known`."""
    rows = weights.pairs
    # tops[n][one]: no n others add more to one. Half of that is its part of the pairs that it is in.
    columns = [
        [0, *accumulate(sorted((*row[:index], *row[index + 1 :]), reverse=True))]
        for index, row in enumerate(rows)
    ]
    tops = [[column[others] for column in columns] for others in range(count)]
    best: list[int] = []
    most = known - 1

    def extend(members: list[int], weight: int, gains: list[int]) -> None:
        """Try the sets that begin with `members`; `gains` are what those after the last of them would add."""
        nonlocal best, most
        start, missing = len(rows) - len(gains), count - len(members)
        if missing == 1:
            gain = max(gains)
            if weight + gain > most:
                best, most = [*members, start + gains.index(gain)], weight + gain
            return
        hopes = sorted(2 * gain + top for gain, top in zip(gains, tops[missing - 1][start:], strict=True))
        if 2 * weight + sum(hopes[-missing:]) <= 2 * most:
            return
        for offset in range(len(gains) - missing + 1):
            one = start + offset
            after = [*map(add, gains[offset + 1 :], rows[one][one + 1 :])]
            extend([*members, one], weight + gains[offset], after)

    extend([], 0, [*weights.own])
    return best


def _bounded(weights: Weights, count: int) -> tuple[list[int], int]:
    """Return a heavy set and its weight: the best that grows from one of a few members, then improved."""
    total, never = len(weights.own), weights.never()
    seeds = [None, *sorted({index * total // _SEEDS for index in range(_SEEDS)})]
    grown = [_grown(weights, seed, count, never) for seed in seeds]
    return _improved(weights, *max(grown, key=lambda one: one[1]), never)


def _grown(weights: Weights, seed: int | None, count: int, never: int) -> tuple[list[int], int]:
    """Return a set that begins with `seed` and takes what adds most, again and again; and its weight."""
    gains, weight = [*weights.own], 0
    members: list[int] = []
    while len(members) < count:
        one = gains.index(max(gains)) if seed is None or members else seed
        members.append(one)
        weight += gains[one]
        gains = [*map(add, gains, weights.pairs[one])]
        gains[one] = never
    return members, weight


def _improved(weights: Weights, members: list[int], weight: int, never: int) -> tuple[list[int], int]:
    """Exchange one member for another while that makes the set heavier, the best exchange each time."""
    rows = weights.pairs
    gains = [*map(sum, zip(weights.own, *(rows[one] for one in members), strict=True))]
    members = sorted(members)
    for _ in range(_SWAPS_LIMIT):
        outside = [*gains]
        for one in members:
            outside[one] = never
        most, gone, come = 0, -1, -1
        for one in members:
            instead = [*map(sub, outside, rows[one])]
            best = max(instead)
            if best - gains[one] > most:
                most, gone, come = best - gains[one], one, instead.index(best)
        if not most:
            break
        members = sorted((*(one for one in members if one != gone), come))
        weight += most
        gains = [gain - less + more for gain, less, more in zip(gains, rows[gone], rows[come], strict=True)]
    return members, weight


# ── connections ───────────────────────────────────────────────────────────────────────────────────


class Wired(Protocol):
    """A device as this module needs it."""

    @property
    def found(self) -> str:
        """The name of the found device behind it."""

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes of the device."""

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
    """Return the score of two devices for their distance on PCIe; links are added to it."""
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
    """Return the score of each pair, as rows. Replicas of one found device score 0."""
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
    """Return the devices taken in any case, then one replica of each found device to choose from.

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
    """Return the weights: three parts, so far apart that they are compared one after the other."""
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
