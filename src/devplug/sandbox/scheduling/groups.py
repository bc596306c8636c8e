"""Nodes that are alike: what a search goes through instead of nodes. Pure.

Nodes with the same allocatable, usage, taints and labels that pods ask for make a group, and get the same
answer for a pod. Groups with the same taints and labels make a family: there all but resources is decided.
"""

from __future__ import annotations

import hashlib
from dataclasses import InitVar, dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from devplug.sandbox.scheduling.scoring import balance
from devplug.sandbox.scheduling.values import CPU, MEMORY, PODS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from devplug.sandbox.scheduling.scoring import ScoringSettings
    from devplug.sandbox.scheduling.values import Amounts, Node, Shape

__all__ = ["Family", "Group", "Usage", "named_by", "tie_rank"]

_RANK_LENGTH = 16


def tie_rank(seed: int, node_name: str) -> str:
    """Return what decides among equal nodes: the least wins. As good as random, and the same for one seed."""
    digest = hashlib.blake2b(f"{seed}/{node_name}".encode(), digest_size=_RANK_LENGTH // 2)
    return digest.hexdigest() + node_name


def named_by(rank: str) -> str:
    """Return the name of the node with a rank."""
    return rank[_RANK_LENGTH:]


@dataclass(frozen=True, slots=True)
class Usage:
    """What the pods of one node request together."""

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
class Group:
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
