"""The scheduling of a pod without a node: it counts, and knows neither devices nor their NUMA nodes. Pure.

A resource is short where nobody serves it, it is unhealthy, or others have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, maps, text
from devplug.k8s.pod_requests import device_requests, devices_by_container
from devplug.monitor.cluster_view import NodeCount, holder_name, node_counts
from devplug.monitor.why.claims_view import claims_view
from devplug.monitor.why.evidence import (
    NO_DEVICES,
    Actor,
    Diagnosis,
    State,
    condition,
    held_by,
    last_event,
    nearest,
    some,
    why_unfit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.monitor.why.claims_view import ClaimsView
    from devplug.monitor.why.evidence import Evidence

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_AVAILABLE: Final = re.compile(r"0/\d+ nodes are available: (?P<reasons>.*?)(\. |\.?$)")
_INSUFFICIENT: Final = "Insufficient "
_ADVICE: Final = {
    "untolerated taint": "add a toleration for that taint to the pod, or take the taint off the node",
    "node affinity/selector": "label the node as the pod's nodeSelector and affinity say, or change those",
    "unschedulable": "let pods on the node again: kubectl uncordon NODE",
    "Too many pods": "the node's kubelet takes no more pods; delete some, or raise its maxPods",
    "Insufficient cpu": "ask for less cpu, or delete pods that ask for it",
    "Insufficient memory": "ask for less memory, or delete pods that ask for it",
    "free ports": "another pod has the host port; ask for another one",
    "topology spread": "its topologySpreadConstraints leave no node; loosen them",
    "volume": "its volume is bound to other nodes; see kubectl describe pvc",
    NO_DEVICES: "see its claims: kubectl describe resourceclaim",
}
"""What to do about reasons other than devices, by a part of the scheduler's words (scheduler/framework)."""


# ── shortages ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Shortage:
    """Why the pod cannot have one resource, in sentences without a full stop."""

    because: str
    facts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def _shortages_of(
    asked: Mapping[str, int],
    here: Sequence[NodeCount],
    closed: Mapping[str, str],
    counts: Sequence[NodeCount],
    pods: Sequence[Object],
) -> Iterator[_Shortage]:
    """Yield a shortage for each resource of which no node has enough that the pod may go to.

    `here` are the counts of what it asks for, `counts` all there are, and `closed` says by the node's name
    what else keeps the pod away, empty if nothing does.
    """
    for resource, number in asked.items():
        mine = [one for one in here if one.resource == resource]
        usable = [one for one in mine if not closed[one.node]]
        if any(one.free >= number for one in usable):
            continue
        if usable:
            yield _short(resource, number, usable, pods)
        elif mine:
            yield _Shortage(
                f"the nodes that have {resource} are closed to it",
                tuple(
                    f"{one.node} has room, but {closed[one.node]}"
                    if one.free >= number
                    else f"{one.node} has no room, and {closed[one.node]}"
                    for one in mine
                ),
            )
        else:
            yield _unknown(resource, {one.resource for one in counts if one.is_known})


def _unknown(resource: str, known: set[str]) -> _Shortage:
    meant = nearest(resource, known)
    facts = [f"the nodes have {some(sorted(known), 10)}" if known else "no node has any extended resource"]
    advice = [f"write {meant} in the pod, if you mean that"] if meant else []
    return _Shortage(
        f"no node has the resource {resource}" + (f"; did you mean {meant}?" if meant else ""),
        tuple(facts),
        (
            *advice,
            f"start the plugin of {resource} where the hardware is, and see in its log that it registered",
            f"with DRA, see that a DeviceClass has extendedResourceName {resource}",
        ),
    )


def _short(resource: str, number: int, nodes: list[NodeCount], pods: Sequence[Object]) -> _Shortage:
    """Say why the nodes that know a resource have too few of it."""
    best = max(nodes, key=lambda one: (one.allocatable, one.capacity))
    most = max(one.capacity for one in nodes)
    names = some([one.node for one in nodes])
    if most == 0:
        return _Shortage(
            f"{names} has none of {resource}: its capacity is 0",
            ("capacity is 0 where the plugin lists no device, or has been gone for five minutes",),
            (f"see whether the plugin of {resource} runs on {names}, and which devices it finds",),
        )
    if number > most:
        return _Shortage(
            f"it asks for {number} of {resource}, and no node that it may go to has more than {most}",
            advice=(f"ask for at most {most}, or spread the work over several pods",),
        )
    if best.allocatable == 0:
        return _Shortage(
            f"all {best.capacity} of {resource} on {best.node} are unhealthy, or their plugin has stopped",
            tuple(_sick(nodes)),
            (f"see whether the plugin of {resource} runs on {best.node}, and what it says of its devices",),
        )
    if number > best.allocatable:
        return _Shortage(
            f"it asks for {number} of {resource}, and no node that it may go to has more than "
            f"{best.allocatable} healthy ones",
            tuple(_sick(nodes)),
            (f"mend the devices that are unhealthy, or ask for at most {best.allocatable}",),
        )
    holding = [one for one in nodes if one.pods]
    facts = [f"on {one.node} they are asked for by {held_by(dict(one.pods))}" for one in holding]
    leaving = {holder_name(pod) for pod in pods if text(pod, "metadata", "deletionTimestamp")}
    gone = sorted(name for one in holding for name in one.pods if name in leaving)
    if gone:
        facts.append(f"{some(gone)} is being deleted; what it has comes free when it is gone")
    free = max(one.free for one in nodes)
    left = f"more than {free}" if free else "one"
    return _Shortage(
        f"it asks for {number} of {resource}, and no node that it may go to has {left} free",
        (*facts, *_sick(nodes)),
        ("wait until one of those pods ends, delete one, or add a device; the scheduler then tries again",),
    )


def _sick(nodes: list[NodeCount]) -> Iterator[str]:
    for one in nodes:
        if one.unhealthy:
            or_stopped = "" if one.allocatable else ", or their plugin has stopped"
            yield f"{one.unhealthy} of {one.capacity} {one.resource} on {one.node} are unhealthy{or_stopped}"
        if not one.is_ready:
            yield f"{one.node} is not ready"


# ── pods without a node ───────────────────────────────────────────────────────────────────────────


def unscheduled(evidence: Evidence, pod: Object) -> Diagnosis:
    """Judge a pod that has no node."""
    scheduled = condition(pod, "PodScheduled")
    message = text(scheduled, "message") or text(last_event(evidence.events, "FailedScheduling"), "message")
    gates = [text(one, "name") for one in maps(pod, "spec", "schedulingGates")]
    if gates:
        return _diagnosis(
            evidence,
            rejected_by=Actor.NOBODY,
            because=f"the scheduler may not place it yet: the pod has the scheduling gate {some(gates)}",
            advice=("the program that set spec.schedulingGates removes them; kubectl patch does so, too",),
        )
    view = None if evidence.claims is None else claims_view(evidence, pod, evidence.claims)
    if view is not None and (judged := _of_view(evidence, pod, view, message)):
        return judged
    if view is not None and view.explanation is not None and device_requests(pod).keys() <= view.resources:
        because = f"there are devices for its claims on {some(view.explanation.fits)}"
        others = [one for one in _others(message) if "claim" not in one]
        if others:
            advice = _advice(message)
            because += f", but something else keeps it off: {some(others, 10)}"
            return _diagnosis(evidence, because=because, advice=advice, message=message)
        because += " by now, and the scheduler tries again by itself"
        advice = ["ask again in a moment"]
        return _diagnosis(evidence, rejected_by=Actor.NOBODY, because=because, advice=advice, message=message)
    if not message:
        return _unseen(evidence, pod)
    asked = device_requests(pod)
    if evidence.nodes is None or evidence.pods is None or not asked:
        return _from_message(evidence, message)
    counts = node_counts(evidence.nodes, evidence.pods)
    rows = {(one.node, one.resource): one for one in counts}
    here = [name for node in evidence.nodes if (name := text(node, "metadata", "name"))]
    closed = {text(node, "metadata", "name"): why_unfit(pod, node) for node in evidence.nodes}
    wanted = {
        name: [rows[name, one] for one in asked if (name, one) in rows and rows[name, one].is_known]
        for name in here
    }
    roomy = [
        name
        for name in here
        if len(wanted[name]) == len(asked) and all(one.free >= asked[one.resource] for one in wanted[name])
    ]
    shown = tuple(one for name in here for one in wanted[name])
    facts = [
        *_counting(pod, asked),
        *(f"{name} has room, but {closed[name]}" for name in roomy if closed[name]),
    ]
    if any(not closed[name] for name in roomy):
        return _despite_room(evidence, message, [name for name in roomy if not closed[name]], facts, shown)
    shortages = list(_shortages_of(asked, shown, closed, counts, evidence.pods))
    if not shortages and roomy:
        because = f"{some(roomy)} has enough, but the pod may not go there"
        return _diagnosis(
            evidence, because=because, facts=facts, advice=_advice(message), counts=shown, message=message
        )
    if not shortages:
        parts = [f"{number} {name}" for name, number in asked.items()]
        shortages = [_Shortage(f"no node has {some(parts)} free at once")]
    return _diagnosis(
        evidence,
        because="; ".join(one.because for one in shortages),
        facts=[*facts, *(fact for one in shortages for fact in one.facts), *_other_reasons(message)],
        advice=[*(step for one in shortages for step in one.advice), *_advice(message)],
        counts=shown,
        message=message,
    )


def _of_view(evidence: Evidence, pod: Object, view: ClaimsView, message: str) -> Diagnosis | None:
    """Judge by the claims, if they keep the pod, or if another scheduler has said nothing yet."""
    if not message and _scheduler_of(pod) != _DEFAULT_SCHEDULER:
        return _unseen(evidence, pod, (view.because,) if view.because else ())
    return _of_claims(evidence, view, message) if view.because else None


def _of_claims(evidence: Evidence, view: ClaimsView, message: str) -> Diagnosis:
    """Judge by the claims; what the scheduler says comes first where it does not name them."""
    reasons = _reasons(message)
    is_named = not reasons or any("claim" in one for one in reasons)
    return Diagnosis(
        namespace=evidence.namespace,
        pod=evidence.name,
        state=State.PENDING,
        rejected_by=Actor.SCHEDULER if message else Actor.NOBODY,
        because=view.because if is_named else some(reasons, 10),
        facts=view.facts if is_named else (f"by the objects that were read: {view.because}", *view.facts),
        advice=view.advice if is_named else tuple(dict.fromkeys((*_advice(message), *view.advice))),
        claims=view,
        message=message,
        unread=evidence.unread,
    )


def _diagnosis(
    evidence: Evidence,
    *,
    because: str,
    rejected_by: Actor = Actor.SCHEDULER,
    facts: Sequence[str] = (),
    advice: Sequence[str] = (),
    counts: tuple[NodeCount, ...] = (),
    message: str = "",
) -> Diagnosis:
    return Diagnosis(
        namespace=evidence.namespace,
        pod=evidence.name,
        state=State.PENDING,
        rejected_by=rejected_by,
        because=because,
        facts=tuple(dict.fromkeys(facts)),
        advice=tuple(dict.fromkeys(advice)),
        counts=counts,
        message=message,
        unread=evidence.unread,
    )


def _scheduler_of(pod: Object) -> str:
    return text(pod, "spec", "schedulerName") or _DEFAULT_SCHEDULER


def _unseen(evidence: Evidence, pod: Object, facts: Sequence[str] = ()) -> Diagnosis:
    scheduler = _scheduler_of(pod)
    if scheduler == _DEFAULT_SCHEDULER:
        advice = "ask again in a moment; if it stays so, see whether the scheduler runs in kube-system"
    else:
        advice = f"see whether {scheduler} runs, or take spec.schedulerName out of the pod"
    because = f"its scheduler ({scheduler}) has left neither a condition nor an event on it yet"
    return _diagnosis(evidence, rejected_by=Actor.NOBODY, because=because, facts=facts, advice=(advice,))


def _from_message(evidence: Evidence, message: str) -> Diagnosis:
    reasons = _reasons(message)
    because = some(reasons, 10) if reasons else message
    return _diagnosis(evidence, because=because, advice=_advice(message), message=message)


def _despite_room(
    evidence: Evidence, message: str, roomy: list[str], facts: list[str], counts: tuple[NodeCount, ...]
) -> Diagnosis:
    others = _other_reasons(message)
    if others:
        because = (
            f"{some(roomy)} has the devices, but something else keeps it off: {some(_others(message), 10)}"
        )
        return _diagnosis(
            evidence, because=because, facts=facts, advice=_advice(message), counts=counts, message=message
        )
    return _diagnosis(
        evidence,
        rejected_by=Actor.NOBODY,
        because=f"there is room on {some(roomy)} by now, and the scheduler tries again by itself",
        facts=facts,
        advice=("ask again in a moment",),
        counts=counts,
        message=message,
    )


def _counting(pod: Object, asked: Mapping[str, int]) -> Iterator[str]:
    """Yield how the number came about, where it is not one container's."""
    for resource, number in asked.items():
        parts = [
            f"{text(container, 'name')} {own[resource]}"
            for container, own in devices_by_container(pod)
            if own.get(resource)
        ]
        if len(parts) > 1:
            yield (
                f"its containers ask for {resource}: {some(parts, 10)}; at once that is {number} (app "
                "containers and sidecars together, or one init container if that is more)"
            )


# ── the scheduler's words ─────────────────────────────────────────────────────────────────────────


def _reasons(message: str) -> list[str]:
    """Return the reasons of `0/3 nodes are available: 1 REASON, 2 REASON. ...` (scheduler FitError)."""
    found = _AVAILABLE.search(message)
    return re.split(r", (?=\d+ )", found["reasons"]) if found else []


def _others(message: str) -> list[str]:
    """Return the reasons that are not about devices."""
    return [one for one in _reasons(message) if not ("/" in one and _INSUFFICIENT in one)]


def _other_reasons(message: str) -> list[str]:
    others = _others(message)
    return [f"the scheduler also says: {some(others, 10)}"] if others else []


def _advice(message: str) -> list[str]:
    return [step for one in _others(message) for words, step in _ADVICE.items() if words in one]
