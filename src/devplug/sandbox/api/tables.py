"""The Table answer (meta.k8s.io/v1), which kubectl prints as columns (internalversion/printers.go).

The columns are in `columns`, the cells of a pod in `podtable`; ages are counted from a moment given in.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from devplug.sandbox.api.columns import COLUMNS, OTHERS
from devplug.sandbox.api.objects import entries, fields, part, text, whole
from devplug.sandbox.api.podtable import pod_cells
from devplug.sandbox.api.selectors import SelectorError, selector_of_object
from devplug.sandbox.api.times import age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = ["IncludeObject", "table"]


class IncludeObject(enum.Enum):
    """How much of an object stands in its row: the `includeObject` of a request."""

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
    told = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [line for key, line in told.items() if key.startswith("limits.")]
    requests = [line for key, line in told.items() if not key.startswith("limits.")]
    return [_name(quota), ", ".join(requests), ", ".join(limits), _age(quota, now)]


def _lease_cells(lease: Object, now: datetime) -> list[object]:
    return [_name(lease), text(lease, "spec", "holderIdentity"), _age(lease, now)]


_CELLS: Mapping[str, Callable[[Object, datetime], list[object]]] = {
    "ConfigMap": _config_map_cells,
    "DaemonSet": _daemon_set_cells,
    "Event": _event_cells,
    "Lease": _lease_cells,
    "Namespace": _namespace_cells,
    "Node": _node_cells,
    "Pod": pod_cells,
    "ResourceQuota": _quota_cells,
}
