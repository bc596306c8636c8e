"""The Table form of objects (meta.k8s.io/v1), which kubectl prints as columns (internalversion/printers.go).

The columns are in `columns`; ages are counted from a moment given in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.k8s.objects import Object, entries, fields, part, text, whole
from devplug.k8s.pod_requests import ALWAYS
from devplug.k8s.times import age, human_duration, moment
from devplug.sandbox.api.columns import COLUMNS, OTHERS
from devplug.sandbox.api.labelselectors import SelectorError, selector_of_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource

# ── Pods (printPod) ──


def _pod_cells(pod: Object, now: datetime) -> list[object]:
    """Return the cells of a pod, the wide ones too."""
    row = _PodStatus(pod)
    row.compute()
    ips = entries(pod, "status", "podIPs")
    restarts = str(row.restarts.count)
    if row.restarts.count and row.restarts.last is not None:
        restarts = f"{restarts} ({human_duration((now - row.restarts.last).total_seconds())} ago)"
    return [
        text(pod, "metadata", "name"),
        f"{row.ready}/{row.total}",
        row.reason,
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
class _PodStatus:
    """The READY, STATUS and RESTARTS of one pod, while they are computed."""

    pod: Object
    reason: str = ""
    ready: int = 0
    total: int = 0
    restarts: _Restarts = field(default_factory=_Restarts)

    def compute(self) -> None:
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
        initializes = self._read_init_containers(sidecars, of_sidecars)
        if not initializes or _is_true(conditions, "Initialized"):
            self.restarts = of_sidecars
            self._read_containers(conditions)
        if part(self.pod, "metadata", "deletionTimestamp") is not None:
            if text(self.pod, "status", "reason") == "NodeLost":
                self.reason = "Unknown"
            elif phase not in {"Failed", "Succeeded"}:
                self.reason = "Terminating"

    def _read_init_containers(self, sidecars: set[str], of_sidecars: _Restarts) -> bool:
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

    def _read_containers(self, conditions: list[object]) -> None:
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
        if text(one, "restartPolicy") == ALWAYS
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


# ── Tables ──


class IncludeObject(enum.Enum):
    """The part of an object that is in its row: the `includeObject` of a request."""

    NONE = "None"
    METADATA = "Metadata"
    OBJECT = "Object"


def table(
    resource: Resource,
    items: Iterable[Object],
    version: str,
    now: datetime,
    include: IncludeObject = IncludeObject.METADATA,
    *,
    with_columns: bool = True,
) -> Object:
    """Return objects as a Table. In a watch only the first one has its columns."""
    columns = COLUMNS.get(resource.kind, OTHERS)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version} if version else {},
        "columnDefinitions": [column.definition for column in columns] if with_columns else None,
        "rows": [_row(resource, one, now, include) for one in items],
    }


def _row(resource: Resource, one: Object, now: datetime, include: IncludeObject) -> Object:
    row: Object = {"cells": _CELLS.get(resource.kind, _other_cells)(one, now)}
    if resource.kind == "Pod" and (condition := _CONDITIONS.get(text(one, "status", "phase"))):
        row["conditions"] = [condition]
    match include:
        case IncludeObject.METADATA:
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": fields(one, "metadata"),
            }
        case IncludeObject.OBJECT:
            row["object"] = one
        case IncludeObject.NONE:
            row["object"] = None
    return row


_CONDITIONS: Mapping[str, Object] = {
    phase: {"type": "Completed", "status": "True", "reason": phase, "message": message}
    for phase, message in (
        ("Succeeded", "The pod has completed successfully."),
        ("Failed", "The pod failed."),
    )
}


def _name(one: Object) -> str:
    return text(one, "metadata", "name")


def _age(one: Object, now: datetime) -> str:
    return age(text(one, "metadata", "creationTimestamp"), now)


def _other_cells(one: Object, now: datetime) -> list[object]:
    return [_name(one), _age(one, now)]


def _node_cells(node: Object, now: datetime) -> list[object]:
    ready = [
        "Ready" if text(condition, "status") == "True" else "NotReady"
        for condition in entries(node, "status", "conditions")
        if text(condition, "type") == "Ready"
    ]
    states = ready[-1:] or ["Unknown"]
    if part(node, "spec", "unschedulable") is True:
        states.append("SchedulingDisabled")
    system = fields(node, "status", "nodeInfo")
    kernel = text(system, "kernelVersion") or "<unknown>"
    if architecture := text(system, "architecture"):
        kernel = f"{kernel} ({architecture})"
    return [
        _name(node),
        ",".join(states),
        ",".join(sorted(_roles(node))) or "<none>",
        _age(node, now),
        text(system, "kubeletVersion"),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        text(system, "osImage") or "<unknown>",
        kernel,
        text(system, "containerRuntimeVersion") or "<unknown>",
    ]


def _roles(node: Object) -> set[str]:
    prefix = "node-role.kubernetes.io/"
    labels = fields(node, "metadata", "labels")
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    return (roles | {text(labels, "kubernetes.io/role")}) - {""}


def _address(node: Object, type_: str) -> str:
    addresses = entries(node, "status", "addresses")
    return next((text(one, "address") for one in addresses if text(one, "type") == type_), "<none>")


def _event_cells(event: Object, now: datetime) -> list[object]:
    """Return the cells of an event in its core form."""
    first = age(text(event, "firstTimestamp") or text(event, "eventTime"), now)
    last = age(text(event, "lastTimestamp"), now) if text(event, "lastTimestamp") else first
    count = whole(event, "count") or 1
    if series := fields(event, "series"):
        last, count = age(text(series, "lastObservedTime"), now), whole(series, "count")
    involved = fields(event, "involvedObject")
    target = text(involved, "kind").lower()
    if name := text(involved, "name"):
        target = f"{target}/{name}"
    component = text(event, "source", "component") or text(event, "reportingComponent")
    host = text(event, "source", "host") or text(event, "reportingInstance")
    return [
        last,
        text(event, "type"),
        text(event, "reason"),
        target,
        text(involved, "fieldPath"),
        f"{component}, {host}" if host else component,
        text(event, "message").strip(),
        first,
        count,
        _name(event),
    ]


def _daemon_set_cells(daemons: Object, now: datetime) -> list[object]:
    status, template = fields(daemons, "status"), fields(daemons, "spec", "template", "spec")
    wanted = fields(template, "nodeSelector")
    containers = entries(template, "containers")
    try:
        selector = str(selector_of_object(part(daemons, "spec", "selector"))) or "<none>"
    except SelectorError:
        selector = "<error>"
    return [
        _name(daemons),
        whole(status, "desiredNumberScheduled"),
        whole(status, "currentNumberScheduled"),
        whole(status, "numberReady"),
        whole(status, "updatedNumberScheduled"),
        whole(status, "numberAvailable"),
        ",".join(f"{key}={wanted[key]}" for key in sorted(wanted)) or "<none>",
        _age(daemons, now),
        ",".join(text(one, "name") for one in containers),
        ",".join(text(one, "image") for one in containers),
        selector,
    ]


def _namespace_cells(namespace: Object, now: datetime) -> list[object]:
    return [_name(namespace), text(namespace, "status", "phase"), _age(namespace, now)]


def _config_map_cells(config: Object, now: datetime) -> list[object]:
    count = len(fields(config, "data")) + len(fields(config, "binaryData"))
    return [_name(config), count, _age(config, now)]


def _quota_cells(quota: Object, now: datetime) -> list[object]:
    hard, used = fields(quota, "status", "hard"), fields(quota, "status", "used")
    cells = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [line for key, line in cells.items() if key.startswith("limits.")]
    requests = [line for key, line in cells.items() if not key.startswith("limits.")]
    return [_name(quota), ", ".join(requests), ", ".join(limits), _age(quota, now)]


def _lease_cells(lease: Object, now: datetime) -> list[object]:
    return [_name(lease), text(lease, "spec", "holderIdentity"), _age(lease, now)]


def _claim_cells(claim: Object, now: datetime) -> list[object]:
    """Return the cells of a ResourceClaim; its states stand in one cell (dra.md D64)."""
    is_deleted = bool(text(claim, "metadata", "deletionTimestamp"))
    states = ["deleted"] if is_deleted else []
    if part(claim, "status", "allocation") is not None:
        states.append("allocated")
        states += ["reserved"] if entries(claim, "status", "reservedFor") else []
    elif not is_deleted:
        states.append("pending")
    return [_name(claim), ",".join(states), _age(claim, now)]


def _slice_cells(devices: Object, now: datetime) -> list[object]:
    spec = fields(devices, "spec")
    pool = text(spec, "pool", "name")
    return [_name(devices), text(spec, "nodeName"), text(spec, "driver"), pool, _age(devices, now)]


def _account_cells(account: Object, now: datetime) -> list[object]:
    return [_name(account), str(len(entries(account, "secrets"))), _age(account, now)]


def _role_cells(role: Object, _: datetime) -> list[object]:
    return [_name(role), text(role, "metadata", "creationTimestamp")]


def _binding_cells(binding: Object, now: datetime) -> list[object]:
    """Return the cells of a binding; a service account is told as `namespace/name`."""
    role = fields(binding, "roleRef")
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for one in entries(binding, "subjects"):
        kind, name = text(one, "kind"), text(one, "name")
        told = f"{text(one, 'namespace')}/{name}" if kind == "ServiceAccount" else name
        subjects.setdefault(kind, []).append(told)
    wide = [", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [_name(binding), f"{text(role, 'kind')}/{text(role, 'name')}", _age(binding, now), *wide]


_CELLS: Mapping[str, Callable[[Object, datetime], list[object]]] = {
    **dict.fromkeys(("ClusterRole", "Role"), _role_cells),
    **dict.fromkeys(("ClusterRoleBinding", "RoleBinding"), _binding_cells),
    "ConfigMap": _config_map_cells,
    "DaemonSet": _daemon_set_cells,
    "Event": _event_cells,
    "Lease": _lease_cells,
    "Namespace": _namespace_cells,
    "Node": _node_cells,
    "Pod": _pod_cells,
    "ResourceClaim": _claim_cells,
    "ResourceQuota": _quota_cells,
    "ResourceSlice": _slice_cells,
    "ServiceAccount": _account_cells,
}
