"""The preferred devices of GetPreferredAllocation, by policy. Pure; it raises nothing.

`aligned` takes the fewest NUMA nodes, near to each other; how `linked` compares connections is in
`preference_links`.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from itertools import chain, combinations, islice
from math import comb
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.device_links import best_connected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

__all__ = ["Candidate", "preferred"]

NOWHERE: Final = 1 << 30
"""The NUMA node of a device without one: a node of its own, far from all others."""

_REMOTE_DISTANCE: Final = 20
"""The distance of two nodes for which sysfs has none (REMOTE_DISTANCE of the kernel's
include/linux/topology.h)."""

_UNREACHABLE: Final = 255
"""The largest distance there is (ACPI, System Locality Information Table)."""

_SETS_LIMIT: Final = 13_000
"""How many sets of one size are compared: all of up to 16 nodes."""

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
