"""The claims of the cluster as the scheduler knows them, and the node for a pod that has some. Pure.

Slices, classes and claims are put here as they change; what the scheduler writes itself, at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devplug.dra.allocations import Allocations
from devplug.dra.extended_resources import ExtendedClasses
from devplug.dra.objects import Claim, DeviceClass, Slice
from devplug.dra.pools import Inventory
from devplug.dra.scheduling import (
    BINDING_TIMEOUT_SECONDS,
    Attempt,
    Cluster,
    Fit,
    held_back,
    normalised,
    post_filter,
)
from devplug.dra.selectors import CelSelectors
from devplug.dra.taints import with_rules
from devplug.k8s.times import moment
from devplug.sandbox.scheduler.filters import ABSENT, CONFLICT, Diagnosis, Plugin, Refusal, named_nodes
from devplug.sandbox.scheduler.queue import DevicesChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from devplug.dra.selectors import Selectors
    from devplug.sandbox.scheduler.snapshot import ClusterSnapshot
    from devplug.sandbox.scheduler.types import Node, PendingPod, Shape

_WEIGHT: Final = 2
"""What the plugin's score counts (D84)."""

_ALTERNATIVES: Final = 8

_ALL_LOOKED_AT: Final = 100
"""In a cluster of so many nodes the real scheduler looks at each (minFeasibleNodesToFind).

In a larger one it stops when it has found enough of them; here it is the best one that ends the search.
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """The best node for a pod, with what its claims get there."""

    node: str
    shape: Shape
    """What the pod needs of the node besides: without the resources that claims give it."""
    fit: Fit


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """Why a pod with claims has no node."""

    diagnosis: Diagnosis
    cleared: Claim | None = None
    """The claim whose allocation stands in its way (D89)."""
    bugs: tuple[str, ...] = ()
    """What looks like a bug of the release, and kept it from a node: see `allocator.Found`."""


class ClaimSnapshot:
    """All slices, classes and claims. One owner changes it and asks it; it lives as long as the scheduler."""

    def __init__(self, selectors: Selectors | None = None) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._extended = ExtendedClasses(())
        self._slices: dict[str, dict[str, Any]] = {}
        self._taint_rules: dict[str, dict[str, Any]] = {}
        self._claims: dict[tuple[str, str], tuple[int, Claim]] = {}
        """With the version of its object."""
        self._cluster = Cluster(Inventory(), Allocations(), selectors or CelSelectors(), self._classes)

    # ── changes ──

    def put_slice(self, found: dict[str, Any]) -> None:
        """Take in a ResourceSlice that is new or changed."""
        self._slices[found["metadata"]["name"]] = found
        self._cluster.inventory.put(Slice.of(with_rules(found, self._taint_rules.values())))

    def remove_slice(self, name: str) -> None:
        """Forget a ResourceSlice."""
        self._slices.pop(name, None)
        self._cluster.inventory.remove(name)

    def put_taint_rule(self, found: dict[str, Any]) -> None:
        """Take in a DeviceTaintRule that is new or changed."""
        self._taint_rules[found["metadata"]["name"]] = found
        self._taint_again()

    def remove_taint_rule(self, name: str) -> None:
        """Forget a DeviceTaintRule."""
        if self._taint_rules.pop(name, None) is not None:
            self._taint_again()

    def _taint_again(self) -> None:
        for one in tuple(self._slices.values()):
            self.put_slice(one)

    def put_class(self, found: dict[str, Any]) -> None:
        """Take in a DeviceClass that is new or changed."""
        one = DeviceClass.of(found)
        self._classes[one.name] = one
        self._extended = ExtendedClasses(self._classes.values())

    def remove_class(self, name: str) -> None:
        """Forget a DeviceClass."""
        self._classes.pop(name, None)
        self._extended = ExtendedClasses(self._classes.values())

    def put_claim(self, found: dict[str, Any]) -> DevicesChange | None:
        """Take in a ResourceClaim; return what that may change for waiting pods, None if it is outdated."""
        metadata = found["metadata"]
        key, version = _key(found), int(metadata.get("resourceVersion") or 0)
        known, before = self._claims.get(key, (-1, None))
        if version <= known:
            return None
        claim = Claim.of(found)
        self._claims[key] = version, claim
        return DevicesChange(None if self._count(before, claim) else key)

    def remove_claim(self, found: dict[str, Any]) -> None:
        """Forget a ResourceClaim."""
        key = _key(found)
        known = self._claims.get(key)
        if known is not None and known[1].uid == found["metadata"].get("uid", ""):
            del self._claims[key]
            self._count(known[1], None)

    def _count(self, before: Claim | None, after: Claim | None) -> bool:
        """Count what is allocated; return whether that was released which was before."""
        old = None if before is None else before.allocation
        new = None if after is None else after.allocation
        if old == new:
            return False
        if old is not None:
            self._cluster.allocations.remove(old)
        if new is not None:
            self._cluster.allocations.add(new)
        return old is not None and new is None

    # ── questions ──

    def claim(self, namespace: str, name: str) -> Claim | None:
        """Return a claim as it is known."""
        known = self._claims.get((namespace, name))
        return known and known[1]

    def concerns(self, pod: PendingPod) -> bool:
        """Whether claims are looked at for a pod: its own, or for extended resources."""
        if pod.claims:
            return True
        return bool(self._classes) and any(self._extended.of(name) for name, _ in pod.shape.requests)

    def held_back(self, pod: PendingPod, found: dict[str, Any]) -> str:
        """Return why a pod does not enter the queue, or nothing (D62)."""
        return held_back(found, self._claims_of(pod)) if pod.claims else ""

    def place(
        self, pod: PendingPod, found: dict[str, Any], nodes: ClusterSnapshot, now: datetime
    ) -> Placement | NoPlacement:
        """Return the best node for a pod, or why there is none.

        Raises `AttemptError`, and `MissingCelError` if a selector has to be evaluated and nothing can.
        """
        named = self._claims_of(pod)
        missing = self.held_back(pod, found)
        claims = [named[name] for name in pod.claims if name in named]
        late = [one.uid for one in claims if _is_late(one, now)]
        attempt = Attempt(found, claims, self._cluster, expired=late)
        refusal = missing or attempt.refusal
        claimed = tuple(name for name, _ in pod.shape.requests if attempt.is_claimed(name, {}))
        if named_nodes(pod.shape) == frozenset():
            return NoPlacement(Diagnosis(len(nodes.nodes), refusal=CONFLICT))
        if refusal:
            return NoPlacement(_refused(nodes, refusal))
        reasons: dict[str, str] = {}
        best = _best(attempt, nodes.ranked(pod.shape, claimed), _most(claims), reasons)
        if best is not None:
            node, fit = best
            return Placement(node.name, pod.shape.without(_dropped(node, claimed)), fit)
        after, cleared = post_filter(attempt, pod.uid)
        diagnosis = _diagnosis(pod.shape, nodes, claimed, reasons, after)
        return NoPlacement(diagnosis, cleared, tuple(sorted(attempt.bugs)))

    def _claims_of(self, pod: PendingPod) -> dict[str, Claim]:
        known = {name: self.claim(pod.namespace, name) for name in pod.claims}
        return {name: one for name, one in known.items() if one is not None}


def _key(found: Mapping[str, Any]) -> tuple[str, str]:
    metadata = found["metadata"]
    return metadata.get("namespace") or "default", metadata.get("name") or ""


def _is_late(claim: Claim, now: datetime) -> bool:
    """Whether a claim has waited for binding conditions too long, if it still does (D90)."""
    since = moment((claim.allocation or {}).get("allocationTimestamp") or "")
    return since is not None and (now - since).total_seconds() >= BINDING_TIMEOUT_SECONDS


def _most(claims: Sequence[Claim]) -> int:
    """Return the highest score that a node can have for these claims: that of the first alternatives."""
    lists = (one.is_list for claim in claims if claim.allocation is None for one in claim.requests)
    return _ALTERNATIVES * sum(lists)


def _best(
    attempt: Attempt, ranked: Sequence[tuple[int, Node]], most: int, reasons: dict[str, str]
) -> tuple[Node, Fit] | None:
    """Return the best of these nodes, which are given best first but for their devices.

    `reasons` gets, by name, why nodes that were looked at cannot take the pod.
    """
    fitting: list[tuple[int, Node]] = []
    scores: dict[str, int] = {}
    looks_at_all = len(ranked) <= _ALL_LOOKED_AT
    for score, node in ranked:
        found = attempt.recall(node, node.allocatable)
        if found is None:
            searched = attempt.filter(node, node.allocatable)
            found = searched.score if isinstance(searched, Fit) else searched
        if isinstance(found, str):
            reasons[node.name] = found
            continue
        fitting.append((score, node))
        scores[node.name] = found
        if found == most and not looks_at_all:
            break
    if not fitting:
        return None
    points = normalised(scores)
    _, best = max(fitting, key=lambda one: one[0] + _WEIGHT * points[one[1].name])
    fit = attempt.filter(best, best.allocatable)
    assert isinstance(fit, Fit)
    return best, fit


# ── no node ──


def _refused(nodes: ClusterSnapshot, reason: str) -> Diagnosis:
    return Diagnosis(len(nodes.nodes), refusal=Refusal(Plugin.DYNAMIC_RESOURCES, (reason,)))


def _dropped(node: Node, claimed: Sequence[str]) -> tuple[str, ...]:
    """Return the resources that a node gives through claims, as it has none of them otherwise (D91)."""
    return tuple(one for one in claimed if not node.allocatable.get(one))


def _diagnosis(
    shape: Shape, nodes: ClusterSnapshot, claimed: Sequence[str], reasons: Mapping[str, str], after: str
) -> Diagnosis:
    names = named_nodes(shape)
    all_nodes = nodes.nodes
    refusals = {
        Refusal(Plugin.DYNAMIC_RESOURCES, (reason,)): count
        for reason, count in Counter(reasons.values()).items()
    }
    for name in all_nodes.keys() - reasons.keys():
        refusal: Refusal | None = ABSENT
        if names is None or name in names:
            refusal = nodes.refusal(shape.without(_dropped(all_nodes[name], claimed)), name)
        if refusal is not None:
            refusals[refusal] = refusals.get(refusal, 0) + 1
    return Diagnosis(len(all_nodes), refusals, after=after)
