"""Events about the Node, and its condition: as values, and as the API has them. Pure.

Times are Unix times in seconds, because the cluster reads them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.k8s.objects import maps, text
from devplug.k8s.times import moment, stamp_at

if TYPE_CHECKING:
    from devplug.k8s.objects import Object

CONDITION_TYPE: Final = "DevicesReady"

EVENT_NAMESPACE: Final = "default"
"""Where Events about what is in no namespace have to be (pkg/apis/core/validation/events.go)."""

REPORTER: Final = "devplug"

_NAME_LIMIT: Final = 253
"""Longest name of an object."""

MESSAGE_LIMIT_BYTES: Final = 1024
"""Longest message of an Event (API: NoteLengthLimit, pkg/apis/core/validation/events.go); ours of both."""


# ── values ────────────────────────────────────────────────────────────────────────────────────────


class Reason(StrEnum):
    """Why an Event is written; people select by it, so a word is never given another meaning."""

    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    DEVICE_HEALTHY = "DeviceHealthy"
    DEVICE_ADDED = "DeviceAdded"
    DEVICE_REMOVED = "DeviceRemoved"
    RESOURCE_READY = "ResourceReady"
    RESOURCE_NOT_READY = "ResourceNotReady"
    CONFIG_APPLIED = "ConfigApplied"
    CONFIG_REFUSED = "ConfigRefused"


class Status(StrEnum):
    """What a condition says."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Notice(Struct, frozen=True):
    """Something that happened."""

    reason: Reason
    subject: str
    """The resource name or the file that it happened to: notices with the same two count as one event."""
    message: str
    is_warning: bool = False


class Event(Struct, frozen=True):
    """An Event as it is to stand in the cluster."""

    suffix: str
    """What sets its name apart from those of this machine's others."""
    notice: Notice
    """The last one."""
    count: int
    first_at: float
    last_at: float
    is_new: bool
    """Whether the cluster has none of that name yet."""


class Condition(Struct, frozen=True):
    """The Node's condition as it is to stand in the cluster."""

    status: Status
    reason: str
    message: str
    since: float
    """Since when it has this status."""
    at: float
    """When it was last found to be so: the heartbeat."""


# ── objects of the API ────────────────────────────────────────────────────────────────────────────


def event_name(node_name: str, event: Event) -> str:
    """Return the name of an event, built as kubelets build theirs (client-go tools/record/event.go)."""
    suffix = f".{event.suffix}"
    return node_name[: _NAME_LIMIT - len(suffix)].rstrip(".-") + suffix


def event_object(node_name: str, event: Event) -> Object:
    """Return the Event to create.

    Its Node has its own name as UID, as in a kubelet's: `kubectl describe node` looks for that.
    """
    return {
        "metadata": {"name": event_name(node_name, event), "namespace": EVENT_NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_name},
        "reason": str(event.notice.reason),
        "type": "Warning" if event.notice.is_warning else "Normal",
        "source": {"component": REPORTER, "host": node_name},
        "reportingComponent": REPORTER,
        "reportingInstance": node_name,
        "firstTimestamp": stamp_at(event.first_at),
        **event_patch(event),
    }


def event_patch(event: Event) -> Object:
    """Return what changes in an Event that has happened again."""
    return {
        "count": event.count,
        "lastTimestamp": stamp_at(event.last_at),
        "message": event.notice.message,
    }


def condition_patch(condition: Condition) -> Object:
    """Return the strategic merge patch of a Node's status: conditions are merged by their type."""
    value = {
        "type": CONDITION_TYPE,
        "status": str(condition.status),
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": stamp_at(condition.at),
        "lastTransitionTime": stamp_at(condition.since),
    }
    return {"status": {"conditions": [value]}}


def inherited(condition: Condition, node: Object) -> Condition:
    """Return a daemon's first condition with the time since when the Node has had its status already."""
    for one in maps(node, "status", "conditions"):
        if text(one, "type") == CONDITION_TYPE and text(one, "status") == condition.status:
            if since := moment(text(one, "lastTransitionTime")):
                return replace(condition, since=min(since.timestamp(), condition.since))
            return condition
    return condition
