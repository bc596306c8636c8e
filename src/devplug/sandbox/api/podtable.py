"""What `kubectl get pods` says of one pod (pkg/printers/internalversion/printers.go printPod)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.sandbox.api.objects import entries, fields, part, text, whole
from devplug.sandbox.api.times import age, human_duration, moment

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.api.objects import Object

__all__ = ["pod_cells"]


def pod_cells(pod: Object, now: datetime) -> list[object]:
    """Return the cells of a pod, the wide ones too."""
    told = _Telling(pod)
    told.tell()
    ips = entries(pod, "status", "podIPs")
    restarts = str(told.restarts.count)
    if told.restarts.count and told.restarts.last is not None:
        restarts = f"{restarts} ({human_duration((now - told.restarts.last).total_seconds())} ago)"
    return [
        text(pod, "metadata", "name"),
        f"{told.ready}/{told.total}",
        told.reason,
        restarts,
        age(text(pod, "metadata", "creationTimestamp"), now),
        (text(ips[0], "ip") if ips else "") or "<none>",
        text(pod, "spec", "nodeName") or "<none>",
        text(pod, "status", "nominatedNodeName") or "<none>",
        _gates(pod),
    ]


@dataclass(slots=True)
class _Restarts:
    count: int = 0
    last: datetime | None = None

    def add(self, status: object) -> None:
        self.count += whole(status, "restartCount")
        ended = moment(text(status, "lastState", "terminated", "finishedAt"))
        if ended is not None and (self.last is None or self.last < ended):
            self.last = ended


@dataclass(slots=True)
class _Telling:
    """What is told of one pod, while it is being found out."""

    pod: Object
    reason: str = ""
    ready: int = 0
    total: int = 0
    restarts: _Restarts = field(default_factory=_Restarts)

    def tell(self) -> None:
        phase = text(self.pod, "status", "phase")
        self.reason = text(self.pod, "status", "reason") or phase
        conditions = entries(self.pod, "status", "conditions")
        if any(
            text(one, "type") == "PodScheduled" and text(one, "reason") == "SchedulingGated"
            for one in conditions
        ):
            self.reason = "SchedulingGated"
        sidecars = _sidecars(self.pod)
        self.total = len(entries(self.pod, "spec", "containers")) + len(sidecars)
        of_sidecars = _Restarts()
        initializes = self._tell_initial(sidecars, of_sidecars)
        if not initializes or _is_true(conditions, "Initialized"):
            self.restarts = of_sidecars
            self._tell_running(conditions)
        if part(self.pod, "metadata", "deletionTimestamp") is not None:
            if text(self.pod, "status", "reason") == "NodeLost":
                self.reason = "Unknown"
            elif phase not in {"Failed", "Succeeded"}:
                self.reason = "Terminating"

    def _tell_initial(self, sidecars: set[str], of_sidecars: _Restarts) -> bool:
        """Return whether the pod still initializes, and why it does not go on."""
        for place, status in enumerate(entries(self.pod, "status", "initContainerStatuses")):
            self.restarts.add(status)
            is_sidecar = text(status, "name") in sidecars
            if is_sidecar:
                of_sidecars.add(status)
            terminated = part(status, "state", "terminated")
            waiting = text(status, "state", "waiting", "reason")
            if terminated is not None and not whole(terminated, "exitCode"):
                continue
            if is_sidecar and part(status, "started") is True:
                self.ready += part(status, "ready") is True
                continue
            if terminated is not None:
                self.reason = f"Init:{_ending(terminated)}"
            elif waiting and waiting != "PodInitializing":
                self.reason = f"Init:{waiting}"
            else:
                self.reason = f"Init:{place}/{len(entries(self.pod, 'spec', 'initContainers'))}"
            return True
        return False

    def _tell_running(self, conditions: list[object]) -> None:
        runs, failure = False, ""
        for status in reversed(entries(self.pod, "status", "containerStatuses")):
            self.restarts.add(status)
            terminated = part(status, "state", "terminated")
            if waiting := text(status, "state", "waiting", "reason"):
                self.reason = waiting
            elif terminated is not None:
                self.reason = _ending(terminated)
                if whole(terminated, "exitCode"):
                    failure = self.reason
            elif part(status, "ready") is True and part(status, "state", "running") is not None:
                runs = True
                self.ready += 1
        if self.reason == "Completed":
            if runs and _is_true(conditions, "Ready"):
                self.reason = "Running"
            elif failure or runs:
                self.reason = failure or "NotReady"


def _ending(terminated: object) -> str:
    if reason := text(terminated, "reason"):
        return reason
    signal = whole(terminated, "signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{whole(terminated, 'exitCode')}"


def _sidecars(pod: Object) -> set[str]:
    return {
        text(one, "name")
        for one in entries(pod, "spec", "initContainers")
        if text(one, "restartPolicy") == "Always"
    }


def _is_true(conditions: list[object], type_: str) -> bool:
    return any(text(one, "type") == type_ and text(one, "status") == "True" for one in conditions)


def _gates(pod: Object) -> str:
    gates = entries(pod, "spec", "readinessGates")
    if not gates:
        return "<none>"
    conditions = {
        text(one, "type"): text(one, "status") for one in entries(fields(pod, "status"), "conditions")
    }
    met = sum(conditions.get(text(gate, "conditionType")) == "True" for gate in gates)
    return f"{met}/{len(gates)}"
