"""What of a pod object decides what its node does with it, read once and given on as values. Pure.

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
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError, quoted
from devplug.sandbox.api.objects import entries, fields, part, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.objects import Object

__all__ = [
    "EXIT_CODE",
    "RUNS_SECONDS",
    "AnnotationError",
    "ContainerPlan",
    "PlannedExit",
    "PodPlan",
    "Role",
    "plan_of",
    "planned_exit",
]

EXIT_CODE: Final = "sandbox.devplug.dev/exit-code"
"""The annotation with the code that a pod's app containers end with."""

RUNS_SECONDS: Final = "sandbox.devplug.dev/runs-seconds"
"""The annotation with the seconds that they run before; 0 without it."""

_LARGEST_CODE: Final = 255


class AnnotationError(DevplugError):
    """An annotation of the sandbox has no value of use; edit the pod."""


class Role(enum.Enum):
    """What a container is in its pod."""

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
    """How app containers end by annotation."""

    exit_code: int
    runs_seconds: float


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What is to be done with a pod."""

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
        if text(one, "restartPolicy") == "Always":
            yield ContainerPlan(text(one, "name"), Role.SIDECAR, "Always", text(one, "image"))
        else:
            until_done = "Never" if policy == "Never" else "OnFailure"
            yield ContainerPlan(text(one, "name"), Role.INITIAL, until_done, text(one, "image"))
    for one in entries(spec, "containers"):
        policy_of_one = text(one, "restartPolicy") or policy
        yield ContainerPlan(text(one, "name"), Role.APP, policy_of_one, text(one, "image"))
