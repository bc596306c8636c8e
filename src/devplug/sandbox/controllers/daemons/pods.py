"""The pods of a DaemonSet: what a new one is like, and what the plan knows of one that is there. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.objects import entries, fields, part, same, text, whole, with_part
from devplug.sandbox.api.times import later, moment
from devplug.sandbox.controllers.rules.owners import owner_reference
from devplug.sandbox.scheduling.values import NAME_FIELD

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = ["DaemonPod", "daemon_pod", "new_pod", "pod_spec", "revision_of", "target_node"]

_HASH_LABEL: Final = "controller-revision-hash"
_GENERATION_LABEL: Final = "pod-template-generation"

_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""What hashes are written in (apimachinery util/rand SafeEncodeString)."""

_DOMAIN: Final = "node.kubernetes.io/"
_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""What every daemon puts up with (daemon/util/daemonset_util.go AddOrUpdateDaemonPodTolerations)."""

_OF_HOST_NETWORK: Final = ("network-unavailable", "NoSchedule")

_REQUIRED: Final = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


@dataclass(frozen=True, slots=True)
class DaemonPod:
    """A pod of a DaemonSet, as far as the plan is about it."""

    name: str
    node_name: str
    """The node that it is on, or meant for."""
    revision: str
    phase: str = "Running"
    ready_since: datetime | None = None
    """None while it is not ready."""
    is_ending: bool = False
    is_bound: bool = True
    created: str = ""

    def available_from(self, min_ready_seconds: int) -> datetime | None:
        """Return when it is ready for long enough, if it stays ready; None while it is not ready."""
        if self.ready_since is None:
            return None
        return later(self.ready_since, min_ready_seconds)

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Whether it is ready, and has been for so long (podutil.IsPodAvailable)."""
        since = self.available_from(min_ready_seconds)
        return since is not None and since <= now

    @property
    def age_order(self) -> tuple[bool, str, str]:
        """Sorts the one to keep first: with a node, then the oldest (podByCreationTimestampAndPhase)."""
        return not self.is_bound, self.created, self.name


def daemon_pod(pod: Object) -> DaemonPod:
    """Return what the plan has to know of a pod."""
    ready = next((one for one in entries(pod, "status", "conditions") if text(one, "type") == "Ready"), None)
    since = moment(text(ready, "lastTransitionTime")) if text(ready, "status") == "True" else None
    return DaemonPod(
        text(pod, "metadata", "name"),
        target_node(pod),
        text(pod, "metadata", "labels", _HASH_LABEL),
        text(pod, "status", "phase"),
        since,
        bool(text(pod, "metadata", "deletionTimestamp")),
        bool(text(pod, "spec", "nodeName")),
        text(pod, "metadata", "creationTimestamp"),
    )


def target_node(pod: Object) -> str:
    """Return the node that a pod is on or, by its affinity, meant for (GetTargetNodeName)."""
    if name := text(pod, "spec", "nodeName"):
        return name
    for term in entries(pod, "spec", "affinity", *_REQUIRED, "nodeSelectorTerms"):
        for field in entries(term, "matchFields"):
            values = entries(field, "values")
            if text(field, "key") == NAME_FIELD and text(field, "operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


def revision_of(daemons: Object) -> str:
    """Return the hash of the template, by which its pods are told from those of another."""
    written = json.dumps(part(daemons, "spec", "template"), sort_keys=True, separators=(",", ":"))
    number = 2166136261
    for byte in written.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(number))


def pod_spec(daemons: Object) -> Object:
    """Return the template's spec with what every daemon tolerates."""
    spec = fields(daemons, "spec", "template", "spec")
    added = [*_TOLERATED, *([_OF_HOST_NETWORK] if part(spec, "hostNetwork") is True else [])]
    tolerations = entries(spec, "tolerations")
    for word, effect in added:
        one: Object = {"key": _DOMAIN + word, "operator": "Exists", "effect": effect}
        tolerations = [*(other for other in tolerations if not _is_same_toleration(other, one)), one]
    return {**spec, "tolerations": tolerations}


def new_pod(daemons: Object, resource: Resource, node_name: str) -> Object:
    """Return a pod for a node, to which its affinity sends it (ReplaceDaemonSetPodNodeNameNodeAffinity).

    It is not given to the node at once: it waits, as others do, until there is room and devices for it.
    """
    meta = fields(daemons, "spec", "template", "metadata")
    labels = {
        **fields(meta, "labels"),
        _HASH_LABEL: revision_of(daemons),
        _GENERATION_LABEL: str(whole(daemons, "metadata", "generation")),
    }
    mine: Object = {
        "generateName": f"{text(daemons, 'metadata', 'name')}-",
        "labels": labels,
        "ownerReferences": [owner_reference(resource, daemons)],
    }
    if annotations := fields(meta, "annotations"):
        mine["annotations"] = annotations
    field: Object = {"key": NAME_FIELD, "operator": "In", "values": [node_name]}
    terms: Object = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = with_part(pod_spec(daemons), terms, "affinity", *_REQUIRED)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": mine, "spec": spec}


def _is_same_toleration(one: object, other: Object) -> bool:
    return all(same(text(one, word), text(other, word)) for word in ("key", "operator", "value", "effect"))
