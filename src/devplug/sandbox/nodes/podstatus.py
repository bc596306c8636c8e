"""The status of a pod as the real kubelet writes it: phase, conditions, addresses and containers. Pure.

The real one's is made in pkg/kubelet/kubelet_pods.go generateAPIPodStatus and convertToAPIContainerStatuses,
and in pkg/kubelet/status/generate.go; fields and their order are its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, text, whole
from devplug.k8s.pod_requests import ALWAYS, needed_at_once
from devplug.k8s.quantity import Quantity, QuantityError, canonical
from devplug.k8s.times import stamp
from devplug.kubelet.pods import PodPhase
from devplug.sandbox.nodes.podlifecycle import Role, phase_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from fractions import Fraction

    from devplug.kubelet.claim_references import ResourceHealth
    from devplug.sandbox.nodes.containerrecords import ContainerRecord, Termination
    from devplug.sandbox.nodes.podlifecycle import PodPlan, PodResult

_SCHEME: Final = "sandbox://"
"""What IDs of containers and images begin with, as with `containerd://` on other nodes."""

_IN_NAME_ONLY: Final = f"{_SCHEME}in-name-only/"
"""What they begin with where nothing runs."""


# ── Container statuses ──


def container_id(pod_uid: str, name: str, start: int, *, in_name_only: bool) -> str:
    """Return the ID of a container's start, which says whether it is a process."""
    return f"{_IN_NAME_ONLY if in_name_only else _SCHEME}{_hexadecimal(f'{pod_uid}/{name}/{start}')}"


def is_in_name_only(id_: str) -> bool:
    """Whether the container of that ID is no process."""
    return id_.startswith(_IN_NAME_ONLY)


def _container_status(
    container: Object,
    record: ContainerRecord,
    allocated: Mapping[str, Mapping[str, str]],
    claims: Mapping[str, Sequence[ResourceHealth]],
    waiting_reason: str,
    *,
    is_ready: bool,
) -> Object:
    """Return the status of one container of the spec.

    `allocated` is resource name → device ID → health and `claims` claim → devices, of app containers;
    `waiting_reason` is why a container waits that was not tried yet.
    """
    image = record.image or text(container, "image")
    status: Object = {
        "name": record.name,
        "state": _state(record, waiting_reason),
        "lastState": _last_state(record, waiting_reason),
        "ready": is_ready,
        "restartCount": record.restart_count,
        "image": image,
        "imageID": _image_id(image, record.container_id),
        **({"containerID": record.container_id} if record.container_id else {}),
        "started": record.is_started,
    }
    resources = fields(container, "resources")
    if requests := fields(resources, "requests"):
        status["allocatedResources"] = requests
    status["resources"] = {
        key: resources[key] for key in ("limits", "requests", "claims") if resources.get(key)
    }
    if allocated or claims:
        status["allocatedResourcesStatus"] = [
            {
                "name": name,
                "resources": [
                    {"resourceID": one, "health": health} for one, health in sorted(devices.items())
                ],
            }
            for name, devices in sorted(allocated.items())
        ] + [{"name": name, "resources": [*map(_health, devices)]} for name, devices in claims.items()]
    return status


def _health(device: ResourceHealth) -> Object:
    message = {"message": device.message} if device.message else {}
    return {"resourceID": device.resource_id, "health": device.health, **message}


def _waits(record: ContainerRecord, waiting_reason: str) -> bool:
    """Whether the state is that of a container that waits, though it may have ended before."""
    return not record.is_running and bool(
        record.waits_for or record.ended is None or (record.is_stale and waiting_reason)
    )


def _state(record: ContainerRecord, waiting_reason: str) -> Object:
    if record.started is not None:
        return {"running": {"startedAt": stamp(record.started)}}
    if _waits(record, waiting_reason) or record.ended is None:
        state = {"reason": record.waits_for or waiting_reason, "message": record.message}
        return {"waiting": {key: value for key, value in state.items() if value}}
    return {"terminated": _terminated(record.ended)}


def _last_state(record: ContainerRecord, waiting_reason: str) -> Object:
    is_over = record.is_running or _waits(record, waiting_reason)
    last = record.ended if is_over else record.ended_before
    return {} if last is None else {"terminated": _terminated(last)}


def _terminated(end: Termination) -> Object:
    state: Object = {"exitCode": end.exit_code}
    if end.reason:
        state["reason"] = end.reason
    if end.message:
        state["message"] = end.message
    if end.started is not None:
        state["startedAt"] = stamp(end.started)
    state["finishedAt"] = stamp(end.finished)
    if end.container_id:
        state["containerID"] = end.container_id
    return state


def _image_id(image: str, of_container: str) -> str:
    """Return the ID of an image, which nobody has; empty before the first start of a container."""
    if not of_container:
        return ""
    return f"{_IN_NAME_ONLY if is_in_name_only(of_container) else _SCHEME}{_hexadecimal(image)}"


def _hexadecimal(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


# ── The pod's status ──

_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)
"""The conditions that are the kubelet's, in its order; those of others stay."""

_OURS: Final = frozenset(
    {
        "allocatedResources",
        "conditions",
        "containerStatuses",
        "hostIP",
        "hostIPs",
        "initContainerStatuses",
        "message",
        "observedGeneration",
        "phase",
        "podIP",
        "podIPs",
        "reason",
        "resources",
        "startTime",
    }
)


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The facts of a pod on its node, from which its status is made."""

    plan: PodPlan
    records: Mapping[str, ContainerRecord]
    since: datetime
    """When the node took it on."""
    allocated: Mapping[str, Mapping[str, Mapping[str, str]]]
    """Container name → resource name → device ID → health, of app containers."""
    result: PodResult | None = None
    pod_ip: str = ""
    """Empty before its first container is started."""
    host_ip: str = ""
    """Empty for a node without an address."""
    is_settled: bool = False
    """Whether its containers have run for a while, so that the runtime was asked for their resources."""
    claims: Mapping[str, Mapping[str, Sequence[ResourceHealth]]] = field(default_factory=dict)
    """Container name → name of the claim in its status → devices, of app containers."""
    holds_claims: bool = False
    """Whether drivers still have claims prepared for it, so that it is not over yet whatever its containers
    say (status_manager.go mergePodStatus)."""


def status_of(pod: Object, facts: PodFacts, now: datetime) -> Object:
    """Return the status of a pod that is on a node; fields of other components are kept."""
    old = fields(pod, "status")
    if facts.holds_claims:
        facts = replace(facts, result=None)
    result = facts.result
    phase = result.phase if result is not None else phase_of(facts.plan, facts.records)
    if facts.holds_claims and phase in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        phase = PodPhase(text(old, "phase"))
    status: Object = {
        "observedGeneration": whole(pod, "metadata", "generation"),
        "phase": phase.value,
        **{key: value for key, value in old.items() if key not in _OURS},
        "startTime": text(old, "startTime") or stamp(facts.since),
    }
    if result is not None:
        status |= {
            key: value for key, value in (("reason", result.reason), ("message", result.message)) if value
        }
    if result is not None and result.was_rejected:
        kept = [one for one in entries(old, "conditions") if text(one, "type") not in _CONDITIONS]
        return {**status, "conditions": kept} if kept else status
    if facts.host_ip:
        status |= {"hostIP": facts.host_ip, "hostIPs": [{"ip": facts.host_ip}]}
    if facts.pod_ip:
        status |= {"podIP": facts.pod_ip, "podIPs": [{"ip": facts.pod_ip}]}
    status["conditions"] = _conditions(pod, facts, phase, now)
    status |= _container_statuses(pod, facts)
    return status | _resources(pod, is_settled=facts.is_settled)


# ── conditions ────────────────────────────────────────────────────────────────────────────────────


def _conditions(pod: Object, facts: PodFacts, phase: PodPhase, now: datetime) -> list[object]:
    before = {text(one, "type"): one for one in entries(pod, "status", "conditions")}
    conditions: list[object] = []
    for type_, (is_met, reason, message) in zip(_CONDITIONS, _judged(facts, phase), strict=True):
        met = "True" if is_met else "False"
        same = text(before.get(type_), "status") == met
        since = text(before.get(type_), "lastTransitionTime") if same else ""
        more = {"reason": reason, "message": message}
        conditions.append(
            {
                "type": type_,
                "observedGeneration": whole(pod, "metadata", "generation"),
                "status": met,
                "lastProbeTime": None,
                "lastTransitionTime": since or stamp(now),
                **{key: value for key, value in more.items() if value},
            }
        )
    return conditions + [one for type_, one in before.items() if type_ not in _CONDITIONS]


def _judged(facts: PodFacts, phase: PodPhase) -> Iterator[tuple[bool, str, str]]:
    """Yield whether each condition is met, with reason and message (pkg/kubelet/status/generate.go)."""
    yield bool(facts.pod_ip) and facts.result is None, "", ""
    completed = {PodPhase.SUCCEEDED: "PodCompleted", PodPhase.FAILED: "PodFailed"}.get(phase, "")
    pending = [
        one.name for one in facts.plan.of_role(Role.INITIAL, Role.SIDECAR) if not _is_set_up(facts, one.name)
    ]
    if pending and phase is not PodPhase.SUCCEEDED:
        yield False, "ContainersNotInitialized", f"containers with incomplete status: {_listed(pending)}"
    else:
        yield True, completed if phase is PodPhase.SUCCEEDED else "", ""
    lasting = facts.plan.of_role(Role.SIDECAR, Role.APP)
    unready = [one.name for one in lasting if not facts.records[one.name].is_ready]
    if completed:
        condition = (False, completed, "")
    elif unready:
        condition = (False, "ContainersNotReady", f"containers with unready status: {_listed(unready)}")
    else:
        condition = (True, "", "")
    yield condition
    yield condition
    yield True, "", ""


def _is_set_up(facts: PodFacts, name: str) -> bool:
    """Whether an init container has done its part: a sidecar runs, any other has ended well."""
    record = facts.records[name]
    if any(one.name == name for one in facts.plan.of_role(Role.SIDECAR)):
        return record.starts > 0 and record.has_started
    return (
        record.has_ended and not record.is_stale and record.ended is not None and not record.ended.exit_code
    )


def _listed(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


# ── containers and resources ──────────────────────────────────────────────────────────────────────


def _container_statuses(pod: Object, facts: PodFacts) -> Object:
    set_up = all(_is_set_up(facts, one.name) for one in facts.plan.of_role(Role.INITIAL, Role.SIDECAR))
    initial = {one.name for one in facts.plan.of_role(Role.INITIAL)}
    statuses_of: Object = {}
    for word, key in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        is_app = word == "containers"
        reason = "PodInitializing" if facts.pod_ip and not (is_app and set_up) else "ContainerCreating"
        if is_app and not set_up:
            reason = "PodInitializing"
        statuses = []
        for container in entries(pod, "spec", word):
            name = text(container, "name")
            is_ready = _is_set_up(facts, name) if name in initial else facts.records[name].is_ready
            statuses.append(
                _container_status(
                    fields(container),
                    facts.records[name],
                    facts.allocated.get(name, {}) if is_app else {},
                    facts.claims.get(name, {}) if is_app else {},
                    reason,
                    is_ready=is_ready,
                )
            )
        if statuses:
            statuses_of[key] = statuses
    return statuses_of


def _resources(pod: Object, *, is_settled: bool) -> Object:
    """Return what the pod as a whole has (KEP-2837).

    At first that is the spec, later what the runtime reports, which knows CPU and memory only.
    """
    limits, requests = _total(pod, "limits"), _total(pod, "requests")
    found: Object = {}
    for word, amounts in (("limits", limits), ("requests", requests)):
        known = {
            name: amount for name, amount in amounts.items() if not is_settled or name in {"cpu", "memory"}
        }
        if known:
            found[word] = known
    return {"allocatedResources": requests, "resources": found} if requests else {"resources": found}


def _total(pod: Object, word: str) -> Object:
    """Return what all containers need at once by their limits or requests alone, as they were written."""
    forms: dict[str, str] = {}
    total = needed_at_once(
        (
            (_amounts(one, word, forms), text(one, "restartPolicy") == ALWAYS)
            for one in entries(pod, "spec", "initContainers")
        ),
        (_amounts(one, word, forms) for one in entries(pod, "spec", "containers")),
    )
    return {name: canonical(Quantity(form, total[name])) for name, form in sorted(forms.items())}


def _amounts(container: object, word: str, forms: dict[str, str]) -> dict[str, Fraction]:
    """Return a container's quantities, and note the form in which each was written first."""
    found = {}
    for name, written in fields(container, "resources", word).items():
        try:
            quantity = Quantity.parse(str(written))
        except QuantityError:
            continue
        forms.setdefault(name, quantity.text)
        found[name] = quantity.number
    return found
