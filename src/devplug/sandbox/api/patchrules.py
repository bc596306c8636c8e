"""Which fields of the served kinds a strategic merge patch treats in a way of their own, as a table.

The rules are the `patchStrategy` and `patchMergeKey` of Kubernetes' types (api/core/v1/types.go, api/apps/v1,
apimachinery meta/v1), which its OpenAPI tells as `x-kubernetes-patch-strategy` and
`x-kubernetes-patch-merge-key`. What is not in the table is the common case: maps are merged, lists replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RULES", "FieldRule", "rule_of"]


@dataclass(frozen=True, slots=True)
class FieldRule:
    """How one field is patched."""

    type: str = ""
    """The type of the map, or of the list's elements, under which the fields inside have their rules."""
    merged: bool = False
    """Whether a list is merged element by element."""
    key: str = ""
    """By which field elements are the same element; empty for a list of plain values."""
    retains_keys: bool = False
    """Whether clients tell with `$retainKeys` which fields of an element stay."""


_PLAIN: Final = FieldRule()


def _by(key: str, type_: str = "", *, retains_keys: bool = False) -> FieldRule:
    return FieldRule(type_, merged=True, key=key, retains_keys=retains_keys)


_CONTAINERS: Final = _by("name", "Container")
_CONDITIONS: Final = _by("type")
_META: Final = FieldRule("ObjectMeta")

RULES: Final[Mapping[str, Mapping[str, FieldRule]]] = {
    "ObjectMeta": {"finalizers": FieldRule(merged=True), "ownerReferences": _by("uid")},
    "Pod": {"metadata": _META, "spec": FieldRule("PodSpec"), "status": FieldRule("PodStatus")},
    "PodTemplateSpec": {"metadata": _META, "spec": FieldRule("PodSpec")},
    "PodSpec": {
        "containers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "hostAliases": _by("ip"),
        "imagePullSecrets": _by("name"),
        "initContainers": _CONTAINERS,
        "resourceClaims": _by("name", retains_keys=True),
        "schedulingGates": _by("name"),
        "topologySpreadConstraints": _by("topologyKey"),
        "volumes": _by("name", retains_keys=True),
    },
    "Container": {
        "env": _by("name"),
        "ports": _by("containerPort"),
        "volumeDevices": _by("devicePath"),
        "volumeMounts": _by("mountPath"),
    },
    "PodStatus": {
        "conditions": _CONDITIONS,
        "hostIPs": _by("ip"),
        "podIPs": _by("ip"),
        "resourceClaimStatuses": _by("name", retains_keys=True),
    },
    "DaemonSet": {
        "metadata": _META,
        "spec": FieldRule("DaemonSetSpec"),
        "status": FieldRule("WithConditions"),
    },
    "DaemonSetSpec": {"template": FieldRule("PodTemplateSpec")},
    "Node": {"metadata": _META, "spec": FieldRule("NodeSpec"), "status": FieldRule("NodeStatus")},
    "NodeSpec": {"podCIDRs": FieldRule(merged=True)},
    "NodeStatus": {"addresses": _by("type"), "conditions": _CONDITIONS},
    "Namespace": {"metadata": _META, "status": FieldRule("WithConditions")},
    "WithConditions": {"conditions": _CONDITIONS},
}
"""The rules by type, then by field. A kind's own type is its kind; `WithConditions` is a name of ours."""


def rule_of(type_: str, field: str) -> FieldRule:
    """Return how a field of a type is patched; each object has metadata."""
    rules = RULES.get(type_, {})
    return rules.get(field, _META if type_ and not rules and field == "metadata" else _PLAIN)
