"""The diagnosis of a pod: one that is not there, one that has a node, and which rule judges it. Pure.

Container states and their reasons are the kubelet's (pkg/kubelet/kuberuntime, pkg/kubelet/images).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, fields, maps, text, whole
from devplug.k8s.pod_requests import device_counts, device_requests
from devplug.monitor.cluster_claims import limits_by_claim
from devplug.monitor.cluster_view import device_statuses, is_ready
from devplug.monitor.why.device_taints import EVICTION_EVENT, eviction_facts, is_evicted
from devplug.monitor.why.evidence import (
    Actor,
    Diagnosis,
    State,
    condition,
    container_statuses,
    last_event,
    leaving,
    nearest,
    some,
)
from devplug.monitor.why.failure import failed, plugin_said
from devplug.monitor.why.scheduling import unscheduled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.monitor.cluster_claims import ClaimedRequest
    from devplug.monitor.why.evidence import Evidence


_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*), used: (?P<used>.*), "
    r"limited: (?P<limited>.*)"
)
_FORBIDDEN: Final = re.compile(r"is forbidden: (?P<why>.*)", re.DOTALL)
_INVALID: Final = re.compile(r"is invalid: (?P<why>.*)", re.DOTALL)

_PRE_START: Final = "PreStartContainer"
_PRE_START_RPC: Final = "device plugin PreStartContainer rpc failed with err: "
_KUBELETS_DEADLINE: Final = "context deadline exceeded"
"""Go's words for the kubelet's 30 s (endpoint.go); a plugin may have a deadline of its own."""
_CDI: Final = re.compile(r"unresolvable CDI devices? (?P<names>.+?)(: unknown|$)")
_IMAGE: Final = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
}

_AT_WORK: Final = {"ContainerCreating", "PodInitializing", ""}
_RUNTIME: Final = {"CreateContainerError", "RunContainerError", "CreatePodSandboxError"}
_TROUBLES: Final = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "FailedMapVolume")
_PREPARE: Final = "FailedPrepareDynamicResources"
_PREPARING: Final = "Failed to prepare dynamic resources: prepare dynamic resources: "
_UNREGISTERED: Final = re.compile(r"DRA driver (?P<driver>\S+) is not registered")
_UNHEALTHY: Final = "Unhealthy"
"""Not `Unknown`, which drivers of DRA have for what they have not heard of for a while."""


# ── pods that are not there ───────────────────────────────────────────────────────────────────────


def _missing(evidence: Evidence) -> Diagnosis:
    """Judge a name that no pod has: it may be the name of the controller that should create the pods."""
    refusals = [
        one for one in evidence.events if text(one, "reason") == "FailedCreate" and _is_of(evidence, one)
    ]
    if refusals:
        return _refused(evidence, last_event(refusals, "FailedCreate"))
    evictions = [one for one in evidence.events if text(one, "involvedObject", "name") == evidence.name]
    if evicted := last_event(evictions, EVICTION_EVENT):
        because = (
            f"namespace {evidence.namespace} has no such pod; the device taint manager marked a pod of that "
            "name for deletion, because a device of its claims had a taint with the effect NoExecute"
        )
        shown = "kubectl get devicetaintrules,resourceslices -o yaml shows the taints that devices have now"
        message = text(evicted, "message")
        return _not_found(evidence, Actor.NOBODY, because, advice=(shown,), message=message)
    here = [text(one, "metadata", "name") for one in evidence.pods or ()]
    own = sorted(name for name in here if name.startswith(evidence.name + "-"))
    meant = nearest(evidence.name, here)
    because = f"namespace {evidence.namespace} has no such pod"
    if own:
        because += f"; pods with that beginning: {some(own)}"
    elif meant:
        because += f"; did you mean {meant}?"
    advice = [f"kubectl get pods -n {evidence.namespace} lists its pods; -n names another namespace"]
    if not own and not meant:
        advice.append(
            "if kubectl or a controller could not create it, read the answer that it got: a pod that "
            "the API server refuses (a quota, a fraction of a device) never exists"
        )
    return _not_found(evidence, Actor.NOBODY, because, advice=tuple(advice))


def _is_of(evidence: Evidence, event: Object) -> bool:
    """Whether an event is on something that makes pods of this name, as a ReplicaSet, DaemonSet or Job."""
    owner = text(event, "involvedObject", "name")
    return (
        owner == evidence.name
        or evidence.name.startswith(f"{owner}-")
        or owner.startswith(f"{evidence.name}-")
    )


def _refused(evidence: Evidence, event: Object) -> Diagnosis:
    message = text(event, "message")
    kind, owner = text(event, "involvedObject", "kind"), text(event, "involvedObject", "name")
    if quota := _QUOTA.search(message):
        return _not_found(
            evidence,
            Actor.QUOTA,
            f"quota {quota['quota']} lets {kind} {owner} create no more pods",
            facts=(
                f"asked for {quota['requested']}; in use {quota['used']}; allowed {quota['limited']}",
                f"message: {message}",
            ),
            advice=(
                "delete pods of the namespace that ask for the resource, or ask for less",
                f"have the quota raised: kubectl edit quota -n {evidence.namespace} {quota['quota']}",
            ),
            message=message,
        )
    found = _FORBIDDEN.search(message) or _INVALID.search(message)
    because = f"{kind} {owner} may create no pod: {found['why'] if found else message}"
    advice = (f"mend the pod template of {kind} {owner}, or what the message names",)
    facts = (f"message: {message}",)
    return _not_found(evidence, Actor.API_SERVER, because, facts=facts, advice=advice, message=message)


def _not_found(
    evidence: Evidence,
    rejected_by: Actor,
    because: str,
    *,
    facts: tuple[str, ...] = (),
    advice: tuple[str, ...] = (),
    message: str = "",
) -> Diagnosis:
    return Diagnosis(
        namespace=evidence.namespace,
        pod=evidence.name,
        state=State.NOT_FOUND,
        rejected_by=rejected_by,
        because=because,
        facts=facts,
        advice=advice,
        message=message,
        unread=evidence.unread,
    )


# ── pods with a node ──────────────────────────────────────────────────────────────────────────────


def _placed(evidence: Evidence, pod: Object) -> Diagnosis:
    """Judge a pod that is bound to a node and has not failed."""
    for status in container_statuses(pod):
        waiting = fields(status, "state", "waiting")
        if waiting and text(waiting, "reason") not in _AT_WORK:
            return _of_waiting(evidence, pod, status, waiting)
    if text(pod, "metadata", "deletionTimestamp"):
        because, steps = leaving(pod)
        facts = _devices(evidence, pod)
        if is_evicted(pod):
            because = f"a device of its claims got a taint with the effect NoExecute: {because}"
            facts += eviction_facts(evidence, pod)
        return _diagnosis(evidence, State.TERMINATING, Actor.NOBODY, because, facts=facts, advice=steps)
    if text(pod, "status", "phase") == "Running":
        return _running(evidence, pod)
    return _starting(evidence, pod)


def _diagnosis(
    evidence: Evidence,
    state: State,
    rejected_by: Actor,
    because: str,
    *,
    facts: Sequence[str] = (),
    advice: Sequence[str] = (),
    message: str = "",
) -> Diagnosis:
    return Diagnosis(
        namespace=evidence.namespace,
        pod=evidence.name,
        state=state,
        rejected_by=rejected_by,
        because=because,
        facts=(*facts, *([f"message: {message}"] if message else [])),
        advice=tuple(advice),
        message=message,
        unread=evidence.unread,
    )


# ── a container that waits ────────────────────────────────────────────────────────────────────────


def _of_waiting(evidence: Evidence, pod: Object, status: Object, waiting: Object) -> Diagnosis:
    """Judge by one container that cannot be made, or not be kept."""
    name, reason, message = text(status, "name"), text(waiting, "reason"), text(waiting, "message")
    node = text(pod, "spec", "nodeName")
    logs = f"kubectl logs -n {evidence.namespace} {evidence.name} -c {name}"
    if _PRE_START in message:
        return _of_pre_start(evidence, name, message)
    if cdi := _CDI.search(message):
        return _diagnosis(
            evidence,
            State.WAITING,
            Actor.RUNTIME,
            f"the container runtime of {node} finds no CDI file with {cdi['names']}; it is tried again",
            advice=(
                "see that the plugin writes its CDI files where the runtime looks: /etc/cdi and /var/run/cdi",
                "see that CDI is switched on in the runtime: containerd 2 and CRI-O have it on by default",
            ),
            message=message,
        )
    if reason in _IMAGE:
        because = f"the image {text(status, 'image')} of container {name} is not available ({reason})"
        advice = (
            "see that the image's name is right, that the registry answers, and that the node may pull it",
        )
        return _diagnosis(evidence, State.WAITING, Actor.IMAGE, because, advice=advice, message=message)
    if reason == "CrashLoopBackOff":
        end = fields(status, "lastState", "terminated")
        because = f"container {name} ended {whole(status, 'restartCount')} times"
        because += f", last with code {whole(end, 'exitCode')} ({text(end, 'reason')})" if end else ""
        advice = (f"see what the program said: {logs} --previous",)
        facts = _devices(evidence, pod)
        return _diagnosis(
            evidence, State.WAITING, Actor.PROGRAM, because, facts=facts, advice=advice, message=message
        )
    rejected_by = Actor.RUNTIME if reason in _RUNTIME else Actor.KUBELET
    because = f"container {name} cannot be made ({reason}); it is tried again"
    advice = ("mend what the message names; the pod need not be created again",)
    return _diagnosis(evidence, State.WAITING, rejected_by, because, advice=advice, message=message)


def _of_pre_start(evidence: Evidence, container: str, message: str) -> Diagnosis:
    code, said = plugin_said(message)
    if code == "DeadlineExceeded" and said == _KUBELETS_DEADLINE:
        because = f"the plugin's pre_start of container {container} took longer than 30 s"
    else:
        reason = said or message.removeprefix(_PRE_START_RPC)
        because = f"the plugin's pre_start refused container {container}: {reason}"
    return _diagnosis(
        evidence,
        State.WAITING,
        Actor.PLUGIN,
        because,
        facts=("the kubelet tries it again by itself, and the pod keeps its devices",),
        advice=("do what the plugin says; the pod need not be created again",),
        message=message,
    )


# ── starting ──────────────────────────────────────────────────────────────────────────────────────


def _starting(evidence: Evidence, pod: Object) -> Diagnosis:
    node = text(pod, "spec", "nodeName")
    known = next((one for one in evidence.nodes or () if text(one, "metadata", "name") == node), None)
    if known is None and evidence.nodes:
        because = f"there is no node {node}, to which it is bound"
        advice = ("mend spec.nodeName and create the pod again",)
        return _diagnosis(evidence, State.WAITING, Actor.NODE, because, advice=advice)
    if known is not None and not is_ready(known):
        because = f"{node} is not ready: {text(condition(known, 'Ready'), 'message') or 'no reason given'}"
        advice = (f"see whether the kubelet runs on {node}",)
        return _diagnosis(evidence, State.WAITING, Actor.NODE, because, advice=advice)
    trouble = last_event(evidence.events, *_TROUBLES, _PREPARE)
    if text(trouble, "reason") == _PREPARE:
        return _of_prepare(evidence, node, text(trouble, "message"))
    if trouble:
        rejected_by = Actor.RUNTIME if text(trouble, "reason") == _TROUBLES[0] else Actor.KUBELET
        because = f"its containers cannot be made yet ({text(trouble, 'reason')}); it is tried again"
        advice = ("mend what the message names; the pod need not be created again",)
        return _diagnosis(
            evidence, State.WAITING, rejected_by, because, advice=advice, message=text(trouble, "message")
        )
    if not container_statuses(pod):
        facts, steps = [], ["ask again in a moment"]
        if device_requests(pod):
            facts = [
                "Allocate has no time limit, and while a plugin is busy in it, no pod of the node starts"
            ]
            steps += ["if it stays so, see in the plugin's log what Allocate does"]
        because = f"the kubelet of {node} has reported no container of it yet"
        return _diagnosis(evidence, State.STARTING, Actor.NOBODY, because, facts=facts, advice=steps)
    return _diagnosis(
        evidence,
        State.STARTING,
        Actor.NOBODY,
        f"{node} has admitted it and makes its containers",
        facts=_devices(evidence, pod),
        advice=("ask again in a moment",),
    )


def _of_prepare(evidence: Evidence, node: str, message: str) -> Diagnosis:
    """Judge by a claim that the kubelet cannot have prepared (D14-D31); it tries again by itself."""
    if found := _UNREGISTERED.search(message):
        driver = found["driver"]
        because = f"DRA driver {driver} is not registered with the kubelet of {node}; it is tried again"
        step = f"see whether the pod of {driver} runs on {node}, and has its socket in plugins_registry there"
        return _diagnosis(evidence, State.WAITING, Actor.KUBELET, because, advice=[step], message=message)
    said = message.removeprefix(_PREPARING)
    because = f"its claims cannot be prepared on {node}: {said}; it is tried again"
    steps = ["see the log of the DRA driver; the pod need not be created again"]
    rejected_by = Actor.DRIVER if "NodePrepareResources" in message else Actor.KUBELET
    return _diagnosis(evidence, State.WAITING, rejected_by, because, advice=steps, message=message)


# ── running ───────────────────────────────────────────────────────────────────────────────────────


def _running(evidence: Evidence, pod: Object) -> Diagnosis:
    sick = [
        f"{device.id} of {resource} in container {container}"
        + (f" ({device.message})" if device.message else "")
        for (container, resource), devices in sorted(device_statuses(pod).items())
        for device in devices
        if device.health == _UNHEALTHY
    ]
    if sick:
        return _diagnosis(
            evidence,
            State.RUNNING,
            Actor.PLUGIN,
            f"it runs, but {some(sick, 10)} is reported as unhealthy",
            facts=(*_devices(evidence, pod), "the kubelet stops no container because of that"),
            advice=(
                "repair the device, or delete the pod and create it again: a new pod gets healthy devices",
            ),
        )
    facts = [*_devices(evidence, pod), *_without(evidence, pod)]
    unready = [text(one, "name") for one in container_statuses(pod) if _is_unready(one)]
    if unready:
        because = f"it runs, but container {some(unready)} is not ready"
        return _diagnosis(evidence, State.RUNNING, Actor.NOBODY, because, facts=facts)
    because = f"it runs on {text(pod, 'spec', 'nodeName')}"
    return _diagnosis(evidence, State.RUNNING, Actor.NOBODY, because, facts=facts)


def _is_unready(status: Object) -> bool:
    return bool(fields(status, "state", "running")) and status.get("ready") is False


def _devices(evidence: Evidence, pod: Object) -> list[str]:
    """Return which devices each container holds by its status and its claim, or that they do not say it."""
    asked = device_requests(pod)
    if not asked:
        return [] if maps(pod, "spec", "resourceClaims") else ["it asks for no devices"]
    holdings = [
        f"container {container} holds {some([one.id for one in devices], 20)} of {resource}"
        for (container, resource), devices in sorted(device_statuses(pod).items())
        if resource in asked and devices
    ]
    by_claim = _by_claim(evidence, pod)
    for (container, resource), used in sorted(by_claim.items()):
        names = some([f"{one.driver}/{one.pool}/{one.name}" for one in used.devices], 20)
        holdings.append(
            f"container {container} holds {names} of {resource}, by claim {used.claim}"
            if names
            else f"container {container} has {resource} by claim {used.claim}, whose devices were not read"
        )
    unnamed = asked.keys() - {resource for _, resource in (*device_statuses(pod), *by_claim)}
    if not unnamed or text(pod, "status", "phase") != "Running":
        return holdings
    parts = some([f"{asked[name]} {name}" for name in sorted(unnamed)])
    return [
        *holdings,
        f"it asks for {parts}; its status does not name the devices (kubelets do with ResourceHealthStatus)",
    ]


def _by_claim(evidence: Evidence, pod: Object) -> Mapping[tuple[str, str], ClaimedRequest]:
    """Return what a pod has by the claim of its limits, by container and resource (D91)."""
    found = evidence.claims.claims if evidence.claims is not None else None
    claims = {(text(one, "metadata", "namespace"), text(one, "metadata", "name")): one for one in found or ()}
    return limits_by_claim(pod, claims)


def _without(evidence: Evidence, pod: Object) -> Iterator[str]:
    """Return which resources neither its node nor a claim serves now: it may have started without them."""
    node = text(pod, "spec", "nodeName")
    known = [one for one in evidence.nodes or () if text(one, "metadata", "name") == node]
    claimed = {resource for _, resource in _by_claim(evidence, pod)}
    for resource in device_requests(pod).keys() - claimed if known else ():
        if resource not in {
            **device_counts(known[0], "status", "capacity"),
            **device_counts(known[0], "status", "allocatable"),
        }:
            yield (
                f"{node} lists no {resource} now, and no claim of the pod serves it; if that was so when the "
                "pod started, it runs without it"
            )


# ── diagnosis ─────────────────────────────────────────────────────────────────────────────────────


def explain(evidence: Evidence) -> Diagnosis:
    """Say why a pod is as it is, who said no, and what to do."""
    pod = evidence.pod
    if pod is None:
        return _missing(evidence)
    phase = text(pod, "status", "phase")
    if phase == "Failed":
        return failed(evidence, pod)
    if phase == "Succeeded":
        return Diagnosis(
            namespace=evidence.namespace,
            pod=evidence.name,
            state=State.SUCCEEDED,
            rejected_by=Actor.NOBODY,
            because="its containers have ended well",
            unread=evidence.unread,
        )
    if not text(pod, "spec", "nodeName"):
        return unscheduled(evidence, pod)
    return _placed(evidence, pod)
