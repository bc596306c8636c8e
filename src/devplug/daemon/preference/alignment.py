"""From which NUMA nodes a request is met best: as few as possible, near to each other. Pure: only numbers."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations
from math import comb
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NOWHERE", "fewest_nodes"]

NOWHERE: Final = 1 << 30
"""Stands for the NUMA node of what has none: a place of its own, far from all others."""

_REMOTE_DISTANCE: Final = 20
"""Between two nodes of which nothing is known (REMOTE_DISTANCE of the kernel's include/linux/topology.h)."""

_UNREACHABLE: Final = 255
"""The largest distance there is (ACPI, System Locality Information Table)."""

_SETS_LIMIT: Final = 13_000
"""How many sets of one size are compared: all of up to 16 nodes."""


def fewest_nodes(
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
