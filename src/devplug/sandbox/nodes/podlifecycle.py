"""The lifecycle of a pod on its node: what its spec asks for, and the next action on its containers. Pure.

The rules are those of pkg/kubelet/kuberuntime computePodActions and pkg/kubelet/kubelet_pods.go getPhase:
restart policies, init containers, sidecars and ends.

Two annotations stand for what containers in name only cannot do by themselves, which is to end:
`sandbox.devplug.dev/exit-code: "0"` ends the pod's app containers with that code, at once or, with
`sandbox.devplug.dev/runs-seconds: "5"`, so long after their start. They may be there from the beginning or
come later (`kubectl annotate`), and hold for every start: with `restartPolicy: Always` the container ends
again and again, and backs off. A container that is a process is stopped for it, and shown with that code.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.errors import DevplugError, quoted
from devplug.k8s.objects import Object, entries, fields, part, text, whole
from devplug.k8s.pod_requests import ALWAYS
from devplug.k8s.times import later
from devplug.kubelet.pods import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from devplug.sandbox.nodes.containerrecords import ContainerRecord

EXIT_CODE: Final = "sandbox.devplug.dev/exit-code"
"""The annotation with the code that a pod's app containers end with."""

RUNS_SECONDS: Final = "sandbox.devplug.dev/runs-seconds"
"""The annotation with the seconds that they run before; 0 without it."""

_LARGEST_CODE: Final = 255


# ── The plan: what the pod's spec asks for ──


class AnnotationError(DevplugError):
    """An annotation of the sandbox has no value of use; edit the pod."""


class Role(enum.Enum):
    """The role of a container in its pod."""

    INITIAL = "initial"
    """Runs to its end before the next one starts."""
    SIDECAR = "sidecar"
    """An init container that runs as long as the app containers do (KEP-753)."""
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """One container."""

    name: str
    role: Role
    policy: str
    """Whether it is started again: `Always`, `OnFailure` or `Never`."""
    image: str

    def starts_again(self, exit_code: int) -> bool:
        """Whether it is started again after it ended so (pkg/kubelet/container/helpers.go)."""
        return self.policy == "Always" or (self.policy == "OnFailure" and exit_code != 0)


@dataclass(frozen=True, slots=True)
class PlannedExit:
    """The end of app containers that an annotation asks for."""

    exit_code: int
    runs_seconds: float


@dataclass(frozen=True, slots=True)
class PodPlan:
    """The plan of a pod, from its spec and annotations."""

    containers: tuple[ContainerPlan, ...]
    """In start order: init containers and sidecars, then app containers."""
    deadline_seconds: int = 0
    """`activeDeadlineSeconds`, or 0."""
    is_deleted: bool = False
    grace_seconds: int = 0
    """How long its containers may take to stop."""
    exit: PlannedExit | None = None

    def of_role(self, *roles: Role) -> tuple[ContainerPlan, ...]:
        """Return the containers that are one of these."""
        return tuple(one for one in self.containers if one.role in roles)


def plan_of(pod: Object) -> PodPlan:
    """Return what a stored pod asks of its node; annotations that are of no use count as none."""
    try:
        planned = planned_exit(pod)
    except AnnotationError:
        planned = None
    grace = part(pod, "metadata", "deletionGracePeriodSeconds")
    if grace is None:
        grace = part(pod, "spec", "terminationGracePeriodSeconds")
    return PodPlan(
        tuple(_containers(fields(pod, "spec"))),
        whole(pod, "spec", "activeDeadlineSeconds"),
        bool(text(pod, "metadata", "deletionTimestamp")),
        grace if isinstance(grace, int) else 30,
        planned,
    )


def planned_exit(pod: Object) -> PlannedExit | None:
    """Return what the pod's annotations say of its end. Raises `AnnotationError` with what to write."""
    annotations = fields(pod, "metadata", "annotations")
    if EXIT_CODE not in annotations:
        return None
    code = _number(annotations, EXIT_CODE)
    if not (code.is_integer() and code <= _LARGEST_CODE):
        raise _no_number(annotations, EXIT_CODE)
    seconds = _number(annotations, RUNS_SECONDS) if RUNS_SECONDS in annotations else 0.0
    return PlannedExit(int(code), seconds)


def _number(annotations: Object, key: str) -> float:
    try:
        number = float(str(annotations[key]))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise _no_number(annotations, key)
    return number


def _no_number(annotations: Object, key: str) -> AnnotationError:
    wanted = f"a number from 0 to {_LARGEST_CODE}" if key == EXIT_CODE else "a number of seconds"
    return AnnotationError(f'{key}: {quoted(annotations[key])} is not {wanted}; write for example {key}: "1"')


def _containers(spec: Object) -> Iterator[ContainerPlan]:
    policy = text(spec, "restartPolicy") or "Always"
    for one in entries(spec, "initContainers"):
        if text(one, "restartPolicy") == ALWAYS:
            yield ContainerPlan(text(one, "name"), Role.SIDECAR, "Always", text(one, "image"))
        else:
            until_done = "Never" if policy == "Never" else "OnFailure"
            yield ContainerPlan(text(one, "name"), Role.INITIAL, until_done, text(one, "image"))
    for one in entries(spec, "containers"):
        policy_of_one = text(one, "restartPolicy") or policy
        yield ContainerPlan(text(one, "name"), Role.APP, policy_of_one, text(one, "image"))


# ── The next action ──


@dataclass(frozen=True, slots=True)
class PodResult:
    """The end of a pod, for good."""

    phase: PodPhase
    reason: str = ""
    message: str = ""
    was_rejected: bool = False
    """Whether the kubelet did not admit it; the status then has no containers."""


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

    result: PodResult


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the pod away: it is deleted, and none of its containers runs."""


@dataclass(frozen=True, slots=True)
class Unprepare:
    """Have drivers unprepare the pod's claims, which none of its containers uses any more."""


Step: TypeAlias = Start | BackOff | End | Stop | Replace | Finish | Remove | Unprepare

Records: TypeAlias = "Mapping[str, ContainerRecord]"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The plan for a pod: what to do now, or until when there is nothing to do."""

    step: Step | None = None
    until: datetime | None = None
    """None if only a change can bring something to do."""


def next_step(
    plan: PodPlan,
    records: Records,
    now: datetime,
    *,
    since: datetime,
    result: PodResult | None = None,
    starts_at: datetime | None = None,
    unprepares_at: datetime | None = None,
) -> NextStep:
    """Return what is next for a pod that the node knows since `since`.

    With a `result` it has ended, and only has to be cleared away. No container starts before `starts_at`.
    With `unprepares_at` it has claims that are to be unprepared then, and does not end before that.
    """
    running = tuple(name for name, record in records.items() if record.is_running)
    held = [] if running or unprepares_at is None else [_when(Unprepare(), unprepares_at, now)]
    if plan.is_deleted or result is not None:
        last = NextStep(Stop(running) if running else Remove() if plan.is_deleted else None)
        return held[0] if held else last
    ends_at = later(since, plan.deadline_seconds) if plan.deadline_seconds else None
    if ends_at is not None and now >= ends_at:
        message = "Pod was active on the node longer than the specified deadline"
        return NextStep(Finish(PodResult(PodPhase.FAILED, "DeadlineExceeded", message)))
    looks = [NextStep(until=ends_at), *_replacements(plan, records), *_planned_ends(plan, records, now)]
    end = _conclusion(plan, records)
    waits = [NextStep(until=starts_at)] if starts_at is not None and now < starts_at else []
    looks += (held or end) if end else (waits or _starts(plan, records, now))
    return _first(looks)


def _when(step: Step, at: datetime, now: datetime) -> NextStep:
    return NextStep(step) if now >= at else NextStep(until=at)


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


def _first(looks: Iterable[NextStep]) -> NextStep:
    listed = list(looks)
    until = min((one.until for one in listed if one.until is not None), default=None)
    return next((one for one in listed if one.step is not None), NextStep(until=until))


def _replacements(plan: PodPlan, records: Records) -> list[NextStep]:
    """Return which containers run an image that is not theirs any more; their restart policy is not asked."""
    return [
        NextStep(Replace(one.name))
        for one in plan.of_role(Role.SIDECAR, Role.APP)
        if records[one.name].is_running and records[one.name].image != one.image
    ]


def _planned_ends(plan: PodPlan, records: Records, now: datetime) -> list[NextStep]:
    """Return what annotations say of the ends of app containers."""
    if plan.exit is None:
        return []
    looks = []
    for one in plan.of_role(Role.APP):
        if (started := records[one.name].started) is not None:
            at = later(started, plan.exit.runs_seconds)
            looks.append(_when(End(one.name, plan.exit.exit_code), at, now))
    return looks


def _conclusion(plan: PodPlan, records: Records) -> list[NextStep]:
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
    return [NextStep(Stop(running) if running else Finish(PodResult(phase)))]


def _starts(plan: PodPlan, records: Records, now: datetime) -> list[NextStep]:
    """Return what has to be started now or later."""
    looks = []
    for one in plan.of_role(Role.INITIAL, Role.SIDECAR):
        record = records[one.name]
        if one.role is Role.INITIAL and _is_done(record):
            continue
        if not record.is_running:
            looks.append(_start(one, record, now))
        if one.role is Role.INITIAL or not (record.starts and record.has_started):
            return looks
    for one in plan.of_role(Role.APP):
        record = records[one.name]
        if not record.is_running and not _is_final(one, record):
            looks.append(_start(one, record, now))
    return looks


def _start(plan: ContainerPlan, record: ContainerRecord, now: datetime) -> NextStep:
    if record.retry_at is not None and now < record.retry_at:
        return NextStep(until=record.retry_at)
    at = record.may_start_at
    if at is None or now >= at or not record.is_of(plan.image):
        return NextStep(Start(record.name))
    if record.waits_for != "CrashLoopBackOff":
        return NextStep(BackOff(record.name))
    return NextStep(until=at)


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
