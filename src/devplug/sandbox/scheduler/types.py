"""Nodes and pods as the scheduler knows them (framework/types.go); their reading from API objects. Pure.

Amounts are whole numbers: cpu in thousandths of a core, what is stored in bytes, all else counted. The
objects are ones that the API server has taken: what is missing has its default, and nothing is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from devplug.dra.scheduling import claim_names
from devplug.k8s import node_selectors
from devplug.k8s.node_selectors import NAME_FIELD, Requirement, Term, term_of
from devplug.k8s.pod_requests import pod_requests
from devplug.k8s.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = [
    "CPU",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "NAME_FIELD",
    "NO_SCHEDULE",
    "PODS",
    "PREFER_NO_SCHEDULE",
    "UNSET_CPU",
    "UNSET_MEMORY",
    "Amounts",
    "Node",
    "PendingPod",
    "Preference",
    "Requirement",
    "Shape",
    "Taint",
    "Term",
    "Toleration",
    "amounts",
    "node_of",
    "pod_of",
    "shape",
]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

UNSET_CPU: Final = 100
UNSET_MEMORY: Final = 200 * 1024 * 1024
"""What a container that requests none is scored as if it requested (scheduler/util/pod_resources.go)."""

_DEFAULTS = {CPU: UNSET_CPU, MEMORY: UNSET_MEMORY}


# ── Values ──


Amounts: TypeAlias = "tuple[tuple[str, int], ...]"
"""Resource names with amounts above 0, sorted."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, which keeps pods away that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration: the taints with this key and effect; without a key all, without an effect any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Preference:
    """A term that a node had better match, and how much that counts."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class Node(node_selectors.Node):
    """A node as its object in the API shows it; what its pods use is the `Cluster`'s."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Shape:
    """The scheduling constraints of a pod: pods of one shape are alike to the scheduler."""

    requests: Amounts = ()
    scored_cpu: int = UNSET_CPU
    scored_memory: int = UNSET_MEMORY
    """What it is scored as if it requested: containers that request none count with a default."""
    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[Term, ...] | None = None
    """Any of these; None if no affinity is required."""
    preferred: tuple[Preference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""

    @classmethod
    def asking(
        cls,
        requests: Mapping[str, int],
        *,
        node_selector: Mapping[str, str] | None = None,
        required: tuple[Term, ...] | None = None,
        preferred: tuple[Preference, ...] = (),
        tolerations: tuple[Toleration, ...] = (),
        node_name: str = "",
    ) -> Shape:
        """Return the shape of a pod with one container that requests this."""
        return cls(
            tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
            requests.get(CPU, UNSET_CPU),
            requests.get(MEMORY, UNSET_MEMORY),
            tuple(sorted((node_selector or {}).items())),
            required,
            preferred,
            tolerations,
            node_name,
        )

    def without(self, resources: Collection[str]) -> Shape:
        """Return the same pod without its requests for these resources."""
        if not resources:
            return self
        return replace(self, requests=tuple(one for one in self.requests if one[0] not in resources))


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits for a node."""

    uid: str
    name: str
    namespace: str = "default"
    shape: Shape = field(default_factory=Shape)
    priority: int = 0
    may_preempt: bool = True
    """False for `preemptionPolicy: Never`; it changes the pod's message only: nothing is preempted here."""
    claims: tuple[str, ...] = ()
    """The names of its claims; empty for one that is not generated yet."""


# ── From API objects ──

_Object: TypeAlias = "dict[str, Any]"


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """Return quantities by resource name as whole numbers, cpu in thousandths. Raises `QuantityError`."""
    found = {}
    for name, text in (quantities or {}).items():
        number = Quantity.parse(str(text)).number * (1000 if name == CPU else 1)
        found[name] = int(-(-number // 1))
    return found


def node_of(found: _Object) -> Node:
    """Return a Node object as the scheduler sees it. Raises `QuantityError`."""
    metadata, spec, status = (found.get(key) or {} for key in ("metadata", "spec", "status"))
    return Node(
        metadata.get("name", ""),
        dict(metadata.get("labels") or {}),
        tuple(
            Taint(one.get("key", ""), one.get("value") or "", one.get("effect", ""))
            for one in spec.get("taints") or ()
        ),
        bool(spec.get("unschedulable")),
        amounts(status.get("allocatable") or status.get("capacity")),
    )


def pod_of(found: _Object) -> PendingPod:
    """Return a Pod object as the scheduler sees it. Raises `QuantityError`."""
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace") or "default"
    return PendingPod(
        metadata.get("uid") or f"{namespace}/{name}",
        name,
        namespace,
        shape(spec),
        spec.get("priority") or 0,
        spec.get("preemptionPolicy") != "Never",
        tuple(one or "" for one in claim_names(found).values()) if spec.get("resourceClaims") else (),
    )


def shape(spec: _Object) -> Shape:
    """Return what decides where a pod of this spec may go. Raises `QuantityError`."""
    requests = pod_requests(spec, amounts)
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    scored = pod_requests(
        spec, amounts, {key: value for key, value in _DEFAULTS.items() if key not in pod_level}
    )
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return Shape(
        tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
        scored.get(CPU, 0),
        scored.get(MEMORY, 0),
        tuple(sorted((spec.get("nodeSelector") or {}).items())),
        None if required is None else tuple(term_of(one) for one in required.get("nodeSelectorTerms") or ()),
        tuple(
            Preference(one.get("weight", 0), term_of(one.get("preference") or {}))
            for one in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ),
        tuple(
            Toleration(
                one.get("key") or "",
                one.get("operator") or "Equal",
                one.get("value") or "",
                one.get("effect") or "",
            )
            for one in spec.get("tolerations") or ()
        ),
        spec.get("nodeName") or "",
    )
