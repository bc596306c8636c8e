"""The plan of a DaemonSet: its pods, the nodes that should run them, what to do next, and its status. Pure.

After pkg/controller/daemon. There are no ControllerRevisions: a revision is a hash of the template, and what
was there before is not kept. `kubectl rollout status` reads in the status how far a rollout is.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, same, text, whole, with_part
from devplug.k8s.times import later, moment
from devplug.sandbox.api.ownerreferences import owner_reference
from devplug.sandbox.scheduler import NAME_FIELD, matches_affinity, shape, tolerates_taints

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.scheduler import Node, Shape

_HASH_LABEL: Final = "controller-revision-hash"
_GENERATION_LABEL: Final = "pod-template-generation"
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""What hashes are written in (apimachinery util/rand SafeEncodeString)."""

_DOMAIN: Final = "node.kubernetes.io/"
_OF_HOST_NETWORK: Final = ("network-unavailable", "NoSchedule")
_REQUIRED: Final = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_EVICTING: Final = "NoExecute"


# ── Pods of a DaemonSet ──


_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""The tolerations of every daemon pod (daemon/util/daemonset_util.go AddOrUpdateDaemonPodTolerations)."""


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
        for one in entries(term, "matchFields"):
            values = entries(one, "values")
            if text(one, "key") == NAME_FIELD and text(one, "operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


def revision_of(daemons: Object) -> str:
    """Return the hash of the template, by which its pods differ from those of another."""
    written = json.dumps(part(daemons, "spec", "template"), sort_keys=True, separators=(",", ":"))
    number = 2166136261
    for byte in written.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(number))


def _pod_spec(daemons: Object) -> Object:
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
    spec = with_part(_pod_spec(daemons), terms, "affinity", *_REQUIRED)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": mine, "spec": spec}


def _is_same_toleration(one: object, other: Object) -> bool:
    return all(same(text(one, word), text(other, word)) for word in ("key", "operator", "value", "effect"))


# ── Nodes that should run one (NodeShouldRunDaemonPod) ──


class Placement(enum.Enum):
    """The decision of a DaemonSet for one node."""

    RUN = "run"
    KEEP = "keep"
    """No new pod; one that is there may stay."""
    NONE = "none"


def placements(daemons: Object, nodes: Iterable[Node]) -> dict[str, Placement]:
    """Return what a DaemonSet wants of each node, by its name."""
    asked = shape(_pod_spec(daemons))
    return {node.name: _placement(asked, node) for node in nodes}


def _placement(asked: Shape, node: Node) -> Placement:
    if asked.node_name not in {"", node.name} or not matches_affinity(asked, node):
        return Placement.NONE
    if tolerates_taints(asked, node.taints):
        return Placement.RUN
    evicting = [taint for taint in node.taints if taint.effect == _EVICTING]
    return Placement.KEEP if tolerates_taints(asked, evicting) else Placement.NONE


# ── The plan ──


@dataclass(frozen=True, slots=True)
class Rollout:
    """The update strategy of a DaemonSet."""

    revision: str
    is_rolling: bool = True
    """False for `OnDelete`: pods of an older template stay until somebody deletes them."""
    max_unavailable: int = 1
    """On so many of its nodes there may be no available pod because of us; at least 1."""
    min_ready_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions of one sync."""

    make: tuple[str, ...] = ()
    """Nodes that need a pod."""
    delete: tuple[str, ...] = ()
    """Names of pods."""
    ended: tuple[DaemonPod, ...] = ()
    """Those of them that have ended by themselves, of which there is more to say."""
    is_held_back: bool = field(default=False, compare=False)
    """Whether a failed pod is left for a while, so that another look is needed."""


def rollout_of(daemons: Object, revision: str, desired: int) -> Rollout:
    """Return how the pods of a DaemonSet follow its template, where it wants so many.

    Pods are never doubled for a while (`maxSurge`): two pods cannot have the same device. Where that is asked
    for, one pod after the other is replaced.
    """
    asked = part(daemons, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
    if isinstance(asked, str) and asked.endswith("%") and asked[:-1].isdecimal():
        most = -(-int(asked[:-1]) * desired // 100)
    else:
        most = asked if isinstance(asked, int) and not isinstance(asked, bool) else 1
    return Rollout(
        revision,
        text(daemons, "spec", "updateStrategy", "type") != "OnDelete",
        max(most, 1),
        whole(daemons, "spec", "minReadySeconds"),
    )


def _pods_by_node(pods: Iterable[DaemonPod]) -> dict[str, list[DaemonPod]]:
    """Return the pods of each node, the one to keep first."""
    found: dict[str, list[DaemonPod]] = {}
    for pod in sorted(pods, key=lambda one: one.age_order):
        found.setdefault(pod.node_name, []).append(pod)
    return found


def plan(
    wishes: Mapping[str, Placement],
    pods: Iterable[DaemonPod],
    rollout: Rollout,
    now: datetime,
    backing_off: Container[str] = (),
) -> Plan:
    """Return what to do; on nodes in `backing_off`, a pod that failed is left for now.

    Pods are replaced only when each node has what it shall have (daemon_controller.go updateDaemonSet).
    """
    held = _pods_by_node(pods)
    todo = _managed(wishes, held, backing_off)
    if todo != Plan() or not rollout.is_rolling:
        return todo
    # What is left on nodes that are gone says nothing of the rollout; it ends with them.
    here = {name: found for name, found in held.items() if name in wishes}
    return replace(todo, delete=_replaced(here, rollout, now))


def _managed(
    wishes: Mapping[str, Placement], held: Mapping[str, list[DaemonPod]], backing_off: Container[str]
) -> Plan:
    """Return what brings each node to one pod, or to none (podsShouldBeOnNode)."""
    make = tuple(name for name, wish in wishes.items() if wish is Placement.RUN and name not in held)
    delete: list[str] = []
    ended: list[DaemonPod] = []
    is_held_back = False
    for node_name, found in held.items():
        pods = [pod for pod in found if not pod.is_ending]
        wish = wishes.get(node_name)
        if wish is None:
            # Those that are bound end with their node; the others would wait for it for ever.
            delete += [pod.name for pod in pods if not pod.is_bound]
            continue
        if wish is Placement.NONE:
            delete += [pod.name for pod in pods]
            continue
        alive = [pod for pod in pods if pod.phase not in {"Failed", "Succeeded"}]
        for pod in pods:
            if pod.phase == "Succeeded" or (pod.phase == "Failed" and node_name not in backing_off):
                ended.append(pod)
                delete.append(pod.name)
            is_held_back |= pod.phase == "Failed" and node_name in backing_off
        delete += [pod.name for pod in alive[1:]]
    return Plan(make, tuple(delete), tuple(ended), is_held_back)


def _replaced(held: Mapping[str, list[DaemonPod]], rollout: Rollout, now: datetime) -> tuple[str, ...]:
    """Return the pods of an older template that can go now (update.go rollingUpdate, without surge).

    Old pods that are not available go at once. They count as unavailable too, where the real controller
    forgets them for a step and can so have more than `maxUnavailable` away.
    """
    unavailable = 0
    at_once: list[str] = []
    candidates: list[str] = []
    for found in held.values():
        pods = [pod for pod in found if not pod.is_ending]
        if len(pods) != 1:
            unavailable += 1
            continue
        (pod,) = pods
        is_available = pod.is_available(rollout.min_ready_seconds, now)
        if pod.revision == rollout.revision:
            unavailable += not is_available
        elif is_available:
            candidates.append(pod.name)
        else:
            at_once.append(pod.name)
    room = max(rollout.max_unavailable - unavailable - len(at_once), 0)
    return (*at_once, *candidates[:room])


# ── The status ──


def daemon_status(
    daemons: Object,
    wishes: Mapping[str, Placement],
    pods: Iterable[DaemonPod],
    rollout: Rollout,
    now: datetime,
) -> Object:
    """Return the status (daemon_controller.go updateDaemonSetStatus); of a node's pods, the first counts."""
    held = _pods_by_node(pods)
    wanted = [name for name, wish in wishes.items() if wish is Placement.RUN]
    first = [held[name][0] for name in wanted if name in held]
    available = sum(pod.is_available(rollout.min_ready_seconds, now) for pod in first)
    updated = sum(pod.revision == rollout.revision for pod in first)
    status: Object = {
        **fields(daemons, "status"),
        "currentNumberScheduled": len(first),
        "numberMisscheduled": sum(name in held for name, wish in wishes.items() if wish is not Placement.RUN),
        "desiredNumberScheduled": len(wanted),
        "numberReady": sum(pod.ready_since is not None for pod in first),
        "observedGeneration": whole(daemons, "metadata", "generation"),
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    for left_out_at_zero in ("updatedNumberScheduled", "numberAvailable", "numberUnavailable"):
        if not status[left_out_at_zero]:
            del status[left_out_at_zero]
    return status


def seconds_until_available(pods: Iterable[DaemonPod], min_ready_seconds: int, now: datetime) -> float | None:
    """Return after how long the next pod is ready for long enough; None if none is about to be."""
    times = [since for pod in pods if (since := pod.available_from(min_ready_seconds)) and since > now]
    return (min(times) - now).total_seconds() if times else None
