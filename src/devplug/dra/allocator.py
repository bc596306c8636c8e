"""The allocator: devices for some claims, node by node, during one attempt to place a pod. Pure.

What its searches come to is remembered for later attempts, since most claims are like earlier ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.dra.counters import Available
from devplug.dra.pools import AS_DOCUMENTED, LIKE_1_36
from devplug.dra.search import MOST_STEPS, Found, Search, Supply

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from devplug.dra.allocations import Allocations
    from devplug.dra.objects import Claim, DeviceClass, SubRequest
    from devplug.dra.pools import Inventory, Like
    from devplug.dra.selectors import Selectors
    from devplug.k8s.node_selectors import Node

Known: TypeAlias = "dict[str, tuple[int, int, int | str]]"
"""By node, what the last search for claims of one kind came to: a score, or why there are no devices.

It is right for what the node saw then, the view of that number, and for so many changes of its pools.
"""

_MOST_KINDS: Final = 128
"""Of how many kinds of claims outcomes are remembered."""


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

    def recall(self, node: Node, known: Known) -> int | str | None:
        """Return what an earlier search at a node came to, None if there was none or something changed."""
        found = known.get(node.name)
        if found is None:
            return None
        number, changes, outcome = found
        view = self._inventory.view(node, self._supply.like)
        is_right = number == view.number and changes == self._supply.allocations.changes(view.pool_ids)
        return outcome if is_right else None

    def remember(self, node: Node, known: Known, outcome: int | str) -> None:
        """Remember what a search came to, unless the nodes that were looked at before may have decided."""
        view = self._inventory.view(node, self._supply.like)
        if not view.shares_counters:
            known[node.name] = view.number, self._supply.allocations.changes(view.pool_ids), outcome


# ── what is remembered ──


class Outcomes:
    """What searches came to; it lives as long as the cluster does."""

    def __init__(self) -> None:
        self._of: dict[Hashable, Known] = {}

    def of(self, claims: Sequence[Claim], classes: Mapping[str, DeviceClass], like: Like) -> Known:
        """Return what is known of claims like these; other kinds are forgotten if there are many."""
        kind = like, tuple(_kind(one, classes) for one in claims)
        known = self._of.pop(kind, None)
        if known is None:
            known = {}
            if len(self._of) >= _MOST_KINDS:
                del self._of[next(iter(self._of))]
        self._of[kind] = known
        return known


def _kind(claim: Claim, classes: Mapping[str, DeviceClass]) -> Hashable:
    """Return what of a claim, and of its classes, decides a search."""
    return claim.constraints, tuple(
        (request.name, request.is_list, tuple(_wish(one, classes) for one in request.alternatives))
        for request in claim.requests
    )


def _wish(what: SubRequest, classes: Mapping[str, DeviceClass]) -> Hashable:
    return (
        what.name,
        classes.get(what.device_class),
        what.selectors,
        what.mode,
        what.count,
        what.has_admin_access,
        what.tolerations,
        tuple(sorted(what.capacity.items())),
    )
