"""Groups of nodes that are alike, which a search goes through instead of nodes, and their ratings. Pure.

Nodes with the same allocatable, usage, taints and labels that pods ask for make a group, and get the same
answer for a pod. Groups with the same taints and labels make a family: there all but resources is decided. A
rating is what one shape of pods makes of a group by resources alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from devplug.sandbox.scheduler.scores import (
    MOST,
    Strategy,
    balance,
    balance_gain,
    is_scalar,
    scored_requests,
    scorer_of,
)
from devplug.sandbox.scheduler.types import CPU, MEMORY, PODS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from devplug.sandbox.scheduler.scores import ScoringSettings
    from devplug.sandbox.scheduler.types import Amounts, Node, Shape

_RANK_LENGTH = 16
NO_ROOM = -1


# ── Groups ──


def tie_rank(seed: int, node_name: str) -> str:
    """Return what decides among equal nodes: the least wins. As good as random, and the same for one seed."""
    digest = hashlib.blake2b(f"{seed}/{node_name}".encode(), digest_size=_RANK_LENGTH // 2)
    return digest.hexdigest() + node_name


def named_by(rank: str) -> str:
    """Return the name of the node with a rank."""
    return rank[_RANK_LENGTH:]


@dataclass(frozen=True, slots=True)
class Usage:
    """The sum of the requests of the pods of one node."""

    pods: int = 0
    requests: Amounts = ()
    scored_cpu: int = 0
    scored_memory: int = 0

    def plus(self, shape: Shape, sign: int = 1) -> Usage:
        """Return the usage with a pod more, or with a sign of -1 less."""
        amounts = dict(self.requests)
        for name, amount in shape.requests:
            amounts[name] = amounts.get(name, 0) + sign * amount
        return Usage(
            self.pods + sign,
            tuple(sorted(one for one in amounts.items() if one[1])),
            self.scored_cpu + sign * shape.scored_cpu,
            self.scored_memory + sign * shape.scored_memory,
        )


@dataclass(slots=True, eq=False)
class Family:
    """Groups that any pod sees alike, resources aside. It lives until the nodes are grouped anew."""

    number: int
    """Its place among the families, from 0."""
    node: Node
    """Any node that is, or was, of it."""


@dataclass(slots=True, eq=False)
class NodeGroup:
    """Nodes in the same state; it lives until the last of them leaves it, and never again."""

    number: int
    key: Hashable
    """Its state, by which the cluster finds it."""
    family: Family
    allocatable: Mapping[str, int]
    usage: Usage
    settings: InitVar[ScoringSettings]
    requested: dict[str, int] = field(init=False)
    free: dict[str, int] = field(init=False)
    used: tuple[int, ...] = field(init=False)
    wholes: tuple[int, ...] = field(init=False)
    """As much as is used and allocatable of each scored resource; cpu and memory as they are scored."""
    balance_used: tuple[int, ...] = field(init=False)
    balance_wholes: tuple[int, ...] = field(init=False)
    """The same for each resource to be balanced, as it is requested."""
    balance: int = field(init=False)
    rank: str = ""
    """The least rank of its nodes; empty when none is left."""
    _members: set[str] = field(default_factory=set)
    _ranks: list[str] = field(default_factory=list)
    """A heap of the members' ranks, and of some that have left."""

    def __post_init__(self, settings: ScoringSettings) -> None:
        usage, allocatable = self.usage, self.allocatable
        self.requested = dict(usage.requests)
        self.free = {name: whole - self.requested.get(name, 0) for name, whole in allocatable.items()}
        self.free[PODS] = allocatable.get(PODS, 0) - usage.pods
        scored = {**self.requested, CPU: usage.scored_cpu, MEMORY: usage.scored_memory}
        self.used = tuple(scored.get(name, 0) for name, _ in settings.resources)
        self.wholes = tuple(allocatable.get(name, 0) for name, _ in settings.resources)
        self.balance_used = tuple(self.requested.get(name, 0) for name in settings.balanced)
        self.balance_wholes = tuple(allocatable.get(name, 0) for name in settings.balanced)
        self.balance = balance((0,) * len(self.balance_used), self.balance_used, self.balance_wholes)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._members)

    def join(self, rank: str) -> bool:
        """Take a node in; return whether it is now the first."""
        self._members.add(rank)
        heappush(self._ranks, rank)
        if self.rank and self.rank < rank:
            return False
        self.rank = rank
        return True

    def leave(self, rank: str) -> None:
        """Let a node go."""
        self._members.discard(rank)
        ranks, members = self._ranks, self._members
        while ranks and ranks[0] not in members:
            heappop(ranks)
        self.rank = ranks[0] if ranks else ""


# ── Ratings ──


Rate: TypeAlias = Callable[[NodeGroup], int]
"""Returns the sum of the scores for resources and for balance, or `NO_ROOM` if there is too little left."""


@dataclass(frozen=True, slots=True)
class Rating:
    """The rating of groups for one shape of pods; it lives as long as its shape is remembered."""

    needs: Amounts
    """What must be left: the requests, and room for one pod."""
    weights: tuple[int, ...]
    """Of each scored resource; 0 if it does not count, because the pod does not request it."""
    added: tuple[int, ...]
    """What the pod adds of each."""
    balance_added: tuple[int, ...]
    """What the pod adds of each resource to be balanced; empty if none of any, as it is not scored then."""

    @classmethod
    def of(cls, shape: Shape, settings: ScoringSettings) -> Rating:
        """Return the rating of a shape."""
        requests, scored = dict(shape.requests), scored_requests(shape)
        balanced = tuple(requests.get(name, 0) for name in settings.balanced)
        return cls(
            (*shape.requests, (PODS, 1)),
            tuple(
                weight if name in requests or not is_scalar(name) else 0
                for name, weight in settings.resources
            ),
            tuple(scored.get(name, 0) for name, _ in settings.resources),
            balanced if any(balanced) else (),
        )

    def rate(self, settings: ScoringSettings) -> Rate:
        """Return what rates a group."""
        rate = self._any(settings)
        names = tuple(name for name, _ in settings.resources)
        if settings.strategy is Strategy.LEAST_ALLOCATED and names == settings.balanced == (CPU, MEMORY):
            return self._default(rate)
        return rate

    def _any(self, settings: ScoringSettings) -> Rate:
        needs, weights, added, balance_added = self.needs, self.weights, self.added, self.balance_added
        scorer = scorer_of(settings)
        # What the pod does not request does not count for the balance without it either.
        left_out = [
            at
            for at, (name, amount) in enumerate(zip(settings.balanced, balance_added, strict=False))
            if is_scalar(name) and not amount
        ]

        def rate(group: NodeGroup) -> int:
            free = group.free
            for name, amount in needs:
                if amount > free.get(name, 0):
                    return NO_ROOM
            total = scorer(weights, added, group.used, group.wholes)
            if not balance_added:
                return total
            used, wholes, without = group.balance_used, group.balance_wholes, group.balance
            if left_out:
                wholes = tuple(0 if at in left_out else whole for at, whole in enumerate(wholes))
                without = balance((0,) * len(used), used, wholes)
            return total + balance_gain(balance(balance_added, used, wholes), without)

        return rate

    def _default(self, otherwise: Rate) -> Rate:
        """Return the same for the default settings, written out: it is what most of the time is spent in."""
        needs, (first_weight, second_weight), (first, second) = self.needs, self.weights, self.added
        weights, is_balanced = first_weight + second_weight, bool(self.balance_added)
        first_part, second_part = self.balance_added or (0, 0)

        def rate(group: NodeGroup) -> int:
            free = group.free
            for name, amount in needs:
                if amount > free.get(name, 0):
                    return NO_ROOM
            first_whole, second_whole = group.wholes
            if not first_whole or not second_whole:
                return otherwise(group)
            first_used, second_used = group.used
            left = first_whole - first_used - first
            total = left * MOST // first_whole * first_weight if left > 0 else 0
            left = second_whole - second_used - second
            if left > 0:
                total += left * MOST // second_whole * second_weight
            total //= weights
            if not is_balanced:
                return total
            first_used, second_used = group.balance_used
            one, other = (first_used + first_part) / first_whole, (second_used + second_part) / second_whole
            if one > 1:
                one = 1.0
            if other > 1:
                other = 1.0
            return (
                total
                + MOST // 2
                + (MOST // 2 + int((1 - abs((one - other) / 2)) * MOST) - group.balance) // 2
            )

        return rate
