"""The allocator: devices for some claims, node by node, during one attempt to place a pod. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from devplug.dra.counters import Available
from devplug.dra.pools import AS_DOCUMENTED, LIKE_1_36
from devplug.dra.search import MOST_STEPS, Found, Search, Supply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.dra.allocations import Allocations
    from devplug.dra.objects import Claim, DeviceClass
    from devplug.dra.pools import Inventory, Like
    from devplug.dra.selectors import Selectors
    from devplug.k8s.node_selectors import Node

__all__ = ["Allocator"]


class Allocator:
    """What is chosen from during one attempt; nothing of it changes while the attempt lasts."""

    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        inventory: Inventory,
        allocations: Allocations,
        selectors: Selectors,
        like: Like = LIKE_1_36,
        most_steps: int = MOST_STEPS,
    ) -> None:
        self._inventory = inventory
        self._supply = Supply(classes, allocations, selectors, Available(allocations, like), like, most_steps)

    def allocate(self, node: Node, claims: Sequence[Claim]) -> Found:
        """Return the first solution for all claims at a node. Raises `AttemptError`.

        Where a bug of the release may have decided, it is looked whether the result would be another one
        without it.
        """
        supply = self._supply
        search = Search(supply, self._inventory.view(node, supply.like), claims)
        found = search.found()
        suspicions = search.suspicions() if supply.like == LIKE_1_36 else frozenset()
        if not suspicions:
            return found
        other = Allocator(
            supply.classes,
            self._inventory,
            supply.allocations,
            supply.selectors,
            AS_DOCUMENTED,
            supply.most_steps,
        ).allocate(node, claims)
        if other.allocations == found.allocations:
            return found
        return replace(found, bugs=tuple(sorted(suspicions)))
