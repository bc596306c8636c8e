"""What a node does next with one pod: restart policies, init containers, sidecars and ends. Pure.

The rules are those of pkg/kubelet/kuberuntime computePodActions and pkg/kubelet/kubelet_pods.go getPhase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from devplug.kubelet.pods import PodPhase
from devplug.sandbox.api.times import later
from devplug.sandbox.nodes.plans import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.nodes.plans import ContainerPlan, PodPlan
    from devplug.sandbox.nodes.records import ContainerRecord

__all__ = [
    "BackOff",
    "End",
    "Finish",
    "Look",
    "Remove",
    "Replace",
    "Start",
    "Step",
    "Stop",
    "Verdict",
    "look",
    "phase_of",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a pod, for good."""

    phase: PodPhase
    reason: str = ""
    message: str = ""
    was_rejected: bool = False
    """Whether the kubelet did not admit it; then nothing is told of its containers."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container."""

    name: str


@dataclass(frozen=True, slots=True)
class BackOff:
    """Say that a container has to wait before it is started again."""

    name: str


@dataclass(frozen=True, slots=True)
class End:
    """Have a container end by itself, as an annotation says."""

    name: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop containers, and wait until they are gone."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """Stop a container whose image was changed, and start it with the new one."""

    name: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Note that the pod has ended."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the pod away: it is deleted, and none of its containers runs."""


Step: TypeAlias = Start | BackOff | End | Stop | Replace | Finish | Remove

Records: TypeAlias = "Mapping[str, ContainerRecord]"


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a pod has shown: what to do now, or until when there is nothing to do."""

    step: Step | None = None
    until: datetime | None = None
    """None if only a change can bring something to do."""


def look(
    plan: PodPlan, records: Records, now: datetime, *, since: datetime, verdict: Verdict | None = None
) -> Look:
    """Return what is next for a pod that the node knows since `since`.

    With a `verdict` it has ended, and only has to be cleared away.
    """
    running = tuple(name for name, record in records.items() if record.is_running)
    if plan.is_deleted:
        return Look(Stop(running) if running else Remove())
    if verdict is not None:
        return Look(Stop(running) if running else None)
    ends_at = later(since, plan.deadline_seconds) if plan.deadline_seconds else None
    if ends_at is not None and now >= ends_at:
        message = "Pod was active on the node longer than the specified deadline"
        return Look(Finish(Verdict(PodPhase.FAILED, "DeadlineExceeded", message)))
    looks = [Look(until=ends_at), *_replacements(plan, records), *_planned_ends(plan, records, now)]
    looks += _conclusion(plan, records) or _starts(plan, records, now)
    return _first(looks)


def phase_of(plan: PodPlan, records: Records) -> PodPhase:
    """Return the phase of a pod that has not ended yet, or is on its way out."""
    if not all(_is_done(records[one.name]) for one in plan.of_role(Role.INITIAL)):
        return PodPhase.PENDING
    apps = [records[one.name] for one in plan.of_role(Role.APP)]
    if any(one.starts == 0 for one in apps):
        return PodPhase.PENDING
    if plan.is_deleted and not any(one.is_running for one in records.values()):
        return _result(apps)
    return PodPhase.RUNNING


def _first(looks: Iterable[Look]) -> Look:
    listed = list(looks)
    for one in listed:
        if one.step is not None:
            return one
    return Look(until=min((one.until for one in listed if one.until is not None), default=None))


def _replacements(plan: PodPlan, records: Records) -> list[Look]:
    """Return which containers run an image that is not theirs any more; their restart policy is not asked."""
    return [
        Look(Replace(one.name))
        for one in plan.of_role(Role.SIDECAR, Role.APP)
        if records[one.name].is_running and records[one.name].image != one.image
    ]


def _planned_ends(plan: PodPlan, records: Records, now: datetime) -> list[Look]:
    """Return what annotations say of the ends of app containers."""
    if plan.exit is None:
        return []
    looks = []
    for one in plan.of_role(Role.APP):
        if (started := records[one.name].started) is not None:
            at = later(started, plan.exit.runs_seconds)
            looks.append(Look(End(one.name, plan.exit.exit_code)) if now >= at else Look(until=at))
    return looks


def _conclusion(plan: PodPlan, records: Records) -> list[Look]:
    """Return how the pod ends, if it does: by all of its app containers, or by an init container."""
    apps = [records[one.name] for one in plan.of_role(Role.APP)]
    failed = [records[one.name] for one in plan.of_role(Role.INITIAL) if _has_failed(one, records[one.name])]
    if failed:
        phase = PodPhase.FAILED
    elif all(_is_final(one, records[one.name]) for one in plan.of_role(Role.APP)):
        phase = _result(apps)
    else:
        return []
    running = tuple(name for name, record in records.items() if record.is_running)
    return [Look(Stop(running) if running else Finish(Verdict(phase)))]


def _starts(plan: PodPlan, records: Records, now: datetime) -> list[Look]:
    """Return what has to be started now or later."""
    looks = []
    for one in plan.of_role(Role.INITIAL, Role.SIDECAR):
        record = records[one.name]
        if one.role is Role.INITIAL and _is_done(record):
            continue
        if not record.is_running:
            looks.append(_start(one, record, now))
        if one.role is Role.INITIAL or not record.starts:
            return looks
    for one in plan.of_role(Role.APP):
        record = records[one.name]
        if not record.is_running and not _is_final(one, record):
            looks.append(_start(one, record, now))
    return looks


def _start(plan: ContainerPlan, record: ContainerRecord, now: datetime) -> Look:
    if record.retry_at is not None and now < record.retry_at:
        return Look(until=record.retry_at)
    at = record.may_start_at
    if at is None or now >= at or not record.is_of(plan.image):
        return Look(Start(record.name))
    if record.waits_for != "CrashLoopBackOff":
        return Look(BackOff(record.name))
    return Look(until=at)


def _is_done(record: ContainerRecord) -> bool:
    """Whether an init container need not run any more."""
    return (
        record.has_ended and not record.is_stale and record.ended is not None and record.ended.exit_code == 0
    )


def _has_failed(plan: ContainerPlan, record: ContainerRecord) -> bool:
    """Whether an init container has ended badly for good."""
    return _is_final(plan, record) and not record.is_stale and not _is_done(record)


def _is_final(plan: ContainerPlan, record: ContainerRecord) -> bool:
    """Whether a container has ended and is not started again."""
    return record.has_ended and record.ended is not None and not plan.starts_again(record.ended.exit_code)


def _result(apps: Iterable[ContainerRecord]) -> PodPhase:
    codes = [one.ended.exit_code for one in apps if one.ended is not None]
    return PodPhase.FAILED if any(codes) else PodPhase.SUCCEEDED
