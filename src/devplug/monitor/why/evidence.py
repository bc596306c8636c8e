"""Evidence on a pod and its diagnosis, with how pods, nodes and events are read. Pure.

Read are the latest event, conditions, and what closes a node.
"""

from __future__ import annotations

import difflib
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, fields, maps, text, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.monitor.cluster_view import NodeCount
    from devplug.monitor.why.claims_view import ClaimsView
    from devplug.status import NodeStatus

_MOST_NAMED: Final = 5
NO_DEVICES: Final = "cannot allocate all claims"
"""All that the scheduler says of claims without devices (SP/dynamicresources.go)."""

_BLOCKING: Final = {"NoSchedule", "NoExecute"}


# ── values ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimObjects:
    """The objects of resource.k8s.io that decide about a pod's claims; None for what may not be read."""

    claims: tuple[Object, ...] | None = None
    """Those of all namespaces, or of the pod's own."""
    templates: frozenset[str] | None = None
    """The names of the templates of the pod's namespace."""
    classes: tuple[Object, ...] | None = None
    slices: tuple[Object, ...] | None = None
    rules: tuple[Object, ...] | None = ()
    """DeviceTaintRules; none where the API server does not serve them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was read about one pod. Objects are as the API has them."""

    namespace: str
    name: str
    pod: Object | None
    """None if there is no such pod."""
    events: tuple[Object, ...] = ()
    """Those on the pod; of the whole namespace if there is no such pod."""
    nodes: tuple[Object, ...] | None = ()
    """None if they may not be read."""
    pods: tuple[Object, ...] | None = ()
    """Every pod of the cluster, or of the namespace if there is no such pod; None if they may not be read."""
    unread: tuple[str, ...] = ()
    """What could not be read, and what to do about it, as sentences."""
    claims: ClaimObjects | None = None
    """None for a pod without claims."""
    node_status: NodeStatus | None = None
    """What is known on the pod's node itself, for whoever runs there."""
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes of the pod's node, for whoever runs there; none if they are not known."""


class State(enum.StrEnum):
    """The state of a pod; the value is what people read."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    STARTING = "Starting"
    PENDING = "Pending"
    """No node has been found for it."""
    WAITING = "Waiting"
    """It has a node, and something there is tried again and again."""
    FAILED = "Failed"
    """For good: the kubelet never tries it again."""
    TERMINATING = "Terminating"
    NOT_FOUND = "NotFound"


class Actor(enum.StrEnum):
    """The component that rejected a pod; programs read it as `rejected_by`."""

    NOBODY = "nobody"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    PLUGIN = "plugin"
    DRIVER = "DRA driver"
    QUOTA = "quota"
    API_SERVER = "API server"
    RUNTIME = "container runtime"
    IMAGE = "image"
    PROGRAM = "program"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a pod is as it is, in sentences without a full stop."""

    namespace: str
    pod: str
    state: State
    rejected_by: Actor
    because: str
    facts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    """What to do, the likeliest first."""
    counts: tuple[NodeCount, ...] = ()
    """What the nodes have of the resources that the pod asks for, where that matters."""
    claims: ClaimsView | None = None
    """What was found about its claims, where that matters."""
    message: str = ""
    """The message of the event or status, to the letter."""
    unread: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether nothing keeps the pod from its work."""
        return self.rejected_by is Actor.NOBODY and self.state in {State.RUNNING, State.SUCCEEDED}

    @property
    def is_unknown(self) -> bool:
        """Whether there is nothing to judge: no such pod, and nobody refused to make it."""
        return self.state is State.NOT_FOUND and self.rejected_by is Actor.NOBODY

    def value(self) -> dict[str, object]:
        """Return it in values that JSON and YAML have."""
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "state": str(self.state),
            "rejected_by": str(self.rejected_by),
            "because": self.because,
            "message": self.message,
            "facts": list(self.facts),
            "advice": list(self.advice),
            "nodes": [one.value() for one in self.counts],
            "unread": list(self.unread),
            **({} if self.claims is None else {"claims": self.claims.value()}),
        }

    def lines(self) -> tuple[str, ...]:
        """Return it for people, but for the counts."""
        no = "" if self.rejected_by is Actor.NOBODY else f"the {self.rejected_by} said no: "
        lines = [f"{self.namespace}/{self.pod} is {_WORDS[self.state]}: {no}{self.because}"]
        lines += [f"  {one}" for one in self.facts]
        lines += [f"  not read: {one}" for one in self.unread]
        if self.advice:
            lines += ["What to do:", *(f"  - {one}" for one in self.advice)]
        return tuple(lines)


_WORDS = {state: str(state) for state in State} | {State.NOT_FOUND: "not there"}

# ── pods, nodes and events ────────────────────────────────────────────────────────────────────────


def last_event(events: Iterable[Object], *reasons: str) -> Object:
    """Return the newest event with one of these reasons, of any warning if none are named; empty if none."""
    found = [
        one
        for one in events
        if (text(one, "reason") in reasons if reasons else text(one, "type") == "Warning")
    ]
    return max(found, key=_when, default={})


def _when(event: Object) -> str:
    """Return the time of an event's last occurrence; all components write times alike, in UTC."""
    return (
        text(event, "series", "lastObservedTime")
        or text(event, "lastTimestamp")
        or text(event, "eventTime")
        or text(event, "firstTimestamp")
        or text(event, "metadata", "creationTimestamp")
    )


def condition(thing: Object, type_: str) -> Object:
    """Return a condition of a pod or node; empty if it has none of that type."""
    return next((one for one in maps(thing, "status", "conditions") if text(one, "type") == type_), {})


def container_statuses(pod: Object) -> list[Object]:
    """Return the statuses of init containers and app containers, in start order."""
    words = ("initContainerStatuses", "containerStatuses")
    return [one for word in words for one in maps(pod, "status", word)]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name most like it; empty if none is near."""
    found = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return found[0] if found else ""


def some(names: Sequence[str], limit: int = _MOST_NAMED) -> str:
    """Return names in a sentence, and how many more there are."""
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def held_by(pods: dict[str, int]) -> str:
    """Return who asks for how many, as in `default/a (2) and default/b (1)`."""
    return some([f"{name} ({number})" for name, number in sorted(pods.items(), key=lambda one: -one[1])])


def asks_for_claims(pod: Object) -> bool:
    """Whether a pod has claims, or the scheduler made one for its extended resources or could not (D91)."""
    said = text(condition(pod, "PodScheduled"), "message")
    made = fields(pod, "status", "extendedResourceClaimStatus")
    return bool(maps(pod, "spec", "resourceClaims") or made) or NO_DEVICES in said


def leaving(pod: Object) -> tuple[str, tuple[str, ...]]:
    """Return what a pod that is being deleted waits for, and what to do if that never comes.

    Its claims are released before it is gone, which is tried again for ever and without an event (D27).
    """
    if not (maps(pod, "spec", "resourceClaims") or fields(pod, "status", "extendedResourceClaimStatus")):
        return "it is being deleted; its devices come free when its containers have ended", ()
    node = text(pod, "spec", "nodeName")
    return (
        "it is being deleted, and stays until its containers have ended and its claims are released",
        (f"if it stays so, see whether the DRA driver of its claims runs on {node}, and what its log says",),
    )


def why_unfit(pod: Object, node: Object) -> str:
    """Return why a node is closed to a pod: nodeSelector, taints or a cordon; empty if it is open."""
    labels = texts(node, "metadata", "labels")
    for key, value in texts(pod, "spec", "nodeSelector").items():
        if labels.get(key) != value:
            return f"it lacks the label {key}={value} of the pod's nodeSelector"
    if fields(node, "spec").get("unschedulable") is True:
        return "it is cordoned"
    for taint in maps(node, "spec", "taints"):
        if text(taint, "effect") in _BLOCKING and not any(
            _tolerates(one, taint) for one in maps(pod, "spec", "tolerations")
        ):
            key, value = text(taint, "key"), text(taint, "value")
            taint_key = f"{key}={value}" if value else key
            return f"the pod does not tolerate its taint {taint_key}:{text(taint, 'effect')}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration is for a taint (api/core/v1/toleration.go ToleratesTaint)."""
    effect, key = text(toleration, "effect"), text(toleration, "key")
    if effect and effect != text(taint, "effect"):
        return False
    if key and key != text(taint, "key"):
        return False
    is_any = text(toleration, "operator") == "Exists"
    return is_any or (bool(key) and text(toleration, "value") == text(taint, "value"))
