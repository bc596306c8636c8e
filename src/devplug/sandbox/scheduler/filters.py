"""The scheduler's filter plugins: why a node cannot take a pod, and the sentence when no node can. Pure.

Plugins are in the scheduler's order and words (nodeaffinity.go, toleration.go). The sentence is the text of
the pod's condition `PodScheduled` and of the event `FailedScheduling`.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from devplug.dra.scheduling import NOTHING_TO_CLEAR, unschedulable
from devplug.k8s.node_selectors import NAME_FIELD, meets
from devplug.sandbox.scheduler.types import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NO_SCHEDULE,
    PODS,
    PREFER_NO_SCHEDULE,
    Taint,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from devplug.sandbox.scheduler.types import Node, Shape, Toleration

_CORDON: Final = Taint("node.kubernetes.io/unschedulable")
_REPELLING: Final = (NO_SCHEDULE, "NoExecute")
"""Effects that keep a pod from being scheduled; `PreferNoSchedule` only counts against the node."""


# ── Node affinity and taints ──


# ── taints ──


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint (ToleratesTaint; `Lt` and `Gt` are off by default)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


def _tolerated(shape: Shape, taint: Taint) -> bool:
    return any(tolerates(one, taint) for one in shape.tolerations)


def tolerates_taints(shape: Shape, taints: Collection[Taint]) -> bool:
    """Whether none of a node's taints keeps the pod off it."""
    return all(_tolerated(shape, one) for one in taints if one.effect in _REPELLING)


def _tolerates_cordon(shape: Shape) -> bool:
    """Whether the pod goes to nodes that are marked unschedulable."""
    return _tolerated(shape, _CORDON)


def unwanted_taints(shape: Shape, taints: Collection[Taint]) -> int:
    """Return how many of a node's taints count against it."""
    return sum(1 for one in taints if one.effect == PREFER_NO_SCHEDULE and not _tolerated(shape, one))


# ── selectors and affinity ──


def matches_affinity(shape: Shape, node: Node) -> bool:
    """Whether a node is what the pod's node selector and its required affinity ask for."""
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return False
    return shape.required is None or any(meets(term, node) for term in shape.required)


def preferred_weight(shape: Shape, node: Node) -> int:
    """Return the sum of the weights of the preferences that a node meets."""
    return sum(one.weight for one in shape.preferred if meets(one.term, node))


def named_nodes(shape: Shape) -> frozenset[str] | None:
    """Return the names of the only nodes that required affinity leaves, or None if it names none.

    Empty if it contradicts itself (node_affinity.go PreFilter).
    """
    if not shape.required:
        return None
    names: set[str] = set()
    for term in shape.required:
        sets = [set(one.values) for one in term.fields if one.key == NAME_FIELD and one.operator == "In"]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return frozenset(names)


@lru_cache(4096)
def label_keys(shape: Shape) -> frozenset[str]:
    """Return the labels that the pod looks at; `metadata.name` stands for the name of the node."""
    terms = [*(shape.required or ()), *(one.term for one in shape.preferred)]
    keys = {key for key, _ in shape.node_selector}
    keys.update(one.key for term in terms for one in term.expressions)
    if shape.node_name or any(term.fields for term in terms):
        keys.add(NAME_FIELD)
    return frozenset(keys)


# ── Filters ──


class Plugin(enum.Enum):
    """A part of the scheduler that can refuse a node; its name stands in messages."""

    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_NAME = "NodeName"
    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_RESOURCES_FIT = "NodeResourcesFit"
    DYNAMIC_RESOURCES = "DynamicResources"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a pod by a node: the first plugin that refuses, with all its reasons."""

    plugin: Plugin
    reasons: tuple[str, ...]
    is_resolvable: bool = False
    """Whether the pod would fit if others left: what preemption looks at (UnschedulableAndUnresolvable)."""


_CORDONED: Final = Refusal(Plugin.NODE_UNSCHEDULABLE, ("node(s) were unschedulable",))
_OTHER_NAME: Final = Refusal(Plugin.NODE_NAME, ("node(s) didn't match the requested node name",))
_TAINTED: Final = Refusal(Plugin.TAINT_TOLERATION, ("node(s) had untolerated taint(s)",))
_NO_MATCH: Final = Refusal(Plugin.NODE_AFFINITY, ("node(s) didn't match Pod's node affinity/selector",))

_FIRST: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""What is looked at before all other resources (noderesources/fit.go fitsRequest)."""


def static_refusal(shape: Shape, node: Node) -> Refusal | None:
    """Return why a node cannot take a pod however empty it is, resources aside, or None."""
    if node.unschedulable and not _tolerates_cordon(shape):
        return _CORDONED
    if shape.node_name and shape.node_name != node.name:
        return _OTHER_NAME
    if not tolerates_taints(shape, node.taints):
        return _TAINTED
    return None if matches_affinity(shape, node) else _NO_MATCH


def resources_refusal(
    shape: Shape,
    allocatable: Mapping[str, int],
    requested: Mapping[str, int],
    pods: int,
) -> Refusal | None:
    """Return why a node with so much requested by its pods has too little left for one more, or None."""
    reasons = []
    is_resolvable = True
    if pods + 1 > allocatable.get(PODS, 0):
        reasons.append("Too many pods")
    for name, amount in _in_order(shape):
        whole = allocatable.get(name, 0)
        if amount > whole - requested.get(name, 0):
            reasons.append(f"Insufficient {name}")
            is_resolvable = is_resolvable and amount <= whole
    return Refusal(Plugin.NODE_RESOURCES_FIT, tuple(reasons), is_resolvable) if reasons else None


def _in_order(shape: Shape) -> Iterator[tuple[str, int]]:
    native = {name: amount for name, amount in shape.requests if name in _FIRST}
    yield from ((name, native[name]) for name in _FIRST if name in native)
    yield from ((name, amount) for name, amount in shape.requests if name not in native)


# ── The sentence (FitError) ──

ABSENT: Final = Refusal(Plugin.NODE_AFFINITY, ("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
"""Of nodes that were not looked at, because the pod's affinity names others."""

CONFLICT: Final = Refusal(Plugin.NODE_AFFINITY, ("pod affinity terms conflict",))
"""Of all nodes, because the pod's affinity contradicts itself."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a pod has no node: how many nodes refused it, and for what."""

    nodes: int
    refusals: Mapping[Refusal, int] = field(default_factory=dict, hash=False)
    refusal: Refusal | None = None
    """Why no node was looked at, if none was."""
    after: str = NOTHING_TO_CLEAR
    """What was done about the pod's claims then."""

    @property
    def plugins(self) -> frozenset[Plugin]:
        """Who refused: a change that none of them cares about does not help the pod."""
        first = {self.refusal.plugin} if self.refusal else set()
        return frozenset({refusal.plugin for refusal in self.refusals} | first)

    def message(self, *, may_preempt: bool = True) -> str:
        """Return the whole sentence."""
        counts: Counter[str] = Counter()
        for refusal, count in self.refusals.items():
            for reason in refusal.reasons:
                counts[reason] += count
        victims = sum(count for refusal, count in self.refusals.items() if refusal.is_resolvable)
        return unschedulable(
            self.nodes,
            counts,
            self.refusal.reasons[0] if self.refusal else "",
            self.after,
            victims if may_preempt else None,
        )
