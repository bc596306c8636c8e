"""The failure of a pod for good: the kubelet refused or evicted it, or its program ended. Pure.

The kubelet's words are those of pkg/kubelet and its packages cm/admission, cm/devicemanager and lifecycle.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, fields, maps, text, whole
from devplug.k8s.pod_requests import device_requests
from devplug.monitor.why.evidence import (
    Actor,
    Diagnosis,
    State,
    condition,
    container_statuses,
    last_event,
    some,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.monitor.why.evidence import Evidence
    from devplug.status import NodeStatus

_PREFIX: Final = "Pod was rejected: "
_AGAIN: Final = (
    "delete the pod and create it again, since the kubelet never tries this one again; a controller "
    "does so by itself"
)
_ALLOCATE: Final = re.compile(r"Allocate failed due to (?P<error>.*), which is unexpected", re.DOTALL)
_TAKEN: Final = re.compile(
    r"requested number of devices unavailable for (?P<resource>\S+)\. "
    r"Requested: (?P<asked>\d+), Available: (?P<free>\d+)"
)
_RPC: Final = re.compile(r"rpc error: code = (?P<code>\w+) desc = (?P<said>.*)", re.DOTALL)
_OUR_STEP: Final = re.compile(r"^(allocate|pre-start): ")
"""The prefix that our own plugins write; the diagnosis names the plugin anyway."""

_SHORT: Final = re.compile(
    r"Node didn't have enough resource: (?P<resource>\S+), requested: (?P<asked>\d+), used: (?P<used>\d+), "
    r"capacity: (?P<capacity>\d+)"
)
_NO_HEALTHY: Final = re.compile(
    r"(?P<which>no healthy devices present|previously allocated devices are no longer healthy); "
    r"cannot allocate unhealthy devices (?P<resource>\S+)"
)
_NO_PLUGIN: Final = re.compile(
    r"(cannot allocate unregistered device|unknown Device Plugin) (?P<resource>\S+)"
)
_LESS: Final = "unexpectedly allocated less resources than required"
_EMPTY: Final = "no containers return in allocation response"
_PREFERRED: Final = "GetPreferredAllocation"
_GONE: Final = {"Unavailable", "Canceled"}
"""Codes that gRPC makes itself when nobody answers."""

_OTHER_REASONS: Final = {
    "Evicted": (
        Actor.NODE,
        "the kubelet evicted it",
        "see in the message which resource ran short, or which limit the pod exceeded",
    ),
    "Preempting": (Actor.KUBELET, "it had to make room for a critical pod", "give it a higher priority"),
    "Terminated": (
        Actor.NODE,
        "the node was being shut down",
        "wait until the node is back, or choose another one",
    ),
    "NodeShutdown": (Actor.NODE, "the node was being shut down", "wait until the node is back"),
    "NodeLost": (Actor.NODE, "its node does not answer any more", "see what has become of the node"),
    "DeadlineExceeded": (Actor.KUBELET, "it ran longer than its activeDeadlineSeconds", "allow it more time"),
}
"""By `status.reason`: who said no, why, and what to do before the pod is made anew."""


def failed(evidence: Evidence, pod: Object) -> Diagnosis:
    """Judge a pod whose phase is Failed."""
    reason = text(pod, "status", "reason")
    message = text(pod, "status", "message").removeprefix(_PREFIX)
    if reason == "UnexpectedAdmissionError":
        return _of_allocation(evidence, pod, message)
    if reason == "TopologyAffinityError":
        return _of_topology(evidence, pod, message)
    if reason.startswith("OutOf"):
        return _of_shortage(evidence, pod, reason, message)
    if reason in _OTHER_REASONS:
        rejected_by, because, step = _OTHER_REASONS[reason]
        return _diagnosis(evidence, rejected_by, because, advice=(step, _AGAIN), message=message, pod=pod)
    if message.startswith("Predicate ") or reason.startswith(("NodeAffinity", "NodeName", "Taint")):
        because = f"the pod was bound to a node that it does not fit ({reason})"
        advice = ("mend its nodeSelector, affinity, tolerations or nodeName", _AGAIN)
        return _diagnosis(evidence, Actor.KUBELET, because, advice=advice, message=message, pod=pod)
    if reason:
        return _diagnosis(evidence, Actor.KUBELET, f"{reason}", advice=(_AGAIN,), message=message, pod=pod)
    if disruption := condition(pod, "DisruptionTarget"):
        because = f"it was evicted ({text(disruption, 'reason')})"
        message = text(disruption, "message")
        return _diagnosis(evidence, Actor.NODE, because, advice=(_AGAIN,), message=message, pod=pod)
    return _of_program(evidence, pod)


def plugin_said(error: str) -> tuple[str, str]:
    """Return gRPC's code and the plugin's own words out of an error of the kubelet; empty without."""
    found = _RPC.search(error)
    return (found["code"], _OUR_STEP.sub("", found["said"].strip())) if found else ("", "")


def _diagnosis(
    evidence: Evidence,
    rejected_by: Actor,
    because: str,
    *,
    pod: Object,
    facts: Sequence[str] = (),
    advice: Sequence[str] = (),
    message: str = "",
) -> Diagnosis:
    node = text(pod, "spec", "nodeName")
    return Diagnosis(
        namespace=evidence.namespace,
        pod=evidence.name,
        state=State.FAILED,
        rejected_by=rejected_by,
        because=because,
        facts=(
            *([f"it was on {node}"] if node else []),
            *facts,
            *([f"message: {message}"] if message else []),
        ),
        advice=tuple(advice),
        message=message,
        unread=evidence.unread,
    )


# ── allocation ────────────────────────────────────────────────────────────────────────────────────


def _of_allocation(evidence: Evidence, pod: Object, message: str) -> Diagnosis:
    found = _ALLOCATE.search(message)
    error = found["error"] if found else message
    node = text(pod, "spec", "nodeName")
    if taken := _TAKEN.search(error):
        resource, asked, free = taken["resource"], taken["asked"], taken["free"]
        facts = _who_placed_it(evidence)
        return _diagnosis(
            evidence,
            Actor.KUBELET,
            f"of the {asked} {resource} that it asks for, {node} had only {free} healthy and not in use",
            facts=(*facts, *_node_facts(evidence.node_status, {resource})),
            advice=(_AGAIN, "do not set spec.nodeName, so that the scheduler counts") if facts else (_AGAIN,),
            message=message,
            pod=pod,
        )
    if sick := _NO_HEALTHY.search(error):
        resource = sick["resource"]
        had = sick["which"].startswith("previously")
        return _diagnosis(
            evidence,
            Actor.KUBELET,
            f"the {resource} that it had on {node} are no longer healthy"
            if had
            else f"{node} had no healthy {resource} when the pod came",
            facts=(
                "after a boot, or a restart of the kubelet, that is so until the plugin registers",
                *_node_facts(evidence.node_status, {resource}),
            ),
            advice=(f"see whether the plugin of {resource} runs on {node}, and mend the devices", _AGAIN),
            message=message,
            pod=pod,
        )
    if lost := _NO_PLUGIN.search(error):
        resource = lost["resource"]
        advice = (f"start the plugin of {resource} on {node}, and see that it registers", _AGAIN)
        because = f"no plugin served {resource} on {node} when the pod came"
        return _diagnosis(evidence, Actor.KUBELET, because, advice=advice, message=message, pod=pod)
    code, said = plugin_said(error)
    if code in _GONE:
        because = f"the plugin's call ended with {code}: {said}"
        facts = [f"gRPC says {code} where a plugin ends or is away; a plugin may answer so, too"]
        advice = (
            "see what the plugin's log says, and whether its process ended: kubectl logs --previous",
            _AGAIN,
        )
        return _diagnosis(
            evidence, Actor.PLUGIN, because, facts=facts, advice=advice, message=message, pod=pod
        )
    if code:
        call = _PREFERRED if _PREFERRED in error else "Allocate"
        advice = ("do what the plugin says", _AGAIN)
        return _diagnosis(
            evidence, Actor.PLUGIN, f"{call} was refused: {said}", advice=advice, message=message, pod=pod
        )
    if _EMPTY in error or _LESS in error or _PREFERRED in error:
        because = f"the kubelet cannot use the plugin's answer: {error}"
        advice = ("judge the plugin with devplug verify, and mend it", _AGAIN)
        return _diagnosis(evidence, Actor.PLUGIN, because, advice=advice, message=message, pod=pod)
    return _diagnosis(evidence, Actor.KUBELET, error, advice=(_AGAIN,), message=message, pod=pod)


def _who_placed_it(evidence: Evidence) -> list[str]:
    """Return the fact that nobody counted, for a pod without an event `Scheduled`."""
    if last_event(evidence.events, "Scheduled"):
        return []
    return [
        "no event says that the scheduler placed it: a pod bound by name is not counted (events last an hour)"
    ]


# ── topology and shortage ─────────────────────────────────────────────────────────────────────────


def _of_topology(evidence: Evidence, pod: Object, message: str) -> Diagnosis:
    asked = device_requests(pod)
    node = text(pod, "spec", "nodeName")
    parts = [f"{number} {name}" for name, number in asked.items()]
    what = some(parts) if parts else "its cpu and memory"
    known = _node_facts(evidence.node_status, set(asked))
    if nowhere := _on_no_node(evidence, set(asked)):
        return _diagnosis(
            evidence,
            Actor.KUBELET,
            f"devices say that they are on a NUMA node that {node} does not have",
            facts=(
                *nowhere,
                f"its NUMA nodes: {', '.join(map(str, evidence.numa_nodes))}",
                "its policy is restricted or single-numa-node: no other refuses",
            ),
            advice=(
                "mend numaNodes in devplug's configuration, or what the plugin says; none is near to all",
                _AGAIN,
            ),
            message=message,
            pod=pod,
        )
    return _diagnosis(
        evidence,
        Actor.KUBELET,
        f"the topology manager of {node} could not have {what} on NUMA nodes as its policy wants",
        facts=(
            "its policy is restricted or single-numa-node: no other refuses",
            "the scheduler does not know NUMA nodes: it only counts devices",
            *known,
        ),
        advice=(
            "ask for no more than one NUMA node has free"
            + ("" if known else "; devplug status on the node shows its devices by NUMA node"),
            "wait until other pods let go of devices that lie together",
            (
                "run the kubelet with --topology-manager-policy=best-effort, if the devices need not "
                "share a NUMA node"
            ),
            _AGAIN,
        ),
        message=message,
        pod=pod,
    )


def _on_no_node(evidence: Evidence, resources: set[str]) -> list[str]:
    """Say which resources have free devices on NUMA nodes that the machine lacks, and no others."""
    facts = []
    for resource in evidence.node_status.resources if evidence.node_status and evidence.numa_nodes else ():
        free = [one for one in resource.devices if one.is_healthy and not one.is_held]
        nowhere = [one for one in free if {*one.numa_nodes} - {*evidence.numa_nodes}]
        if resource.name in resources and nowhere and len(nowhere) == len(free):
            places = sorted({node for one in nowhere for node in one.numa_nodes} - {*evidence.numa_nodes})
            ids = some([one.id for one in nowhere])
            facts.append(f"of {resource.name} on NUMA node {', '.join(map(str, places))}: {ids}")
    return facts


def _of_shortage(evidence: Evidence, pod: Object, reason: str, message: str) -> Diagnosis:
    found = _SHORT.search(message)
    node = text(pod, "spec", "nodeName")
    resource = found["resource"] if found else reason.removeprefix("OutOf")
    because = f"{node} has too little {resource}"
    if found:
        because += f": {found['asked']} asked for, {found['used']} of {found['capacity']} in use"
    facts = _who_placed_it(evidence)
    if found and found["capacity"] == "0":
        facts.append(f"0 means that the plugin of {resource} has no healthy device there, or is gone")
    advice = ("wait for a pod to end or ask for less, and do not set spec.nodeName", _AGAIN)
    return _diagnosis(evidence, Actor.KUBELET, because, facts=facts, advice=advice, message=message, pod=pod)


def _node_facts(status: NodeStatus | None, resources: set[str]) -> list[str]:
    """Say what the node itself knows: free devices by NUMA node, and why others are unhealthy."""
    facts = []
    for resource in status.resources if status is not None else ():
        if resource.name not in resources:
            continue
        free: dict[str, list[str]] = {}
        for device in resource.devices:
            if device.is_healthy and not device.is_held:
                place = ",".join(map(str, device.numa_nodes)) or "none"
                free.setdefault(place, []).append(device.id)
            elif not device.is_healthy:
                facts.append(
                    f"{device.id} of {resource.name} is unhealthy: {device.reason or 'no reason given'}"
                )
        listed = "; ".join(f"NUMA node {place}: {some(ids)}" for place, ids in sorted(free.items()))
        facts.append(f"of {resource.name} these are free now: {listed or 'none'}")
        if resource.fault:
            facts.append(f"{resource.name} is not ready: {resource.fault}")
    return facts


# ── programs ──────────────────────────────────────────────────────────────────────────────────────


def _of_program(evidence: Evidence, pod: Object) -> Diagnosis:
    ends = []
    for one in container_statuses(pod):
        end = fields(one, "state", "terminated") or fields(one, "lastState", "terminated")
        if end and whole(end, "exitCode"):
            ends.append(
                f"container {text(one, 'name')} ended with code {whole(end, 'exitCode')}"
                + (f" ({text(end, 'reason')})" if text(end, "reason") else "")
            )
    name = next((text(one, "name") for one in maps(pod, "spec", "containers")), "")
    return _diagnosis(
        evidence,
        Actor.PROGRAM,
        some(ends) if ends else "one of its containers ended in failure",
        advice=(
            f"see what the program says: kubectl logs -n {evidence.namespace} {evidence.name} -c {name}",
        ),
        message=text(pod, "status", "message"),
        pod=pod,
    )
