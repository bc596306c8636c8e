"""The decisions of the scheduler's plugin DynamicResources for one pod, on values. Pure.

The order is the scheduler's: `held_back` before the queue, an `Attempt` with its refusal before any node is
looked at, one `Fit` or text for each node, then either `bound` for each claim, or `post_filter` and
`unschedulable`. Texts are those of SP/dynamicresources.go and of the scheduler's FitError (D76).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devplug.dra.allocator import Allocator, Outcomes
from devplug.dra.extended_resources import (
    IN_MEMORY,
    ExtendedClasses,
    ExtendedRequests,
    extended_claim,
    extended_requests,
)
from devplug.dra.objects import FINALIZER, Claim
from devplug.dra.pools import LIKE_1_36
from devplug.k8s.node_selectors import NodeSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.dra.allocations import Allocations
    from devplug.dra.allocator import Known
    from devplug.dra.objects import DeviceClass, Json
    from devplug.dra.pools import Inventory, Like
    from devplug.dra.search import AttemptError
    from devplug.dra.selectors import MissingCelError, Selectors
    from devplug.k8s.node_selectors import Node

MOST_PODS: Final = 256
"""How many pods can share a claim."""

_MOST_ALTERNATIVES: Final = 8
_NO_RESOURCES: Final[frozenset[str]] = frozenset()
_NO_DEVICES: Final = "cannot allocate all claims"
_ELSEWHERE: Final = "resourceclaim not available on the node"
NOTHING_TO_CLEAR: Final = "no new claims to deallocate"
"""What is done about the claims of a pod without any."""
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NEVER: Final = "not eligible due to preemptionPolicy=Never."


@dataclass(slots=True)
class Cluster:
    """What of a cluster decides about claims; its owner keeps it up to date."""

    inventory: Inventory
    allocations: Allocations
    selectors: Selectors
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    like: Like = LIKE_1_36
    outcomes: Outcomes = field(default_factory=Outcomes)


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that can take the pod."""

    allocations: tuple[tuple[Claim, Json], ...] = ()
    """What each claim gets that had nothing."""
    score: int = 0
    """The sum over all `firstAvailable` requests of 8 less the place of the alternative (D84)."""
    extended: ExtendedRequests | None = None
    """What the last claim asks for, if it stands for extended resources."""
    bugs: tuple[str, ...] = ()
    """See `allocator.Found`."""


# ── before the queue ──


def claim_names(pod: Json) -> dict[str, str | None]:
    """Return the names of a pod's claims by their names in the pod; None for one not generated yet.

    A claim that the controller found unnecessary is left out.
    """
    generated = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names: dict[str, str | None] = {}
    for one in (pod.get("spec") or {}).get("resourceClaims") or ():
        if one.get("resourceClaimName"):
            names[one["name"]] = one["resourceClaimName"]
        elif one["name"] not in generated:
            names[one["name"]] = None
        elif generated[one["name"]]:
            names[one["name"]] = generated[one["name"]]
    return names


def held_back(pod: Json, claims: Mapping[str, Claim]) -> str:
    """Return why a pod does not enter the queue, or nothing; nobody but a debugger sees the text (D62).

    `claims` has the claims of its namespace by name.
    """
    for name in claim_names(pod).values():
        if name is None or name not in claims:
            return f'resourceclaim.resource.k8s.io "{name or ""}" not found'
        if claims[name].is_deleted:
            return f'resourceclaim "{name}" is being deleted'
    return ""


# ── one attempt ──


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is searched for at nodes that give the same extended resources through claims."""

    claims: tuple[Claim, ...]
    extended: ExtendedRequests | None
    known: Known


class Attempt:
    """One attempt to place a pod; it lives until the next one, and sees the cluster as it was."""

    def __init__(
        self,
        pod: Json,
        claims: Sequence[Claim],
        cluster: Cluster,
        pending: Iterable[str] = (),
        expired: Iterable[str] = (),
    ) -> None:
        """Look at the pod's claims, in its order.

        `pending` has the UIDs of claims that are being bound, `expired` of those that waited for binding
        conditions longer than `BINDING_TIMEOUT_SECONDS`.
        """
        self._pod = pod
        self._spec: Json = pod.get("spec") or {}
        self._uid: str = pod["metadata"].get("uid") or ""
        self._cluster = cluster
        self._classes = ExtendedClasses(cluster.classes.values())
        self._extended = self._classes.asked(self._spec)
        self._unallocated = tuple(one for one in claims if one.allocation is None)
        self._where = {
            one.uid: NodeSelector.of(selector)
            for one in claims
            if one.allocation is not None and (selector := one.allocation.get("nodeSelector")) is not None
        }
        late = frozenset(expired)
        self._unusable = tuple(
            one.uid for one in claims if binding_failure(one) or (one.uid in late and not is_ready(one))
        )
        self._wanted: dict[frozenset[str], _Wanted] = {}
        """By the extended resources that claims give."""
        self._allocator = Allocator(
            cluster.classes,
            cluster.inventory,
            cluster.allocations,
            cluster.selectors,
            cluster.like,
        )
        self.refusal = self._refusal(claims, frozenset(pending))
        """Why no node needs to be looked at, or nothing."""
        self.claims: Sequence[Claim] = () if self.refusal else claims
        self.unavailable: set[str] = set()
        """The UIDs of claims whose allocation kept the pod from a node."""
        self.bugs: set[str] = set()
        """What looks like a bug of the release and kept the pod from a node: see `allocator.Found`."""

    @property
    def has_claims(self) -> bool:
        """Whether claims, of its own or for extended resources, are looked at for the pod."""
        return bool(self.claims) or (bool(self._extended) and not self.refusal)

    def filter(self, node: Node, allocatable: Mapping[str, int] | None = None) -> Fit | str:
        """Return how a node can take the pod, or why not. Raises `AttemptError`.

        `allocatable` has the extended resources that device plugins give the node, by name.
        """
        wanted = self._wanted_at(allocatable or {})
        found = self._allocator.allocate(node, wanted.claims) if wanted.claims else None
        if found is not None and found.allocations is None:
            refusal = found.refusal or _NO_DEVICES
            self.bugs.update(found.bugs)
            if not found.bugs:  # each pod is told of them
                self._allocator.remember(node, wanted.known, refusal)
            return refusal
        score = 0
        if found is not None:
            score = sum(_MOST_ALTERNATIVES - chosen for chosen in found.alternatives.values())
            self._allocator.remember(node, wanted.known, score)
        if self._is_elsewhere(node):
            return _ELSEWHERE
        if found is None or found.allocations is None:
            return Fit()
        allocations = tuple(zip(wanted.claims, found.allocations, strict=True))
        return Fit(allocations, score, wanted.extended, found.bugs)

    def recall(self, node: Node, allocatable: Mapping[str, int] | None = None) -> int | str | None:
        """Return the score of the fit that `filter` would return, or the text; None if it has to search."""
        outcome = self._allocator.recall(node, self._wanted_at(allocatable or {}).known)
        return _ELSEWHERE if isinstance(outcome, int) and self._is_elsewhere(node) else outcome

    def _wanted_at(self, allocatable: Mapping[str, int]) -> _Wanted:
        needed = _NO_RESOURCES
        if self._extended:
            needed = frozenset(name for name in self._extended if not allocatable.get(name))
        known = self._wanted.get(needed)
        if known is None:
            known = self._wanted[needed] = self._wanted_with(needed)
        return known

    def _wanted_with(self, needed: frozenset[str]) -> _Wanted:
        claims, extended = self._unallocated, None
        if needed:
            extended = extended_requests(self._spec, needed, self._classes)
            claims = (*claims, self._extended_claim(extended))
        cluster = self._cluster
        return _Wanted(claims, extended, cluster.outcomes.of(claims, cluster.classes, cluster.like))

    def _is_elsewhere(self, node: Node) -> bool:
        """Whether allocated claims keep the pod from a node; it is noted which."""
        if not self._where and not self._unusable:
            return False
        elsewhere = [uid for uid, selector in self._where.items() if not selector.matches(node)]
        elsewhere += self._unusable
        self.unavailable.update(elsewhere)
        return bool(elsewhere)

    def is_claimed(self, resource: str, allocatable: Mapping[str, int]) -> bool:
        """Whether a node gives an extended resource through claims, so that nobody counts it (D91)."""
        return resource in self._extended and not allocatable.get(resource)

    def _extended_claim(self, extended: ExtendedRequests) -> Claim:
        written = extended_claim(self._pod, extended.requests)
        return Claim.of({**written, "metadata": {**written["metadata"], "name": IN_MEMORY}})

    def _refusal(self, claims: Sequence[Claim], pending: frozenset[str]) -> str:
        for claim in claims:
            if claim.allocation is not None:
                if self._uid not in claim.reserved_for and len(claim.reserved_for) >= MOST_PODS:
                    return "resourceclaim in use"
                continue
            if claim.uid in pending:
                return f"resource claim {claim} is in the process of being allocated"
            for request in claim.requests:
                for index, one in enumerate(request.alternatives):
                    if one.device_class not in self._cluster.classes:
                        return (
                            f"request {request.named(index)}: device class {one.device_class} does not exist"
                        )
        return ""


def normalised(scores: Mapping[str, int]) -> dict[str, int]:
    """Return scores by node as they count: 100 for the best; the plugin's weight is 2 (D84)."""
    most = max(scores.values(), default=0)
    return {node: score * 100 // most if most else score for node, score in scores.items()}


# ── no node ──


def post_filter(attempt: Attempt, pod_uid: str) -> tuple[str, Claim | None]:
    """Return what the scheduler says when no node fits, and the claim whose allocation it clears (D89).

    The real one takes any such claim; this takes the first.
    """
    if not attempt.has_claims:
        return NOTHING_TO_CLEAR, None
    for claim in attempt.claims:
        if claim.uid in attempt.unavailable and claim.reserved_for in {(), (pod_uid,)}:
            return "deallocation of ResourceClaim completed", claim
    return "still not schedulable", None


def unschedulable(
    nodes: int,
    reasons: Iterable[str] | Mapping[str, int],
    refusal: str = "",
    after: str = NOTHING_TO_CLEAR,
    victims: int | None = 0,
) -> str:
    """Return the message of the condition PodScheduled with reason Unschedulable (D76, types.go FitError).

    `reasons` has one text for each node and reason, or their counts; `refusal` stands instead when no node
    was looked at, and `after` is what `post_filter` says. Preemption never helps here: `victims` is the
    number of nodes where the real scheduler would look for pods to evict; None for a pod that evicts nobody.
    """
    if not nodes:
        return "no nodes available to schedule pods"
    head = f"0/{nodes} nodes are available:"
    if victims is None:
        preemption = _NEVER
    else:
        counts = {_NO_VICTIMS: victims, _NOT_HELPFUL: nodes - victims}
        preemption = f"{head} {_histogram(counts)}."
    return f"{head} {refusal or _histogram(Counter(reasons))}. {after}, preemption: {preemption}"


def _histogram(counts: Mapping[str, int]) -> str:
    """Return reasons with their counts, sorted as texts: `10 …` stands before `2 …`."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))


def scheduler_error(error: AttemptError | MissingCelError) -> str:
    """Return the message of the condition PodScheduled with reason SchedulerError (D75)."""
    return f'running "DynamicResources" filter plugin: {error}'


# ── binding ──

BINDING_TIMEOUT_SECONDS: Final = 600
"""How long the scheduler waits for binding conditions after the allocation; it looks every 5 s (D90)."""


def is_ready(claim: Claim) -> bool:
    """Whether all binding conditions of a claim's devices are true, so that its pod can be bound (D90)."""
    return all(
        _is_true(conditions, name)
        for result, conditions in _devices(claim)
        for name in result.get("bindingConditions") or ()
    )


def binding_failure(claim: Claim) -> str:
    """Return what the scheduler says if a device reports that it cannot be bound, or nothing (D90).

    The event FailedScheduling has `running PreBind plugin "DynamicResources": ` before it.
    """
    for result, conditions in _devices(claim):
        for name in result.get("bindingFailureConditions") or ():
            if result.get("bindingConditions") and _is_true(conditions, name):
                reason, message = (conditions[name].get(key) or "" for key in ("reason", "message"))
                text = json.dumps(message, ensure_ascii=False)
                return f"device binding failed: claim={claim.name}, reason={reason}, message={text}"
    return ""


def _devices(claim: Claim) -> Iterator[tuple[Json, Mapping[str, Json]]]:
    """Yield each allocated device with its conditions by type."""
    said = {
        (one.get("driver"), one.get("pool"), one.get("device")): one.get("conditions") or ()
        for one in claim.devices
    }
    for result in ((claim.allocation or {}).get("devices") or {}).get("results") or ():
        key = result["driver"], result["pool"], result["device"]
        yield result, {one["type"]: one for one in said.get(key, ())}


def _is_true(conditions: Mapping[str, Json], name: str) -> bool:
    return name in conditions and conditions[name].get("status") == "True"


def bound(claim: Json, pod: Json, allocation: Json | None) -> Json:
    """Return a claim object as it is when the pod is bound: finalizer, allocation, reservation (D89).

    `allocation` is None if the claim had one; the caller adds `allocationTimestamp` and share IDs.
    """
    metadata, status = claim["metadata"], dict(claim.get("status") or {})
    finalizers = list(metadata.get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    if allocation is not None:
        status["allocation"] = allocation
    owner = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"].get("uid", "")}
    reserved: list[dict[str, Any]] = list(status.get("reservedFor") or ())
    if all(one.get("uid") != owner["uid"] for one in reserved):
        reserved.append(owner)
    return {
        **claim,
        "metadata": {**metadata, "finalizers": finalizers},
        "status": {**status, "reservedFor": reserved},
    }
