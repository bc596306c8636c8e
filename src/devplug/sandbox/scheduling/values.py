"""What the scheduler knows of nodes and pods: values only, in the API's words.

Amounts are whole numbers: cpu in thousandths of a core, what is stored in bytes, all else counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

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
]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

NAME_FIELD: Final = "metadata.name"
"""The one field of a node that affinity may match."""

UNSET_CPU: Final = 100
UNSET_MEMORY: Final = 200 * 1024 * 1024
"""What a container that requests none is scored as if it requested (scheduler/util/pod_resources.go)."""

Amounts: TypeAlias = "tuple[tuple[str, int], ...]"
"""Resource names with amounts above 0, sorted."""


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node, unless they tolerate it."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE


@dataclass(frozen=True, slots=True)
class Toleration:
    """What taints a pod puts up with; without a key all, without an effect those of every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label, or on a field, of a node."""

    key: str
    operator: str
    """`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`."""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """Conditions that hold together; a term without any matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Preference:
    """A term that a node had better match, and how much that counts."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class Node:
    """A node as its object in the API shows it; what its pods use is the `Cluster`'s."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Shape:
    """All of a pod that decides where it may go: pods of one shape are alike to the scheduler."""

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


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits for a node."""

    uid: str
    name: str
    namespace: str = "default"
    shape: Shape = field(default_factory=Shape)
    priority: int = 0
    may_preempt: bool = True
    """False for `preemptionPolicy: Never`; it changes what the pod is told, as nothing is preempted here."""
