"""The preferred devices of GetPreferredAllocation, by policy. Pure; it raises nothing.

`aligned` takes the fewest NUMA nodes, near to each other; how `linked` compares connections is in
`preference_links`.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from itertools import accumulate, chain, combinations, combinations_with_replacement, islice, product
from math import comb
from operator import add, sub
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence


NOWHERE: Final = 1 << 30
"""The NUMA node of a device without one: a node of its own, far from all others."""

_REMOTE_DISTANCE: Final = 20
"""The distance of two nodes for which sysfs has none (REMOTE_DISTANCE of the kernel's
include/linux/topology.h)."""

_UNREACHABLE: Final = 255
"""The largest distance there is (ACPI, System Locality Information Table)."""

_SETS_LIMIT: Final = 13_000
"""How many sets of one size are compared: all of any size among 16 members."""

_NO_LINKS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_DISTANCES: Final[Mapping[tuple[int, int], int]] = MappingProxyType({})

_DIGITS: Final = re.compile(r"(\d+)")
_DIGITS_WIDTH: Final = 20
"""Numbers of more digits than this are compared as text."""


# ── NUMA nodes ────────────────────────────────────────────────────────────────────────────────────


def _fewest_nodes(
    held: Iterable[tuple[int, ...]],
    free: Iterable[tuple[int, ...]],
    count: int,
    distances: Mapping[tuple[int, int], int],
) -> set[int]:
    """Return the nodes that have `count` of the free devices, and all held ones; a device is its nodes.

    A device of several nodes is on any of them, as in the kubelet's hints (topology_hints.go). Of several
    sets with the fewest nodes the one whose nodes are nearest to each other, then the one with the fewest
    free devices, so that larger requests find room elsewhere. Exact for up to 16 nodes, and for more if few
    of them are enough. There are at least `count` free devices.
    """
    room, bound = Counter(map(frozenset, free)), {*map(frozenset, held)}
    fixed = frozenset(node for nodes in bound if len(nodes) == 1 for node in nodes)
    open_nodes = sorted({*chain.from_iterable(chain(room, bound))} - fixed)
    bit_of = {node: 1 << index for index, node in enumerate([*sorted(fixed), *open_nodes])}
    # Sets as numbers: there are thousands of them to compare.
    masks = {sum(bit_of[node] for node in nodes): number for nodes, number in room.items()}
    needs = [sum(bit_of[node] for node in nodes) for nodes in bound]
    base = sum(bit_of[node] for node in fixed)
    for size in range(_least(room, fixed, open_nodes, count), len(open_nodes) + 1):
        if comb(len(open_nodes), size) > _SETS_LIMIT:
            break
        enough: list[tuple[int, int, tuple[int, ...]]] = []
        for more in combinations(open_nodes, size):
            mask = base | sum(bit_of[node] for node in more)
            has = sum(number for one, number in masks.items() if one & mask)
            if has >= count and all(one & mask for one in needs):
                enough.append((_span({*fixed, *more}, distances), has, more))
        if enough:
            return {*fixed, *min(enough)[2]}
    return _grown(room, bound, fixed, count, distances)


def _least(
    room: Mapping[frozenset[int], int], fixed: frozenset[int], open_nodes: Iterable[int], count: int
) -> int:
    """Return how many more nodes are needed at least: as if no device counted at two of them."""
    per_node: Counter[int] = Counter()
    for nodes, number in room.items():
        if nodes.isdisjoint(fixed):
            per_node.update(dict.fromkeys(nodes, number))
        else:
            count -= number
    size = 0
    for number in sorted((per_node[node] for node in open_nodes), reverse=True):
        if count <= 0:
            break
        count -= number
        size += 1
    return size


def _grown(
    room: Mapping[frozenset[int], int],
    bound: Iterable[frozenset[int]],
    fixed: frozenset[int],
    count: int,
    distances: Mapping[tuple[int, int], int],
) -> set[int]:
    """Return nodes to which the fullest is added until they are enough; of the fullest, the nearest."""
    chosen = set(fixed)
    unmet = [nodes for nodes in bound if nodes.isdisjoint(chosen)]
    away: Counter[int] = Counter()
    for one in fixed:
        away.update({node: _distance(distances, one, node) for nodes in room for node in nodes})
    while True:
        unmet = [nodes for nodes in unmet if nodes.isdisjoint(chosen)]
        there = sum(number for nodes, number in room.items() if not nodes.isdisjoint(chosen))
        if not unmet and there >= count:
            return chosen
        gains: Counter[int] = Counter(dict.fromkeys(chain.from_iterable(unmet[:1]), 0))
        for nodes, number in room.items():
            if nodes.isdisjoint(chosen):
                gains.update(dict.fromkeys(nodes.intersection(unmet[0]) if unmet else nodes, number))
        best = min(gains, key=lambda node: (-gains[node], away[node], node))
        chosen.add(best)
        away.update({node: _distance(distances, best, node) for nodes in room for node in nodes})


def _span(nodes: Iterable[int], distances: Mapping[tuple[int, int], int]) -> int:
    """Return how far nodes are from each other, all in all."""
    return sum(_distance(distances, one, other) for one, other in combinations(nodes, 2))


def _distance(distances: Mapping[tuple[int, int], int], one: int, other: int) -> int:
    """Return how far two nodes are from each other, there and back: firmware may say two things."""
    default = _UNREACHABLE if NOWHERE in {one, other} else _REMOTE_DISTANCE
    return distances.get((one, other), default) + distances.get((other, one), default)


# ── policies ──────────────────────────────────────────────────────────────────────────────────────


class Candidate(Struct, frozen=True):
    """A device that can be allocated, with what policies compare. Lives as long as one answer."""

    id: str
    found: str
    """The name of its found device, which replicas have in common."""
    numa_nodes: tuple[int, ...] = ()
    hardware: str = ""
    """Its folder below /sys/devices: the folders above say how near two devices are on the PCIe bus."""
    links: Mapping[str, int] = field(default_factory=lambda: _NO_LINKS)
    """The number of NVLinks, or of other connections faster than PCIe, by name of the other found device."""

    def __hash__(self) -> int:
        """Return the hash of what identifies it: mappings have none."""
        return hash(self.id)


class _Request(Struct, frozen=True):
    """One question: choose `count` of `free`, which is in ID order and has more than that."""

    held: Sequence[Candidate]
    """The candidates that the answer must include."""
    free: Sequence[Candidate]
    count: int
    in_use: Mapping[str, int]
    """The number of replicas that are allocated or unhealthy, by name of the found device."""
    distances: Mapping[tuple[int, int], int]


def preferred(
    policy: str,
    candidates: Sequence[Candidate],
    must_include: Collection[str],
    size: int,
    *,
    all_devices: Sequence[Candidate],
    numa_distances: Mapping[tuple[int, int], int] = _NO_DISTANCES,
) -> list[str]:
    """Return the IDs of the `size` candidates that the policy prefers; of all, if there are fewer.

    `policy` is a word of the configuration's `prefer`; any other means ID order. First come those of
    `must_include` that are candidates. `all_devices` are those of the whole resource, also what is in use or
    unhealthy. `numa_distances` are between two nodes, as /sys/devices/system/node/node*/distance has them.
    The order of what is passed does not matter, and among equals the lower IDs win.
    """
    ordered = _in_order(candidates)
    wanted = frozenset(must_include)
    held = [one for one in ordered if one.id in wanted][: max(0, size)]
    free = [one for one in ordered if one.id not in wanted]
    count = max(0, size - len(held))
    if 0 < count < len(free):
        present = {one.id for one in ordered}
        in_use = Counter(one.found for one in all_devices if one.id not in present)
        choose = _POLICIES.get(_automatic(ordered, all_devices) if policy == "auto" else policy, _first)
        chosen = {one.id for one in choose(_Request(held, free, count, in_use, numa_distances))}
        free = [one for one in free if one.id in chosen]
    return [one.id for one in chain(held, free[:count])]


def _in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates as people sort their IDs, each ID once."""
    by_id: dict[str, Candidate] = {}
    for one in candidates:
        other = by_id.setdefault(one.id, one)
        if other is not one and repr(one) < repr(other):
            by_id[one.id] = one
    return [by_id[device_id] for device_id in sorted(sorted(by_id), key=_natural)]


def _natural(device_id: str) -> str:
    """Return what sorts `fpga2` before `fpga10`, as text: among thousands the sort is most of an answer."""
    parts = _DIGITS.split(device_id)
    parts[1::2] = [part.rjust(_DIGITS_WIDTH, "0") for part in parts[1::2]]
    return "".join(parts)


def _automatic(candidates: Sequence[Candidate], all_devices: Sequence[Candidate]) -> str:
    """Return the policy that suits the devices."""
    if any(one.links for one in candidates):
        return "linked"
    devices = {one.id: one.found for one in chain(all_devices, candidates)}
    return "leastShared" if len({*devices.values()}) < len(devices) else "aligned"


def _first(request: _Request) -> Iterable[Candidate]:
    """`none`: ID order."""
    return request.free[: request.count]


def _linked(request: _Request) -> Iterable[Candidate]:
    """`linked`: see `best_connected`."""
    return best_connected(request.held, request.free, request.count, request.in_use)


# ── replicas ──────────────────────────────────────────────────────────────────────────────────────


def _replicas(free: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Return the free replicas of each found device, all in ID order."""
    replicas: dict[str, list[Candidate]] = {}
    for one in free:
        replicas.setdefault(one.found, []).append(one)
    return replicas


def _packed(request: _Request) -> Iterable[Candidate]:
    """`packed`: fill up the found devices of which most is in use, then touch as few others as possible.

    So found devices that nobody uses stay whole. The most in sum of what is in use, by others and by the
    request before it gets more, over all that is taken; then the fewest found devices.
    """
    replicas = _replicas(request.free)
    mine = Counter(one.found for one in request.held)

    def rank(found: str) -> tuple[int, bool, int]:
        return -request.in_use.get(found, 0) - mine[found], found not in mine, -len(replicas[found])

    ranked = chain.from_iterable(replicas[found] for found in sorted(replicas, key=rank))
    return islice(ranked, request.count)


def _least_shared(request: _Request) -> Iterable[Candidate]:
    """`leastShared`: take the replica that fewest others share a found device with, again and again.

    Of two that are shared alike, the one of another found device. As NVIDIA's plugin distributes replicas
    (k8s-device-plugin, internal/rm/allocate.go).
    """
    return _evenly(request, lambda in_use, mine: (in_use + mine, mine > 0))


def _spread(request: _Request) -> Iterable[Candidate]:
    """`spread`: as many found devices as possible, and then those that are shared least."""
    return _evenly(request, lambda in_use, mine: (mine > 0, in_use + mine))


def _evenly(request: _Request, rank: Callable[[int, int], tuple[int, int]]) -> Iterable[Candidate]:
    """Yield a replica of the found device that ranks lowest now, by how much of it is in use and chosen."""
    replicas = [*_replicas(request.free).items()]
    mine = Counter(one.found for one in request.held)
    heap = [
        (rank(request.in_use.get(found, 0), mine[found]), index, 0)
        for index, (found, _) in enumerate(replicas)
    ]
    heapq.heapify(heap)
    for _ in range(request.count):
        _, index, given = heapq.heappop(heap)
        found, free = replicas[index]
        yield free[given]
        mine[found] += 1
        if given + 1 < len(free):
            heapq.heappush(heap, (rank(request.in_use.get(found, 0), mine[found]), index, given + 1))


# ── NUMA nodes ────────────────────────────────────────────────────────────────────────────────────


def _places(candidate: Candidate) -> tuple[int, ...]:
    return candidate.numa_nodes or (NOWHERE,)


def _aligned(request: _Request) -> Iterable[Candidate]:
    """`aligned`: from the fewest NUMA nodes, then the nearest (`_fewest_nodes`), and there as in `packed`."""
    held, free = map(_places, request.held), map(_places, request.free)
    nodes = _fewest_nodes(held, free, request.count, request.distances)
    near = [one for one in request.free if not nodes.isdisjoint(_places(one))]
    return _packed(replace(request, free=near))


_POLICIES: Final[Mapping[str, Callable[[_Request], Iterable[Candidate]]]] = {
    "packed": _packed,
    "spread": _spread,
    "leastShared": _least_shared,
    "aligned": _aligned,
    "linked": _linked,
}


# ── links between devices ──
#
# The best set is the heaviest one, where devices and pairs of them have weights: exact where there are few
# enough sets to be tried; beyond that a search with a fixed number of steps, so that equal calls have equal
# results.


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
    grown = [_grown_set(weights, seed, count, never) for seed in seeds]
    return _improved(weights, *max(grown, key=lambda one: one[1]), never)


def _grown_set(weights: Weights, seed: int | None, count: int, never: int) -> tuple[list[int], int]:
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
