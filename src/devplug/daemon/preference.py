"""The preferred devices of GetPreferredAllocation, by policy. Pure; it raises nothing.

`aligned` takes the fewest NUMA nodes, near to each other. `linked` takes the best-connected set: exact where
few enough sets have to be compared, and else the result of a search with a fixed number of steps.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from itertools import accumulate, chain, combinations, combinations_with_replacement, islice, product
from math import comb
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


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
    for size in range(_least(room, fixed, count), len(open_nodes) + 1):
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


def _least(room: Mapping[frozenset[int], int], fixed: frozenset[int], count: int) -> int:
    """Return how many more nodes are needed at least: as if no device counted at two of them."""
    per_node: Counter[int] = Counter()
    for nodes, number in room.items():
        if nodes.isdisjoint(fixed):
            per_node.update(dict.fromkeys(nodes, number))
        else:
            count -= number
    most = accumulate(sorted(per_node.values(), reverse=True), initial=0)
    return sum(number < count for number in most)


def _grown(
    room: Mapping[frozenset[int], int],
    bound: Iterable[frozenset[int]],
    fixed: frozenset[int],
    count: int,
    distances: Mapping[tuple[int, int], int],
) -> set[int]:
    """Return nodes to which the fullest is added until they are enough; of the fullest, the nearest."""
    chosen = {*fixed}
    while True:
        left = {nodes: number for nodes, number in room.items() if nodes.isdisjoint(chosen)}
        unmet = next((nodes for nodes in bound if nodes.isdisjoint(chosen)), None)
        if unmet is None and sum(room.values()) - sum(left.values()) >= count:
            return chosen
        gains = Counter(dict.fromkeys(unmet or (), 0))
        for nodes, number in left.items():
            gains.update(dict.fromkeys(nodes if unmet is None else nodes & unmet, number))
        away = {node: sum(_distance(distances, node, other) for other in chosen) for node in gains}
        chosen.add(min(gains, key=lambda node: (-gains[node], away[node], node)))


def _span(nodes: Iterable[int], distances: Mapping[tuple[int, int], int]) -> int:
    """Return the sum of the distances between nodes."""
    return sum(_distance(distances, one, other) for one, other in combinations(nodes, 2))


def _distance(distances: Mapping[tuple[int, int], int], one: int, other: int) -> int:
    """Return the distance of two nodes, there and back: firmware may give two values."""
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
    """Return candidates as people sort their IDs."""
    return sorted(candidates, key=lambda one: (_natural(one.id), one.id))


def _natural(device_id: str) -> str:
    """Return what sorts `fpga2` before `fpga10`, as text: among thousands the sort is most of an answer."""
    parts = _DIGITS.split(device_id)
    parts[1::2] = [part.rjust(_DIGITS_WIDTH, "0") for part in parts[1::2]]
    return "".join(parts)


def _automatic(candidates: Sequence[Candidate], all_devices: Sequence[Candidate]) -> str:
    """Return the policy that suits the devices."""
    if any(one.links for one in candidates):
        return "linked"
    found = Counter({one.id: one.found for one in chain(all_devices, candidates)}.values())
    return "leastShared" if max(found.values()) > 1 else "aligned"


def _first(request: _Request) -> Iterable[Candidate]:
    """`none`: ID order."""
    return request.free[: request.count]


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


# ── links between devices ─────────────────────────────────────────────────────────────────────────


LINK: Final = 100
SAME_BOARD: Final = 60
SAME_SWITCH: Final = 50
SAME_ROOT_PORT: Final = 40
SAME_HOST_BRIDGE: Final = 30
SAME_NUMA_NODE: Final = 20
ACROSS: Final = 10
"""What a pair of devices scores: for each link, and for the nearest thing on PCIe that they share. The ladder
is NVML's (nvmlGpuTopologyLevel_t), the scores are those of NVIDIA's best-effort policy (go-gpuallocator,
gpuallocator/besteffort_policy.go), so that a change from that plugin changes no choice."""

_POOL_LIMIT: Final = 128
"""The number of devices that are compared with each other, or twice the requested number if that is larger.
Of more devices, those nearest to the held devices are compared."""

_HELD_LIMIT: Final = 16
"""How many of the held devices are compared with them."""

_SEEDS: Final = 8
_SWAPS_LIMIT: Final = 64
"""How many sets a search beyond the limit begins with, and how often it exchanges a member of the best."""

_PCI: Final = re.compile(
    r"/(pci[0-9a-f]{4,}:[0-9a-f]{2}|[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])(?=/|$)"
)


class Spot(NamedTuple):
    """Where on the machine a device is. Devices in one slot have equal ones."""

    above: tuple[str, ...]
    """The host bridge and the ports down to it, from the top; empty for what is not on PCI."""
    numa_nodes: frozenset[int]


def spot_of(device: Candidate) -> Spot:
    """Return where a device is."""
    return Spot(tuple(_PCI.findall(device.hardware)[:-1]), frozenset(device.numa_nodes))


def closeness(one: Spot, other: Spot) -> int:
    """Return the score of two devices for their distance on PCIe; links are added to it."""
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


def _scores(devices: Sequence[Candidate]) -> list[list[int]]:
    """Return the score of each pair, as rows. Replicas of one found device score 0."""
    spots: dict[Spot, int] = {}
    kinds = [spots.setdefault(spot_of(one), len(spots)) for one in devices]
    table = [[0] * len(spots) for _ in spots]
    for (spot, row), (other, column) in combinations_with_replacement(spots.items(), 2):
        table[row][column] = table[column][row] = closeness(spot, other)
    rows = [[near[kind] for kind in kinds] for near in (table[kind] for kind in kinds)]
    replicas: dict[str, list[int]] = {}
    for index, one in enumerate(devices):
        replicas.setdefault(one.found, []).append(index)
    for (first, second), strength in _links(devices, replicas).items():
        rows[first][second] += LINK * strength
        rows[second][first] += LINK * strength
    for same in replicas.values():
        for first, second in product(same, same):
            rows[first][second] = 0
    return rows


def _links(devices: Sequence[Candidate], replicas: Mapping[str, Sequence[int]]) -> dict[tuple[int, int], int]:
    """Return the strength of each link between two devices: the greater one of what the two ends say."""
    links: dict[tuple[int, int], int] = {}
    for index, one in enumerate(devices):
        for name, strength in one.links.items():
            for other in replicas.get(name, ()):
                pair = min(index, other), max(index, other)
                links[pair] = max(links.get(pair, 0), strength)
    return links


def _linked(request: _Request) -> Iterable[Candidate]:
    """`linked`: the free devices that are connected best with the held ones and among themselves.

    In this order: no found device twice, as far as possible; the most points over all pairs; found devices
    with the fewest replicas in use; the most points over all pairs of what is left free.
    """
    taken, pool = _rounds(request.held, request.free, request.count)
    held, count = [*request.held, *taken][:_HELD_LIMIT], request.count - len(taken)
    limit = max(_POOL_LIMIT, 2 * count) if count <= _POOL_LIMIT else count
    if len(pool) > limit:
        pool = _nearest(held or pool[:1], pool)[:limit]
    if count < len(pool):
        pool = [pool[index] for index in heaviest(_weighed(held, pool, request.in_use), count)]
    return [*taken, *pool]


def _rounds(
    held: Sequence[Candidate], free: Sequence[Candidate], count: int
) -> tuple[list[Candidate], list[Candidate]]:
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


def _nearest(held: Sequence[Candidate], free: Sequence[Candidate]) -> list[Candidate]:
    """Return devices by how near they are to the held ones: by links, then on PCIe."""
    places = [(one, spot_of(one)) for one in held]

    def points(device: Candidate) -> int:
        spot = spot_of(device)
        return sum(LINK * device.links.get(one.found, 0) + closeness(spot, place) for one, place in places)

    return sorted(free, key=points, reverse=True)


def _weighed(held: Sequence[Candidate], free: Sequence[Candidate], in_use: Mapping[str, int]) -> Weights:
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


# ── the heaviest set ──────────────────────────────────────────────────────────────────────────────


class Weights(Struct, frozen=True):
    """The weights of sets: the sum over their members and over their pairs."""

    own: Sequence[int]
    pairs: Sequence[Sequence[int]]
    """Symmetric, and 0 for a member with itself."""


def heaviest(weights: Weights, count: int) -> list[int]:
    """Return the `count` members with the largest weight together, in ascending order; at most all members.

    The result is exact for at most 13,000 possible sets, which includes all counts among 16 members. Among
    sets with equal weight, the first in the order of members wins.
    """
    total = len(weights.own)
    if not 0 < count < total:
        return [*range(total)][: max(0, count)]
    return _exact(weights, count) if comb(total, count) <= _SETS_LIMIT else _searched(weights, count)


def _exact(weights: Weights, count: int) -> list[int]:
    """Try all sets."""
    rows = weights.pairs
    best: tuple[int, list[int]] | None = None

    def extend(members: list[int], weight: int, gains: list[int]) -> None:
        """Try the sets that begin with `members`; `gains` are what those after the last of them would add."""
        nonlocal best
        start, missing = len(rows) - len(gains), count - len(members)
        if missing == 1:
            gain = max(gains)
            if best is None or weight + gain > best[0]:
                best = weight + gain, [*members, start + gains.index(gain)]
            return
        for offset in range(len(gains) - missing + 1):
            one = start + offset
            after = [*map(add, gains[offset + 1 :], rows[one][one + 1 :])]
            extend([*members, one], weight + gains[offset], after)

    extend([], 0, [*weights.own])
    return [] if best is None else best[1]


def _searched(weights: Weights, count: int) -> list[int]:
    """Return a heavy set: the best that grows from one of a few members, then improved."""
    total = len(weights.own)
    seeds = [max(range(total), key=weights.own.__getitem__), *(n * total // _SEEDS for n in range(_SEEDS))]
    grown = [_grown_set(weights, seed, count) for seed in seeds]
    return _improved(weights, max(grown, key=lambda one: one[0])[1])


def _gains(weights: Weights, members: Iterable[int]) -> list[int]:
    """Return what each would add to a set of members."""
    return [*map(sum, zip(weights.own, *(weights.pairs[one] for one in members), strict=True))]


def _grown_set(weights: Weights, seed: int, count: int) -> tuple[int, list[int]]:
    """Return a set that begins with `seed` and takes what adds most, again and again; its weight first."""
    gains, weight, members = [*weights.own], 0, [seed]
    left = {*range(len(gains))} - {seed}
    while True:
        weight += gains[members[-1]]
        if len(members) == count:
            return weight, members
        gains = [*map(add, gains, weights.pairs[members[-1]])]
        members.append(max(left, key=lambda one: (gains[one], -one)))
        left.remove(members[-1])


def _improved(weights: Weights, members: Sequence[int]) -> list[int]:
    """Exchange one member for another while that makes the set heavier, the best exchange each time."""
    chosen = {*members}
    for _ in range(_SWAPS_LIMIT):
        gains = _gains(weights, chosen)
        outside = [one for one in range(len(gains)) if one not in chosen]
        most, gone, come = max(
            (gains[come] - weights.pairs[gone][come] - gains[gone], -gone, -come)
            for gone in chosen
            for come in outside
        )
        if most <= 0:
            break
        chosen = (chosen - {-gone}) | {-come}
    return sorted(chosen)


_POLICIES: Final[Mapping[str, Callable[[_Request], Iterable[Candidate]]]] = {
    "packed": _packed,
    "spread": _spread,
    "leastShared": _least_shared,
    "aligned": _aligned,
    "linked": _linked,
}
