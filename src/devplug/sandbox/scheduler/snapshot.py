"""The snapshot of the cluster: nodes, what their pods request, and the best node for a pod. Pure.

A snapshot that is kept up to date change by change. It scores every node, where the real scheduler stops when
it has found enough that fit (percentageOfNodesToScore), and gives the same answer as if it did so one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError, quoted
from devplug.sandbox.scheduler.filters import (
    ABSENT,
    CONFLICT,
    Diagnosis,
    label_keys,
    named_nodes,
    resources_refusal,
    static_refusal,
)
from devplug.sandbox.scheduler.groups import NO_ROOM, Family, NodeGroup, Rating, Usage, named_by, tie_rank
from devplug.sandbox.scheduler.scores import ScoringSettings
from devplug.sandbox.scheduler.search import Buckets, Search, best_of, ordered, tier_of
from devplug.sandbox.scheduler.types import NAME_FIELD

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from devplug.sandbox.scheduler.filters import Refusal
    from devplug.sandbox.scheduler.groups import Rate
    from devplug.sandbox.scheduler.search import Tier
    from devplug.sandbox.scheduler.types import Amounts, Node, Shape

_VALUES_LIMIT: Final = 64
"""Nodes are not grouped by a label with more values than this, such as the host's name."""

_SEARCHES_LIMIT: Final = 2048
"""How many shapes are remembered."""


class UnknownNodeError(DevplugError):
    """There is no node of that name in the cluster."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no node {quoted(name)} in the cluster")


@dataclass(slots=True)
class ClusterSnapshot:
    """All nodes and the pods on them. One owner changes it and asks it; it lives as long as the scheduler."""

    settings: ScoringSettings = field(default_factory=ScoringSettings)
    seed: int = 0
    """Decides among nodes that are equally good."""
    _nodes: dict[str, Node] = field(default_factory=dict)
    _ranks: dict[str, str] = field(default_factory=dict)
    _usages: dict[str, Usage] = field(default_factory=dict)
    _pods: dict[str, tuple[Shape, str]] = field(default_factory=dict)
    _groups: dict[Hashable, NodeGroup] = field(default_factory=dict)
    _group_of: dict[str, NodeGroup] = field(default_factory=dict)
    _kinds: dict[str, tuple[Family, Amounts]] = field(default_factory=dict)
    _families: dict[Hashable, Family] = field(default_factory=dict)
    _family_list: list[Family] = field(default_factory=list)
    _keys: frozenset[str] = frozenset()
    """The labels that nodes are grouped by."""
    _wanted_keys: set[str] = field(default_factory=set)
    _buckets: dict[tuple[int, ...], Buckets] = field(default_factory=dict)
    """By the weights of the scored resources."""
    _searches: dict[Shape, Search] = field(default_factory=dict)
    _candidates: dict[Shape, list[tuple[Node, Tier]]] = field(default_factory=dict)
    """Of shapes without amounts: the nodes that they may be on, by rank."""
    _diagnoses: dict[Shape, Diagnosis] = field(default_factory=dict)
    _number: int = 0
    _families_limit: int = 0

    # ── changes ──

    @property
    def nodes(self) -> dict[str, Node]:
        """All nodes by name, as a copy."""
        return dict(self._nodes)

    def usage(self, node_name: str) -> Usage:
        """Return what the pods of a node request together; nothing for one that is not known."""
        return self._usages.get(node_name, Usage())

    def node_of(self, pod_uid: str) -> str | None:
        """Return the node that a pod is on, or None."""
        return self._pods[pod_uid][1] if pod_uid in self._pods else None

    def put_node(self, node: Node) -> None:
        """Add a node, or replace the one of that name; its pods stay on it."""
        self._leave(node.name)
        self._kinds.pop(node.name, None)
        self._candidates.clear()
        self._nodes[node.name] = node
        self._ranks.setdefault(node.name, tie_rank(self.seed, node.name))
        self._join(node.name)

    def remove_node(self, name: str) -> None:
        """Take a node away, if there is one of that name; its pods stay on it, should it come back."""
        self._leave(name)
        self._kinds.pop(name, None)
        self._candidates.clear()
        self._nodes.pop(name, None)
        self._ranks.pop(name, None)

    def assume(self, pod_uid: str, shape: Shape, node_name: str) -> None:
        """Put or move a pod on a node, whether it fits or not, and whether the node is there yet."""
        if pod_uid in self._pods:
            self.forget(pod_uid)
        self._pods[pod_uid] = (shape, node_name)
        self._change_usage(node_name, self.usage(node_name).plus(shape))

    def forget(self, pod_uid: str) -> None:
        """Take a pod away that was deleted or has ended; an unknown one is none."""
        if pod_uid in self._pods:
            shape, node_name = self._pods.pop(pod_uid)
            self._change_usage(node_name, self.usage(node_name).plus(shape, -1))

    # ── questions ──

    def choose(self, shape: Shape) -> str | None:
        """Return the name of the best node for a pod of this shape, or None if none can take it."""
        self._learn(label_keys(shape))
        if not label_keys(shape) <= self._keys:
            return self._choose_one_by_one(shape)
        rank = self._search(shape).best(self._family_list)
        return None if rank is None else named_by(rank)

    def ranked(self, shape: Shape, claimed: Collection[str] = ()) -> list[tuple[int, Node]]:
        """Return the nodes that have room for a pod with their scores, the best first.

        Of the resources `claimed` nothing is needed on nodes that have none of it.
        """
        rates: dict[tuple[str, ...], Rate] = {}
        rated: dict[tuple[int, tuple[str, ...]], int] = {}
        found = []
        for node, tier in self._allowed(shape):
            group = self._group_of[node.name]
            dropped = tuple(one for one in claimed if not node.allocatable.get(one)) if claimed else ()
            key = group.number, dropped
            score = rated.get(key)
            if score is None:
                if dropped not in rates:
                    rates[dropped] = Rating.of(shape.without(dropped), self.settings).rate(self.settings)
                score = rated[key] = rates[dropped](group)
            if score > NO_ROOM:
                found.append((tier, score, node))
        return ordered(found)

    def refusal(self, shape: Shape, node_name: str) -> Refusal | None:
        """Return why a node cannot take a pod, or None if it can. Raises `UnknownNodeError`."""
        if node_name not in self._nodes:
            raise UnknownNodeError(node_name)
        group = self._group_of[node_name]
        return static_refusal(shape, self._nodes[node_name]) or self._resources_refusal(shape, group)

    def diagnose(self, shape: Shape) -> Diagnosis:
        """Return why no node can take a pod: of all nodes, also of those that could."""
        if shape not in self._diagnoses:
            self._diagnoses[shape] = self._diagnosis(shape)
        return self._diagnoses[shape]

    # ── one by one ──

    def _choose_one_by_one(self, shape: Shape) -> str | None:
        """Choose for a pod that tells nodes apart by more than they are grouped by."""
        rate = Rating.of(shape, self.settings).rate(self.settings)
        found = [
            (tier, score, self._ranks[node.name])
            for node, tier in self._allowed(shape)
            if (score := rate(self._group_of[node.name])) > NO_ROOM
        ]
        rank = best_of(found)
        return None if rank is None else named_by(rank)

    def _allowed(self, shape: Shape) -> list[tuple[Node, Tier]]:
        """Return the nodes that the pod may be on, resources aside, with their tiers, by rank."""
        key = replace(shape, requests=(), scored_cpu=0, scored_memory=0)
        allowed = self._candidates.get(key)
        if allowed is None:
            if len(self._candidates) >= _SEARCHES_LIMIT:
                del self._candidates[next(iter(self._candidates))]
            names = named_nodes(shape)
            known = self._nodes.keys() if names is None else names & self._nodes.keys()
            nodes = (self._nodes[name] for name in sorted(known, key=self._ranks.__getitem__))
            allowed = [(node, tier) for node in nodes if (tier := tier_of(shape, node))]
            self._candidates[key] = allowed
        return allowed

    def _diagnosis(self, shape: Shape) -> Diagnosis:
        names = named_nodes(shape)
        if names is not None and not names:
            return Diagnosis(len(self._nodes), refusal=CONFLICT)
        refusals: dict[Refusal, int] = {}
        self._learn(label_keys(shape))
        if names is None and label_keys(shape) <= self._keys:
            refused = {id(one): static_refusal(shape, one.node) for one in self._family_list}
            for group in self._groups.values():
                refusal = refused[id(group.family)] or self._resources_refusal(shape, group)
                if refusal is not None:
                    refusals[refusal] = refusals.get(refusal, 0) + group.size
        else:
            for name in self._nodes:
                refusal = ABSENT if names is not None and name not in names else self.refusal(shape, name)
                if refusal is not None:
                    refusals[refusal] = refusals.get(refusal, 0) + 1
        return Diagnosis(len(self._nodes), refusals)

    @staticmethod
    def _resources_refusal(shape: Shape, group: NodeGroup) -> Refusal | None:
        return resources_refusal(shape, group.allocatable, group.requested, group.usage.pods)

    # ── groups ──

    def _search(self, shape: Shape) -> Search:
        search = self._searches.pop(shape, None)
        if search is None:
            if len(self._searches) >= _SEARCHES_LIMIT:
                del self._searches[next(iter(self._searches))]
            rating = Rating.of(shape, self.settings)
            buckets = self._buckets_for(rating.weights)
            search = Search(shape, rating, rating.rate(self.settings), buckets, self._groups.values())
        self._searches[shape] = search
        return search

    def _buckets_for(self, weights: tuple[int, ...]) -> Buckets:
        buckets = self._buckets.get(weights)
        if buckets is None:
            buckets = self._buckets[weights] = Buckets(self.settings, weights)
        return buckets

    def _learn(self, keys: frozenset[str]) -> None:
        """Group nodes by these labels too, if they have few values; anew, if there is too much to read."""
        is_new = not keys <= self._wanted_keys
        self._wanted_keys |= keys
        if (
            (is_new and self._grouping_keys() != self._keys)
            or len(self._families) > self._families_limit
            or any(len(one.lines) > 8 * (len(self._nodes) + 1024) for one in self._buckets.values())
        ):
            self._regroup()

    def _grouping_keys(self) -> frozenset[str]:
        keys = self._wanted_keys - {NAME_FIELD}
        nodes = self._nodes.values()
        return frozenset(
            key for key in keys if len({node.labels.get(key) for node in nodes}) <= _VALUES_LIMIT
        )

    def _regroup(self) -> None:
        self._keys = self._grouping_keys()
        for memory in (self._groups, self._group_of, self._kinds, self._families):
            memory.clear()
        self._searches.clear()
        self._buckets.clear()
        self._family_list.clear()
        for name in self._nodes:
            self._join(name)
        self._families_limit = 2 * len(self._families) + _VALUES_LIMIT

    def _change_usage(self, node_name: str, usage: Usage) -> None:
        self._leave(node_name)
        if usage.pods:
            self._usages[node_name] = usage
        else:
            self._usages.pop(node_name, None)
        if node_name in self._nodes:
            self._join(node_name)

    def _leave(self, node_name: str) -> None:
        self._diagnoses.clear()
        if group := self._group_of.pop(node_name, None):
            group.leave(self._ranks[node_name])
            if not group.rank:
                del self._groups[group.key]

    def _join(self, node_name: str) -> None:
        self._diagnoses.clear()
        kind = self._kinds.get(node_name)
        if kind is None:
            kind = self._kinds[node_name] = self._kind(self._nodes[node_name])
        usage = self.usage(node_name)
        key = (kind, usage)
        group = self._groups.get(key)
        if group is None:
            self._number += 1
            family, amounts = kind
            group = self._groups[key] = NodeGroup(
                self._number, key, family, dict(amounts), usage, self.settings
            )
        self._group_of[node_name] = group
        if group.join(self._ranks[node_name]):
            for buckets in self._buckets.values():
                buckets.enter(group)

    def _kind(self, node: Node) -> tuple[Family, Amounts]:
        """Return what makes a node differ from others, but for its pods."""
        labels = tuple((key, node.labels.get(key)) for key in sorted(self._keys))
        key = labels, node.taints, node.unschedulable
        family = self._families.get(key)
        if family is None:
            family = self._families[key] = Family(len(self._family_list), node)
            self._family_list.append(family)
        return family, tuple(sorted(node.allocatable.items()))
